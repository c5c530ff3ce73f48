"""Verdicts: how the outcomes of a claim's tests decide it. The tests are in criteria.py."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from grue.experiments.conditions import Condition
from grue.experiments.records import Record
from grue.experiments.scales import SCALES, Scale, game_name, level_of
from grue.experiments.wishes import finished
from grue.training.config import TrainConfig

LEAST_SEEDS = 3
"""A condition with fewer finished runs is not tested."""
PAPER, SHORT = SCALES["paper"], SCALES["short"]
"""The scales whose runs count. A game uses the first of which it has enough runs."""
Answer = Literal["yes", "no", "undecided"]
"""Undecided where the runs allow both."""
Word = Literal["holds", "partly", "does not hold", "undecided", "not yet run", "not measured"]


@dataclass(frozen=True)
class Cell:
    """A condition on a game."""

    condition: Condition
    level: int | str
    """Of SaladWorld, or the name of another game."""

    def config(self, scale: Scale = PAPER) -> TrainConfig:
        return scale.config(self.condition, self.level, PAPER.seeds)

    @property
    def place(self) -> str:
        return f"level {self.level}" if isinstance(self.level, int) else self.level

    def __str__(self) -> str:
        return f"{self.condition.in_a_list} on {self.place}"


@dataclass(frozen=True)
class Outcome:
    answer: Answer | None
    """None where runs are missing."""
    numbers: str


NOT_YET = Outcome(None, "")


class Data:
    """The records that tests use: finished runs, all runs of a game at one scale."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._found: dict[Cell, Record | None] = {}
        self._scales: dict[int | str, Scale] = {}

    def scale(self, level: int | str) -> Scale:
        """The paper's scale, or short if a game has enough runs only at that one."""
        if level not in self._scales:
            found = [_scale_of(r) for r in self._records if r.game == game_name(level)]
            short = SHORT in found and PAPER not in found
            self._scales[level] = SHORT if short else PAPER
        return self._scales[level]

    def find(self, cell: Cell) -> Record | None:
        if cell not in self._found:
            config = cell.config(self.scale(cell.level))
            place = config.game, cell.condition.label
            record = finished([r for r in self._records if (r.game, r.label) == place], config)
            self._found[cell] = record if _enough(record) else None
        return self._found[cell]

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        return [cell for cell in dict.fromkeys(cells) if self.find(cell) is None]


def _enough(record: Record | None) -> bool:
    return record is not None and len(record.seeds) >= LEAST_SEEDS


def _scale_of(record: Record) -> Scale | None:
    cell = Cell(Condition.of(record.config), level_of(record.game))
    return next((s for s in (PAPER, SHORT) if _enough(finished([record], cell.config(s)))), None)


class Test(ABC):
    """A statement about some cells that records can confirm or refute."""

    __test__ = False  # For pytest, which would collect it.

    @property
    @abstractmethod
    def cells(self) -> tuple[Cell, ...]:
        """The conditions and games that it needs."""

    @abstractmethod
    def __str__(self) -> str:
        """The statement."""

    @abstractmethod
    def run(self, data: Data) -> Outcome: ...

    def settled(self, outcome: Outcome) -> bool:
        """Whether missing runs cannot change the outcome."""
        return False


@dataclass(frozen=True)
class Verdict:
    outcomes: tuple[Outcome, ...]
    missing: tuple[Cell, ...]
    scale: Scale = PAPER
    """The scale of its runs."""

    @property
    def word(self) -> Word:
        """The verdict by the tests that have runs; "not measured" for a claim without tests."""
        if not self.outcomes:
            return "not measured"
        answers = {outcome.answer for outcome in self.outcomes} - {None}
        if not answers:
            return "not yet run"
        if answers == {"yes"}:
            return "holds"
        if "no" in answers:
            return "partly" if "yes" in answers else "does not hold"
        return "undecided"

    @property
    def run(self) -> int:
        return sum(outcome.answer is not None for outcome in self.outcomes)

    @property
    def open(self) -> bool:
        """Whether missing runs may still change it."""
        return bool(self.run and self.missing)

    def __str__(self) -> str:
        if not self.open:
            return self.word
        left = len(self.outcomes) - self.run
        tests = f", {left} of {len(self.outcomes)} tests not yet run" if left else ""
        return f"{self.word} so far{tests}"


def decide(tests: Sequence[Test], data: Data) -> Verdict:
    outcomes = tuple(test.run(data) for test in tests)
    short = any(data.scale(cell.level) is SHORT for test in tests for cell in test.cells)
    wanted = [
        cell
        for test, outcome in zip(tests, outcomes, strict=True)
        if not test.settled(outcome)
        for cell in test.cells
    ]
    return Verdict(outcomes, tuple(data.missing(wanted)), SHORT if short else PAPER)
