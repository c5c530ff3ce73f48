"""How a claim is tested on records: small tests with numbers, and the verdict they add up to."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from grue.experiments.conditions import Condition
from grue.experiments.records import Record
from grue.experiments.runner import finished
from grue.experiments.scales import SCALES, Scale, game_name, level_of
from grue.games.registry import load
from grue.reports.statistics import mean_difference, probability_of_improvement
from grue.training.config import TrainConfig

LEAST_SEEDS = 3
"""Fewer finished runs of a condition are no test."""
PAPER, SHORT = SCALES["paper"], SCALES["short"]
"""Whose runs count: those of the first that a game has any of."""
Word = Literal["holds", "partly", "does not hold", "not yet run"]


@dataclass(frozen=True)
class Measure:
    """A number for each seed of a record."""

    name: str
    of: Callable[[Record], np.ndarray]
    more: str = "is better than"
    """What a condition with more of it is."""


def _mean(name: str) -> Callable[[Record], np.ndarray]:
    return lambda record: np.nanmean(record.columns[name], axis=1)


def _at_half(record: Record) -> np.ndarray:
    half = int(np.searchsorted(record.steps, record.config.steps // 2, side="right"))
    return record.columns["score_average"][:, max(half - 1, 0)]


def _changes(record: Record) -> np.ndarray:
    """From one window of the moving average to the next, which share no step."""
    apart = math.ceil(record.config.average_over / int(record.steps[0]))
    windows = record.columns["score_average"][:, ::-apart]
    return np.nanmean(np.abs(np.diff(windows, axis=1)), axis=1)


FASTER = "learns faster than"
FINAL = Measure("the fraction of subtasks at the end", lambda record: record.final)
SPEED = Measure("the fraction of subtasks over all of training", _mean("fraction_average"), FASTER)
SCORE = Measure("the score at the end", lambda record: record.last("score_average"))
SCORE_SPEED = Measure("the score over all of training", _mean("score_average"), FASTER)
SCORE_AT_HALF = Measure("the score after half of the steps", _at_half)
HIGHEST = Measure("the highest score", lambda r: np.nanmax(r.columns["score_average"], axis=1))
UNSTEADINESS = Measure(
    "the mean change of the score from window to window", _changes, "is less stable than"
)


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
    passed: bool | None
    """None where its runs are not there."""
    numbers: str


class Data:
    """The records that tests go by: finished runs, those of one game all at one scale."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._found: dict[Cell, Record | None] = {}
        self._scales: dict[int | str, Scale] = {}

    def scale(self, level: int | str) -> Scale:
        """The paper's, or the short one where a game has no runs but such."""
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
            enough = record is not None and len(record.seeds) >= LEAST_SEEDS
            self._found[cell] = record if enough else None
        return self._found[cell]

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        return [cell for cell in dict.fromkeys(cells) if self.find(cell) is None]


def _scale_of(record: Record) -> Scale | None:
    cell = Cell(Condition.of(record.config), level_of(record.game))
    return next((s for s in (PAPER, SHORT) if finished([record], cell.config(s))), None)


class Test(ABC):
    """Something that is true of some cells or is not."""

    __test__ = False
    """Nothing for pytest."""

    @property
    @abstractmethod
    def cells(self) -> tuple[Cell, ...]:
        """What it needs."""

    @abstractmethod
    def __str__(self) -> str:
        """What must be so."""

    @abstractmethod
    def judge(self, *records: Record) -> Outcome:
        """The records are those of the cells."""

    def run(self, data: Data) -> Outcome:
        records = [record for cell in self.cells if (record := data.find(cell)) is not None]
        if len(records) < len(self.cells):
            return Outcome(None, "")
        return self.judge(*records)


@dataclass(frozen=True)
class Reaches(Test):
    """A mean is at least a bound."""

    cell: Cell
    bound: float
    measure: Measure = FINAL

    @property
    def cells(self) -> tuple[Cell, ...]:
        return (self.cell,)

    def __str__(self) -> str:
        return f"{self.cell}: at least {self.bound:g}"

    def judge(self, *records: Record) -> Outcome:
        values = self.measure.of(records[0])
        return Outcome(bool(values.mean() >= self.bound), spoken(values))


@dataclass(frozen=True)
class StaysBelow(Reaches):
    """A mean is less than a bound."""

    def __str__(self) -> str:
        return f"{self.cell}: below {self.bound:g}"

    def judge(self, *records: Record) -> Outcome:
        reached = super().judge(*records)
        return Outcome(not reached.passed, reached.numbers)


@dataclass(frozen=True)
class FewAdmissible(Test):
    """Less than half of the commands would change the game, on average over training."""

    cell: Cell

    @property
    def cells(self) -> tuple[Cell, ...]:
        return (self.cell,)

    def __str__(self) -> str:
        return f"{self.cell}: less than half of the commands are admissible"

    def judge(self, *records: Record) -> Outcome:
        commands = len(load(records[0].game).commands)
        admissible = np.nanmean(records[0].columns["admissible_commands"])
        text = f"{admissible:.1f} of {commands} commands"
        return Outcome(bool(admissible < commands / 2), text)


