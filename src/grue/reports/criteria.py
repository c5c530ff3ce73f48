"""The tests that claims are made of: what is measured, and what must be so of it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from grue.experiments.conditions import Condition
from grue.experiments.records import Record
from grue.games.registry import load
from grue.reports.statistics import Estimate, mean_difference, probability_of_improvement
from grue.reports.verdicts import NOT_YET, Answer, Cell, Data, Outcome, Test

NEAR = 0.1
"""Means of the fraction of subtasks that differ by so much at most are called the same."""
NEAR_POINTS = 3.5
"""And of the score on Zork I: a tenth of the 35 points that no agent of the paper's passes."""
WELL = 0.8
"""A level is done well where the fraction of subtasks is at least this."""


@dataclass(frozen=True)
class Measure:
    """A number for each seed of a record."""

    name: str
    column: str
    of_known: Callable[[Record, np.ndarray], np.ndarray]
    near: float
    """A difference of so much at most is none."""
    more: str = "is better than"
    """What a condition with more of it is."""

    def of(self, record: Record) -> np.ndarray:
        """Not numbers where it is not known of every seed."""
        values = record.columns.get(self.column)
        if values is None or not np.isfinite(values).any(1).all():
            return np.full(len(record.seeds), np.nan)
        return self.of_known(record, values)


def _last(record: Record, values: np.ndarray) -> np.ndarray:
    return np.array([row[np.isfinite(row)][-1] for row in values])


def _mean(record: Record, values: np.ndarray) -> np.ndarray:
    return np.nanmean(values, axis=1)


def _highest(record: Record, values: np.ndarray) -> np.ndarray:
    return np.nanmax(values, axis=1)


