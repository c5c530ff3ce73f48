"""What all pictures share: fonts, colours and line styles, panels, legends, and atomic files."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from grue.errors import GrueError, UsageError
from grue.experiments.figures import FILE, read_colours
from grue.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS = 160
"""Per inch."""
FORMATS = (".png", ".svg", ".pdf")
FONT = "DejaVu Sans"  # Matplotlib brings it along, so pictures are the same everywhere.
INK, GREY, PAPER = "#22272e", "#6b7480", "#ffffff"
TITLE, LABEL, SMALL = 11, 9.5, 8.5
LETTER = 0.068
"""A generous width in inches for a letter of the smallest size."""
COLOURS = ("#1f6fb4", "#c2491d", "#1e8a5c", "#8a5bb0", "#a97a08", "#3fa7c4", "#b83d6b", "#59636e")
NOT_RUN = "not run"
DASHES = ("solid", (0, (3, 1.3)), (0, (1.2, 1.2)))
HATCHES = ("", "////", "....")
"""Markers; like the dashes, used if there are more conditions than colours."""
FIXED = {c.label: colour for c, colour in read_colours(FILE).items()}
"""The colour of each of the paper's conditions, the same in every picture."""


@dataclass(frozen=True)
class Style:
    colour: str
    turn: int = 0
    """How often all colours were used before."""

    @property
    def line(self) -> dict[str, Any]:
        return {"color": self.colour, "linestyle": DASHES[self.turn % len(DASHES)]}

    @property
    def bar(self) -> dict[str, Any]:
        return {"facecolor": self.colour, "hatch": HATCHES[self.turn % len(HATCHES)]}


def styles_of(labels: Sequence[str]) -> dict[str, Style]:
    """Styles of some conditions, in their order. Other conditions than the paper's share what is
    left of the colours."""
    fixed = {label: Style(FIXED[label]) for label in labels if label in FIXED}
    used = {style.colour for style in fixed.values()}
    free = [colour for colour in COLOURS if colour not in used]
    others = [label for label in dict.fromkeys(labels) if label not in fixed]
    rest = {label: Style(free[i % len(free)], i // len(free)) for i, label in enumerate(others)}
    return {label: (fixed | rest)[label] for label in dict.fromkeys(labels)}


def save_picture(path: str | Path, draw: Callable[[], Figure]) -> Path:
    """Draws to a ``.png``, ``.svg`` or ``.pdf`` file and returns its path.

    The same figure always gives the same bytes.
    """
    import matplotlib

    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"cannot draw to {path}: the name must end in {', '.join(FORMATS)}")
    format_ = path.suffix.lower()[1:]
    undated: Any = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(format_, {})
    settings: Any = {"font.family": FONT, "svg.hashsalt": "grue", "text.parse_math": False}

    def write(file: BinaryIO) -> None:
        with matplotlib.rc_context(settings):
            draw().savefig(file, format=format_, dpi=DOTS, metadata=undated)

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, write)
    except OSError as error:
        raise GrueError(f"cannot write {path}: {error.strerror}") from None
    return path


