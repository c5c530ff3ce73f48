"""Training on real games in other processes: the same loop, folders and reports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import grue
from grue.agents.registry import AGENTS, register
from grue.cli import entry
from grue.engine.pooled import PooledEnv
from grue.training.checkpoint import saved_steps
from grue.training.config import TrainConfig
from grue.training.metrics import MetricsRow
from grue.training.programs import game_of, resolved
from grue.training.train import train

SHORT: dict[str, Any] = {
    **{"episode_steps": 15, "metrics_every": 20, "average_over": 20, "target_every": 20},
    **{"learning_starts": 20, "epsilon_steps": 40, "look_every": 5},
    **{"agent": "tabular", "table_rows": 64},
}
"""The tabular agent's program is compiled in no time; the loop is the same for all."""
DEEP: dict[str, Any] = {
    **{"embedding": 4, "encoder": 8, "context": 8, "hidden": 8, "heads": 2},
    **{"batch_size": 2, "sequence_length": 4, "minimum_history": 1, "replay_steps": 200},
}
STEPS = 80


@pytest.fixture(scope="module")
def config(zork_file: Callable[[int], Path]) -> TrainConfig:
    return TrainConfig(game="zork1", story=zork_file(119), steps=STEPS, **SHORT)


class Watcher:
    """Notes what training tells, and calls something after every row."""

    def __init__(self, then: Callable[[int], None] | None = None) -> None:
        self.then = then
        self.said: list[str] = []

    def begin(self, names: Sequence[str], step: int, steps: int) -> None:
        pass

    def update(self, step: int, rows: Sequence[MetricsRow]) -> None:
        if self.then is not None:
            self.then(step)

    def say(self, line: str) -> None:
        self.said.append(line)


