"""Training from outside: results, resuming after any end, refusals.

All real runs here are of the same few programs, so that each is compiled once: processes find them
in a cache of JAX.
"""

from __future__ import annotations

import errno
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import grue
from grue import TrainConfig, cli
from grue.agents.agent import AgentState, Condition, Losses
from grue.training import events, programs
from grue.training import train as host
from grue.training.algorithm import Program, Run, Sums
from grue.training.checkpoint import saved_steps
from grue.training.metrics import AVERAGED, COLUMNS, COUNTS, Row
from grue.training.programs import Built, build, condition_of, open_game
from grue.training.progress import Display
from grue.training.runs import load_state, read_run
from grue.training.train import Interrupted, _pause, train, train_all

NAME = "saladworld-1-sc-masking-seed0"
SETTINGS = {
    "embedding": 4,
    "encoder": 8,
    "context": 8,
    "hidden": 8,
    "batch_size": 4,
    "replay_steps": 2000,
    "metrics_every": 200,
    "average_over": 2000,
    "target_every": 200,
    "learning_starts": 200,
    "epsilon_steps": 3000,
}
ARGUMENTS = ["train", "saladworld-1", "--gate", "masking", "--preset", "paper"]
ARGUMENTS += [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]


def config(**values: Any) -> TrainConfig:
    return TrainConfig(**{"gate": "masking", "steps": 2000, **SETTINGS, **values})


def arrays(folder: Path) -> dict[str, tuple[Any, ...]]:
    """All that the latest checkpoint holds, to the bit."""
    steps = saved_steps(folder / "checkpoint")
    with np.load(folder / "checkpoint" / f"step-{steps[-1]:09}.npz") as archive:
        return {name: (a.dtype, a.shape, a.tobytes()) for name, a in archive.items()}


