"""Runs small enough to be trained in a test, and what they are compared by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grue import TrainConfig
from grue.cli import entry
from grue.training.checkpoint import saved_steps
from grue.training.config import known_to
from grue.training.metrics import MetricsRow, whole
from grue.training.runs import read_run

NAME = "saladworld-1-sc-masking-seed0"
TINY_STEPS = 45
SETTINGS = {
    "embedding": 4,
    "encoder": 6,
    "context": 8,
    "hidden": 8,
    "batch_size": 4,
    "episode_steps": TINY_STEPS,
    "replay_steps": 2000,
    "metrics_every": 200,
    "average_over": 2000,
    "target_every": 200,
    "learning_starts": 200,
    "epsilon_steps": 3000,
    "softness": 0.5,
}
"""The gate is often soft, so that greedy play differs from play at an ε."""
ARGUMENTS = ["train", "saladworld-1", "--gate", "masking", "--preset", "paper"]
ARGUMENTS += [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]


def config(**values: Any) -> TrainConfig:
    condition = {"agent": "sc", "gate": "masking", "steps": 2000} | values
    own = known_to(condition, SETTINGS)
    return TrainConfig(**{**own, **condition})


TINY = config(steps=400, seeds=(0, 1), average_over=200)
"""Trained in a moment, by the program that all these runs share."""


def arrays(folder: Path) -> dict[str, tuple[Any, ...]]:
    """All that the latest checkpoint holds, to the bit."""
    steps = saved_steps(folder / "checkpoint")
    with np.load(folder / "checkpoint" / f"step-{steps[-1]:09}.npz") as archive:
        return {name: (a.dtype, a.shape, a.tobytes()) for name, a in archive.items()}


def same(one: Path, other: Path) -> None:
    """Two runs are equal bit for bit, made by the same code."""
    same_results(one, other)
    assert (one / "config.json").read_bytes() == (other / "config.json").read_bytes()


def same_results(one: Path, other: Path) -> None:
    """Rows and weights are equal bit for bit."""
    assert (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    assert arrays(one) == arrays(other)


def nearly_same(one: Path, other: Path, rows: int) -> None:
    """The same play; sums in another order."""
    first, second = read_run(one), read_run(other)
    a, b, counts = first.metrics, second.metrics, whole(first.config)
    assert list(a) == list(b)
    for name in a:
        if name in counts:
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

    def update(self, step: int, rows: Sequence[MetricsRow]) -> None:
        self.steps.append(step)
        if self.then is not None:
            self.then(step)

    def say(self, line: str) -> None:
        self.said.append(line)


def run_cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = entry.main([*ARGUMENTS, *arguments])
    told = capsys.readouterr()
    return code, told.out, told.err.splitlines()[-1] if told.err else ""
