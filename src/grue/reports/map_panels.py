"""Several maps in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from grue.games.game import Game
from grue.reports.game_map import map_figure
from grue.reports.picture import DOTS, PAPER, save_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_maps(games: Sequence[Game], path: str | Path) -> Path:
    """Writes the maps of some games, two beside each other, to a picture and returns its path."""
    return save_picture(path, lambda: _draw(games))


def _draw(games: Sequence[Game]) -> Figure:
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