def _at_half(record: Record, values: np.ndarray) -> np.ndarray:
    half = int(np.searchsorted(record.steps, record.config.steps // 2, side="right"))
    return values[:, max(half - 1, 0)]


def _changes(record: Record, values: np.ndarray) -> np.ndarray:
    """From one window of the moving average to the next, which share no step."""
    apart = math.ceil(record.config.average_over / int(record.steps[0]))
    return np.nanmean(np.abs(np.diff(values[:, ::-apart], axis=1)), axis=1)


FASTER = "learns faster than"
FRACTION, POINTS = "fraction_average", "score_average"
FINAL = Measure("the fraction of subtasks at the end", FRACTION, _last, NEAR)
SPEED = Measure("the fraction of subtasks over all of training", FRACTION, _mean, NEAR, FASTER)
SCORE = Measure("the score at the end", POINTS, _last, NEAR_POINTS)
SCORE_SPEED = Measure("the score over all of training", POINTS, _mean, NEAR_POINTS, FASTER)
SCORE_AT_HALF = Measure("the score after half of the steps", POINTS, _at_half, NEAR_POINTS)
HIGHEST = Measure("the highest score", POINTS, _highest, NEAR_POINTS)
UNSTEADINESS = Measure(
    "the mean change of the score from window to window",
    POINTS,
    _changes,
    NEAR_POINTS / 10,
    "is less stable than",
)
MEASURES = {
    "end": FINAL,
    "speed": SPEED,
    "score": SCORE,
    "score-speed": SCORE_SPEED,
    "highest-score": HIGHEST,
    "unsteadiness": UNSTEADINESS,
}
"""By their names in a file of claims."""


class OfRecords(Test):
    """A test that needs the records of all its cells."""

    @abstractmethod
    def judge(self, *records: Record) -> Outcome:
        """The records are those of the cells."""

    def run(self, data: Data) -> Outcome:
        records = [record for cell in self.cells if (record := data.find(cell)) is not None]
        if len(records) < len(self.cells):
            return NOT_YET
        return self.judge(*records)


@dataclass(frozen=True)
class OfOneCell(OfRecords):
    cell: Cell

    @property
    def cells(self) -> tuple[Cell, ...]:
        return (self.cell,)


@dataclass(frozen=True)
class Reaches(OfOneCell):
    """A mean is at least a bound."""

    bound: float
    measure: Measure = FINAL
    expected: ClassVar[bool] = True
    """Whether the bound is to be reached, or not to be."""

    def __str__(self) -> str:
        return f"{self.cell}: at least {self.bound:g}"

    def judge(self, *records: Record) -> Outcome:
        """What fewer steps than the paper's do not reach is left open."""
        values = self.measure.of(records[0])
        if not _known(values):
            return NOT_YET
        reached, told = self.reached(values), self.tell(values)
        steps, needed = records[0].config.steps, self.cell.config().steps
        if not reached and steps < needed:
            return Outcome("undecided", f"{told}, after {steps:,} of {needed:,} steps")
        return Outcome("yes" if reached == self.expected else "no", told)

    def reached(self, values: np.ndarray) -> bool:
        return bool(values.mean() >= self.bound)

    def tell(self, values: np.ndarray) -> str:
        return spoken(values)


@dataclass(frozen=True)
class StaysBelow(Reaches):
    """A mean is less than a bound."""

    expected: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"{self.cell}: below {self.bound:g}"


@dataclass(frozen=True)
class NoneReaches(StaysBelow):
    """Every seed is less than a bound."""

    def __str__(self) -> str:
        return f"{super().__str__()} in every seed"

    def reached(self, values: np.ndarray) -> bool:
        return bool(values.max() >= self.bound)

    def tell(self, values: np.ndarray) -> str:
        return f"{spoken(values)}, the largest {values.max():.3f}"


@dataclass(frozen=True)
class FewAdmissible(OfOneCell):
    """Less than half of the commands would change the game, on average over training."""

    def __str__(self) -> str:
        return f"{self.cell}: less than half of the commands are admissible"

    def judge(self, *records: Record) -> Outcome:
        found = records[0].columns.get("admissible_commands")
        if found is None or not np.isfinite(found).any():
            return NOT_YET
        commands, admissible = len(load(records[0].game).commands), np.nanmean(found)
        few: Answer = "yes" if admissible < commands / 2 else "no"
        return Outcome(few, f"{admissible:.1f} of {commands} commands")


@dataclass(frozen=True)
class Comparison(OfRecords):
    """Of the means of two cells, by the interval of their difference."""

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
        return f"{ours} {self.relation()} {theirs}{self.amount()}{place}"

    def judge(self, *records: Record) -> Outcome:
        ours, theirs = self.values(*records)
        if not (_known(ours) and _known(theirs)):
            return NOT_YET
        found = mean_difference([ours], [theirs])
        text = (
            f"{spoken(ours)} against {spoken(theirs)}: "
            f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
        )
        return Outcome(self.answer(found), text)

    def values(self, ours: Record, theirs: Record) -> tuple[np.ndarray, np.ndarray]:
        return self.measure.of(ours), self.measure.of(theirs)

    @abstractmethod
    def relation(self) -> str: ...

    def amount(self) -> str:
        """By how much, where that is to be told."""
        return ""

    @abstractmethod
    def answer(self, difference: Estimate) -> Answer: ...


@dataclass(frozen=True)
class Better(Comparison):
    """The interval lies above 0 and the difference matters; not so if all of it is too small."""

    def relation(self) -> str:
        return self.measure.more

    def amount(self) -> str:
        return f" by {self.measure.near:g} or more"

    def answer(self, difference: Estimate) -> Answer:
        if difference.low > 0 and difference.value >= self.measure.near:
            return "yes"
        return "no" if difference.high < self.measure.near else "undecided"


@dataclass(frozen=True)
class NoBetter(Better):
    """The opposite."""

    def relation(self) -> str:
        return "is not better than"

    def answer(self, difference: Estimate) -> Answer:
        opposite: dict[Answer, Answer] = {"yes": "no", "no": "yes", "undecided": "undecided"}
        return opposite[super().answer(difference)]


@dataclass(frozen=True)
class SlightlyBetter(Comparison):
    """The interval lies above 0, and the difference is not large: at most twice what is none."""

    @property
    def most(self) -> float:
        return 2 * self.measure.near

    def relation(self) -> str:
        return "is better than"

    def amount(self) -> str:
        return f" by {self.most:g} at most"

    def answer(self, difference: Estimate) -> Answer:
        if difference.low > 0 and difference.value <= self.most:
            return "yes"
        none = difference.low <= 0 and difference.high < self.measure.near
        return "no" if none or difference.low > self.most else "undecided"


@dataclass(frozen=True)
class Near(Comparison):
    """The interval lies within what is no difference, whichever is larger."""

    def relation(self) -> str:
        return f"is within {self.measure.near:g} of"

    def answer(self, difference: Estimate) -> Answer:
        near = self.measure.near
        if -near <= difference.low and difference.high <= near:
            return "yes"
        return "no" if difference.low > near or difference.high < -near else "undecided"


@dataclass(frozen=True)
class NotWorse(Near):
    """The same, or ours is larger."""

    def relation(self) -> str:
        return f"is at most {self.measure.near:g} below"

    def answer(self, difference: Estimate) -> Answer:
        if difference.low >= -self.measure.near:
            return "yes"
        return "no" if difference.high < -self.measure.near else "undecided"


@dataclass(frozen=True)
class NotWorseAtHalf(NotWorse):
    """After half of the steps our score is no worse than theirs at the end, if they learned."""

    measure: Measure = SCORE
    learned: float = 0.0
    """Less than this, to be as good is to have learned nothing."""

    def relation(self) -> str:
        return f"after half of the steps {super().relation()} the end of"

    def values(self, ours: Record, theirs: Record) -> tuple[np.ndarray, np.ndarray]:
        return SCORE_AT_HALF.of(ours), self.measure.of(theirs)

    def judge(self, *records: Record) -> Outcome:
        outcome, (_, theirs) = super().judge(*records), self.values(*records)
        if outcome.answer is None or theirs.mean() >= self.learned:
            return outcome
        return Outcome("no", f"{outcome.numbers}; theirs is below {self.learned:g}")


@dataclass(frozen=True)
class Improves(Test):
    """Over several levels together, the interval of the probability of improvement lies above ½."""

    ours: Condition
    theirs: Condition
    levels: tuple[int | str, ...]

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
            return NOT_YET
        pairs = [(FINAL.of(ours), FINAL.of(theirs)) for ours, theirs in both.values()]
        if not all(_known(values) for pair in pairs for values in pair):
            return NOT_YET
        found = probability_of_improvement([x for x, _ in pairs], [y for _, y in pairs])
        answer: Answer = "yes" if found.low > 0.5 else "no" if found.high <= 0.5 else "undecided"
        levels = f" on level{'s' * (len(both) > 1)} {', '.join(map(str, both))}"
        whole = len(both) == len(self.levels)
        return Outcome(answer, f"probability of improvement {found}{'' if whole else levels}")


@dataclass(frozen=True)
class AnyOf(Test):
    """At least one of some tests passes; one is enough, whatever is missing for others."""

    tests: tuple[Test, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(dict.fromkeys(cell for test in self.tests for cell in test.cells))

    def __str__(self) -> str:
        return " or ".join(map(str, self.tests))

    def run(self, data: Data) -> Outcome:
        outcomes = [test.run(data) for test in self.tests]
        answers = {outcome.answer for outcome in outcomes}
        numbers = "; ".join(outcome.numbers for outcome in outcomes if outcome.answer is not None)
        if "yes" in answers:
            return Outcome("yes", numbers)
        if None in answers:
            return NOT_YET
        return Outcome("undecided" if "undecided" in answers else "no", numbers)

    def settled(self, outcome: Outcome) -> bool:
        return outcome.answer == "yes"


def _known(values: np.ndarray) -> bool:
    return bool(np.isfinite(values).all())


def spoken(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ± {values.std():.3f}"
