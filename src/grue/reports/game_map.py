"""Draws a game's map: rooms by the compass, ways, doors, and the things in every room.

All lengths are in points, like those of text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from grue.games.game import Game, Thing
from grue.reports.layout import OPPOSITE, STEPS, Place, Way, is_straight, lay_out, ways
from grue.reports.picture import DOTS, FONT, GREY, INK, PAPER, save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[float, float]

TITLE, SMALL, NAME, ITEM, NOTE = 15, 9, 10, 9, 8
MARGIN, GAP, LINE, HEADER, PADDING, INDENT = 30.0, 34.0, 13.0, 19.0, 8.0, 11.0
BEND = 36.0
ROOM_HEADER, START_HEADER = "#e6eaf0", "#2f5d8a"
DOOR = "#8a6a45"
SOFTER = {"red": "#c9403a", "blue": "#2f6fd0", "green": "#3d9950", "yellow": "#e8c33a"}
KINDS = {  # marker, face and edge colour
    "portable": ("o", "#d9822b", "#d9822b"),
    "supporter": ("s", "#5b8c5a", "#5b8c5a"),
    "container": ("s", PAPER, "#5b8c5a"),
    "fitting": ("D", "#98a1ad", "#98a1ad"),
}


@dataclass(frozen=True)
class ListedThing:
    """A line in a room's box."""

    thing: Thing
    depth: int

    @property
    def text(self) -> str:
        return f"{self.thing.name} ({self.thing.state})" if self.thing.state else self.thing.name


@dataclass(frozen=True)
class Box:
    room: str
    rows: tuple[ListedThing, ...]
    centre: Point
    width: float
    height: float

    def side(self, direction: str) -> Point:
        """The middle of a side of the box."""
        east, north = STEPS[direction]
        return (
            self.centre[0] + east * self.width / 2,
            self.centre[1] + north * self.height / 2,
        )


def draw_map(game: Game, path: str | Path) -> Path:
    """Writes the game's map to a ``.png``, ``.svg`` or ``.pdf`` file and returns its path."""
    return save_picture(path, lambda: map_figure(game))


def contents(game: Game, holder: str, depth: int = 0) -> Iterator[ListedThing]:
    """The things in a room or on a thing, furniture first, each followed by what it holds."""
    order = ("supporter", "container", "fitting", "portable")
    held = [t for t in game.things if t.location == holder and t.kind in order]
    for thing in sorted(held, key=lambda t: (order.index(t.kind), t.name)):
        yield ListedThing(thing, depth)
        if thing.kind != "portable":
            yield from contents(game, thing.name, depth + 1)


def map_figure(game: Game) -> Figure:
    from matplotlib.figure import Figure

    places = lay_out(game.rooms, game.start)
    passages = ways(game.rooms)
    title, counts = game.name, _counts(game)
    legend = _legend_entries(game)
    boxes, width, height = _place_boxes(game, places, passages)

    legend_width = sum(entry_width for *_, entry_width in legend)
    heading = max(_text_width(title, TITLE, bold=True), _text_width(counts, SMALL)) + 40
    inner = max(width, heading, legend_width)
    below, above = 28.0, 62.0
    total_width, total_height = inner + 2 * MARGIN, height + 2 * MARGIN + below + above - 24

    figure = Figure(figsize=(total_width / 72, total_height / 72), facecolor=PAPER)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    # The origin is the lower left corner of the map proper.
    left = -MARGIN - (inner - width) / 2
    bottom = -MARGIN - below
    axes.set_xlim(left, left + total_width)
    axes.set_ylim(bottom, bottom + total_height)

    for way in passages:
        _draw_way(axes, game, way, places, boxes)
    for box in boxes.values():
        _draw_box(axes, box, box.room == game.start)
    corner = (left + MARGIN, bottom + total_height - 26)
    _draw_heading(axes, corner, title, counts)
    _draw_compass(axes, (left + total_width - MARGIN - 8, corner[1] - 12))
    _draw_legend(axes, legend, (left + MARGIN, bottom + MARGIN - 8))
    return figure


def _counts(game: Game) -> str:
    parts = (
        (len(game.rooms), "room"),
        (len(game.objects), "object"),
        (len(game.subtasks), "subtask"),
        (game.max_score, "point"),
    )
    text = ", ".join(f"{number} {noun}{'' if number == 1 else 's'}" for number, noun in parts)
    carried = [t.name for t in game.things if t.kind == "portable" and not t.location]
    return f"{text}; carried: {', '.join(carried)}" if carried else text


