"""What the classifier, the gate and the heads did while a run was trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from grue.errors import GrueError
from grue.reports.curves import Panel, draw_curve, labels_in, spread_note
from grue.reports.picture import (
    COLOURS,
    DASHES,
    GREY,
    draw_legend,
    dress_steps,
    head_panel,
    label_axes,
    panel_grid,
    save_picture,
)
from grue.reports.styles import styles_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Heads:
    """How the steps of a condition were shared out among its heads."""

    title: str
    steps: np.ndarray
    shares: np.ndarray
    """Rows × heads: the mean over the seeds."""


def draw_pairs(
    panels: Sequence[tuple[Panel, Panel]],
    path: str | Path,
    title: str | None,
    names: tuple[str, str],
    ylabel: str,
    top: float | None,
) -> Path:
    """Writes two columns of the same games: the first in full lines, the second in dashes."""
    if not panels:
        raise GrueError(f"cannot draw {path}: no run has a classifier's row yet")
    return save_picture(path, lambda: _draw_pairs(panels, title, names, ylabel, top))


def draw_heads(heads: Sequence[Heads], path: str | Path, title: str | None) -> Path:
    """Writes the shares of the heads as areas, a panel for each condition."""
    if not heads:
        raise GrueError(f"cannot draw {path}: no run has more than one head")
    return save_picture(path, lambda: _draw_heads(heads, title))


def _draw_pairs(
    panels: Sequence[tuple[Panel, Panel]],
    title: str | None,
    names: tuple[str, str],
    ylabel: str,
    top: float | None,
) -> Figure:
    from matplotlib.lines import Line2D

    styles = styles_of(labels_in([first for first, _ in panels]))
    colours = {label: style.colour for label, style in styles.items()}
    kinds = [(name, {"color": GREY, "linestyle": DASHES[i]}) for i, name in enumerate(names)]
    entries = kinds + [(label, {"color": colour}) for label, colour in colours.items()]
    texts = [text for text, _ in entries]
    figure, grid, across = panel_grid(len(panels), texts, title, share_y=top is not None)
    for axes, pair in zip(grid, panels, strict=True):
        for panel, dashes in zip(pair, DASHES, strict=False):
            for curve in panel.curves:
                style: Any = {"color": colours[curve.label], "linestyle": dashes}
                draw_curve(axes, curve, style)
        head_panel(axes, pair[0].game)
        dress_steps(axes, int(max(c.steps[-1] for panel in pair for c in panel.curves)))
        axes.set_ylim(0, None if top is None else 1.04 * top)
    label_axes(grid, "training steps", ylabel)
    handles = [Line2D([], [], linewidth=2.2, **style) for _, style in entries]
    note = spread_note(curve for pair in panels for panel in pair for curve in panel.curves)
    draw_legend(figure, handles, texts, across, note)
    return figure


def _draw_heads(heads: Sequence[Heads], title: str | None) -> Figure:
    from matplotlib.patches import Patch

    most = max(one.shares.shape[1] for one in heads)
    texts = [f"head {k + 1}" for k in range(most)]
    figure, grid, across = panel_grid(len(heads), texts, title)
    for axes, one in zip(grid, heads, strict=True):
        count = one.shares.shape[1]
        axes.stackplot(one.steps, one.shares.T, colors=COLOURS[:count], linewidth=0, alpha=0.85)
        head_panel(axes, one.title)
        dress_steps(axes, int(one.steps[-1]))
        axes.set_ylim(0, 1)
    label_axes(grid, "training steps", "share of the steps")
    handles = [Patch(facecolor=COLOURS[k % len(COLOURS)], alpha=0.85) for k in range(most)]
    note = "mean over the seeds; scores take heads in the order in which a run first meets them"
    draw_legend(figure, handles, texts, across, note)
    return figure