def new_figure(width: float | int, height: float | int, title: str | None) -> Figure:
    """An empty figure, in inches."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    figure = Figure(figsize=(width, height), facecolor=PAPER, layout=layout)
    if title:
        figure.suptitle(title, size=TITLE + 2, weight="bold", color=INK, x=0.015, ha="left")
    return figure


def panel_grid(
    panels: int,
    legend: Sequence[str],
    title: str | None,
    share_y: bool = True,
    height: float | None = None,
) -> tuple[Figure, list[Axes], int]:
    """A figure, its panels, and the number of columns of its legend."""
    columns = _columns(panels)
    rows = -(-panels // columns)
    width, usual = (6.6, 3.6) if panels == 1 else (4.0, 2.7)
    height = usual if height is None else height
    across = legend_columns(legend, columns * width)
    # The heading and the legend come on top of the panels.
    more = 0.45 + 0.2 * -(-len(legend) // across) + (0.35 if title else 0.0)
    figure = new_figure(columns * width, rows * height + more, title)
    grid = list(figure.subplots(rows, columns, squeeze=False, sharey=share_y).flatten())
    for axes in grid[panels:]:
        axes.set_axis_off()
    return figure, grid[:panels], across


def panel_matrix(
    rows: int, columns: int, legend: Sequence[str]
) -> tuple[Figure, list[list[Axes]], int]:
    """Small panels in rows that share their axes, and the number of columns of the legend."""
    width = max(2.35 * columns, 5.2)
    across = legend_columns(legend, width)
    figure = new_figure(width, 1.7 * rows + 0.8 + 0.2 * -(-len(legend) // across), None)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    return figure, [list(row) for row in grid], across


def panel_column(rows: Sequence[int], row: float, head: float) -> tuple[Figure, list[Axes], int]:
    """The same with panels below each other, each with some rows. Sizes are in inches."""
    height = sum(head + row * count for count in rows) + 0.65
    figure = new_figure(6.6, height, None)
    grid = figure.subplots(len(rows), 1, squeeze=False, height_ratios=rows)
    return figure, list(grid.flatten()), 1


def _columns(panels: int) -> int:
    return {1: 1, 2: 2, 4: 2}.get(panels, 3)


def dress(axes: Axes) -> None:
    """Light horizontal grid lines, no box."""
    axes.grid(axis="y", color="#e3e7ec", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=SMALL, colors=GREY, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#b4bcc6")


def dress_steps(axes: Axes, last: float | int, first: float = 0.0) -> None:
    """``dress`` with an x axis of training steps: from 0, or in powers from ``first``."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if first:
        axes.set_xscale("log")
        axes.set_xlim(first, last)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(0, last)
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda steps, _: short_number(steps)))
    dress(axes)


def head_panel(axes: Axes, title: str, note: str = "") -> None:
    axes.set_title(title, size=TITLE, weight="bold", color=INK, loc="left", pad=8)
    axes.set_title(note, size=SMALL, color=GREY, loc="right", pad=8)


def label_axes(grid: Sequence[Axes], below: str, beside: str) -> None:
    """Labels the axes, once for each row and column of panels."""
    columns = _columns(len(grid))
    for axes in grid[::columns]:
        axes.set_ylabel(beside, size=LABEL, color=INK)
    for axes in grid[max(0, len(grid) - columns) :]:
        axes.set_xlabel(below, size=LABEL, color=INK)


def legend_columns(texts: Sequence[str], width: float | int) -> int:
    """The number of legend columns that fit into a width in inches, evenly filled."""
    longest = max(map(len, texts), default=0) * 0.075 + 0.55
    rows = -(-max(len(texts), 1) // max(1, int(width / longest)))
    return -(-max(len(texts), 1) // rows)


def draw_legend(
    figure: Figure, handles: Sequence[Any], texts: Sequence[str], columns: int, note: str
) -> None:
    """Draws a legend below the panels, titled by a note on how to read them, in lines that fit."""
    legend = figure.legend(
        handles,
        texts,
        loc="outside lower left",
        ncols=columns,
        fontsize=SMALL,
        frameon=False,
        labelcolor=INK,
        handlelength=1.8,
        columnspacing=1.6,
        title=textwrap.fill(note, int((figure.get_figwidth() - 0.2) / LETTER)),
        title_fontsize=SMALL,
        alignment="left",
    )
    legend.get_title().set_color(GREY)


def legend_texts(labels: Iterable[str], seeds: Sequence[tuple[str, int]]) -> list[str]:
    """Conditions with their numbers of seeds: "sc (3 to 5 seeds)", "drqn (not run)"."""
    return [f"{label} ({_seeds([n for name, n in seeds if name == label])})" for label in labels]


def _seeds(counts: Sequence[int]) -> str:
    if len(set(counts)) > 1:
        return f"{min(counts)} to {max(counts)} seeds"
    return NOT_RUN if not counts else "1 seed" if counts[0] == 1 else f"{counts[0]} seeds"


def short_number(value: float | int) -> str:
    """15000 as "15k", 1300000 as "1.3M"."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