def _place_boxes(
    game: Game, places: Mapping[str, Place], passages: Sequence[Way]
) -> tuple[dict[str, Box], float, float]:
    """Every room's box, on a grid with columns and rows as large as needed, and the total size."""
    rows = {name: tuple(contents(game, name)) for name in places}
    widths = {name: _box_width(name, rows[name], name == game.start) for name in places}
    heights = {name: HEADER + (len(r) * LINE + PADDING if r else 0) for name, r in rows.items()}
    columns = {place[0] for place in places.values()}
    levels = {place[1] for place in places.values()}
    column_size = dict.fromkeys(range(min(columns), max(columns) + 1), 0.0)
    row_size = dict.fromkeys(range(min(levels), max(levels) + 1), 0.0)
    for name, (column, row) in places.items():
        column_size[column] = max(column_size[column], widths[name])
        row_size[row] = max(row_size[row], heights[name])
    column_gap, row_gap = dict.fromkeys(column_size, GAP), dict.fromkeys(row_size, GAP)
    for way in passages:
        if way.door is None:
            continue
        label = _text_width(way.door, NOTE)
        column, row = map(min, zip(places[way.here], places[way.there], strict=True))
        if way.direction in ("east", "west"):
            column_gap[column] = max(column_gap[column], label + 16)
        else:
            row_gap[row] = GAP + 10
            # The label is right of the door and may fill half the column and the gap.
            column_size[column] = max(column_size[column], 2 * (label + 20 - GAP))

    across, width = _centres(column_size, column_gap)
    up, height = _centres(row_size, row_gap)
    boxes = {
        # All boxes of a column have its width, so that columns are easy to see.
        name: Box(name, rows[name], (across[column], up[row]), column_size[column], heights[name])
        for name, (column, row) in places.items()
    }
    return boxes, width, height


def _centres(
    sizes: Mapping[int, float], gaps: Mapping[int, float]
) -> tuple[dict[int, float], float]:
    """The middle of every column or row, and the end of the last one."""
    centres: dict[int, float] = {}
    begin = end = 0.0
    for index in sorted(sizes):
        end = begin + sizes[index]
        centres[index] = (begin + end) / 2
        begin = end + gaps[index]
    return centres, end


def _box_width(name: str, rows: Sequence[ListedThing], start: bool) -> float:
    header = _text_width(name, NAME, bold=True) + 2 * PADDING + (14 if start else 0)
    items = [_text_width(r.text, ITEM) + 2 * PADDING + 11 + r.depth * INDENT for r in rows]
    return max(64.0, header, *items)


@cache
def _text_width(text: str, size: int, bold: bool = False) -> float:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    if not text.strip():
        return 0.0
    font = FontProperties(family=FONT, size=size, weight="bold" if bold else "normal")
    # TextPath would read two dollar signs as a formula.
    return float(TextPath((0, 0), text.replace("$", "S"), prop=font).get_extents().x1)


def _draw_box(axes: Axes, box: Box, start: bool) -> None:
    from matplotlib.patches import Rectangle

    left, bottom = box.centre[0] - box.width / 2, box.centre[1] - box.height / 2
    top = bottom + box.height
    size, colour = (box.width, box.height), START_HEADER if start else ROOM_HEADER
    header: dict[str, Any] = {"facecolor": colour, "edgecolor": "none"}
    frame: dict[str, Any] = {"facecolor": "none", "edgecolor": START_HEADER if start else GREY}
    frame["linewidth"] = 2.0 if start else 1.0
    for patch in (
        Rectangle((left, bottom), *size, facecolor=PAPER, edgecolor="none", zorder=3),
        Rectangle((left, top - HEADER), box.width, HEADER, zorder=4, **header),
        Rectangle((left, bottom), *size, zorder=5, **frame),
    ):
        axes.add_patch(patch)
    middle = top - HEADER / 2
    shift = 7.0 if start else 0.0
    if start:
        half = _text_width(box.room, NAME, bold=True) / 2
        axes.plot(box.centre[0] - half - 2, middle, "*", color=PAPER, markersize=8, zorder=5)
    style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "zorder": 5}
    style |= {"size": NAME, "weight": "bold", "color": PAPER if start else INK}
    axes.text(box.centre[0] + shift, middle, box.room, **style)
    for number, row in enumerate(box.rows):
        x = left + PADDING + row.depth * INDENT + 3
        y = top - HEADER - PADDING / 2 - (number + 0.5) * LINE
        _draw_marker(axes, row.thing.kind, (x, y))
        axes.text(x + 8, y, row.text, size=ITEM, va="center_baseline", color=INK, zorder=5)


def _draw_marker(axes: Axes, kind: str, at: Point) -> None:
    marker, face, edge = KINDS[kind]
    size = 4.6 if marker == "D" else 5.2
    axes.plot(*at, marker, markersize=size, markerfacecolor=face, markeredgecolor=edge, zorder=5)


def _draw_way(
    axes: Axes, game: Game, way: Way, places: Mapping[str, Place], boxes: Mapping[str, Box]
) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path as Curve

    begin = boxes[way.here].side(way.direction)
    end = boxes[way.there].side(OPPOSITE[way.direction])
    east, north = STEPS[way.direction]
    straight = is_straight(way, places)
    points: list[Any] = [begin, end]
    if not straight:
        # A curve that leaves and arrives in the direction of the compass.
        points[1:1] = [
            (begin[0] + east * BEND, begin[1] + north * BEND),
            (end[0] - east * BEND, end[1] - north * BEND),
        ]
    codes = [Curve.MOVETO, *([Curve.LINETO] if straight else [Curve.CURVE4] * 3)]
    axes.add_patch(
        FancyArrowPatch(
            path=Curve(points, codes),
            color=GREY,
            linewidth=1.6,
            zorder=2,
            arrowstyle="-|>" if way.one_way else "-",
            mutation_scale=10,
            linestyle="solid" if straight else (0, (4, 2)),
        )
    )
    if way.door:
        # The weights of the middle of a cubic curve; they give the middle of a line, too.
        middle = tuple(
            (points[0][i] + 3 * points[1][i] + 3 * points[-2][i] + points[-1][i]) / 8
            for i in (0, 1)
        )
        _draw_door(axes, _door(game, way.door), (middle[0], middle[1]), horizontal=east != 0)