@pytest.fixture(scope="module")
def straight(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    out = tmp_path_factory.mktemp("straight")
    watcher = Watcher()
    train(config, out, progress=watcher)
    assert watcher.said == [
        "zork1 cannot be compiled (zork1 is a Z-machine story; only TextWorld games compile): it "
        f"plays hosted, in {processes()} of emulators; 132 commands, 2868 words, seed of each "
        "episode: a new one"
    ]
    return out / "zork1-tabular-none-seed0"


def processes() -> str:
    cores = len(os.sched_getaffinity(0))
    return "1 process" if cores == 1 else f"up to {cores} processes"


def arrays(folder: Path) -> dict[str, bytes]:
    """All that the latest checkpoint holds, to the bit."""
    steps = saved_steps(folder / "checkpoint")
    with np.load(folder / "checkpoint" / f"step-{steps[-1]:09}.npz") as archive:
        return {name: array.tobytes() for name, array in archive.items()}


def same(one: Path, other: Path) -> None:
    """Two runs are equal bit for bit."""
    assert (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    assert arrays(one) == arrays(other)


def test_a_run_folder_of_zork(straight: Path, config: TrainConfig) -> None:
    stored = json.loads((straight / "config.json").read_bytes())
    assert (stored["discount"], stored["steps"], stored["game_seed"]) == (0.8, STEPS, None)
    assert stored["story"] == str(Path(config.story or "").resolve())
    about = stored["about"]
    assert (about["engine"], about["release"], about["serial"]) == ("hosted", 119, "880429")
    assert about["game_hash"] == game_of(resolved(config)).digest
    rows = [json.loads(line) for line in (straight / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [20, 40, 60, 80]
    assert sum(row["episodes"] for row in rows) >= STEPS // 15
    assert {row["failures"] for row in rows} == {0}
    # Nobody knows which commands are admissible; what the command taken did is known.
    assert [row["admissible_commands"] for row in rows] == [None] * 4
    assert not any("precision" in row for row in rows)  # The tabular agent estimates no ξ̂.
    assert 0 < sum(row["admissible"] for row in rows) / 4 < 0.5
    assert game_of(resolved(config)).pool.processes == []  # type: ignore[attr-defined]


def test_the_papers_settings_for_zork() -> None:
    config = TrainConfig(game="zork1")
    assert (config.discount, config.steps, config.game_seed) == (0.8, 2_000_000, None)
    assert (config.epsilon_start, config.epsilon_end, config.epsilon_steps) == (1, 0.1, 1_000_000)
    small = TrainConfig.preset("small", game="zork1")
    assert (small.discount, small.steps) == (0.8, 20_000)
    assert TrainConfig(game="zork1", discount=0.95, steps=1000).discount == 0.95
    assert (TrainConfig().discount, TrainConfig().steps) == (0.9, 1_300_000)
    assert replace(config, seeds=(1,)).discount == 0.8
    assert TrainConfig.from_json(config.to_json()) == config


def test_resuming_is_bit_for_bit(config: TrainConfig, straight: Path, tmp_path: Path) -> None:
    """In the middle of an episode, which new processes play again."""
    half = replace(config, steps=STEPS // 2)
    train(half, tmp_path)
    train(config, tmp_path, resume=True)
    same(tmp_path / straight.name, straight)


def test_a_run_that_was_killed_goes_on_with_the_same_bits(
    config: TrainConfig, straight: Path, tmp_path: Path
) -> None:
    arguments = ["train", "zork1", "--story", str(config.story), "--preset", "paper"]
    arguments += [word for name, value in SHORT.items() for word in ("--set", f"{name}={value}")]
    arguments += ["--steps", str(STEPS), "--out", str(tmp_path), "--checkpoint-seconds", "0"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = subprocess.Popen(
        [sys.executable, "-m", "grue.cli", *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environment,
    )
    checkpoints = tmp_path / straight.name / "checkpoint"
    until = time.monotonic() + 120
    while not saved_steps(checkpoints) and program.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    program.kill()
    program.communicate()
    assert 0 < saved_steps(checkpoints)[-1] <= STEPS
    train(config, tmp_path, resume=True)
    same(tmp_path / straight.name, straight)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (signal.SIGKILL, "an emulator's subprocess was ended by signal 9"),
        (signal.SIGSTOP, "an emulator's subprocess did not answer in time"),
    ],
)
def test_a_run_outlives_its_emulators(
    config: TrainConfig,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    how: signal.Signals,
    told: str,
) -> None:
    env = game_of(resolved(config))
    assert isinstance(env, PooledEnv)
    struck: list[int] = []

    def strike(step: int) -> None:
        """Only the one that was stopped is waited for so shortly: a busy one may take longer."""
        if step == 40:
            struck.extend(env.pool.processes)
            os.kill(struck[0], how)
            monkeypatch.setattr(env.pool, "seconds", 2.0)
        elif struck:
            monkeypatch.undo()

    watcher = Watcher(strike)
    result = train(config, tmp_path, progress=watcher).runs[0]
    assert len(struck) == 1
    assert watcher.said[1:] == [f"{told}: its episode ends here, and a new one is started"]
    assert result.metrics["failures"].tolist() == [0, 0, 1, 0]
    assert result.metrics["step"].tolist() == [20, 40, 60, 80]


def test_what_cannot_be_compiled_is_trained_hosted(two_lamps: Path, tmp_path: Path) -> None:
    own = {"agent": "li-tabular", "gate": "oracle"}
    config = TrainConfig(game=two_lamps, steps=60, **{**SHORT, **own})
    watcher = Watcher()
    result = train(config, tmp_path, progress=watcher).runs[0]
    (line,) = watcher.said
    # Nothing about seeds: the game has no chance.
    assert line.startswith(
        f"{two_lamps} cannot be compiled (the text substitution [the time of day] in the "
        f"description of 'stand' is not known): it plays hosted, in {processes()} of emulators; "
    )
    assert line.endswith(" words")
    # Its admissible sets are known, and the oracle's commands all change something.
    assert (result.metrics["admissible_commands"] > 1).all()
    assert result.metrics["admissible"].mean() > 0.7
    assert result.metrics["wins"].sum() > 0


def test_chance_is_drawn_from_the_runs_own_stream(config: TrainConfig) -> None:
    env = game_of(resolved(config))
    fixed = game_of(resolved(replace(config, game_seed=0)))

    def seeds(env: Any, key: Any) -> list[int]:
        state, _ = env.reset(key)
        found = []
        for _ in range(4):
            found.append(int(state.seed))
            state, _ = env.restart(state)
        return found

    one, other = jax.random.key(0), jax.random.key(1)
    assert seeds(env, one) == seeds(env, one)
    assert len({*seeds(env, one), *seeds(env, other)}) == 8
    # A seed of 0 is 0.
    assert seeds(fixed, one) == seeds(fixed, other) == [0, 0, 0, 0]
    fixed.close()
    env.close()


def test_what_cannot_be_trained_is_refused(
    zork_file: Callable[[int], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*arguments: str) -> str:
        assert entry.main(["train", *arguments, "--out", str(tmp_path / "runs")]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert not (tmp_path / "runs").exists()
        return err

    zork = ("zork1", "--story", str(zork_file(119)), "--set", "episode_steps=15")
    assert "zork1 does not tell which commands are admissible" in refused(*zork, "--gate", "oracle")
    path = tmp_path / "commands.txt"
    path.write_text("go north\nquit\n")
    told = refused(*zork, "--commands", str(path))
    assert "'quit' is a command to the interpreter" in told
    level = tmp_path / "level.z8"
    level.write_bytes(grue.load("saladworld-1").story.read_bytes())
    path.write_text("go north\n")
    told = refused(str(level), "--commands", str(path))
    assert (
        "can be played but not trained, because its score cannot be read: only versions 1" in told
    )
    assert "a TextWorld game needs its .json beside it" in told


def test_what_an_agent_declares_that_it_needs(tmp_path: Path) -> None:
    level = tmp_path / "level.z8"
    level.write_bytes(grue.load("saladworld-1").story.read_bytes())
    commands = tmp_path / "commands.txt"
    commands.write_text("go south\ngo east\n")
    usual = AGENTS.find("tabular")
    try:
        for name, needs in (("scoreless", {"score": False}), ("told", {"oracle": True})):
            register(name, settings=usual.settings, updates=False, **needs)(usual.make)
        own = {**SHORT, "game": str(level), "commands": str(commands), "steps": 40}
        run = train(TrainConfig(**{**own, "agent": "scoreless"})).runs[0]
        assert run.metrics["score"].tolist() == [0, 0]
        assert run.metrics["admissible"].min() > 0
        told = {**own, "agent": "told"}
        with pytest.raises(grue.UsageError, match="its score cannot be read"):
            train(TrainConfig(**told))
        AGENTS.remove("told")
        register("told", settings=usual.settings, updates=False, score=False, oracle=True)(
            usual.make
        )
        with pytest.raises(grue.UsageError, match="which commands are admissible, which told"):
            train(TrainConfig(**told))
    finally:
        AGENTS.remove("scoreless")
        AGENTS.remove("told")


def test_a_trained_run_is_played(straight: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["eval", str(straight), "--episodes", "2", "--json", "--transcript"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["steps"], told["max_score"]) == (STEPS, 350)
    assert told["exploring"]["episodes"] == 2
    assert len(told["transcript"]) <= 15
    forced = [step["command"] for step in told["transcript"] if step["forced"]]
    assert forced == ["look"] * (len(told["transcript"]) // 5)


@pytest.mark.slow
def test_deep_agents_side_by_side_and_where_the_time_goes(
    zork_file: Callable[[int], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("grue.training.bench.WARM_UP", 120)
    monkeypatch.setattr("grue.training.bench.ROUNDS", 2)
    sizes = {**DEEP, "episode_steps": 15}
    arguments = ["bench", "train", "zork1", "--story", str(zork_file(119)), "--runs", "2"]
    arguments += [word for name, value in sizes.items() for word in ("--set", f"{name}={value}")]
    assert entry.main([*arguments, "--agents", "sc", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["game"], row["runs"]) == ("zork1", 2)
    parts = row["hosting_ms"]
    assert list(parts) == ["emulator", "pipes", "agent"]
    assert all(part > 0 for part in parts.values())
    # Two runs take a step each in the time of all parts.
    assert row["steps_per_s"] >= 2 / (sum(parts.values()) / 1e3) / 2
