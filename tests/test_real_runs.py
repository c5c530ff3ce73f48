"""Real training from outside: results, resuming after any end, runs side by side.

All runs here are of the same few programs, so that each is compiled once: processes find them in a
cache of JAX (conftest.py).
"""

from __future__ import annotations

import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_runs import ARGUMENTS, NAME, TINY_STEPS, Watcher, config, nearly_same, run_cli, same

from grue import TrainConfig
from grue.training.algorithm import Run
from grue.training.checkpoint import saved_steps
from grue.training.metrics import averaged, columns_of
from grue.training.programs import build, parameters_of
from grue.training.runs import load_state, read_run
from grue.training.train import train, train_all


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 6000 steps that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole")
    train(config(steps=6000), out)
    return out / NAME


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 2000 steps that nothing interrupted."""
    out = tmp_path_factory.mktemp("straight")
    train(config(), out)
    return out / NAME


@pytest.mark.slow
def test_a_run_folder_and_its_result(straight: Path, tmp_path: Path) -> None:
    (run,) = train(config(), tmp_path).runs
    folder = tmp_path / NAME
    same(folder, straight)  # The same seed is the same run.
    assert run.folder == folder
    assert {child.name.split(".")[0] for child in folder.iterdir()} == {
        *("config", "metrics", "events", "checkpoint")
    }
    assert [path.name for path in (folder / "checkpoint").iterdir()] == ["step-000002000.npz"]

    columns = ["step", "seed", *(metric.name for metric in columns_of(run.config))]
    assert list(run.metrics) == columns
    np.testing.assert_array_equal(run.metrics["step"], np.arange(200, 2001, 200))
    # Episodes have at most 45 steps; the first row learns nothing.
    assert (run.metrics["episodes"] >= 4).all()
    np.testing.assert_array_equal(run.metrics["updates"], [0] + [50] * 9)
    assert np.isnan(run.metrics["q_loss"][0])
    assert np.isfinite(run.metrics["q_loss"][1:]).all()
    np.testing.assert_allclose(run.metrics["heads"].sum(1), 1.0)
    np.testing.assert_allclose(run.metrics["epsilon"][-1], 0.4)
    steps, curve = run.curve("fraction")
    np.testing.assert_array_equal(steps, run.metrics["step"])
    np.testing.assert_array_equal(curve, run.metrics["fraction_average"])
    assert set(run.final) == set(averaged(run.config))
    assert run.final["fraction"] == curve[-1]
    stored = read_run(folder)
    for name in columns:
        np.testing.assert_array_equal(stored.metrics[name], run.metrics[name])

    text = (folder / "metrics.jsonl").read_text()
    assert not re.search("time|second", text)  # Nothing that differs from day to day.


@pytest.mark.slow
def test_what_a_run_learned(straight: Path) -> None:
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
    assert env.episode_steps == TINY_STEPS

    assert [run.seed, other.seed] == [0, 1]
    assert (run.metrics["q_loss"][1:] != other.metrics["q_loss"][1:]).all()
    assert (run.metrics["admissible"] != other.metrics["admissible"]).any()


def start(out: Path, *more: str) -> subprocess.Popen[str]:
    """A real process that trains, with a checkpoint every moment."""
    options = ["--steps", "6000", "--out", str(out), "--checkpoint-seconds", "0", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "grue.cli", *ARGUMENTS, *options],
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
def test_every_way_to_end(whole: Path, tmp_path: Path, rng: random.Random, capsys) -> None:
    """Killed at some moment, resumed and stopped twice, resumed: equal to an untouched run."""
    folder = tmp_path / NAME
    process = start(tmp_path)
    wait_for_rows(process, tmp_path, rng.randint(3, 12))
    time.sleep(rng.uniform(0.0, 0.2))
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL

    step = saved_steps(folder / "checkpoint")[-1]
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start(tmp_path, "--resume")
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


def test_an_impatient_ctrl_c(tmp_path: Path) -> None:
    """Pressed again and again while the program is built, and while the process ends."""
    process = start(tmp_path)
    wait_for_rows(process, tmp_path, 0)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.03)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in error
    assert error.splitlines()[-1].startswith("grue: interrupted")


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
def test_the_scanned_window_is_the_steps_one_by_one() -> None:
    """A window of 200 steps equals pieces of it, to the bit, wherever it is cut."""
    program = build(config(), 5, many=False).program

    def at_200() -> Run:
        run = program.init(jnp.int32(0), parameters_of(config()))
        return program.advance(run, jnp.int32(0), False, 200)[0]

    none = program.no_sums(at_200())
    scanned, sums = program.advance(at_200(), jnp.int32(200), True, 200, none)
    run, step, parts = at_200(), 200, none
    for steps in (4, 60, 8, 120, 4, 4):
        run, parts = program.advance(run, jnp.int32(step), True, steps, parts)
        step += steps
    assert step == 400
    assert sums["updates"] == 50
    together = zip(jax.tree.leaves((scanned, sums)), jax.tree.leaves((run, parts)), strict=True)
    for a, b in together:
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_targets_are_copied_where_their_period_ends() -> None:
    chosen = config(target_every=400)
    program = build(chosen, 5, many=False).program
    run, copied = program.init(jnp.int32(0), parameters_of(chosen)), []
    for step, learn in ((0, False), (200, False), (400, True), (600, True), (800, True)):
        run, _ = program.advance(run, jnp.int32(step), learn, 200, program.no_sums(run))
        learned = run.agent.learned
        pairs = zip(*map(jax.tree.leaves, (learned.network, learned.target)), strict=True)
        copied.append(all((a == b).all() for a, b in pairs))
    # Before it learns they are the same.
    assert copied == [True, True, False, True, False]


@pytest.mark.slow
def test_memory_is_flat_and_sums_are_all_that_is_fetched(monkeypatch) -> None:
    names = [metric.name for metric in columns_of(config()) if metric.per != "end"]
    summed = {*names, "rightly_admitted", "wrongly_admitted", "wrongly_rejected"}
    summed -= {"precision", "recall"}
    fetched: list[Any] = []
    held: list[int] = []
    device_get = jax.device_get

    def note(tree: Any) -> Any:
        fetched.append(tree)
        return device_get(tree)

    monkeypatch.setattr(jax, "device_get", note)

    def measure(step: int) -> None:
        assert [set(tree) for tree in fetched] == [summed]
        fetched.clear()
        held.append(sum(array.nbytes for array in jax.live_arrays()))

    train(config(), progress=Watcher(measure))
    assert len(held) == 10
    assert len(set(held[2:])) == 1


@pytest.mark.slow
def test_side_by_side(whole: Path, tmp_path: Path) -> None:
    """Runs of one program: as alone, with checkpoints of their own, resumed bit for bit."""
    drqn = "saladworld-1-drqn-none-seed1"

    def two(steps: int) -> list[TrainConfig]:
        return [config(steps=steps), config(steps=steps, agent="drqn", gate="none", seeds=(1,))]

    train_all(two(800), tmp_path / "a", together=True, checkpoint_seconds=0.0)
    nearly_same(tmp_path / "a" / NAME, whole, rows=4)
    assert read_run(tmp_path / "a" / drqn).metrics["heads"].tolist() == [[1.0]] * 4
    for name in (NAME, drqn):
        assert saved_steps(tmp_path / "a" / name / "checkpoint") == [600, 800]
        assert load_state(tmp_path / "a" / name)[1].heads == 5

    # Stopped together and resumed together.
    train_all(two(400), tmp_path / "b", together=True)
    shutil.copytree(tmp_path / "b", tmp_path / "c")
    train_all(two(800), tmp_path / "b", resume=True, together=True)
    # Killed between the last checkpoint of one and of the other.
    shutil.copytree(tmp_path / "a", tmp_path / "d")
    (tmp_path / "d" / drqn / "checkpoint" / "step-000000800.npz").unlink()
    watcher = Watcher()
    train_all(two(800), tmp_path / "d", resume=True, together=True, progress=watcher)
    assert watcher.begun == [([NAME, drqn], 600, 800)]
    for name in (NAME, drqn):
        same(tmp_path / "b" / name, tmp_path / "a" / name)
        same(tmp_path / "d" / name, tmp_path / "a" / name)

    # Stopped together and resumed one by one, with the weights of five heads.
    train_all(two(800), tmp_path / "c", resume=True, together=False)
    for name in (NAME, drqn):
        nearly_same(tmp_path / "c" / name, tmp_path / "a" / name, rows=4)
