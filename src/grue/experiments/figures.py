"""The figures: what each shows, and which conditions on which games it needs.

They are listed in docs/figures.toml, with the stages in which their runs are done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grue.agents.registry import nearest
from grue.errors import UsageError
from grue.experiments.conditions import Condition
from grue.experiments.data_files import check_known, check_texts, read_entries, read_toml, shipped
from grue.games.zmachine import zork
from grue.training.config import parse_seeds

NAME = "figures.toml"
KINDS = ("bars", "tasks", "curves", "maps")
ALL_LEVELS = tuple(range(1, 8))


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    caption: str
    """What the paper says about it, in short."""
    kind: str
    """One of ``KINDS``."""
    levels: tuple[int | str, ...]
    """Levels of SaladWorld, or the name of another game."""
    paper: str = ""
    """The figure's label in the paper's source; empty for a figure that is not in the paper."""
    conditions: tuple[Condition, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(condition.label for condition in self.conditions)

    @property
    def needs_story(self) -> bool:
        """Whether the figure needs a game that does not come with grue."""
        return zork.NAME in self.levels

    @property
    def column(self) -> str:
        """The metric of its curves. Zork's only subtask is to win, and no agent wins."""
        return "score_average" if self.needs_story else "fraction_average"


def _figure(table: Mapping[str, Any]) -> Figure:
    texts = ("name", "title", "caption", "kind")
    check_texts(table, texts, ("paper", "levels", "conditions"))
    check_known(table["kind"], KINDS, "kind")
    conditions = tuple(map(Condition.parse, table.get("conditions", ())))
    found = {name: table[name] for name in ("paper", *texts) if name in table}
    return Figure(**found, levels=read_levels(table.get("levels", "")), conditions=conditions)


@dataclass(frozen=True)
class Stage:
    """Some runs of the study. The stages are done in the order of the file."""

    name: str
    levels: tuple[int | str, ...]
    conditions: tuple[Condition, ...]
    seeds: tuple[int, ...] | None = None
    """None for all."""

    def has(self, level: int | str, condition: Condition, seed: int) -> bool:
        mine = level in self.levels and condition in self.conditions
        return mine and (self.seeds is None or seed in self.seeds)


def _stage(table: Mapping[str, Any]) -> Stage:
    check_texts(table, ("name",), ("levels", "conditions", "seeds"))
    conditions = tuple(map(Condition.parse, table["conditions"]))
    seeds = tuple(table["seeds"]) if "seeds" in table else None
    return Stage(table["name"], read_levels(table["levels"]), conditions, seeds)


def read_levels(value: Any) -> tuple[int | str, ...]:
    """Levels from a TOML file: 3, [1, 2], "1-7" or "zork1"."""
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return (zork.NAME,) if text == zork.NAME else parse_levels(text)


def parse_levels(text: str) -> tuple[int, ...]:
    """Levels from "1,3" or "1-7"."""
    try:
        levels = parse_seeds(text)
    except UsageError:
        levels = ()
    if not levels or not set(levels) <= set(ALL_LEVELS):
        raise UsageError(f"levels lie from 1 to 7, as in 1,3 or 1-7, not {text!r}")
    return tuple(sorted(set(levels)))


def read_figures(path: Path) -> dict[str, Figure]:
    return read_entries(path, read_toml(path), "figure", "name", _figure)


def read_colours(path: Path) -> dict[Condition, str]:
    """The colours of conditions, as in "#1f6fb4"."""
    table = read_toml(path).get("colours", {})
    try:
        return {Condition.parse(name): str(colour) for name, colour in table.items()}
    except (AttributeError, UsageError) as error:
        raise UsageError(f"{path}, colours: {error}") from None


FILE = shipped(NAME)
FIGURES = read_figures(FILE)
OF_THE_PAPER = tuple(figure for figure in FIGURES.values() if figure.paper)
STAGES = tuple(read_entries(FILE, read_toml(FILE), "stage", "name", _stage).values())


def find_figures(name: str) -> tuple[Figure, ...]:
    """The figure of this name, or all of the paper's for ``all``."""
    if name == "all":
        return OF_THE_PAPER
    if name not in FIGURES:
        raise UsageError(
            f"there is no figure {name!r}: did you mean {nearest(name, [*FIGURES, 'all'])}? "
            "grue reproduce list names them all"
        )
    return (FIGURES[name],)


def all_conditions(figures: Sequence[Figure]) -> tuple[Condition, ...]:
    return tuple(dict.fromkeys(c for figure in figures for c in figure.conditions))


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """Conditions of the figures from "sc+masking,drqn+no-look"."""
    known = {c.typed: c for c in all_conditions(tuple(FIGURES.values()))}
    found = []
    for part in text.split(","):
        name = part.replace(" ", "").removesuffix("+none")
        if name not in known:
            raise UsageError(
                f"no figure has the condition {part.strip()!r}: did you mean "
                f"{nearest(name, list(known))}? there are {', '.join(known)}"
            )
        found.append(known[name])
    return tuple(dict.fromkeys(found))
