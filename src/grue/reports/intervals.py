"""Points with intervals: a panel for each game, a row for each condition or comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grue.reports.picture import (
    GREY,
    INK,
    SMALL,
    draw_legend,
    dress,
    dress_steps,
    head_panel,
    label_axes,
    panel_column,
    panel_grid,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


HEAD, ROW = 0.75, 0.21
"""The height in inches of a panel without its rows, and of a row."""


@dataclass(frozen=True)
class Mark:
    """A row of a panel."""

    label: str
    colour: str
    value: float | None
    """Drawn as a point, or as a tick where there are ``points``."""
    low: float | None = None
    high: float | None = None
    points: tuple[float | int, ...] = ()
    """One for each seed."""
    text: str = ""
    """Written at the right end."""


@dataclass(frozen=True)
class MarkPanel:
    name: str
    marks: tuple[Mark, ...]


def intervals_figure(
    panels: Sequence[MarkPanel],
    below: str,
    note: str,
    last: int | None = None,
    middle: float | None = None,
) -> Figure:
    """Rows of points, on an axis from 0 to 1, or of powers of steps up to ``last``; a line marks
    ``middle``."""
    steps = [at for panel in panels for mark in panel.marks for at in mark.points]
    rows = [[mark.label for mark in panel.marks] for panel in panels]
    alike = all(labels == rows[0] for labels in rows)
    if alike:
        height = HEAD + ROW * len(rows[0])
        figure, grid, across = panel_grid(len(panels), [note], None, height=height)
    else:
        figure, grid, across = panel_column(list(map(len, rows)), ROW, HEAD)
    for axes, panel, labels in zip(grid, panels, rows, strict=True):
        if middle is not None:
            axes.axvline(middle, color=GREY, linewidth=0.9, linestyle=(0, (3, 2)), zorder=1)
        for row, mark in enumerate(panel.marks):
            _draw_mark(axes, row, mark)
        head_panel(axes, panel.name)
        if last is None:
            dress(axes)
            axes.set_xlim(-0.02, 1.02)
        else:
            dress_steps(axes, 1.05 * last, 0.8 * min(steps))
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
    label_axes(grid if alike else grid[-1:], below, "")
    draw_legend(figure, [], [], across, note)
    return figure


def _draw_mark(axes: Axes, row: int, mark: Mark) -> None:
    if mark.low is not None and mark.high is not None:
        bar: dict[str, Any] = {"linewidth": 5, "alpha": 0.35, "solid_capstyle": "butt", "zorder": 2}
        axes.plot([mark.low, mark.high], [row, row], color=mark.colour, **bar)
    axes.plot(
        mark.points, [row] * len(mark.points), "o", color=mark.colour, markersize=4, alpha=0.6
    )
    if mark.value is not None:
        shape = {"marker": "|", "markersize": 11, "markeredgewidth": 2}
        point = shape if mark.points else {"marker": "o", "markersize": 5}
        axes.plot([mark.value], [row], color=mark.colour, zorder=3, clip_on=False, **point)
    if mark.text:
        place: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        style: Any = {"va": "center", "size": SMALL, "color": GREY}
        axes.annotate(mark.text, (1, row), xytext=(4, 0), **place, **style)
