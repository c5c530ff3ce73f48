"""Training from outside, around a program that only counts: rows, folders, signals, refusals."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from rich.console import Console
from small_runs import NAME, Watcher, config, run_cli, same

import grue
from grue import TrainConfig
from grue.agents.agent import AgentState, RunParameters
from grue.agents.deep import METRICS
from grue.agents.registry import Setup
from grue.cli import entry
from grue.training import events, pieces
from grue.training import trainer as host
from grue.training.algorithm import Program, Run, Sums
from grue.training.checkpoint import saved_steps
from grue.training.metrics import MetricsRow
from grue.training.programs import Built, game_of, program_key
from grue.training.progress import Display
from grue.training.stop import Stop
from grue.training.train import Interrupted, train, train_all
from grue.training.trainer import _pause

# The host's loop, around a program that only counts


COUNTED = (
    *("episodes", "failures", "wins", "score", "fraction", "admissible", "candidates"),
    *("admissible_commands", "updates", "rightly_admitted", "wrongly_admitted"),
    *("wrongly_rejected", "inadmissible_value"),
)
"""The sums of a step."""


class Counting:
    """A program whose weights are the steps it was asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, bool, int]] = []

    def build(self, config: TrainConfig, heads: int, many: bool, explorers: Any) -> Built:
        env = game_of(config)
        key = program_key(config)
        agent = key.make(Setup(env, key.settings, key.gates, heads, explorers))
        program = Program(self.init, self.advance, self.no_sums)
        return Built(env, agent, program)

    def init(self, seed: Any, parameters: RunParameters) -> Run:
        keys = jax.vmap(jax.random.key)(seed) if seed.ndim else jax.random.key(seed)
        weights = jnp.zeros((*seed.shape, 3)) + seed[..., None]
        return Run(parameters, keys, keys, AgentState(weights, ()), ())  # type: ignore

    def advance(self, run: Run, step: Any, learn: bool, steps: int, sums: Sums) -> tuple[Run, Sums]:
        self.calls.append((int(step), learn, steps))
        weights = run.agent.learned + jnp.array([steps, steps * learn, 0])
        following = run._replace(agent=run.agent._replace(learned=weights))
        return following, jax.tree.map(lambda leaf: leaf + 1, sums)

    def no_sums(self, run: Run) -> Sums:
        none = jnp.zeros(run.agent.learned.shape[:-1])
        counted = (*COUNTED, *(metric.name for metric in METRICS))
        return {**dict.fromkeys(counted, none), "heads": jnp.zeros((*none.shape, 5))}


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    program = Counting()
    monkeypatch.setattr(host, "build", program.build)
    monkeypatch.setattr(pieces, "FIRST_CYCLES", 10**6)  # A row is one piece.
    return program


def test_learning_starts_with_a_row(counting: Counting) -> None:
    train(config(learning_starts=400, steps=800))
    assert counting.calls == [
        (0, False, 200),
        (200, False, 200),
        (400, True, 200),
        (600, True, 200),
    ]


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


def test_a_signal_inside_also_asks_outside() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Stop() as outer:
        with Stop() as inner:
            signal.raise_signal(signal.SIGINT)
        assert (outer.asked, inner.asked) == (True, True)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    with Stop() as outer:
        with Stop():
            pass
        assert not outer.asked


def test_runs_after_an_interrupted_one_are_not_begun(counting, tmp_path: Path) -> None:
    watcher = Watcher(lambda step: os.kill(os.getpid(), signal.SIGINT) if step == 400 else None)
    with pytest.raises(Interrupted):
        train(config(seeds=(0, 1), steps=400), tmp_path, progress=watcher)
    assert [child.name for child in tmp_path.iterdir()] == [NAME]
    watcher = Watcher()
    train(config(seeds=(0, 1), steps=400), tmp_path, resume=True, progress=watcher)
    assert watcher.said == [f"{NAME} is finished: 400 steps"]
    assert watcher.begun == [(["saladworld-1-sc-masking-seed1"], 0, 400)]


@pytest.mark.parametrize("where", ["checkpoint", "metrics"])
def test_a_full_disk(where: str, counting, tmp_path: Path, monkeypatch, capsys) -> None:
    fsync, calls = os.fsync, []

    def full(handle: int) -> None:
        """The disk is full at the third checkpoint: while its rows are written, or it itself."""
        name = os.readlink(f"/proc/self/fd/{handle}")
        rows = name.endswith("metrics.jsonl")
        if rows if where == "metrics" else ".npz." in name:
            calls.append(name)
            if len(calls) == 3:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    options = ["--steps", "1000", "--out", str(tmp_path), "--checkpoint-seconds", "0"]
    code, out, line = run_cli(capsys, *options)
    folder = tmp_path / NAME
    assert (code, out) == (1, "")
    file = folder / "checkpoint" / "step-000000600.npz" if where == "checkpoint" else folder
    assert line == (
        f"grue: {file}: No space left on device; the checkpoint of step 400 is intact: "
        "fix this and go on with --resume"
    )
    assert len(calls) == 3
    assert saved_steps(folder / "checkpoint") == [200, 400]
    assert not [path for path in folder.rglob("*") if path.name.endswith(".partial")]

    assert run_cli(capsys, *options, "--resume")[0] == 0
    train(config(steps=1000), tmp_path / "straight")
    same(folder, tmp_path / "straight" / NAME)


def test_a_resumed_run_has_one_file_of_events(counting, tmp_path: Path) -> None:
    folder = tmp_path / NAME
    sizes = []
    for steps in (400, 600):
        train(config(steps=steps), tmp_path, resume=True)
        [events_file] = folder.glob("events.out.tfevents.*")
        sizes.append(events_file.stat().st_size)
    train(config(steps=600), tmp_path / "straight")
    [straight] = (tmp_path / "straight" / NAME).glob("events.out.tfevents.*")
    assert sizes[0] < sizes[1] == straight.stat().st_size


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
    assert entry.main(arguments) == 2
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


# What is seen of it


ROW: MetricsRow = {
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
    told = "ε 0.40, score 6.5, fraction 0.35, q loss 0.012"
    assert shown.getvalue().splitlines() == [
        f"{NAME}: step 0/6000, compiling",
        f"{NAME}: step 200/6000, 7 steps/s, {told}",
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
    assert text[0].endswith("1000/1300000")
    assert text[1] == ("200 steps/s, ε 0.40, score 6.5, fraction 0.35, q loss 0.012")


def test_large_checkpoints_are_written_less_often() -> None:
    assert _pause(60.0, 0.5) == 60.0
    assert _pause(0.0, 0.5) == 0.0
    assert _pause(60.0, 2.0) == 60.0
    assert _pause(60.0, 9.0) == 180.0
