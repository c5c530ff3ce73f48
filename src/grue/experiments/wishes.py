"""A request for figures: which runs they need, and which of these are missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grue.errors import UsageError
from grue.experiments.conditions import Condition
from grue.experiments.figures import (
    FIGURES,
    Figure,
    find_figures,
    parse_conditions,
    parse_levels,
)
from grue.experiments.records import Record
from grue.experiments.scales import Scale, find_scale, level_of
from grue.files import expanded
from grue.games.zmachine import zork
from grue.training.config import TrainConfig, check_used, parse_seeds

LISTED = ("figure", "shows", "kind", "levels", "conditions", "in_the_paper")


@dataclass(frozen=True)
class Wish:
    """A request for some figures, perhaps only on some levels, conditions or seeds."""

    figures: tuple[Figure, ...]
    scale: Scale
    levels: tuple[int, ...] | None = None
    conditions: tuple[Condition, ...] | None = None
    seeds: tuple[int, ...] | None = None
    story: str | None = None
    """The story file of Zork I; None to look for it in the usual places."""
    left_out: tuple[Figure, ...] = ()
    """Figures that are not run because there is no story file."""

    @property
    def all_seeds(self) -> tuple[int, ...]:
        return self.scale.seeds if self.seeds is None else self.seeds

    def configs(self) -> list[TrainConfig]:
        """The requested runs, level by level. Runs that several figures share are listed once."""
        pairs = dict.fromkeys(
            (level, condition)
            for figure in self.figures
            for condition in figure.conditions
            for level in figure.levels
            if (self.levels is None or level in self.levels)
            and (self.conditions is None or condition in self.conditions)
        )
        ordered = sorted(pairs, key=lambda pair: (isinstance(pair[0], str), pair[0]))
        return [self._config(condition, level) for level, condition in ordered]

    def command(self, config: TrainConfig) -> str:
        """The command that repeats the runs of a config."""
        condition, level = Condition.of(config), level_of(config.game)
        shows = [f.name for f in self.figures if level in f.levels and condition in f.conditions]
        figure = "all" if isinstance(level, int) and condition.explore == "none" else shows[0]
        levels = f" --levels {level}" if isinstance(level, int) else ""
        seeds = ",".join(map(str, config.seeds))
        given = "".join(f" --set {name}={value}" for name, value in self.scale.given.items())
        return (
            f"grue reproduce {figure} --scale {self.scale.name}{levels} "
            f"--conditions {condition.typed} --seeds {seeds}{given}"
        )

    def configs_of(self, figure: Figure) -> list[TrainConfig]:
        """All runs that a figure shows, requested or not."""
        return [
            self._config(condition, level)
            for level in figure.levels
            for condition in figure.conditions
        ]

    def _config(self, condition: Condition, level: int | str) -> TrainConfig:
        return self.scale.config(condition, level, self.all_seeds, self.story)


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
    """The request of a command line. ``values`` are the texts of ``--set``."""
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
    if configs := wish.configs():
        check_used(wish.scale.given, configs)
    return _with_story(wish, name, draw_only)


def _with_story(wish: Wish, name: str, draw_only: bool) -> Wish:
    """Checks that a needed story file is there. ``all`` leaves out the figures that need one."""
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


# Finished and missing runs


def finished(records: Sequence[Record], config: TrainConfig) -> Record | None:
    """The record with the most finished seeds of a config, with those seeds only."""
    best: Record | None = None
    for record in records:
        if not _is_of(record, config):
            continue
        seeds = [seed for seed in config.seeds if seed in record.finished]
        if len(seeds) > (0 if best is None else len(best.seeds)):
            best = record.only(seeds)
    return best


def _is_of(record: Record, config: TrainConfig) -> bool:
    """Whether they are equal apart from the seeds and the path of the story file."""
    stored, wanted = record.config.flat(), config.flat()
    if stored["story"] is not None or stored.keys() != wanted.keys():
        return False
    return all(stored[name] == wanted[name] for name in stored.keys() - {"seeds", "story"})


def missing(records: Sequence[Record], configs: Iterable[TrainConfig]) -> list[TrainConfig]:
    """The configs with missing runs, each with the seeds that are missing."""
    found = []
    for config in configs:
        record = finished(records, config)
        there = () if record is None else record.seeds
        if seeds := tuple(seed for seed in config.seeds if seed not in there):
            found.append(replace(config, seeds=seeds))
    return found


# Text


def tell_missing(configs: Sequence[TrainConfig], seeds: Sequence[int]) -> str:
    """The missing runs, level by level: "level 2: sc (seeds 3-4), sc + masking"."""
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
    told = ", ".join(spoken_levels(levels))
    return f"level{'s' * (numbers > 1)} {told}" if numbers else told


def spoken_levels(levels: Sequence[int | str]) -> list[str]:
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


def table_of_figures() -> list[list[str]]:
    return [
        [
            figure.name,
            figure.title,
            f"{figure.kind}, needs a story file" if figure.needs_story else figure.kind,
            ", ".join(spoken_levels(figure.levels)),
            "; ".join(figure.labels),
            figure.paper or "–",
        ]
        for figure in FIGURES.values()
    ]
