"""The rows of metrics.jsonl: one for every ``metrics_every`` steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from grue.agents.gating import annealed
from grue.agents.registry import Metric
from grue.errors import UsageError
from grue.training.config import TrainConfig

MetricsRow = dict[str, Any]
KEYS = ("step", "seed")
FIRST = (
    Metric("episodes", "episodes that ended", "count"),
    Metric("wins", "of these, with every subtask done", "count"),
    Metric("score", "mean final score of the episodes that ended", "episode"),
    Metric("fraction", "mean fraction of the subtasks that were done", "episode"),
    Metric("score_average", "score over the last average_over steps", "end"),
    Metric("fraction_average", "fraction over the last average_over steps", "end"),
    Metric("epsilon", "ε at the end of the row", "end"),
)
ESTIMATES = (
    Metric("precision", "of the commands with ξ̂ ≥ 1/2, the fraction that is admissible", "step"),
    Metric("recall", "of the admissible commands, the fraction with ξ̂ ≥ 1/2", "step"),
    Metric("inadmissible_value", "mean |Q| of the commands that are not admissible", "step"),
)
LAST = (
    Metric("candidates", "mean size of the candidate set", "step"),
    Metric("admissible_commands", "mean number of admissible commands", "step"),
    Metric("admissible", "fraction of the steps that changed the game", "step"),
    Metric("heads", "fraction of the steps of each head", "step", parts=1),
    Metric("updates", "gradient updates", "count"),
    Metric("failures", "episodes cut short because an emulator failed", "count"),
)


def columns_of(config: TrainConfig) -> tuple[Metric, ...]:
    """The columns of a run, except ``step`` and ``seed``."""
    last = [m._replace(parts=config.heads_in_use) if m.parts else m for m in LAST]
    return (*FIRST, *config.metrics, *(ESTIMATES if config.kind.estimates else ()), *last)


def check_columns(config: TrainConfig) -> None:
    """Refuses declared metrics that cannot be columns."""
    names = [*KEYS, *(metric.name for metric in columns_of(config))]
    for name, _, per, parts in config.metrics:
        if names.count(name) > 1:
            raise UsageError(f"two parts of the run have a metric {name!r}; rename one of them")
        if per == "end":
            raise UsageError(f"the metric {name!r} is per end, which only grue's own columns are")
        if parts and per != "step":
            raise UsageError(f"the metric {name!r} has parts, so it is per step, not per {per}")


def averaged(config: TrainConfig) -> list[str]:
    """The columns that have curves: means over episodes, steps or updates."""
    spans = ("episode", "step", "update")
    return [m.name for m in columns_of(config) if m.per in spans and not m.parts]


def whole(config: TrainConfig) -> list[str]:
    """The columns of whole numbers."""
    return [*KEYS, *(metric.name for metric in columns_of(config) if metric.per == "count")]


def part_name(metric: str, number: int) -> str:
    """The name of a part of a list where each has a column of its own: ``head_1``."""
    return f"{metric.removesuffix('s')}_{number}"


def make_row(
    config: TrainConfig,
    step: int,
    sums: Mapping[str, Any],
    before: Sequence[MetricsRow],
) -> MetricsRow:
    """The row that ends at a step.

    ``sums`` are those of the run. ``before`` are all earlier rows, for the moving averages.
    """
    spans = {
        "step": config.metrics_every,
        "update": float(sums["updates"]),
        "episode": float(sums["episodes"]),
    }
    row: MetricsRow = {"step": step, "seed": config.seeds[0]}
    for name, _, per, parts in columns_of(config):
        if per == "count":
            row[name] = int(sums[name])
        elif parts:
            row[name] = [_ratio(share, spans[per]) for share in sums[name][:parts]]
        else:
            # The others are set below; this fixes the order of the columns.
            row[name] = _ratio(sums[name], spans[per]) if name in sums and per in spans else None
    settings = config.settings
    row["epsilon"] = annealed(
        step, settings.epsilon_start, settings.epsilon_end, settings.epsilon_steps
    )
    if config.kind.estimates:
        right = float(sums["rightly_admitted"])
        row["precision"] = _ratio(right, right + float(sums["wrongly_admitted"]))
        row["recall"] = _ratio(right, right + float(sums["wrongly_rejected"]))
    recent = [*before[max(len(before) - rows_of_average(config) + 1, 0) :], row]
    episodes = [past["episodes"] for past in recent]
    for name in ("score", "fraction"):
        row[f"{name}_average"] = _mean([past[name] for past in recent], episodes)
    return row


def fault(row: Any, config: TrainConfig, number: int) -> str:
    """Describes what is wrong with the stored row of a number; empty if it is valid."""
    counts, lists = whole(config), {m.name: m.parts for m in columns_of(config) if m.parts}
    for name in (*KEYS, *(metric.name for metric in columns_of(config))):
        if name not in row:
            return f"{name} is missing"
        value, is_count = row[name], name in counts
        parts = value if name in lists and isinstance(value, list) else [value]
        if not all(_is_number(part, is_count) or (part is None and not is_count) for part in parts):
            return f"{name} is {value!r}"
    wanted = {"step": number * config.metrics_every, "seed": config.seeds[0]}
    for name, value in wanted.items():
        if row[name] != value:
            return f"its {name} is {row[name]}, not {value}: a line is missing or of another run"
    for name, parts in lists.items():
        if not isinstance(row[name], list) or len(row[name]) != parts:
            return f"{name} is {row[name]!r}, not a list of {parts}"
    return ""


def _is_number(value: Any, is_count: bool) -> bool:
    if is_count:
        return isinstance(value, int) and abs(value) < 2**63
    return isinstance(value, int | float) and math.isfinite(value)


def rows_of_average(config: TrainConfig) -> int:
    return config.average_over // config.metrics_every


def columns(rows: Sequence[MetricsRow], config: TrainConfig) -> dict[str, np.ndarray]:
    """Arrays by column, with nan for null. Columns of lists are two-dimensional."""
    counts = whole(config)
    every = [*(Metric(name, "", "count") for name in KEYS), *columns_of(config)]
    kinds = {name: np.int64 if name in counts else np.float64 for name, *_ in every}
    return {
        name: np.array([row[name] for row in rows], kinds[name])
        if rows
        else np.zeros((0, parts) if parts else 0, kinds[name])
        for name, _, _, parts in every
    }


def moving_average(
    metrics: Mapping[str, np.ndarray], name: str, config: TrainConfig
) -> tuple[np.ndarray, np.ndarray]:
    """The steps, and the mean of a column over the last ``average_over`` steps.

    Columns per episode are averaged over episodes, all others over rows.
    """
    spans = {metric.name: metric.per for metric in columns_of(config)}
    if name not in (known := averaged(config)):
        raise UsageError(f"there is no curve {name!r}; there are {', '.join(known)}")
    values = metrics[name].tolist()
    weights = metrics["episodes"].tolist() if spans[name] == "episode" else [1] * len(values)
    span = rows_of_average(config)
    windows = [slice(max(end - span, 0), end) for end in range(1, len(values) + 1)]
    means = [_mean(values[window], weights[window]) for window in windows]
    return metrics["step"], np.array(means, np.float64)


def _mean(values: Sequence[int | float | None], weights: Sequence[int]) -> float | None:
    """The weighted mean of the known values. The sum is exact, so their order does not matter."""
    known = [
        (value, weight)
        for value, weight in zip(values, weights, strict=True)
        if value is not None and not math.isnan(value) and weight
    ]
    total = sum(weight for _, weight in known)
    return _ratio(math.fsum(value * weight for value, weight in known), total)


def _ratio(part: Any, whole: int | float) -> float | None:
    """None if it is not finite: JSON has no nan."""
    ratio = float(part) / whole if whole else math.nan
    return ratio if math.isfinite(ratio) else None
