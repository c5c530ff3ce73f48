"""What ``grue reproduce`` does: runs what some figures need, and draws them.

OUT/figures/NAME.png    the figure
OUT/figures/NAME.json   the numbers in it, and which runs it misses
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from grue.errors import GrueError, UsageError
from grue.experiments.conditions import Condition
from grue.experiments.figures import (
    FIGURES,
    Figure,
    find_figures,
    parse_conditions,
    parse_levels,
)
from grue.experiments.records import Record, laid_out
from grue.experiments.runner import Places, finished, missing, run_missing
from grue.experiments.scales import Wish, find_scale, game_name, level_of
from grue.files import expanded, write_atomically
from grue.games.registry import load
from grue.games.zmachine import zork
from grue.reports.bars import draw_bars
from grue.reports.curves import NAMES, Missing, Panel, draw_panels, learning_curves
from grue.reports.map_panels import draw_maps
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
            f"{figure.kind}, needs a story file" if figure.needs_story else figure.kind,
            ", ".join(_spoken(figure.levels)),
            "; ".join(figure.labels),
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
    story: Path | None = None,
    draw_only: bool = False,
    values: Sequence[str] = (),
) -> Wish:
    """What a command line asks for; ``values`` are the texts of ``--set``."""
    wish = Wish(
        find_figures(name),
        find_scale(scale, values),
        None if levels is None else parse_levels(levels),
        None if conditions is None else parse_conditions(conditions),
        None if seeds is None else parse_seeds(seeds),
        None if story is None else str(expanded(story).resolve()),
    )
    if not wish.configs() and any(figure.conditions for figure in wish.figures):
        raise UsageError(f"{name} shows nothing of these --levels and --conditions")
    return _with_story(wish, name, draw_only)


def _with_story(wish: Wish, name: str, draw_only: bool) -> Wish:
    """Checks the story file where one is needed; all figures together do without."""
    needing = tuple(figure for figure in wish.figures if figure.needs_story)
    if wish.story is not None and not needing:
        raise UsageError(f"--story is for the figures of Zork I; {name} needs none")
    if wish.story is None and len(needing) < len(wish.figures) and not zork.is_there():
        others = tuple(figure for figure in wish.figures if figure not in needing)
        without = replace(wish, figures=others, left_out=needing)
        if draw_only or without.configs():
            return without
    if not draw_only and any(config.game == zork.NAME for config in wish.configs()):
        zork.load_zork(wish.story)
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
        if wish.left_out and wish.levels is None:
            names = ", ".join(figure.name for figure in wish.left_out)
            display.say(f"left out, for they need a story file (--story PATH): {names}")
        if draw_only or not wish.configs():
            records = places.read()
        else:
            records = run_missing(wish, places, display, jobs, checkpoint_seconds)
    folder = places.out / "figures"
    drawn = [draw_figure(figure, wish, records, folder) for figure in wish.figures]
    # Nothing was run for these; records of them may be there all the same.
    more = [draw_figure(figure, wish, records, folder) for figure in wish.left_out]
    return drawn + [one for one in more if one.path is not None]


# Drawing


def draw_figure(figure: Figure, wish: Wish, records: Sequence[Record], folder: Path) -> Drawn:
    """Draws a figure from the finished runs that there are, with its numbers beside it."""
    configs = wish.configs_of(figure)
    lacking = tuple(missing(records, configs))
    found = [record for config in configs if (record := finished(records, config)) is not None]
    shown = [record for record in found if _tells(record, figure)]
    if configs and not shown:
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
    """Whether a record has what a figure shows."""
    values = record.columns.get(figure.column)
    return values is not None and bool(np.isfinite(values).any())


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
    levels = [level for level in figure.levels if isinstance(level, int)]
    bars = draw_bars(records, levels, figure.labels, path, figure.title, what, value, top)
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
    runs = [run for record in records for run in record.runs()]
    panels = learning_curves(runs, figure.column)
    windows = {record.config.average_over for record in records}
    draw_panels(panels, path, figure.column, figure.title, windows, _lacking(figure, panels))
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
    """What is in the figure's title and not in its panels."""
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


# Words


def tell_missing(configs: Sequence[TrainConfig], seeds: Sequence[int]) -> str:
    """What is missing of some seeds, level by level: "level 2: sc (seeds 3-4), sc + masking"."""
    levels: dict[str, list[int | str]] = {}
    for game in dict.fromkeys(config.game for config in configs):
        text = ", ".join(
            Condition.of(config).in_a_list
            + (f" (seeds {spans(config.seeds)})" if len(config.seeds) < len(seeds) else "")
            for config in configs
            if config.game == game
        )
        levels.setdefault(text, []).append(level_of(game))
    return "; ".join(f"{tell_levels(some)}: {text}" for text, some in levels.items())


def tell_levels(levels: Sequence[int | str]) -> str:
    """ "levels 2, 4-7, zork1"."""
    numbers = sum(isinstance(level, int) for level in levels)
    told = ", ".join(_spoken(levels))
    return f"level{'s' * (numbers > 1)} {told}" if numbers else told


def _spoken(levels: Sequence[int | str]) -> list[str]:
    numbers = [level for level in levels if isinstance(level, int)]
    return [spans(numbers)] * bool(numbers) + [level for level in levels if isinstance(level, str)]


def spans(numbers: Sequence[int]) -> str:
    """1, 2, 3, 5 as "1-3, 5"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def check_drawn(drawn: Sequence[Drawn], scale: str) -> None:
    """Refuses to call it a success when there was nothing to draw at all."""
    if drawn and all(one.path is None for one in drawn):
        raise GrueError(
            f"nothing that {drawn[0].figure.name} shows has been run yet at the scale {scale}; "
            "run it without --draw-only, or give --data, or another --scale"
        )
