"""Curves over training: one panel for each game, one colour for each condition.

``learning_curves`` computes the mean ± standard deviation over the seeds, and ``draw_curves`` draws
it. ``pairs_figure`` shows two or three metrics in a panel, ``shares_figure`` parts of a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from grue.agents.catalogue import AGENTS, EXPLORERS, GATES
from grue.errors import GrueError, UsageError
from grue.experiments.conditions import describe, switches_of
from grue.reports.picture import (
    COLOURS,
    DASHES,
    GREY,
    NOT_RUN,
    Style,
    draw_legend,
    dress_steps,
    head_panel,
    label_axes,
    legend_texts,
    panel_grid,
    save_picture,
    styles_of,
)
from grue.training.config import TrainConfig

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {
    "fraction_average": "fraction of subtasks",
    "fraction": "fraction of subtasks",
    "score_average": "score",
}
FEW_SEEDS = 3
"""Up to this many seeds are drawn one by one: a band would hide how they differ."""


@runtime_checkable
class Logged(Protocol):
    """A run: just trained, read from its folder, or taken from a record."""

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
    """Sorts conditions by the order of agents and gates."""
    seeds: tuple[int, ...]
    steps: np.ndarray
    """The steps that all seeds have reached."""
    mean: np.ndarray
    deviation: np.ndarray
    """Divided by n; 0 for one seed."""
    of_seeds: np.ndarray
    """Seeds × steps."""

    @property
    def is_of_few(self) -> bool:
        return 1 < len(self.seeds) <= FEW_SEEDS


@dataclass(frozen=True)
class Panel:
    game: str
    curves: tuple[Curve, ...]


class Missing(NamedTuple):
    """What a picture should show but has no runs yet."""

    labels: tuple[str, ...] = ()
    """Conditions without any run."""
    games: str = ""
    """In words, the games without any run."""


NOTHING = Missing()


def learning_curves(runs: Sequence[Logged], column: str = "fraction_average") -> tuple[Panel, ...]:
    """The curves of some runs, sorted. Runs that differ only in their seed make one curve."""
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
    windows = {run.config.average_over for run in runs}
    return save_picture(path, lambda: curves_figure(panels, column, title, windows))


def _condition(config: TrainConfig, switches: Sequence[str]) -> tuple:
    """A key that is equal for the runs of one curve."""
    agent, gate = AGENTS.number(config.agent), GATES.number(config.gate)
    explorer = EXPLORERS.number(config.explore)
    off = not config.look_every, not config.priority
    return (agent, gate, explorer, *off, *(str(config.flat().get(name)) for name in switches))


def _curve(runs: Sequence[Logged], switches: Sequence[str], column: str) -> Curve | None:
    """The curve over every step that any seed has, as far as all seeds were trained."""
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
    """Steps and values of the rows with a value; there is none before an episode ends."""
    values = np.asarray(run.metrics[column], float)
    known = np.isfinite(values)
    return np.asarray(run.metrics["step"])[known], values[known]


def curves_figure(
    panels: Sequence[Panel],
    column: str,
    title: str | None,
    windows: set[int],
    missing: Missing = NOTHING,
) -> Figure:
    """A panel of curves for each game. ``windows`` are the lengths of the moving averages."""
    from matplotlib.lines import Line2D

    styles = styles_of([*labels_in(panels), *missing.labels])
    seeds = [(curve.label, len(curve.seeds)) for panel in panels for curve in panel.curves]
    texts = legend_texts(styles, seeds)
    top = 1.0 if column in ("fraction", "fraction_average") else None
    name = NAMES.get(column, column.replace("_", " "))
    figure, grid, across = panel_grid(len(panels), texts, title)
    for axes, panel in zip(grid, panels, strict=True):
        _draw_panel(axes, panel, styles, labels_in(panels), top)
    label_axes(grid, "training steps", name)
    handles = [Line2D([], [], linewidth=2.2, **style.line) for style in styles.values()]
    note = note_of(panels, column, windows, missing.games)
    draw_legend(figure, handles, texts, across, note)
    return figure


def labels_in(panels: Sequence[Panel]) -> list[str]:
    """The conditions of some panels, sorted."""
    curves = sorted((c for panel in panels for c in panel.curves), key=lambda c: c.order)
    return list(dict.fromkeys(curve.label for curve in curves))


def _draw_panel(
    axes: Axes,
    panel: Panel,
    styles: Mapping[str, Style],
    elsewhere: Sequence[str],
    top: float | None,
) -> None:
    for curve in panel.curves:
        draw_curve(axes, curve, styles[curve.label].line, top)
    if top is not None:
        axes.set_ylim(-0.02, 1.04 * top)
    head_panel(axes, panel.game, _tell_lacking(labels_in([panel]), elsewhere))
    dress_steps(axes, int(max(curve.steps[-1] for curve in panel.curves)))


def _tell_lacking(here: Sequence[str], elsewhere: Sequence[str]) -> str:
    lacking = [label for label in elsewhere if label not in here]
    if len(lacking) > 2:  # More names do not fit.
        return f"{len(here)} of {len(elsewhere)} conditions"
    return f"without {', '.join(lacking)}" if lacking else ""


def draw_curve(
    axes: Axes, curve: Curve, style: Mapping[str, Any], top: float | None = None
) -> None:
    """Draws a line with a band of its deviation, or with a thin line for each of a few seeds.

    The band ends at 0, or at the least value, and at ``top``, the largest possible value.
    """
    if curve.is_of_few:
        axes.plot(curve.steps, curve.of_seeds.T, linewidth=0.7, alpha=0.55, zorder=2, **style)
    else:
        low = np.maximum(curve.mean - curve.deviation, min(0, curve.of_seeds.min()))
        high = np.minimum(curve.mean + curve.deviation, np.inf if top is None else top)
        axes.fill_between(
            curve.steps, low, high, color=style["color"], alpha=0.16, linewidth=0, zorder=2
        )
    # A single point would be invisible as a line.
    marker = "o" if len(curve.steps) == 1 else ""
    axes.plot(
        curve.steps, curve.mean, linewidth=1.6, marker=marker, markersize=4, zorder=3, **style
    )


def spread_note(curves: Iterable[Curve]) -> str:
    """How the picture shows the seeds."""
    counts = [curve.is_of_few for curve in curves if len(curve.seeds) > 1]
    if not counts:
        return ""
    few = f"each seed where there are at most {FEW_SEEDS}"
    if all(counts):
        return "mean and each seed"
    band = "mean ± standard deviation over the seeds"
    return f"{band}, {few}" if any(counts) else band


def note_of(panels: Sequence[Panel], column: str, windows: set[int], missing: str = "") -> str:
    """How to read the lines and bands."""
    parts = [spread_note(curve for panel in panels for curve in panel.curves)]
    if column.endswith("_average") and len(windows) == 1:
        parts.append(f"moving average of {next(iter(windows)):,} steps")
    if missing:
        parts.append(f"{NOT_RUN}: {missing}")
    return "; ".join(filter(None, parts))


# Two metrics in a panel, and parts of a whole


@dataclass(frozen=True)
class Shares:
    """The shares of the steps of a condition, such as those of each head."""

    title: str
    steps: np.ndarray
    shares: np.ndarray
    """Rows × parts: the mean over the seeds."""


def pairs_figure(
    panels: Sequence[Sequence[Panel]], names: Sequence[str], ylabel: str, top: float | None
) -> Figure:
    """Two or three metrics of the same games: the first solid, the second dashed."""
    from matplotlib.lines import Line2D

    styles = styles_of(labels_in([panel for several in panels for panel in several]))
    colours = {label: style.colour for label, style in styles.items()}
    kinds = [(name, {"color": GREY, "linestyle": DASHES[i]}) for i, name in enumerate(names)]
    entries = kinds + [(label, {"color": colour}) for label, colour in colours.items()]
    texts = [text for text, _ in entries]
    figure, grid, across = panel_grid(len(panels), texts, None, share_y=top is not None)
    for axes, pair in zip(grid, panels, strict=True):
        for panel, dashes in zip(pair, DASHES, strict=False):
            for curve in panel.curves:
                style: Any = {"color": colours[curve.label], "linestyle": dashes}
                draw_curve(axes, curve, style, top)
        head_panel(axes, pair[0].game)
        dress_steps(axes, int(max(c.steps[-1] for panel in pair for c in panel.curves)))
        least = min(float(curve.of_seeds.min()) for panel in pair for curve in panel.curves)
        axes.set_ylim(min(0, 1.04 * least), None if top is None else 1.04 * top)
    label_axes(grid, "training steps", ylabel)
    handles = [Line2D([], [], linewidth=2.2, **style) for _, style in entries]
    note = spread_note(curve for pair in panels for panel in pair for curve in panel.curves)
    draw_legend(figure, handles, texts, across, note)
    return figure


def shares_figure(found: Sequence[Shares], part: str, note: str) -> Figure:
    """Shares as stacked areas, a panel for each condition. ``part`` names one of them."""
    from matplotlib.patches import Patch

    most = max(one.shares.shape[1] for one in found)
    texts = [f"{part} {k + 1}" for k in range(most)]
    figure, grid, across = panel_grid(len(found), texts, None)
    for axes, one in zip(grid, found, strict=True):
        colours = [COLOURS[k % len(COLOURS)] for k in range(one.shares.shape[1])]
        axes.stackplot(one.steps, one.shares.T, colors=colours, linewidth=0, alpha=0.85)
        head_panel(axes, one.title)
        dress_steps(axes, int(one.steps[-1]))
        axes.set_ylim(0, 1)
    label_axes(grid, "training steps", "share of the steps")
    handles = [Patch(facecolor=COLOURS[k % len(COLOURS)], alpha=0.85) for k in range(most)]
    draw_legend(figure, handles, texts, across, note)
    return figure
