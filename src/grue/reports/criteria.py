"""The tests of claims: what each measures on the records, and when it passes."""

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
"""The least difference of mean fractions of subtasks that counts."""
NEAR_POINTS = 3.5
"""The same for the score on Zork I: a tenth of the 35 points that no agent of the paper passes."""
WELL = 0.8
"""An agent does well on a level if the fraction of subtasks is at least this."""
VANISHED = 0.1
"""A value has gone to 0 if it ends at most at this share of its peak."""


@dataclass(frozen=True)
class Measure:
    """A number for each seed of a record."""

    name: str
    column: str
    of_known: Callable[[Record, np.ndarray], np.ndarray]
    near: float
    """The least difference that counts."""
    more: str = "is better than"
    """How a condition with a larger value is described."""

    def of(self, record: Record) -> np.ndarray:
        """All nan if some seed has no value."""
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
    """The mean change from one window of the moving average to the next disjoint one."""
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
VALUE = Measure("|Q| of inadmissible commands at the end", "inadmissible_value", _last, NEAR)
VALUE_PEAK = Measure("its peak", "inadmissible_value", _highest, NEAR)
MEASURES = {
    "end": FINAL,
    "speed": SPEED,
    "score": SCORE,
    "score-speed": SCORE_SPEED,
    "highest-score": HIGHEST,
    "unsteadiness": UNSTEADINESS,
}
"""The measures by their names in claims.toml."""


class OfRecords(Test):
    """A test that needs the records of all its cells."""

    @abstractmethod
    def judge(self, *records: Record) -> Outcome:
        """``records`` are those of the cells, in their order."""

    def run(self, data: Data) -> Outcome:
        records = [record for cell in self.cells if (record := data.find(cell)) is not None]
        return NOT_YET if len(records) < len(self.cells) else self.judge(*records)


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
    """Whether the test passes if the bound is reached, or if it is not."""

    def __str__(self) -> str:
        return f"{self.cell}: {'at least' if self.expected else 'below'} {self.bound:g}"

    def judge(self, *records: Record) -> Outcome:
        """Undecided if the bound is not reached and the runs are shorter than the paper's."""
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


class StaysBelow(Reaches):
    """A mean is below a bound."""

    expected = False


class NoneReaches(StaysBelow):
    """Every seed is below a bound."""

    def __str__(self) -> str:
        return f"{super().__str__()} in every seed"

    def reached(self, values: np.ndarray) -> bool:
        return bool(values.max() >= self.bound)

    def tell(self, values: np.ndarray) -> str:
        return f"{spoken(values)}, the largest {values.max():.3f}"


class FewAdmissible(OfOneCell):
    """Less than half of the commands are admissible, on average over training."""

    def __str__(self) -> str:
        return f"{self.cell}: less than half of the commands are admissible"

    def judge(self, *records: Record) -> Outcome:
        found = records[0].columns.get("admissible_commands")
        if found is None or not np.isfinite(found).any():
            return NOT_YET
        commands, admissible = len(load(records[0].game).commands), np.nanmean(found)
        few: Answer = "yes" if admissible < commands / 2 else "no"
        return Outcome(few, f"{admissible:.1f} of {commands} commands")


class Vanishes(OfOneCell):
    """The value of inadmissible commands ends near 0, compared with its largest in training."""

    def __str__(self) -> str:
        return f"{self.cell}: |Q| of inadmissible commands ends at most {VANISHED:.0%} of its peak"

    def judge(self, *records: Record) -> Outcome:
        ends, peaks = (measure.of(records[0]) for measure in (VALUE, VALUE_PEAK))
        if not _known(ends):
            return NOT_YET
        shares = ends / np.maximum(peaks, np.finfo(float).tiny)
        answer: Answer = "yes" if shares.mean() <= VANISHED else "no"
        return Outcome(answer, f"{spoken(ends)}, {spoken(shares)} of the peak")


@dataclass(frozen=True)
class Comparison(OfRecords):
    """Compares the means of two cells by the interval of their difference."""

    ours: Cell
    theirs: Cell
    measure: Measure = FINAL
    words: ClassVar[str]
    """The relation of ours to theirs: {more}, {theirs}, {near} and {most} are filled in."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        return self.ours, self.theirs

    @property
    def most(self) -> float:
        """The largest difference that is slight."""
        return 2 * self.measure.near

    def __str__(self) -> str:
        same = self.ours.level == self.theirs.level
        ours, theirs = (c.condition.in_a_list if same else str(c) for c in self.cells)
        near, most = f"{self.measure.near:g}", f"{self.most:g}"
        told = self.words.format(more=self.measure.more, theirs=theirs, near=near, most=most)
        return f"{ours} {told}" + (f", {self.ours.place}" if same else "")

    def judge(self, *records: Record) -> Outcome:
        ours, theirs = self.values(*records)
        if not (_known(ours) and _known(theirs)):
            return NOT_YET
        found = mean_difference([ours], [theirs])
        interval = f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
        return Outcome(self.answer(found), f"{spoken(ours)} against {spoken(theirs)}: {interval}")

    def values(self, ours: Record, theirs: Record) -> tuple[np.ndarray, np.ndarray]:
        return self.measure.of(ours), self.measure.of(theirs)

    @abstractmethod
    def answer(self, difference: Estimate) -> Answer: ...


class Better(Comparison):
    """Yes if the interval is above 0 and the difference counts; no if all of it is too small."""

    words = "{more} {theirs} by {near} or more"

    def answer(self, difference: Estimate) -> Answer:
        if difference.low > 0 and difference.value >= self.measure.near:
            return "yes"
        return "no" if difference.high < self.measure.near else "undecided"


class NoBetter(Better):
    """The opposite of Better."""

    words = "is not better than {theirs} by {near} or more"

    def answer(self, difference: Estimate) -> Answer:
        opposite: dict[Answer, Answer] = {"yes": "no", "no": "yes", "undecided": "undecided"}
        return opposite[super().answer(difference)]


class SlightlyBetter(Comparison):
    """The interval lies above 0, and the difference is at most twice the least that counts."""

    words = "is better than {theirs} by {most} at most"

    def answer(self, difference: Estimate) -> Answer:
        if difference.low > 0 and difference.value <= self.most:
            return "yes"
        none = difference.low <= 0 and difference.high < self.measure.near
        return "no" if none or difference.low > self.most else "undecided"


class Near(Comparison):
    """The whole interval is smaller than a difference that counts, in both directions."""

    words = "is within {near} of {theirs}"

    def answer(self, difference: Estimate) -> Answer:
        near = self.measure.near
        if -near <= difference.low and difference.high <= near:
            return "yes"
        return "no" if difference.low > near or difference.high < -near else "undecided"


class NotWorse(Comparison):
    """Near, or ours is larger."""

    words = "is at most {near} below {theirs}"

    def answer(self, difference: Estimate) -> Answer:
        if difference.low >= -self.measure.near:
            return "yes"
        return "no" if difference.high < -self.measure.near else "undecided"


@dataclass(frozen=True)
class NotWorseAtHalf(NotWorse):
    """Our score after half of the steps is not worse than theirs at the end, if they learned."""

    measure: Measure = SCORE
    learned: float = 0.0
    """With a lower score they have learned nothing."""
    words = "after half of the steps is at most {near} below the end of {theirs}"

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
        """The estimate on the levels for which both have records."""
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
    """At least one of several tests passes, even if runs for others are missing."""

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