def _door(game: Game, name: str) -> Thing:
    return next(thing for thing in game.things if thing.kind == "door" and thing.name == name)


def _draw_door(axes: Axes, door: Thing, at: Point, horizontal: bool) -> None:
    from matplotlib.patches import Rectangle

    colour = door_colour(door.name)
    width, height = (6.0, 18.0) if horizontal else (18.0, 6.0)
    corner, face = (
        (at[0] - width / 2, at[1] - height / 2),
        PAPER if door.state == "open" else colour,
    )
    line: dict[str, Any] = {"edgecolor": INK, "linewidth": 0.8, "zorder": 6}
    axes.add_patch(Rectangle(corner, width, height, facecolor=face, **line))
    behind = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.5}
    style: dict[str, Any] = {"size": NOTE, "color": INK, "zorder": 6, "bbox": behind}
    if horizontal:
        axes.text(at[0], at[1] + 12, door.name, ha="center", va="bottom", **style)
        axes.text(at[0], at[1] - 12, door.state, ha="center", va="top", **style)
    else:
        axes.text(at[0] + 14, at[1], f"{door.name}\n{door.state}", va="center", **style)


def door_colour(name: str) -> str:
    """The colour in the door's name, or that of wood."""
    from matplotlib.colors import CSS4_COLORS

    colours = {**CSS4_COLORS, **SOFTER}
    return next((colours[word] for word in name.lower().split() if word in colours), DOOR)


def _draw_heading(axes: Axes, at: Point, title: str, counts: str) -> None:
    axes.text(*at, title, size=TITLE, weight="bold", color=INK, va="center_baseline")
    axes.text(at[0], at[1] - 20, counts, size=SMALL, color=GREY, va="center_baseline")


def _draw_compass(axes: Axes, at: Point) -> None:
    arrow: dict[str, Any] = {"arrowstyle": "-|>", "color": GREY, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (at[0], at[1] + 10), (at[0], at[1] - 12), arrowprops=arrow)
    axes.text(at[0], at[1] + 11, "N", size=SMALL, color=GREY, ha="center", va="bottom")


def _legend_entries(game: Game) -> list[tuple[str, str, float]]:
    """The marks that are on the map: kind, text, width."""
    present = {thing.kind for thing in game.things}
    named = [("start", "start"), *((kind, kind) for kind in (*KINDS, "door") if kind in present)]
    return [(kind, text, _text_width(text, NOTE) + 30) for kind, text in named]


def _draw_legend(axes: Axes, entries: Sequence[tuple[str, str, float]], at: Point) -> None:
    from matplotlib.patches import Rectangle

    x, y = at
    for kind, text, width in entries:
        if kind == "start":
            axes.add_patch(Rectangle((x - 1, y - 5), 12, 10, facecolor=START_HEADER))
            axes.plot(x + 5, y, "*", color=PAPER, markersize=6)
        elif kind == "door":
            axes.add_patch(
                Rectangle((x + 5, y - 6), 4.5, 12, facecolor=DOOR, edgecolor=INK, linewidth=0.8)
            )
        else:
            _draw_marker(axes, kind, (x + 6, y))
        axes.text(x + 15, y, text, size=NOTE, color=GREY, va="center_baseline")
        x += width


# Several maps in one picture


def draw_maps(games: Sequence[Game], path: str | Path) -> Path:
    """Writes the maps of several games, two in a row, to one picture and returns its path."""
    return save_picture(path, lambda: _side_by_side(games))


def _side_by_side(games: Sequence[Game]) -> Figure:
    from matplotlib.figure import Figure

    images = [_pixels(game) for game in games]
    rows = [images[i : i + 2] for i in range(0, len(images), 2)]
    heights = [max(image.shape[0] for image in row) for row in rows]
    left = max(row[0].shape[1] for row in rows)
    width = max(sum((left, row[1].shape[1])) if len(row) > 1 else row[0].shape[1] for row in rows)
    figure = Figure((width / DOTS, sum(heights) / DOTS), dpi=DOTS, facecolor=PAPER)
    top = sum(heights)
    for row, height in zip(rows, heights, strict=True):
        for image, x in zip(row, (0, left), strict=False):
            figure.figimage(image, x, top - image.shape[0])
        top -= height
    return figure


def _pixels(game: Game) -> np.ndarray:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = map_figure(game)
    figure.set_dpi(DOTS)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba()).copy()
