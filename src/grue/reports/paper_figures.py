"""Draws the paper's figures from records, each with its numbers beside it.

FOLDER/NAME.png    the figure
FOLDER/NAME.json   its numbers, and which runs are missing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grue.errors import GrueError
from grue.experiments.conditions import Condition
from grue.experiments.figures import Figure
from grue.experiments.records import Record, laid_out
from grue.experiments.scales import game_name, level_of
from grue.experiments.wishes import Wish, finished, missing, tell_levels, tell_missing
from grue.files import write_atomically
from grue.games.registry import load
from grue.reports.bars import draw_bars
from grue.reports.curves import NAMES, Missing, Panel, curves_figure
from grue.reports.drawings import panels_of
from grue.reports.game_map import draw_maps
from grue.reports.picture import save_picture
from grue.reports.summary import Named
from grue.training.config import TrainConfig

COLUMNS = ("figure", "picture", "missing")
DIGITS = 6
"""Of the numbers in the JSON file."""


@dataclass(frozen=True)
class Drawn:
    figure: Figure
    path: Path | None
    """None where there is no result to draw yet."""
    missing: tuple[TrainConfig, ...]
    seeds: tuple[int, ...]
    """The requested seeds."""

    def row(self) -> list[str]:
        path = "nothing to draw yet" if self.path is None else str(self.path)
        return [self.figure.name, path, tell_missing(self.missing, self.seeds)]


def draw_figure(
    figure: Figure, wish: Wish, records: Sequence[Record], folder: Path, least: int = 1
) -> Drawn:
    """Draws a figure from the finished runs, and writes its numbers beside it.

    A figure with fewer than ``least`` finished conditions is not drawn, unless it has fewer in all.
    """
    configs = wish.configs_of(figure)
    lacking = tuple(missing(records, configs))
    found = [record for config in configs if (record := finished(records, config)) is not None]
    shown = [record for record in found if _tells(record, figure)]
    wanted = len({Condition.of(config).label for config in configs})
    if configs and len({record.label for record in shown}) < min(least, wanted):
        return Drawn(figure, None, lacking, wish.all_seeds)
    path = folder / f"{figure.name}.png"
    numbers: dict[str, Any] = {
        "figure": figure.name,
        "title": figure.title,
        "paper": {"figure": figure.paper, "caption": figure.caption},
        "scale": wish.scale.name,
        **({"given": dict(wish.scale.given)} if wish.scale.given else {}),
        **_drawing(figure, shown, path),
        "missing": [
            {**_place(c.game), "condition": Condition.of(c).label, "seeds": list(c.seeds)}
            for c in lacking
        ],
    }
    text = laid_out(numbers, 2) + "\n"
    write_atomically(path.with_suffix(".json"), lambda file: file.write(text.encode()))
    return Drawn(figure, path, lacking, wish.all_seeds)


def _tells(record: Record, figure: Figure) -> bool:
    """Whether a record has values of what a figure shows."""
    values = record.columns.get(figure.column)
    return values is not None and bool(np.isfinite(values).any())


def _drawing(figure: Figure, records: Sequence[Record], path: Path) -> dict[str, Any]:
    """Draws, and returns the numbers that were drawn."""
    if figure.kind == "maps":
        return _maps(figure, path)
    config = records[0].config
    told = {"steps": config.steps, "average_over": config.average_over}
    if figure.kind == "curves":
        return told | _curves(figure, records, path)
    return told | _bars(figure, records, path)


def _bars(figure: Figure, records: Sequence[Record], path: Path) -> dict[str, Any]:
    """Bars of fractions, or of numbers of subtasks."""
    tasks = figure.kind == "tasks"
    subtasks = {record.game: len(load(record.game).subtasks) for record in records}

    def value(record: Any) -> np.ndarray:
        return record.final * (subtasks[record.game] if tasks else 1)

    what = "subtasks solved" if tasks else "fraction of subtasks"
    tops = {game: float(number) for game, number in subtasks.items()} if tasks else None
    levels = [level for level in figure.levels if isinstance(level, int)]
    bars = draw_bars(records, levels, figure.labels, path, figure.title, what, value, tops)
    values = {
        (record.game, record.label): dict(zip(record.seeds, value(record), strict=True))
        for record in records
    }
    return {
        "value": what,
        "bars": [
            {
                **_place(bar.game),
                "condition": bar.label,
                "mean": round(bar.value, DIGITS),
                "deviation": round(bar.spread, DIGITS),
                "seeds": list(bar.seeds),
                "of_seeds": [
                    round(float(values[bar.game, bar.label][seed]), DIGITS) for seed in bar.seeds
                ],
            }
            for bar in bars
        ],
    }


def _curves(figure: Figure, records: Sequence[Record], path: Path) -> dict[str, Any]:
    panels = panels_of([Named(record.label, record) for record in records], figure.column)
    windows = {record.config.average_over for record in records}
    lacking = _lacking(figure, panels)
    save_picture(path, lambda: curves_figure(panels, figure.column, figure.title, windows, lacking))
    return {
        "value": NAMES[figure.column],
        "curves": [
            {
                **_place(panel.game),
                "condition": curve.label,
                "seeds": list(curve.seeds),
                "at": curve.steps.tolist(),
                "mean": np.round(curve.mean, DIGITS).tolist(),
                "deviation": np.round(curve.deviation, DIGITS).tolist(),
            }
            for panel in panels
            for curve in panel.curves
        ],
    }


def _lacking(figure: Figure, panels: Sequence[Panel]) -> Missing:
    """The conditions and games of a figure that no panel shows."""
    there = {curve.label for panel in panels for curve in panel.curves}
    games = {panel.game for panel in panels}
    levels = [level for level in figure.levels if game_name(level) not in games]
    labels = tuple(label for label in figure.labels if label not in there)
    return Missing(labels, tell_levels(levels) if levels else "")


def _maps(figure: Figure, path: Path) -> dict[str, Any]:
    games = [load(game_name(level)) for level in figure.levels]
    draw_maps(games, path)
    return {
        "maps": [
            {
                "level": level,
                "rooms": len(game.rooms),
                "objects": len(game.objects),
                "subtasks": len(game.subtasks),
                "commands": len(game.commands),
            }
            for level, game in zip(figure.levels, games, strict=True)
        ]
    }


def _place(game: str) -> dict[str, int | str]:
    level = level_of(game)
    return {"level" if isinstance(level, int) else "game": level}


def check_drawn(drawn: Sequence[Drawn], scale: str) -> None:
    """Raises an error if nothing at all was drawn."""
    if drawn and all(one.path is None for one in drawn):
        raise GrueError(
            f"nothing that {drawn[0].figure.name} shows has been run yet at the scale {scale}; "
            "run it without --draw-only, or give --data, or another --scale"
        )
