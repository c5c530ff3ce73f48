"""What ``grue reproduce`` does: runs what some figures need, and draws them.

OUT/figures/NAME.png    the figure
OUT/figures/NAME.json   the numbers in it, and which runs it misses
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grue.errors import GrueError, UsageError
from grue.experiments.figures import (
    FIGURES,
    Figure,
    find_figures,
    left_out,
    parse_conditions,
    parse_levels,
)
from grue.experiments.records import Record, label_of, laid_out
from grue.experiments.runner import Places, finished, missing, run_missing
from grue.experiments.scales import LEVEL, Wish, find_scale, level_of
from grue.games.registry import load
from grue.reports.bars import draw_bars
from grue.reports.curves import draw_panels, learning_curves
from grue.reports.maps import draw_maps
from grue.training.checkpoint import write_atomically
from grue.training.config import TrainConfig, parse_seeds
from grue.training.progress import Display
from grue.training.train import CHECKPOINT_SECONDS

COLUMNS = ("figure", "picture", "missing")
LISTED = ("figure", "shows", "kind", "levels", "conditions", "in_the_paper")
DIGITS = 6
"""Of the numbers that are written beside a figure."""


@dataclass(frozen=True)
class Drawn:
    figure: Figure
    path: Path | None
    """None where nothing that it shows has a result yet."""
    missing: tuple[TrainConfig, ...]
    seeds: tuple[int, ...]
    """Those that were asked for."""

    def row(self) -> list[str]:
        path = "nothing to draw yet" if self.path is None else str(self.path)
        return [self.figure.name, path, tell_missing(self.missing, self.seeds)]


def table_of_figures() -> list[list[str]]:
    return [
        [
            figure.name,
            figure.title,
            figure.kind if figure.runnable else "needs a story file",
            spans(figure.levels),
            ", ".join(figure.labels),
            figure.paper,
        ]
        for figure in FIGURES.values()
    ]


def make_wish(
    name: str,
    scale: str,
    levels: str | None = None,
    conditions: str | None = None,
    seeds: str | None = None,
) -> Wish:
    """What a command line asks for."""
    wish = Wish(
        find_figures(name),
        find_scale(scale),
        None if levels is None else parse_levels(levels),
        None if conditions is None else parse_conditions(conditions),
        None if seeds is None else parse_seeds(seeds),
    )
    if not wish.configs() and any(figure.conditions for figure in wish.figures):
        raise UsageError(f"{name} shows nothing of these --levels and --conditions")
    return wish


def reproduce(
    wish: Wish,
    places: Places,
    draw_only: bool = False,
    jobs: int | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> list[Drawn]:
    """Runs what is missing and draws all figures."""
    with Display() as display:
        if len(wish.figures) > 1:
            names = ", ".join(figure.name for figure in left_out())
            display.say(f"left out, for they need a story file: {names}")
        if draw_only or not wish.configs():
            records = places.read()
        else:
            records = run_missing(wish, places, display, jobs, checkpoint_seconds)
    return [draw_figure(figure, wish, records, places.out / "figures") for figure in wish.figures]


# Drawing


def draw_figure(figure: Figure, wish: Wish, records: Sequence[Record], folder: Path) -> Drawn:
    """Draws a figure from the finished runs that there are, with its numbers beside it."""
    configs = wish.configs_of(figure)
    lacking = tuple(missing(records, configs))
    shown = [record for config in configs if (record := finished(records, config)) is not None]
    if configs and not shown:
        return Drawn(figure, None, lacking, wish.all_seeds)
    path = folder / f"{figure.name}.png"
    numbers: dict[str, Any] = {
        "figure": figure.name,
        "title": figure.title,
        "paper": {"figure": figure.paper, "caption": figure.caption},
        "scale": wish.scale.name,
        **_drawing(figure, shown, path),
        "missing": [
            {"level": level_of(c), "condition": label_of(c.agent, c.gate), "seeds": list(c.seeds)}
            for c in lacking
        ],
    }
    text = laid_out(numbers, 2) + "\n"
    write_atomically(path.with_suffix(".json"), lambda file: file.write(text.encode()))
    return Drawn(figure, path, lacking, wish.all_seeds)


def _drawing(figure: Figure, records: Sequence[Record], path: Path) -> dict[str, Any]:
    """Draws, and returns what was drawn."""
    if figure.kind == "maps":
        return _maps(figure, path)
    config = records[0].config
    told = {"steps": config.steps, "average_over": config.average_over}
    if figure.kind == "curves":
        return told | _curves(figure, records, path)
    return told | _bars(figure, records, path)


def _bars(figure: Figure, records: Sequence[Record], path: Path) -> dict[str, Any]:
    """Fractions, or numbers of subtasks."""
    tasks = figure.kind == "tasks"
    subtasks = {record.game: len(load(record.game).subtasks) for record in records}

    def value(record: Any) -> np.ndarray:
        return record.final * (subtasks[record.game] if tasks else 1)

    what = "subtasks solved" if tasks else "fraction of subtasks"
    top = float(max(subtasks.values())) if tasks else 1.0
    bars = draw_bars(records, figure.levels, figure.labels, path, figure.title, what, value, top)
    values = {
        (record.game, record.label): dict(zip(record.seeds, value(record), strict=True))
        for record in records
    }
    return {
        "value": what,
        "bars": [
            {
                "level": int(bar.game.removeprefix(LEVEL)),
                "condition": bar.label,
                "mean": round(bar.value, DIGITS),
                "deviation": round(bar.above, DIGITS),
                "seeds": list(bar.seeds),
                "of_seeds": [
                    round(float(values[bar.game, bar.label][seed]), DIGITS) for seed in bar.seeds
                ],
            }
            for bar in bars
        ],
    }


def _curves(figure: Figure, records: Sequence[Record], path: Path) -> dict[str, Any]:
    panels = learning_curves([run for record in records for run in record.runs()])
    windows = {record.config.average_over for record in records}
    draw_panels(panels, path, "fraction_average", figure.title, windows)
    return {
        "value": "fraction of subtasks",
        "curves": [
            {
                "level": int(panel.game.removeprefix(LEVEL)),
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


def _maps(figure: Figure, path: Path) -> dict[str, Any]:
    games = [load(f"{LEVEL}{level}") for level in figure.levels]
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


# Words


def tell_missing(configs: Sequence[TrainConfig], seeds: Sequence[int]) -> str:
    """What is missing of some seeds, level by level: "level 2: sc (seeds 3-4), sc + masking"."""
    levels: dict[str, list[int]] = {}
    for level in dict.fromkeys(map(level_of, configs)):
        of_level = [config for config in configs if level_of(config) == level]
        text = ", ".join(
            label_of(config.agent, config.gate)
            + (f" (seeds {spans(config.seeds)})" if len(config.seeds) < len(seeds) else "")
            for config in of_level
        )
        levels.setdefault(text, []).append(level)
    return "; ".join(
        f"level{'s' * (len(some) > 1)} {spans(some)}: {text}" for text, some in levels.items()
    )


def spans(numbers: Sequence[int]) -> str:
    """1, 2, 3, 5 as "1-3, 5"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def check_drawn(drawn: Sequence[Drawn]) -> None:
    """Refuses to call it a success when there was nothing to draw at all."""
    if drawn and all(one.path is None for one in drawn):
        raise GrueError(
            f"nothing that {drawn[0].figure.name} shows has been run yet; "
            "run it without --draw-only, or give --data"
        )
