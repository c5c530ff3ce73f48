"""Small multiples: a row for each game, a column for each gate, and few curves per panel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from grue.agents.catalogue import GATES
from grue.reports.curves import Curve, Panel, draw_curve, labels_in
from grue.reports.picture import (
    DASHES,
    GREY,
    INK,
    LABEL,
    draw_legend,
    dress_steps,
    head_panel,
    legend_texts,
    panel_matrix,
    styles_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CURVES = 6
"""The number of curves that can be told apart in one panel."""
NO_GATE = "no gate"
LONGEST_TITLE = 18
"""Letters that fit above a panel."""


def are_too_many(panels: Sequence[Panel]) -> bool:
    return max((len(panel.curves) for panel in panels), default=0) > MOST_CURVES


def multiples_figure(
    rows: Sequence[Sequence[Panel]],
    names: Sequence[str],
    ylabel: str,
    note: str,
    top: float | None = None,
) -> Figure:
    """A row has the panels of one game, one for each of ``names``; these differ in their dashes."""
    from matplotlib.lines import Line2D

    panels = [panel for row in rows for panel in row]
    curves = [curve for panel in panels for curve in panel.curves]
    styles = styles_of(labels_in(panels))
    kinds = [(name, {"color": GREY, "linestyle": DASHES[i]}) for i, name in enumerate(names)]
    seeds = [(curve.label, len(curve.seeds)) for curve in curves]
    told = legend_texts(styles, seeds)
    entries: list[tuple[str, dict[str, Any]]] = kinds if len(kinds) > 1 else []
    entries += [(text, {"color": s.colour}) for text, s in zip(told, styles.values(), strict=True)]
    gates = sorted({gate_of(curve) for curve in curves}, key=_order)
    texts = [text for text, _ in entries]
    figure, grid, across = panel_matrix(len(rows), len(gates), texts)
    last = int(max(curve.steps[-1] for curve in curves))
    low = np.floor(10 * min(float(curve.mean.min()) for curve in curves)) / 10
    for across_row, row in zip(grid, rows, strict=True):
        for number, (axes, gate) in enumerate(zip(across_row, gates, strict=True)):
            for dashes, panel in zip(DASHES, row, strict=False):
                for curve in (one for one in panel.curves if gate_of(one) == gate):
                    style: Any = {"color": styles[curve.label].colour, "linestyle": dashes}
                    draw_curve(axes, curve, style, top)
            dress_steps(axes, last)
            head_panel(axes, _title(gate) if across_row is grid[0] else "")
            axes.set_ylim(low - 0.02, None if top is None else 1.04 * top)
            if not axes.lines:
                axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", color=GREY)
            if number == 0:
                axes.set_ylabel(f"{row[0].game}\n{ylabel}", size=LABEL, color=INK)
            if across_row is grid[-1]:
                axes.set_xlabel("training steps", size=LABEL, color=INK)
    handles = [Line2D([], [], linewidth=2.2, **style) for _, style in entries]
    draw_legend(figure, handles, texts, across, note)
    return figure


def gate_of(curve: Curve) -> str:
    """Of a label such as "sc + masking, 3 heads"."""
    return curve.label.partition(" + ")[2].partition(",")[0] or NO_GATE


def _title(gate: str) -> str:
    """On two lines where it would run into the next one."""
    return gate if len(gate) <= LONGEST_TITLE else gate.replace(" + ", "\n+ ", 1)


def _order(gate: str) -> tuple[int, str]:
    name = gate.partition(" + ")[0]  # An explorer may follow.
    return (GATES.number(name) if name in GATES else -1), gate
