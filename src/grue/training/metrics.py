"""The rows of metrics: what a run did in some thousand steps, as plain numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from grue.errors import UsageError
from grue.training.algorithm import Sums
from grue.training.config import TrainConfig

Row = dict[str, Any]
COUNTS = ("step", "seed", "episodes", "wins", "updates", "failures")
LATER = {"failures": 0}
"""Columns that runs of an earlier grue lack, and what they stand for there."""
OF_EPISODES = ("score", "fraction")
"""Means over the episodes that ended in a row; null where none did."""
AVERAGED = (
    *OF_EPISODES,
    *("q_loss", "classifier_loss", "classifier_accuracy", "precision", "recall"),
    *("candidates", "admissible_commands", "admissible"),
)
COLUMNS = (
    *("step", "seed", "episodes", "wins"),
    *("score", "fraction", "score_average", "fraction_average", "epsilon"),
    *AVERAGED[len(OF_EPISODES) :],
    *("heads", "updates", "failures"),
)

REQUIRED = tuple(name for name in COLUMNS if name not in LATER)


def make_row(config: TrainConfig, step: int, sums: Sums, heads: int, before: Sequence[Row]) -> Row:
    """The row that ends at a step.

    ``sums`` are one run's, ``heads`` how many of them are its own, and ``before`` the rows so far:
    the last of them are part of the moving averages.
    """
    steps, updates, episodes = config.metrics_every, float(sums.updates), float(sums.episodes)
    right = float(sums.rightly_admitted)
    row: Row = {
        "step": step,
        "seed": config.seeds[0],
        "episodes": int(sums.episodes),
        "wins": int(sums.wins),
        "score": _ratio(sums.score, episodes),
        "fraction": _ratio(sums.fraction, episodes),
        "score_average": None,
        "fraction_average": None,
        "epsilon": epsilon_at(config, step),
        "q_loss": _ratio(sums.losses.q, updates),
        "classifier_loss": _ratio(sums.losses.classifier, updates),
        "classifier_accuracy": _ratio(sums.losses.accuracy, updates),
        "precision": _ratio(right, right + float(sums.wrongly_admitted)),
        "recall": _ratio(right, right + float(sums.wrongly_rejected)),
        "candidates": _ratio(sums.candidates, steps),
        "admissible_commands": _ratio(sums.admissible_commands, steps),
        "admissible": _ratio(sums.admissible, steps),
        "heads": [_ratio(share, steps) for share in sums.heads[:heads]],
        "updates": int(sums.updates),
        "failures": int(sums.failures),
    }
    span = rows_of_average(config)
    recent = [*before[max(len(before) - span + 1, 0) :], row]
    for name in OF_EPISODES:
        row[f"{name}_average"] = _mean(
            [past[name] for past in recent], [past["episodes"] for past in recent]
        )
    return row


def fault(row: Any) -> str:
    """What is wrong with a stored row; nothing as a rule."""
    missing = [name for name in REQUIRED if name not in row]
    if missing:
        return f"{missing[0]} is missing"
    for name in REQUIRED:
        value, whole = row[name], name in COUNTS
        parts = value if name == "heads" and isinstance(value, list) else [value]
        if not all(_is_number(part, whole) or (part is None and not whole) for part in parts):
            return f"{name} is {value!r}"
    return ""


def _is_number(value: Any, whole: bool) -> bool:
    if whole:
        return isinstance(value, int) and abs(value) < 2**63
    return isinstance(value, int | float) and math.isfinite(value)


def completed(row: Row) -> Row:
    """A stored row, with the columns that its grue did not have yet."""
    return {**row, **{name: value for name, value in LATER.items() if name not in row}}


def epsilon_at(config: TrainConfig, step: int) -> float:
    done = min(step / config.epsilon_steps, 1.0)
    return config.epsilon_start * (1.0 - done) + config.epsilon_end * done


def rows_of_average(config: TrainConfig) -> int:
    return config.average_over // config.metrics_every


def columns(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Rows as arrays by column, null as nan; ``heads`` has a row for each row."""
    arrays: dict[str, np.ndarray] = {}
    for name in COLUMNS:
        values = [row[name] for row in rows]
        arrays[name] = np.array(values, np.int64 if name in COUNTS else np.float64)
    if not rows:
        arrays["heads"] = np.zeros((0, 0))
    return arrays


def moving_average(
    metrics: Mapping[str, np.ndarray], name: str, config: TrainConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and a column's mean over the last ``average_over`` steps before each.

    Scores and fractions are averaged over episodes, all else over rows.
    """
    if name not in AVERAGED:
        raise UsageError(f"there is no curve {name!r}; there are {', '.join(AVERAGED)}")
    values = metrics[name].tolist()
    weights = metrics["episodes"].tolist() if name in OF_EPISODES else [1] * len(values)
    span = rows_of_average(config)
    means = [
        _mean(values[max(end - span, 0) : end], weights[max(end - span, 0) : end])
        for end in range(1, len(values) + 1)
    ]
    return metrics["step"], np.array(means, np.float64)


def _mean(values: Sequence[int | float | None], weights: Sequence[int]) -> float | None:
    """The weighted mean of what is known; exact sums, so the order of rows does not matter."""
    known = [
        (value, weight)
        for value, weight in zip(values, weights, strict=True)
        if value is not None and not math.isnan(value) and weight
    ]
    total = sum(weight for _, weight in known)
    return _ratio(math.fsum(value * weight for value, weight in known), total)


def _ratio(part: Any, whole: int | float) -> float | None:
    """Null where it is undefined or no number: JSON has no other word for it."""
    ratio = float(part) / whole if whole else math.nan
    return ratio if math.isfinite(ratio) else None
