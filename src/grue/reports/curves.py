"""Learning curves in the paper's terms: the mean ± standard deviation over the seeds.

One panel for each game, one colour for each condition. ``learning_curves`` computes what is drawn
and ``draw_curves`` draws it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from grue.agents.catalogue import AGENTS, GATES
from grue.errors import GrueError, UsageError
from grue.experiments.conditions import Condition
from grue.reports.picture import (
    NOT_RUN,
    count_seeds,
    draw_legend,
    dress_steps,
    head_panel,
    label_axes,
    panel_grid,
    save_picture,
)
from grue.reports.styles import Style, styles_of
from grue.training.config import TrainConfig, all_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {
    "fraction_average": "fraction of subtasks",
    "fraction": "fraction of subtasks",
    "score_average": "score",
}
NO_SWITCHES = ("game", "agent", "gate", "seeds", "steps", "metrics_every")
"""Settings that do not make another condition, or that every label has."""
FEW_SEEDS = 3
"""A band would hide how such few differ: each is drawn by itself."""


@runtime_checkable
class Logged(Protocol):
    """A run, just trained or read from its folder."""

    @property
    def config(self) -> TrainConfig: ...
    @property
    def seed(self) -> int: ...
    @property
    def folder(self) -> Path | None: ...
    @property
    def metrics(self) -> Mapping[str, np.ndarray]: ...


@dataclass(frozen=True)
class Curve:
    label: str
    order: tuple
    """Sorts conditions as agents and gates are listed."""
    seeds: tuple[int, ...]
    steps: np.ndarray
    """Up to where all seeds have come."""
    mean: np.ndarray
    deviation: np.ndarray
    """Of the seeds as they are (divided by n); 0 for one seed."""
    of_seeds: np.ndarray
    """The seeds as rows."""

    @property
    def is_of_few(self) -> bool:
        return 1 < len(self.seeds) <= FEW_SEEDS


@dataclass(frozen=True)
class Panel:
    game: str
    curves: tuple[Curve, ...]


class Missing(NamedTuple):
    """What a picture should show and cannot."""

    labels: tuple[str, ...]
    """Conditions that were run nowhere."""
    games: str
    """In words, those that nothing was run on."""


NOTHING_MISSING = Missing((), "")


def learning_curves(runs: Sequence[Logged], column: str = "fraction_average") -> tuple[Panel, ...]:
    """What is drawn of some runs, sorted. Runs that differ only in their seed are one curve."""
    switches = switches_of([run.config for run in runs])
    groups: dict[str, dict[tuple, list[Logged]]] = {}
    for run in runs:
        if column not in run.metrics:
            raise UsageError(
                f"there is no column {column!r}; there are {', '.join(sorted(run.metrics))}"
            )
        of_game = groups.setdefault(run.config.game, {})
        of_game.setdefault(_condition(run.config, switches), []).append(run)
    panels = []
    for game in sorted(groups):
        curves = [
            curve
            for condition in sorted(groups[game])
            if (curve := _curve(groups[game][condition], switches, column)) is not None
        ]
        if curves:
            panels.append(Panel(game, tuple(curves)))
    return tuple(panels)


def draw_curves(
    runs: Sequence[Logged],
    path: str | Path,
    column: str = "fraction_average",
    title: str | None = None,
) -> Path:
    """Writes the learning curves of some runs to a picture and returns its path."""
    panels = learning_curves(runs, column)
    if not panels:
        raise GrueError(f"cannot draw {path}: no run has finished an episode yet")
    return draw_panels(panels, path, column, title, {run.config.average_over for run in runs})


def draw_panels(
    panels: Sequence[Panel],
    path: str | Path,
    column: str,
    title: str | None,
    windows: set[int],
    missing: Missing = NOTHING_MISSING,
) -> Path:
    """Writes curves to a picture; ``windows`` are those of the moving averages."""
    return save_picture(path, lambda: _draw(panels, column, title, windows, missing))


def describe(config: TrainConfig, switches: Sequence[str] = ()) -> str:
    """A condition in words: "sc + masking, no priority"."""
    words = [Condition.of(config).label]
    own, usual = config.flat(), usual_settings(config)
    for name in switches:
        if name not in own:
            continue
        value = own[name]
        told = name == "priority" or (name == "look_every" and value == 0)
        if told or value == usual[name]:
            continue
        spoken = name.replace("_", " ")
        if isinstance(value, bool):
            words.append(spoken if value else f"no {spoken}")
        else:
            words.append(f"{spoken} {value:,}" if isinstance(value, int) else f"{spoken} {value}")
    return ", ".join(words)


def switches_of(configs: Sequence[TrainConfig]) -> tuple[str, ...]:
    """The settings in which runs of one game differ."""
    found: dict[tuple[str, str], set] = {}
    for config in configs:
        for name, value in config.flat().items():
            found.setdefault((config.game, name), set()).add(value)
    differing = {name for (_, name), values in found.items() if len(values) > 1}
    return tuple(name for name in all_settings() if name in differing - set(NO_SWITCHES))


def usual_settings(config: TrainConfig) -> dict[str, Any]:
    """Every setting of a config's agent and gate, as it is by default for its game."""
    return TrainConfig(game=config.game, agent=config.agent, gate=config.gate).flat()


def _condition(config: TrainConfig, switches: Sequence[str]) -> tuple:
    """Equal for the runs of one curve."""
    agent, gate = AGENTS.number(config.agent), GATES.number(config.gate)
    off = not config.look_every, not config.priority
    return (agent, gate, *off, *(str(config.flat().get(name)) for name in switches))


