"""Grouped bars: a group for each level, a bar for each condition.

``mean_bars`` computes the mean ± standard deviation over the seeds. ``draw_bars`` draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from grue.errors import GrueError, UsageError
from grue.experiments.scales import LEVEL
from grue.reports.picture import (
    GREY,
    INK,
    LABEL,
    NOT_RUN,
    SMALL,
    Style,
    draw_legend,
    dress,
    legend_columns,
    legend_texts,
    new_figure,
    save_picture,
    styles_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SPREAD = "mean ± standard deviation over the seeds"


@runtime_checkable
class Measured(Protocol):
    """One condition on one game: a record."""

    @property
    def game(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def seeds(self) -> tuple[int, ...]: ...
    @property
    def final(self) -> np.ndarray: ...


Value = Callable[[Measured], np.ndarray]
"""A number for each seed."""


def final(record: Measured) -> np.ndarray:
    return record.final


@dataclass(frozen=True)
class Bar:
    """A mean and standard deviation over the seeds."""

    label: str
    game: str
    value: float
    spread: float
    seeds: tuple[int, ...]
    """The seeds with a value."""


def mean_bars(
    records: Sequence[Measured],
    games: Sequence[str],
    labels: Sequence[str],
    value: Value = final,
) -> tuple[Bar, ...]:
    """The mean ± standard deviation (divided by n) of a value of each seed, without nan.

    A condition without a value has no bar.
    """
    found: dict[tuple[str, str], Measured] = {}
    for record in records:
        if found.setdefault((record.game, record.label), record) is not record:
            raise UsageError(
                f"there are two records of {record.label} on {record.game}; give one of them"
            )
    bars = []
    for game in games:
        for label in labels:
            if (record := found.get((game, label))) is None:
                continue
            values = np.asarray(value(record), float)
            known = np.isfinite(values)
            if known.any():
                seeds = tuple(s for s, k in zip(record.seeds, known, strict=True) if k)
                mean, spread = float(values[known].mean()), float(values[known].std())
                bars.append(Bar(label, game, mean, spread, seeds))
    return tuple(bars)


def draw_bars(
    records: Sequence[Measured],
    levels: Sequence[int],
    labels: Sequence[str],
    path: str | Path,
    title: str | None = None,
    ylabel: str = "fraction of subtasks",
    value: Value = final,
    tops: Mapping[str, float] | None = None,
) -> tuple[Bar, ...]:
    """Draws the conditions named by ``labels`` over some levels and returns the bars.

    A condition that is missing on a level gets a dash. ``tops`` are the largest possible values of
    games; without one it is 1.
    """
    games = [f"{LEVEL}{level}" for level in levels]
    bars = mean_bars(records, games, labels, value)
    if not bars:
        raise GrueError(f"cannot draw {path}: there is no result for it yet")
    save_picture(path, lambda: bars_figure(bars, games, labels, title, ylabel, tops))
    return bars


def bars_figure(
    bars: Sequence[Bar],
    games: Sequence[str],
    labels: Sequence[str],
    title: str | None = None,
    ylabel: str = "fraction of subtasks",
    tops: Mapping[str, float] | None = None,
) -> Figure:
    """A group for each game, with a place for each label."""
    from matplotlib.patches import Patch

    styles = styles_of(labels)
    texts = legend_texts(labels, [(bar.label, len(bar.seeds)) for bar in bars])
    width = min(max(5.2, 1.6 + 0.26 * len(games) * (len(labels) + 1)), 12.0)
    across = legend_columns(texts, width)
    more = 0.5 + 0.2 * -(-len(texts) // across) + (0.35 if title else 0.0)
    figure = new_figure(width, 3.0 + more, title)
    axes = figure.subplots()
    tops = dict.fromkeys(games, 1.0) if tops is None else tops
    _draw_groups(axes, bars, games, labels, styles, tops)
    axes.set_ylabel(ylabel, size=LABEL, color=INK)
    axes.set_ylim(0, 1.04 * max(tops.values()))
    handles = [Patch(edgecolor="white", **styles[label].bar) for label in labels]
    note = f"; – {NOT_RUN}" if len(bars) < len(games) * len(labels) else ""
    draw_legend(figure, handles, texts, across, SPREAD + note)
    return figure


def _draw_groups(
    axes: Axes,
    bars: Sequence[Bar],
    games: Sequence[str],
    labels: Sequence[str],
    styles: Mapping[str, Style],
    tops: Mapping[str, float],
) -> None:
    found = {(bar.game, bar.label): bar for bar in bars}
    width = 0.82 / len(labels)
    for group, game in enumerate(games):
        for i, label in enumerate(labels):
            at = group + (i - (len(labels) - 1) / 2) * width
            bar = found.get((game, label))
            if bar is None:
                axes.text(at, 0, "–", ha="center", va="bottom", size=SMALL, color=GREY)
                continue
            axes.bar(
                at, bar.value, width * 0.9, edgecolor="white", linewidth=0, **styles[label].bar
            )
            if bar.spread:
                ends: Any = {"elinewidth": 1.0, "capsize": min(3.0, 14 * width), "capthick": 1.0}
                # No run can be above the game's top or below 0.
                reach = [[min(bar.spread, bar.value)], [min(bar.spread, tops[game] - bar.value)]]
                axes.errorbar(at, bar.value, reach, color=INK, **ends)
    dress(axes)
    axes.set_xlim(-0.5, len(games) - 0.5)
    axes.set_xticks(range(len(games)), [game.removeprefix(LEVEL) for game in games])
    axes.tick_params(axis="x", length=0)
    if all(game.startswith(LEVEL) for game in games):
        axes.set_xlabel("level", size=LABEL, color=INK)