def same(one: Path, other: Path) -> None:
    """Two runs are equal bit for bit."""
    assert (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    assert arrays(one) == arrays(other)
    assert (one / "config.json").read_bytes() == (other / "config.json").read_bytes()


def nearly_same(one: Path, other: Path, rows: int) -> None:
    """The same play; sums in another order."""
    a, b = read_run(one).metrics, read_run(other).metrics
    for name in COLUMNS:
        if name in COUNTS:
            np.testing.assert_array_equal(a[name][:rows], b[name][:rows])
        else:
            np.testing.assert_allclose(a[name][:rows], b[name][:rows], rtol=1e-4, atol=1e-5)


class Watcher:
    """Notes what training tells, and calls something after every row."""

    def __init__(self, then: Callable[[int], None] | None = None) -> None:
        self.then = then
        self.begun: list[tuple[list[str], int, int]] = []
        self.said: list[str] = []
        self.steps: list[int] = []

    def begin(self, names: Sequence[str], step: int, steps: int) -> None:
        self.begun.append((list(names), step, steps))

    def update(self, step: int, rows: Sequence[Row]) -> None:
        self.steps.append(step)
        if self.then is not None:
            self.then(step)

    def say(self, line: str) -> None:
        self.said.append(line)


# The host's loop, around a program that only counts


class Counting:
    """A program whose weights are the steps it was asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, bool, int]] = []
        self.copies: list[int] = []

    def build(self, config: TrainConfig, heads: int, many: bool) -> Built:
        env = open_game(config.game, config.episode_steps)
        agent = programs.make_agent("sc", env, replace(config, heads=heads))
        return Built(env, agent, Program(self.init, self.advance, self.copy_to_target))

    def init(self, seed: Any, condition: Condition) -> Run:
        keys = jax.vmap(jax.random.key)(seed) if seed.ndim else jax.random.key(seed)
        weights = jnp.zeros((*seed.shape, 3)) + seed[..., None]
        return Run(condition, keys, keys, AgentState(weights, ()), ())  # type: ignore

    def advance(self, run: Run, step: Any, learn: bool, steps: int) -> tuple[Run, Sums]:
        self.calls.append((int(step), learn, steps))
        weights = run.agent.learned + jnp.array([steps, steps * learn, 0])
        one = jnp.ones(weights.shape[:-1])
        numbers: dict[str, Any] = dict.fromkeys(Sums._fields, one)
        heads = jnp.ones((*one.shape, 5))
        sums = Sums(**numbers | {"heads": heads, "losses": Losses(one, one, one)})
        return run._replace(agent=run.agent._replace(learned=weights)), sums

    def copy_to_target(self, run: Run) -> Run:
        self.copies.append(len(self.calls))
        return run


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    program = Counting()
    monkeypatch.setattr(host, "build", program.build)
    return program


def test_learning_starts_with_a_row(counting: Counting) -> None:
    train(config(learning_starts=400, steps=800))
    assert counting.calls == [
        (0, False, 200),
        (200, False, 200),
        (400, True, 200),
        (600, True, 200),
    ]
    assert counting.copies == []  # advance copies by itself.


def test_targets_that_are_copied_less_often_than_rows_end(counting: Counting) -> None:
    train(config(learning_starts=400, target_every=400, steps=2000))
    # After 800, 1200, 1600 and 2000 steps; nothing had been learned at 400.
    assert counting.copies == [4, 6, 8, 10]


def test_groups(counting: Counting, tmp_path: Path) -> None:
    configs = [config(seeds=(0, 1), steps=400), config(agent="drqn", gate="none", steps=400)]
    watcher = Watcher()
    result = train_all(configs, tmp_path, together=True, progress=watcher)
    names = [NAME, "saladworld-1-sc-masking-seed1", "saladworld-1-drqn-none-seed0"]
    assert watcher.begun == [(names, 0, 400)]
    assert [run.folder for run in result.runs] == [tmp_path / name for name in names]
    assert [run.seed for run in result.runs] == [0, 1, 0]
    assert [run.metrics["heads"].shape for run in result.runs] == [(2, 5), (2, 5), (2, 1)]

    watcher = Watcher()
    train_all(configs, tmp_path / "apart", together=False, progress=watcher)
    assert watcher.begun == [([name], 0, 400) for name in names]
    # On a CPU that is the default.
    watcher = Watcher()
    train_all(configs, progress=watcher)
    assert len(watcher.begun) == 3
    for name in names:
        one = tmp_path / name / "metrics.jsonl"
        assert one.read_bytes() == (tmp_path / "apart" / name / "metrics.jsonl").read_bytes()


def test_nothing_is_written_without_a_folder(counting: Counting, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = train(config(steps=400))
    assert list(tmp_path.iterdir()) == []
    assert result.runs[0].folder is None
    with pytest.raises(grue.UsageError, match="only runs that were written can be resumed"):
        train(config(steps=400), resume=True)


def test_checkpoints_come_with_time_and_two_stay(counting: Counting, tmp_path: Path) -> None:
    seen: list[list[int]] = []
    folder = tmp_path / NAME / "checkpoint"
    watcher = Watcher(lambda step: seen.append(saved_steps(folder)))
    train(config(steps=1000), tmp_path, progress=watcher, checkpoint_seconds=0.0)
    assert seen == [[], [200], [200, 400], [400, 600], [600, 800]]
    assert saved_steps(folder) == [800, 1000]

    shutil.rmtree(tmp_path / NAME)
    seen.clear()
    train(config(steps=1000), tmp_path, progress=watcher, checkpoint_seconds=1000.0)
    assert seen == [[]] * 5
    assert saved_steps(folder) == [1000]
    with pytest.raises(grue.UsageError, match="checkpoint_seconds must be at least 0, not nan"):
        train(config(), tmp_path, checkpoint_seconds=float("nan"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_heeded_after_the_row(number: int, counting, tmp_path: Path) -> None:
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]

    def interrupt(step: int) -> None:
        if step == 600:
            os.kill(os.getpid(), number)

    with pytest.raises(Interrupted, match="interrupted at step 600 of 1000; resume to go on"):
        train(config(steps=1000), tmp_path, progress=Watcher(interrupt))
    assert saved_steps(tmp_path / NAME / "checkpoint") == [600]
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before

    train(config(steps=1000), tmp_path, resume=True)
    train(config(steps=1000), tmp_path / "straight")
    same(tmp_path / NAME, tmp_path / "straight" / NAME)


def test_a_second_signal_acts_at_once(counting: Counting, tmp_path: Path) -> None:
    def interrupt(step: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        train(config(), tmp_path, progress=Watcher(interrupt))
    assert not isinstance(caught.value, Interrupted)
    assert saved_steps(tmp_path / NAME / "checkpoint") == []


def test_runs_after_an_interrupted_one_are_not_begun(counting, tmp_path: Path) -> None:
    watcher = Watcher(lambda step: os.kill(os.getpid(), signal.SIGINT) if step == 400 else None)
    with pytest.raises(Interrupted):
        train(config(seeds=(0, 1), steps=400), tmp_path, progress=watcher)
    assert [child.name for child in tmp_path.iterdir()] == [NAME]
    watcher = Watcher()
    train(config(seeds=(0, 1), steps=400), tmp_path, resume=True, progress=watcher)
    assert watcher.said == [f"{NAME} is finished: 400 steps"]
    assert watcher.begun == [(["saladworld-1-sc-masking-seed1"], 0, 400)]


def run_cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main([*ARGUMENTS, *arguments])
    told = capsys.readouterr()
    return code, told.out, told.err.splitlines()[-1] if told.err else ""


@pytest.mark.parametrize("where", ["checkpoint", "metrics"])
def test_a_full_disk(where: str, counting, tmp_path: Path, monkeypatch, capsys) -> None:
    fsync, calls = os.fsync, []

    def full(handle: int) -> None:
        """The disk is full at the third checkpoint: while its rows are written, or it itself."""
        name = os.readlink(f"/proc/self/fd/{handle}")
        if name.endswith("metrics.jsonl" if where == "metrics" else ".npz.partial"):
            calls.append(name)
            if len(calls) == 3:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    options = ["--steps", "1000", "--out", str(tmp_path), "--checkpoint-seconds", "0"]
    code, out, line = run_cli(capsys, *options)
    folder = tmp_path / NAME
    assert (code, out) == (1, "")
    assert line == (
        f"grue: {folder}: No space left on device; what was saved before is whole: "
        "mend this and go on with --resume"
    )
    assert len(calls) == 3
    assert saved_steps(folder / "checkpoint") == [200, 400]
    assert not [path for path in folder.rglob("*") if path.name.endswith(".partial")]

    assert run_cli(capsys, *options, "--resume")[0] == 0
    train(config(steps=1000), tmp_path / "straight")
    same(folder, tmp_path / "straight" / NAME)


def test_events_are_written_anew_for_every_process(counting, tmp_path: Path, monkeypatch) -> None:
    train(config(steps=400), tmp_path)
    folder = tmp_path / NAME
    assert len(list(folder.glob("events.out.tfevents.*"))) == 1
    monkeypatch.setattr(os, "getpid", lambda: 1)
    train(config(steps=600), tmp_path, resume=True)
    assert len(list(folder.glob("events.out.tfevents.*"))) == 2


def test_without_tensorboardx_one_line_is_said(counting, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(events, "installed", lambda: False)
    watcher = Watcher()
    train(config(steps=400, seeds=(0, 1)), tmp_path, progress=watcher)
    assert watcher.said == ["tensorboardX is not installed: no TensorBoard events are written"]
    assert not list(tmp_path.rglob("events*"))


def test_other_versions_are_recorded(counting, tmp_path: Path, monkeypatch) -> None:
    train(config(steps=400), tmp_path)
    first = json.loads((tmp_path / NAME / "config.json").read_text())["about"]
    train(config(steps=600), tmp_path, resume=True)
    stored = json.loads((tmp_path / NAME / "config.json").read_text())
    assert (stored["steps"], stored["about"]) == (600, first)

    other = {**host.provenance(), "device": "abacus"}
    monkeypatch.setattr(host, "provenance", lambda: other)
    for steps in (800, 1000):
        train(config(steps=steps), tmp_path, resume=True)
    stored = json.loads((tmp_path / NAME / "config.json").read_text())
    again = {"step": 600, **other, "game_hash": first["game_hash"]}
    assert stored["about"] == {**first, "resumed": [again]}
    assert stored["steps"] == 1000


# Refusals, before anything is built


def refused(capsys: pytest.CaptureFixture[str], arguments: Sequence[str]) -> str:
    assert cli.main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["saladwrld-1"], "there is no game 'saladwrld-1': did you mean saladworld-1?"),
        (["nowhere/lamps.z8"], "nowhere/lamps.z8"),
        (["saladworld-1", "--agent", "scc"], "there is no agent 'scc'; there are tabular, "),
        (["saladworld-1", "--gates", "none,mask"], "there is no gate 'mask'; there are none, "),
        (["saladworld-1", "--preset", "big"], "there is no preset 'big'; there are paper, small"),
        (["saladworld-1", "--set", "contxt=3"], "the nearest is 'context'"),
        (["saladworld-1", "--steps", "1500"], "steps must be a multiple of metrics_every"),
        (["saladworld-1", "--steps", "x"], "--steps"),
        (["saladworld-1", "--seeds", "a"], "seeds are numbers from 0 on"),
        (["saladworld-1", "--seeds", "0,0"], "seeds must be some different numbers"),
        (["saladworld-1", "--agent", "sc", "--agents", "sc"], "give --agent or --agents"),
        (
            ["saladworld-1", "--set", "learning_starts=0"],
            "learning_starts must be at least 100, the steps of an episode, not 0",
        ),
        (
            ["saladworld-2", "--set", "learning_starts=1000", "--set", "episode_steps=1001"],
            "learning_starts must be at least 1001, the steps of an episode, not 1000",
        ),
        (
            ["saladworld-2", "--set", "replay_steps=400"],
            "replay_steps must be at least 402, two episodes, not 400",
        ),
        (["saladworld-1", "--checkpoint-seconds", "-1"], "--checkpoint-seconds"),
    ],
)
def test_refused(arguments: list[str], reason: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(host, "build", None)
    assert reason in refused(capsys, ["train", *arguments])
    assert list(tmp_path.iterdir()) == []


def test_folders_that_are_there(counting: Counting, tmp_path: Path, capsys) -> None:
    options = ["--out", str(tmp_path), "--steps", "400"]
    folder = tmp_path / NAME
    # With --resume and no folder yet the run begins.
    assert run_cli(capsys, *options, "--resume")[0] == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    line = f"grue: {folder} exists; use --resume to go on with it, or another --out"
    assert run_cli(capsys, *options) == (2, "", line)
    # One folder that is there: no run begins.
    assert run_cli(capsys, *options, "--seeds", "1,0") == (2, "", line)
    assert [child.name for child in tmp_path.iterdir()] == [NAME]
    line = f"grue: {folder} was trained with context 8, not 9; go on with the old value or train"
    code, _, told = run_cli(capsys, *options, "--resume", "--set", "context=9")
    assert (code, told) == (2, f"{line} into another --out")
    code, _, told = run_cli(capsys, "--out", str(tmp_path), "--steps", "200", "--resume")
    assert (code, "with steps 400, not 200; it may only grow" in told) == (2, True)
    (tmp_path / NAME.replace("seed0", "seed1")).mkdir()
    code, _, told = run_cli(capsys, *options, "--seeds", "1", "--resume")
    assert (code, told.endswith("is no run folder: it has no config.json")) == (2, True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before

    # A finished run: nothing happens, and the table is there all the same.
    count = len(counting.calls)
    code, out, told = run_cli(capsys, *options, "--resume")
    assert (code, told) == (0, f"{NAME} is finished: 400 steps")
    assert len(counting.calls) == count
    assert [cell.strip() for cell in out.splitlines()[3].split("│")[1:-1]] == [
        *(NAME, "400", "2", "1.00", "1.000", str(folder))
    ]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_file_in_the_folders_place(tmp_path: Path, capsys) -> None:
    (tmp_path / "runs").write_text("mine")
    code, _, told = run_cli(capsys, "--out", str(tmp_path / "runs"))
    assert (code, told) == (2, f"grue: {tmp_path}/runs is no folder; give another --out")
    assert (tmp_path / "runs").read_text() == "mine"


def test_two_runs_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(grue.UsageError, match=f"two runs are called {NAME}"):
        train_all([config(), config(context=9)], tmp_path)
    assert list(tmp_path.iterdir()) == []


# Real runs


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Compiled programs are shared with processes; gives their environment."""
    from jax.experimental.compilation_cache import compilation_cache

    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    values = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.5,
    }
    before = {name: getattr(jax.config, name) for name in values}
    for name, value in values.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield {**os.environ, **{name.upper(): str(value) for name, value in values.items()}}
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture(scope="module")
def whole(cache: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 6000 steps that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole")
    train(config(steps=6000), out)
    return out / NAME


@pytest.fixture(scope="module")
def straight(cache: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 2000 steps that nothing interrupted."""
    out = tmp_path_factory.mktemp("straight")
    train(config(), out)
    return out / NAME


@pytest.mark.slow
def test_a_run_folder_and_its_result(cache: dict[str, str], straight: Path, tmp_path) -> None:
    (run,) = train(config(), tmp_path).runs
    folder = tmp_path / NAME
    same(folder, straight)  # The same seed is the same run.
    assert run.folder == folder
    assert {child.name.split(".")[0] for child in folder.iterdir()} == {
        *("config", "metrics", "events", "checkpoint")
    }
    assert [path.name for path in (folder / "checkpoint").iterdir()] == ["step-000002000.npz"]

    assert tuple(run.metrics) == COLUMNS
    np.testing.assert_array_equal(run.metrics["step"], np.arange(200, 2001, 200))
    # Episodes have at most 100 steps; the first row learns nothing.
    assert (run.metrics["episodes"] >= 2).all()
    np.testing.assert_array_equal(run.metrics["updates"], [0] + [50] * 9)
    assert np.isnan(run.metrics["q_loss"][0])
    assert np.isfinite(run.metrics["q_loss"][1:]).all()
    np.testing.assert_allclose(run.metrics["heads"].sum(1), 1.0)
    np.testing.assert_allclose(run.metrics["epsilon"][-1], 0.4)
    steps, curve = run.curve("fraction")
    np.testing.assert_array_equal(steps, run.metrics["step"])
    np.testing.assert_array_equal(curve, run.metrics["fraction_average"])
    assert set(run.final) == set(AVERAGED)
    assert run.final["fraction"] == curve[-1]
    stored = read_run(folder)
    for name in COLUMNS:
        np.testing.assert_array_equal(stored.metrics[name], run.metrics[name])

    text = (folder / "metrics.jsonl").read_text()
    assert not re.search("time|second", text)  # Nothing that differs from day to day.


@pytest.mark.slow
def test_what_a_run_learned(cache: dict[str, str], straight: Path) -> None:
    """From a folder and from memory."""
    stored = load_state(straight)
    (run, other) = train(config(seeds=(0, 1))).runs
    env, agent, state, condition, step = run.trained
    assert (step, stored[4], run.folder) == (2000, 2000, None)
    for ours, theirs in zip(
        jax.tree.leaves((state, condition)), jax.tree.leaves(stored[2:4]), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert int(state.kept.replay.written) > 2000
    assert int(condition.gate) == 3
    assert agent.heads == 5
    assert env.episode_steps == 100

    assert [run.seed, other.seed] == [0, 1]
    assert (run.metrics["q_loss"][1:] != other.metrics["q_loss"][1:]).all()
    assert (run.metrics["admissible"] != other.metrics["admissible"]).any()


def start(out: Path, environment: dict[str, str], *more: str) -> subprocess.Popen[str]:
    """A real process that trains, with a checkpoint every moment."""
    options = ["--steps", "6000", "--out", str(out), "--checkpoint-seconds", "0", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "grue.cli", *ARGUMENTS, *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_rows(process: subprocess.Popen[str], out: Path, number: int) -> None:
    path = out / NAME / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while not path.exists() or path.read_bytes().count(b"\n") < number:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_every_way_to_end(cache, whole: Path, tmp_path: Path, rng: random.Random, capsys) -> None:
    """Killed at some moment, resumed and stopped twice, resumed: equal to an untouched run."""
    folder = tmp_path / NAME
    process = start(tmp_path, cache)
    wait_for_rows(process, tmp_path, rng.randint(3, 12))
    time.sleep(rng.uniform(0.0, 0.2))
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL

    step = saved_steps(folder / "checkpoint")[-1]
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start(tmp_path, cache, "--resume")
        wait_for_rows(process, tmp_path, step // 200 + 3)
        process.send_signal(number)
        out, error = process.communicate(timeout=300)
        assert (process.returncode, out) == (130, "")
        assert "Traceback" not in error
        begun = re.findall(r"step (\d+)/6000, compiling", error)
        assert begun == [str(step)]  # It did go on.
        step = saved_steps(folder / "checkpoint")[-1]
        assert error.splitlines()[-1] == (
            f"grue: interrupted at step {step} of 6000; the same command with --resume goes on"
        )
        assert read_run(folder).metrics["step"][-1] == step

    options = ["--steps", "6000", "--out", str(tmp_path), "--resume"]
    code, out, _ = run_cli(capsys, *options)
    assert code == 0
    assert NAME in out
    same(folder, whole)
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".partial")]


@pytest.mark.slow
def test_damaged_checkpoints_and_more_steps(straight: Path, tmp_path: Path, capsys) -> None:
    train(config(steps=1200), tmp_path, checkpoint_seconds=0.0)
    folder = tmp_path / NAME
    older, newer = sorted((folder / "checkpoint").iterdir())
    assert (older.name, newer.name) == ("step-000001000.npz", "step-000001200.npz")
    good = newer.read_bytes()
    middle = len(good) // 2
    flipped = good[:middle] + bytes([good[middle] ^ 16]) + good[middle + 1 :]
    options = ["--steps", "2000", "--out", str(tmp_path), "--resume"]
    for bad in (good[:middle], flipped, b""):
        newer.write_bytes(bad)
        code, out, line = run_cli(capsys, *options)
        assert (code, out) == (1, "")
        assert line.startswith(f"grue: the checkpoint {newer} is damaged or of another kind (")
        assert line.endswith("delete it to go on from step 1000")
        assert newer.read_bytes() == bad
    newer.unlink()
    watcher = Watcher()
    train(config(), tmp_path, resume=True, progress=watcher)
    assert watcher.begun == [([NAME], 1000, 2000)]
    same(folder, straight)


@pytest.mark.slow
def test_the_scanned_window_is_the_steps_one_by_one(cache: dict[str, str]) -> None:
    """A window of 200 steps equals 50 cycles of four steps and an update.

    All that is counted and every choice is equal; weights and losses to 1e-6, as XLA may add up in
    another order.
    """
    program = build(config(), 5, many=False).program

    def at_200() -> Run:
        run = program.init(jnp.int32(0), condition_of(config(), 5))
        return program.advance(run, jnp.int32(0), False, 200)[0]

    scanned, sums = program.advance(at_200(), jnp.int32(200), True, 200)
    run, parts = at_200(), []
    for step in range(200, 400, 4):
        run, part = program.advance(run, jnp.int32(step), True, 4)
        parts.append(part)
    run = program.copy_to_target(run)
    total = jax.tree.map(lambda *leaves: np.sum(leaves, axis=0), *parts)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), sums, total)
    assert sums.updates == 50

    together = zip(jax.tree.leaves(scanned), jax.tree.leaves(run), strict=True)
    for a, b in together:
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        if jnp.issubdtype(a.dtype, jnp.floating):
            np.testing.assert_allclose(a, b, atol=1e-6)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_memory_is_flat_and_sums_are_all_that_is_fetched(cache, monkeypatch) -> None:
    fetched: list[Any] = []
    held: list[int] = []
    device_get = jax.device_get

    def note(tree: Any) -> Any:
        fetched.append(tree)
        return device_get(tree)

    monkeypatch.setattr(jax, "device_get", note)

    def measure(step: int) -> None:
        assert [type(tree) for tree in fetched] == [Sums]
        fetched.clear()
        held.append(sum(array.nbytes for array in jax.live_arrays()))

    train(config(), progress=Watcher(measure))
    assert len(held) == 10
    assert len(set(held[2:])) == 1


@pytest.mark.slow
def test_side_by_side(cache: dict[str, str], whole: Path, tmp_path: Path) -> None:
    """Runs of one program: as alone, with checkpoints of their own, resumed bit for bit."""
    drqn = "saladworld-1-drqn-none-seed1"

    def two(steps: int) -> list[TrainConfig]:
        return [config(steps=steps), config(steps=steps, agent="drqn", gate="none", seeds=(1,))]

    train_all(two(1200), tmp_path / "a", together=True, checkpoint_seconds=0.0)
    nearly_same(tmp_path / "a" / NAME, whole, rows=6)
    assert read_run(tmp_path / "a" / drqn).metrics["heads"].tolist() == [[1.0]] * 6
    for name in (NAME, drqn):
        assert saved_steps(tmp_path / "a" / name / "checkpoint") == [1000, 1200]
        assert load_state(tmp_path / "a" / name)[1].heads == 5

    # Stopped together and resumed together.
    train_all(two(400), tmp_path / "b", together=True)
    shutil.copytree(tmp_path / "b", tmp_path / "c")
    train_all(two(1200), tmp_path / "b", resume=True, together=True)
    # Killed between the last checkpoint of one and of the other.
    shutil.copytree(tmp_path / "a", tmp_path / "d")
    (tmp_path / "d" / drqn / "checkpoint" / "step-000001200.npz").unlink()
    watcher = Watcher()
    train_all(two(1200), tmp_path / "d", resume=True, together=True, progress=watcher)
    assert watcher.begun == [([NAME, drqn], 1000, 1200)]
    for name in (NAME, drqn):
        same(tmp_path / "b" / name, tmp_path / "a" / name)
        same(tmp_path / "d" / name, tmp_path / "a" / name)

    # Stopped together and resumed one by one, with the weights of five heads.
    train_all(two(1200), tmp_path / "c", resume=True, together=False)
    for name in (NAME, drqn):
        nearly_same(tmp_path / "c" / name, tmp_path / "a" / name, rows=6)


# What is seen of it


ROW: Row = {
    "epsilon": 0.4,
    "score_average": 6.54,
    "fraction_average": 0.351,
    "q_loss": 0.0123,
    "classifier_loss": None,
}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that is set by hand."""
    now = [0.0]
    monkeypatch.setattr("grue.training.progress.time.monotonic", lambda: now[0])
    return now


def test_plain_lines(clock: list[float]) -> None:
    shown = io.StringIO()
    other = ROW | {"score_average": 7.54, "fraction_average": None}
    with Display(Console(file=shown, width=40)) as display:
        display.begin([NAME], 0, 6000)
        for clock[0], step in [(30.0, 200), (34.0, 400), (36.0, 600), (38.0, 800)]:
            display.update(step, [ROW])
        for clock[0], step in [(42.0, 1000), (46.0, 6000)]:
            display.update(step, [ROW])
        display.begin([NAME, "another"], 200, 400)
        clock[0] = 48.0
        display.update(400, [ROW, other])
        display.say("[done]")
    told = "ε 0.40, score 6.5, fraction 0.35, q loss 0.012, classifier -"
    assert shown.getvalue().splitlines() == [
        f"{NAME}: step 0/6000, compiling",
        f"{NAME}: step 200/6000, 7 steps/s, {told}, 14 min 30 s left",
        f"{NAME}: step 1000/6000, 50 steps/s, {told}, 1 min 40 s left",
        f"{NAME}: step 6000/6000, 75 steps/s, {told}",
        "2 runs: step 200/400, compiling",
        f"2 runs: step 400/400, 200 steps/s, {told.replace('6.5', '7.0')}",
        "[done]",
    ]


def test_a_bar_in_a_terminal(clock: list[float]) -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=80, force_terminal=True, color_system=None)
    with Display(console) as display:
        display.begin([NAME], 0, 1_300_000)
        clock[0] = 5.0
        display.update(1000, [ROW])
        assert display._bar is not None
        lines = console.render_lines(display._bar.get_renderable(), pad=False)
    text = ["".join(segment.text for segment in line).rstrip() for line in lines]
    assert text[0].startswith(NAME)
    assert text[0].endswith("1000/1300000 1 h 48 min left")
    assert text[1] == ("200 steps/s, ε 0.40, score 6.5, fraction 0.35, q loss 0.012, classifier -")


def test_large_checkpoints_are_written_less_often() -> None:
    assert _pause(60.0, 0.5) == 60.0
    assert _pause(0.0, 0.5) == 0.0
    assert _pause(60.0, 2.0) == 60.0
    assert _pause(60.0, 9.0) == 180.0