def _curve(runs: Sequence[Logged], switches: Sequence[str], column: str) -> Curve | None:
    """The seeds together, on every step that any of them has, as far as all have come."""
    ordered = sorted(runs, key=lambda run: run.seed)
    for one, other in pairwise(ordered):
        if one.seed == other.seed:
            raise UsageError(
                f"{one.folder} and {other.folder} are the same condition with the same seed, "
                f"{one.seed}; give one of them"
            )
    points = {run.seed: _finite(run, column) for run in ordered}
    points = {seed: found for seed, found in points.items() if len(found[0])}
    if not points:
        return None
    begin = max(steps[0] for steps, _ in points.values())
    end = min(steps[-1] for steps, _ in points.values())
    grid = np.unique(np.concatenate([steps for steps, _ in points.values()]))
    grid = grid[(grid >= begin) & (grid <= end)]
    if not len(grid):
        return None
    values = np.stack([np.interp(grid, *of_seed) for of_seed in points.values()])
    config = ordered[0].config
    return Curve(
        label=describe(config, switches),
        order=_condition(config, switches),
        seeds=tuple(points),
        steps=grid,
        mean=values.mean(0),
        deviation=values.std(0),
        of_seeds=values,
    )


def _finite(run: Logged, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of the rows that have a value: before the first episode ends none has."""
    values = np.asarray(run.metrics[column], float)
    known = np.isfinite(values)
    return np.asarray(run.metrics["step"])[known], values[known]


def _draw(
    panels: Sequence[Panel], column: str, title: str | None, windows: set[int], missing: Missing
) -> Figure:
    from matplotlib.lines import Line2D

    styles = styles_of([*labels_in(panels), *missing.labels])
    texts = _legend_texts(panels, styles)
    figure, grid, across = panel_grid(len(panels), texts, title)
    for axes, panel in zip(grid, panels, strict=True):
        _draw_panel(axes, panel, styles, labels_in(panels))
        if column in ("fraction", "fraction_average"):
            axes.set_ylim(-0.02, 1.04)
    label_axes(grid, "training steps", NAMES.get(column, column.replace("_", " ")))
    handles = [Line2D([], [], linewidth=2.2, **style.line) for style in styles.values()]
    draw_legend(figure, handles, texts, across, _note(panels, column, windows, missing.games))
    return figure


def labels_in(panels: Sequence[Panel]) -> list[str]:
    """The conditions of some panels, sorted."""
    curves = sorted((c for panel in panels for c in panel.curves), key=lambda c: c.order)
    return list(dict.fromkeys(curve.label for curve in curves))


def _draw_panel(
    axes: Axes, panel: Panel, styles: Mapping[str, Style], elsewhere: Sequence[str]
) -> None:
    for curve in panel.curves:
        draw_curve(axes, curve, styles[curve.label].line)
    head_panel(axes, panel.game, _tell_lacking(labels_in([panel]), elsewhere))
    dress_steps(axes, int(max(curve.steps[-1] for curve in panel.curves)))


def _tell_lacking(here: Sequence[str], elsewhere: Sequence[str]) -> str:
    lacking = [label for label in elsewhere if label not in here]
    if len(lacking) > 2:  # More names do not fit.
        return f"{len(here)} of {len(elsewhere)} conditions"
    return f"without {', '.join(lacking)}" if lacking else ""


def draw_curve(axes: Axes, curve: Curve, style: Mapping[str, Any]) -> None:
    """A line and the band of its deviation, or a thin line for each of a few seeds."""
    if curve.is_of_few:
        axes.plot(curve.steps, curve.of_seeds.T, linewidth=0.7, alpha=0.55, zorder=2, **style)
    else:
        low, high = curve.mean - curve.deviation, curve.mean + curve.deviation
        axes.fill_between(
            curve.steps, low, high, color=style["color"], alpha=0.16, linewidth=0, zorder=2
        )
    # One point makes no line.
    marker = "o" if len(curve.steps) == 1 else ""
    axes.plot(
        curve.steps, curve.mean, linewidth=1.6, marker=marker, markersize=4, zorder=3, **style
    )


def _legend_texts(panels: Sequence[Panel], labels: Iterable[str]) -> list[str]:
    counts: dict[str, list[int]] = {}
    for panel in panels:
        for curve in panel.curves:
            counts.setdefault(curve.label, []).append(len(curve.seeds))
    return [
        f"{label} ({count_seeds(counts[label]) if label in counts else NOT_RUN})"
        for label in labels
    ]


def spread_note(curves: Iterable[Curve]) -> str:
    """What is drawn of the seeds beside their mean."""
    counts = [curve.is_of_few for curve in curves if len(curve.seeds) > 1]
    if not counts:
        return ""
    few = f"each seed where there are at most {FEW_SEEDS}"
    if all(counts):
        return "mean and each seed"
    band = "mean ± standard deviation over the seeds"
    return f"{band}, {few}" if any(counts) else band


def _note(panels: Sequence[Panel], column: str, windows: set[int], missing: str) -> str:
    """How to read the lines and bands."""
    parts = [spread_note(curve for panel in panels for curve in panel.curves)]
    if column.endswith("_average") and len(windows) == 1:
        parts.append(f"moving average of {next(iter(windows)):,} steps")
    if missing:
        parts.append(f"{NOT_RUN}: {missing}")
    return "; ".join(filter(None, parts))
