"""Thinning: aggregates a run's rows of metrics to fewer rows, with four digits to a number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from grue.agents.registry import Metric
from grue.training import metrics
from grue.training.config import TrainConfig

MOST_ROWS = 260
DIGITS = 4
SOLVED = 0.95
"""A level is solved when the moving average of the fraction of subtasks is at least this."""


def row_steps(config: TrainConfig) -> int:
    """The steps that a row of a record covers."""
    rows = config.steps // config.metrics_every
    return config.metrics_every * max(1, math.ceil(rows / MOST_ROWS))


def thin(
    config: TrainConfig, full: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The last step of each row, and the columns. An incomplete last row is left out."""
    every = row_steps(config)
    reached = int(full["step"][-1]) if len(full["step"]) else 0
    ends = list(range(every, reached + 1, every))
    if reached >= config.steps and config.steps % every:
        ends.append(config.steps)
    steps = np.array(ends, np.int64)
    edges = np.searchsorted(full["step"], steps, side="right").tolist()
    spans = [slice(begin, end) for begin, end in zip([0, *edges], edges, strict=False)]
    found = metrics.columns_of(config)
    return steps, {metric.name: _column(metric, full, spans) for metric in found}


def _column(metric: Metric, full: Mapping[str, np.ndarray], spans: Sequence[slice]) -> np.ndarray:
    values, episodes = full[metric.name], full["episodes"]
    if metric.parts:
        rows = [values[span].mean(0) for span in spans]
        return rounded(np.array(rows).reshape(len(spans), values.shape[-1]))
    if metric.per == "count":
        return np.array([values[span].sum() for span in spans], float)
    if metric.per == "end":
        return rounded(np.array([values[span][-1] for span in spans], float))
    weights = episodes if metric.per == "episode" else np.ones(len(values))
    return rounded(np.array([_mean(values[span], weights[span]) for span in spans], float))


def _mean(values: np.ndarray, weights: np.ndarray) -> float:
    known = np.isfinite(values) & (weights > 0)
    if not known.any():
        return math.nan
    return float(np.average(values[known], weights=weights[known]))


def rounded(values: np.ndarray) -> np.ndarray:
    """To ``DIGITS`` significant digits."""
    flat = [float(f"{value:.{DIGITS}g}") for value in values.reshape(-1)]
    return np.array(flat, float).reshape(values.shape)


def stacked(arrays: Sequence[np.ndarray], rows: int) -> np.ndarray:
    """Stacks arrays, and pads the shorter ones with rows of nan."""
    shape = max((array.shape[1:] for array in arrays), default=())
    whole = np.full((len(arrays), rows, *shape), np.nan)
    for i, array in enumerate(arrays):
        if len(array):
            whole[i, : len(array)] = array
    return whole


def first_win(full: Mapping[str, np.ndarray]) -> int | None:
    """The step of the first row with a win."""
    return _first(full["step"], full["wins"] > 0)


def first_solved(full: Mapping[str, np.ndarray]) -> int | None:
    """The first step at which the level is solved."""
    return _first(full["step"], full["fraction_average"] >= SOLVED)


def _first(steps: np.ndarray, true: np.ndarray) -> int | None:
    found = np.flatnonzero(true)
    return int(steps[found[0]]) if len(found) else None