@dataclass(frozen=True)
class Comparison(Test):
    """Of the means of two cells."""

    ours: Cell
    theirs: Cell
    measure: Measure = FINAL

    @property
    def cells(self) -> tuple[Cell, ...]:
        return self.ours, self.theirs

    def __str__(self) -> str:
        same = self.ours.level == self.theirs.level
        theirs = self.theirs.condition.in_a_list if same else str(self.theirs)
        ours = self.ours.condition.in_a_list if same else str(self.ours)
        place = f", {self.ours.place}" if same else ""
        return f"{ours} {self.relation()} {theirs}{place}"

    def judge(self, *records: Record) -> Outcome:
        ours, theirs = self.values(*records)
        found = mean_difference([ours], [theirs])
        text = (
            f"{spoken(ours)} against {spoken(theirs)}: "
            f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
        )
        return Outcome(self.passes(found.value, found.low, found.high), text)

    def values(self, ours: Record, theirs: Record) -> tuple[np.ndarray, np.ndarray]:
        return self.measure.of(ours), self.measure.of(theirs)

    @abstractmethod
    def relation(self) -> str: ...

    @abstractmethod
    def passes(self, value: float, low: float, high: float) -> bool: ...


@dataclass(frozen=True)
class Better(Comparison):
    """The interval of the difference lies above 0."""

    def relation(self) -> str:
        return self.measure.more

    def passes(self, value: float, low: float, high: float) -> bool:
        return low > 0


@dataclass(frozen=True)
class NoBetter(Comparison):
    """The interval of the difference does not lie above 0."""

    def relation(self) -> str:
        return "is no better than"

    def passes(self, value: float, low: float, high: float) -> bool:
        return low <= 0


@dataclass(frozen=True)
class Near(Comparison):
    """The means differ by at most a margin, whichever is larger."""

    within: float = 0.1

    def relation(self) -> str:
        return f"is within {self.within:g} of"

    def passes(self, value: float, low: float, high: float) -> bool:
        return abs(value) <= self.within


@dataclass(frozen=True)
class NotWorse(Near):
    """Our mean is at most a margin smaller."""

    def relation(self) -> str:
        return f"is at most {self.within:g} below"

    def passes(self, value: float, low: float, high: float) -> bool:
        return value >= -self.within


@dataclass(frozen=True)
class NotWorseAtHalf(NotWorse):
    """After half of the steps our mean score is at most a margin below theirs at the end."""

    def relation(self) -> str:
        return f"after half of the steps is at most {self.within:g} below the end of"

    def values(self, ours: Record, theirs: Record) -> tuple[np.ndarray, np.ndarray]:
        return SCORE_AT_HALF.of(ours), SCORE.of(theirs)


@dataclass(frozen=True)
class Improves(Test):
    """Over several levels together, the interval of the probability of improvement lies above ½."""

    ours: Condition
    theirs: Condition
    levels: tuple[int, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        both = (self.ours, self.theirs)
        return tuple(Cell(condition, level) for condition in both for level in self.levels)

    def __str__(self) -> str:
        span = f"{self.levels[0]} to {self.levels[-1]}"
        return f"{self.ours.label} is likely to beat {self.theirs.label}, levels {span} together"

    def run(self, data: Data) -> Outcome:
        """On the levels that both were trained on, as far as that may be."""
        both = {
            level: (ours, theirs)
            for level in self.levels
            if (ours := data.find(Cell(self.ours, level))) is not None
            and (theirs := data.find(Cell(self.theirs, level))) is not None
        }
        if not both:
            return Outcome(None, "")
        outcome = self.judge(*(ours for ours, _ in both.values()), *(t for _, t in both.values()))
        if len(both) == len(self.levels):
            return outcome
        levels = ", ".join(map(str, both))
        return Outcome(
            outcome.passed, f"{outcome.numbers} on level{'s' * (len(both) > 1)} {levels}"
        )

    def judge(self, *records: Record) -> Outcome:
        values = [FINAL.of(record) for record in records]
        half = len(values) // 2
        found = probability_of_improvement(values[:half], values[half:])
        return Outcome(found.low > 0.5, f"probability of improvement {found}")


@dataclass(frozen=True)
class AnyOf(Test):
    """At least one of some tests passes."""

    tests: tuple[Test, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(dict.fromkeys(cell for test in self.tests for cell in test.cells))

    def __str__(self) -> str:
        return " or ".join(map(str, self.tests))

    def judge(self, *records: Record) -> Outcome:
        found = dict(zip(self.cells, records, strict=True))
        outcomes = [test.judge(*(found[cell] for cell in test.cells)) for test in self.tests]
        numbers = "; ".join(outcome.numbers for outcome in outcomes)
        return Outcome(any(outcome.passed for outcome in outcomes), numbers)


# Adding up


@dataclass(frozen=True)
class Verdict:
    outcomes: tuple[Outcome, ...]
    missing: tuple[Cell, ...]
    scale: Scale = PAPER
    """At which its runs were made."""

    @property
    def word(self) -> Word:
        """Of the tests whose runs are there."""
        passed = [outcome.passed for outcome in self.outcomes if outcome.passed is not None]
        if not passed:
            return "not yet run"
        if all(passed):
            return "holds"
        return "partly" if any(passed) else "does not hold"

    @property
    def run(self) -> int:
        return sum(outcome.passed is not None for outcome in self.outcomes)

    def __str__(self) -> str:
        if not self.run or not self.missing:
            return self.word
        left = len(self.outcomes) - self.run
        tests = f", {left} of {len(self.outcomes)} tests not yet run" if left else ""
        return f"{self.word} so far{tests}"


def decide(tests: Sequence[Test], data: Data) -> Verdict:
    outcomes = tuple(test.run(data) for test in tests)
    cells = [cell for test in tests for cell in test.cells]
    short = any(data.scale(cell.level) is SHORT for cell in cells)
    return Verdict(outcomes, tuple(data.missing(cells)), SHORT if short else PAPER)


def spoken(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ± {values.std():.3f}"
