"""The paper's claims, and how each is tested on records.

Claims are listed in docs/claims.toml: the paper's sentence, its place, how it is read, and tests by
name with their arguments. The tests themselves are in criteria.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from grue.errors import UsageError
from grue.experiments.conditions import Condition
from grue.experiments.data_files import check_known, check_texts, read_entries, read_toml, shipped
from grue.experiments.figures import parse_conditions, read_levels
from grue.experiments.records import Record
from grue.experiments.thinning import SOLVED
from grue.games.zmachine import zork
from grue.reports.criteria import (
    FINAL,
    MEASURES,
    SCORE,
    WELL,
    AnyOf,
    Better,
    FewAdmissible,
    Improves,
    Measure,
    Near,
    NoBetter,
    NoneReaches,
    NotWorse,
    NotWorseAtHalf,
    Reaches,
    SlightlyBetter,
    StaysBelow,
    Vanishes,
)
from grue.reports.verdicts import Cell, Data, Test, Verdict, decide

NAME = "claims.toml"
Levels = tuple[int | str, ...]
Conditions = tuple[Condition, ...]


@dataclass(frozen=True)
class Claim:
    id: str
    where: str
    """A section, or the label of a figure."""
    sentence: str
    """The paper's words."""
    reading: str
    """How we interpret it."""
    tests: tuple[Test, ...]
    remark: str = ""
    """An explanation of the outcome, where one is known."""
    needs: str = ""
    """What would have to be measured, if records do not contain it."""

    @property
    def subject(self) -> str:
        levels = {cell.level for test in self.tests for cell in test.cells}
        return "Zork I" if levels == {zork.NAME} else "SaladWorld"


@dataclass(frozen=True)
class Judged:
    claim: Claim
    verdict: Verdict


def judge(records: Sequence[Record], claims: Sequence[Claim]) -> list[Judged]:
    data = Data(records)
    return [Judged(claim, decide(claim.tests, data)) for claim in claims]


# The tests that a file can name


def _compare(
    kind: Callable[..., Test],
    ours: Conditions,
    theirs: Condition,
    levels: Levels,
    measure: Measure = FINAL,
) -> Sequence[Test]:
    return [kind(Cell(mine, at), Cell(theirs, at), measure) for at in levels for mine in ours]


def _half(ours: Conditions, theirs: Condition, levels: Levels, learned: float) -> Sequence[Test]:
    return _compare(partial(NotWorseAtHalf, learned=learned), ours, theirs, levels, SCORE)


def _bound(
    kind: type[Reaches],
    conditions: Conditions,
    levels: Levels,
    bound: float,
    measure: Measure = FINAL,
) -> Sequence[Test]:
    return [kind(Cell(c, level), bound, measure) for level in levels for c in conditions]


def _few(conditions: Conditions, levels: Levels) -> Sequence[Test]:
    return [FewAdmissible(Cell(c, level)) for level in levels for c in conditions]


def _vanishes(conditions: Conditions, levels: Levels) -> Sequence[Test]:
    return [Vanishes(Cell(c, level)) for level in levels for c in conditions]


def _falls(conditions: Conditions, from_level: int, levels: Levels) -> Sequence[Test]:
    return [Better(Cell(c, from_level), Cell(c, level)) for level in levels for c in conditions]


def _no_easier(conditions: Conditions, levels: Levels) -> Sequence[Test]:
    return [NotWorse(Cell(c, a), Cell(c, b)) for a, b in pairwise(levels) for c in conditions]


def _likely(ours: Conditions, theirs: Condition, levels: Levels) -> Sequence[Test]:
    return [Improves(mine, theirs, levels) for mine in ours]


TESTS: Mapping[str, Callable[..., Sequence[Test]]] = {
    "reaches": partial(_bound, Reaches),
    "stays-below": partial(_bound, StaysBelow),
    "none-reaches": partial(_bound, NoneReaches),
    "better": partial(_compare, Better),
    "slightly-better": partial(_compare, SlightlyBetter),
    "no-better": partial(_compare, NoBetter),
    "near": partial(_compare, Near),
    "not-worse": partial(_compare, NotWorse),
    "not-worse-at-half": _half,
    "falls": _falls,
    "no-easier": _no_easier,
    "likely-better": _likely,
    "few-admissible": _few,
    "vanishes": _vanishes,
}
"""By name, the function that makes the tests: one for every level and condition."""


# Reading a file


def read_claims(path: Path | None = None) -> tuple[Claim, ...]:
    """The claims of a file, by default the paper's."""
    source = path or shipped(NAME)
    values = read_toml(source)
    remarks = values.get("remarks", {})
    if not isinstance(remarks, dict):
        raise UsageError(f"{source}: remarks is not a table; it begins with the line [remarks]")
    return tuple(
        read_entries(source, values, "claim", "id", lambda entry: _claim(entry, remarks)).values()
    )


def _claim(entry: Mapping[str, Any], remarks: Mapping[str, str]) -> Claim:
    texts = ("id", "where", "sentence", "reading")
    check_texts(entry, texts, ("remarks", "needs", "tests"))
    if ("tests" in entry) == ("needs" in entry):
        raise UsageError("a claim has either tests, or needs: what is not measured yet")
    told = entry.get("remarks", ())
    for name in told:
        check_known(name, remarks, "remark")
    return Claim(
        **{name: entry[name] for name in texts},
        tests=tuple(test for one in entry.get("tests", ()) for test in _tests(one)),
        remark=" ".join(remarks[name] for name in told),
        needs=entry.get("needs", ""),
    )


def _tests(entry: Mapping[str, Any]) -> Sequence[Test]:
    """The tests of one line; with ``any = true``, a single test that any of them passes."""
    given = dict(entry)
    name, any_of = given.pop("test", ""), given.pop("any", False)
    check_known(name, TESTS, "test")
    taken = inspect.signature(TESTS[name]).parameters
    for argument in given:
        check_known(argument, (*taken, "any"), f"argument of {name}")
    for argument, parameter in taken.items():
        if argument not in given and parameter.default is parameter.empty:
            raise UsageError(f"the test {name} lacks {argument}; it takes {', '.join(taken)}")
    made = TESTS[name](**{argument: ARGUMENTS[argument](v) for argument, v in given.items()})
    if not made:
        raise UsageError(f"the test {name} compares nothing; give it more levels")
    return [AnyOf(tuple(made))] if any_of else made


def _conditions(value: Any) -> Conditions:
    return parse_conditions(",".join(value) if isinstance(value, list) else str(value))


def _condition(value: Any) -> Condition:
    (one, *more) = _conditions(value)
    if more:
        raise UsageError(f"theirs is one condition, not {value!r}")
    return one


def _number(value: Any) -> float:
    named = {"solved": SOLVED, "well": WELL}
    if isinstance(value, str):
        check_known(value, named, "bound")
        return named[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"a bound is a number, solved or well, not {value!r}")
    return float(value)


def _measure(value: Any) -> Measure:
    check_known(value, MEASURES, "measure")
    return MEASURES[value]


ARGUMENTS: Mapping[str, Callable[[Any], Any]] = {
    "ours": _conditions,
    "conditions": _conditions,
    "theirs": _condition,
    "levels": read_levels,
    "from_level": lambda value: read_levels(value)[0],
    "bound": _number,
    "learned": _number,
    "measure": _measure,
}
"""How each argument of the tests is read."""
