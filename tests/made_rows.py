"""Rows of metrics from sums made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from grue.training.config import TrainConfig
from grue.training.metrics import MetricsRow, make_row

CONFIG = TrainConfig(
    game="saladworld-1",
    gate="masking",
    steps=800,
    metrics_every=100,
    average_over=300,
    target_every=100,
    learning_starts=100,
    epsilon_steps=400,
    embedding=4,
    encoder=8,
    context=8,
    hidden=8,
    replay_steps=2000,
)
ABOUT = {"commit": None, "device": "abacus"}


def sums(**values: float) -> dict[str, Any]:
    """Of 100 steps of one run, as they come from the device."""
    known = {
        "episodes": 2,
        "wins": 1,
        "score": 15,
        "fraction": 1.5,
        "admissible": 30,
        "candidates": 250,
        "admissible_commands": 225,
        "rightly_admitted": 150,
        "wrongly_admitted": 50,
        "wrongly_rejected": 75,
        "inadmissible_value": 40,
        "updates": 25,
        "q_loss": 50,
        "classifier_loss": 12.5,
        "classifier_accuracy": 20,
        "failures": 0,
    } | values
    numbers = {name: single(value) for name, value in known.items()}
    heads = np.array([75, 25, 0, 0, 0], np.float32)
    return {**numbers, "heads": heads}


def single(value: float | str) -> Any:
    return np.float32(value)


def rows(number: int, config: TrainConfig = CONFIG, **values: float) -> list[MetricsRow]:
    made: list[MetricsRow] = []
    for i in range(1, number + 1):
        made.append(make_row(config, 100 * i, sums(**values), made))
    return made
