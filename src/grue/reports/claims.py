"""What the paper says in words, and how each sentence is tested on records.

Claims are data, a TOML file: docs/claims.toml, which an installed grue has beside this module. Each
has the paper's sentence, its place, how it is read, and tests by name, with arguments. The tests
themselves are in criteria.py.
"""

from __future__ import annotations

import difflib
import inspect
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from grue.errors import GrueError, UsageError
from grue.experiments.conditions import Condition
from grue.experiments.figures import parse_conditions, parse_levels
from grue.experiments.records import Record
from grue.experiments.thinning import SOLVED
from grue.games.zmachine import zork
from grue.reports.criteria import (
    FINAL,
    MEASURES,
    WELL,
    AnyOf,
    Better,
    Comparison,
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
)
from grue.reports.verdicts import Cell, Data, Test, Verdict, decide

NAME = "claims.toml"
Levels = tuple[int | str, ...]
Conditions = tuple[Condition, ...]


@dataclass(frozen=True)
class Claim:
    id: str
    where: str
    """Section, or figure by its label."""
    sentence: str
    """The paper's words."""
    reading: str
    """How we read it."""
    tests: tuple[Test, ...]
    remark: str = ""
    """Why it comes out as it does, where that is known."""
    needs: str = ""
    """What would have to be measured, where records cannot tell."""

    @property
    def subject(self) -> str:
        """What it is about."""
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
    kind: type[Comparison],
    ours: Conditions,
    theirs: Condition,
    levels: Levels,
    measure: Measure = FINAL,
) -> Sequence[Test]:
    return [
        kind(Cell(mine, level), Cell(theirs, level), measure) for level in levels for mine in ours
    ]


def _bound(
    kind: type[Reaches],
    conditions: Conditions,
    levels: Levels,
    bound: float,
    measure: Measure = FINAL,
) -> Sequence[Test]:
    return [kind(Cell(c, level), bound, measure) for level in levels for c in conditions]


def _falls(conditions: Conditions, from_level: int, levels: Levels) -> Sequence[Test]:
    return [Better(Cell(c, from_level), Cell(c, level)) for level in levels for c in conditions]


def _no_easier(conditions: Conditions, levels: Levels) -> Sequence[Test]:
    return [
        NotWorse(Cell(c, level), Cell(c, following))
        for level, following in pairwise(levels)
        for c in conditions
    ]


def _half(ours: Conditions, theirs: Condition, levels: Levels, learned: float) -> Sequence[Test]:
    return [
        NotWorseAtHalf(Cell(mine, level), Cell(theirs, level), learned=learned)
        for level in levels
        for mine in ours
    ]


def _few(conditions: Conditions, levels: Levels) -> Sequence[Test]:
    return [FewAdmissible(Cell(c, level)) for level in levels for c in conditions]


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
}
"""By name: what makes the tests of some arguments, one for every level and condition."""


# Reading a file


def claims_path() -> Path:
    """The paper's claims: beside this module where grue is installed, else in the repository."""
    here = Path(__file__)
    for path in (here.with_name(NAME), here.parents[3] / "docs" / NAME):
        if path.is_file():
            return path
    raise GrueError(f"this grue has come without its {NAME}; give one with --claims-from")


def read_claims(path: Path | None = None) -> tuple[Claim, ...]:
    """The claims of a file, by default the paper's."""
    source = path or claims_path()
    try:
        values = tomllib.loads(source.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{source} cannot be read as TOML ({error}); give another file") from None
    entries, remarks = values.get("claim"), values.get("remarks", {})
    if not isinstance(entries, list) or not isinstance(remarks, dict):
        raise UsageError(f"{source} has no claim; a claim begins with the line [[claim]]")
    claims: dict[str, Claim] = {}
    for number, entry in enumerate(entries, 1):
        try:
            claim = _claim(entry, remarks)
            if claim.id in claims:
                raise UsageError(f"there are two claims {claim.id}; give each an id of its own")
        except (AttributeError, TypeError, ValueError) as error:
            raise UsageError(f"{source}, claim {number}: {error}") from None
        claims[claim.id] = claim
    return tuple(claims.values())


def _claim(entry: Mapping[str, Any], remarks: Mapping[str, str]) -> Claim:
    texts = ("id", "where", "sentence", "reading")
    for name in entry:
        _check_known(name, (*texts, "remarks", "needs", "tests"), "entry")
    for name in texts:
        if not isinstance(entry.get(name), str):
            raise UsageError(f'{name} is missing or no text; give {name} = "..."')
    if ("tests" in entry) == ("needs" in entry):
        raise UsageError("a claim has either tests, or needs: what is not measured yet")
    told = entry.get("remarks", ())
    for name in told:
        _check_known(name, remarks, "remark")
    return Claim(
        **{name: entry[name] for name in texts},
        tests=tuple(test for one in entry.get("tests", ()) for test in _tests(one)),
        remark=" ".join(remarks[name] for name in told),
        needs=entry.get("needs", ""),
    )


def _tests(entry: Mapping[str, Any]) -> Sequence[Test]:
    """What one line of tests stands for; with ``any = true`` one of them is enough."""
    given = dict(entry)
    name, any_of = given.pop("test", ""), given.pop("any", False)
    _check_known(name, TESTS, "test")
    taken = inspect.signature(TESTS[name]).parameters
    for argument in given:
        _check_known(argument, (*taken, "any"), f"argument of {name}")
    for argument, parameter in taken.items():
        if argument not in given and parameter.default is parameter.empty:
            raise UsageError(f"the test {name} lacks {argument}; it takes {', '.join(taken)}")
    made = TESTS[name](**{argument: ARGUMENTS[argument](v) for argument, v in given.items()})
    if not made:
        raise UsageError(f"the test {name} compares nothing; give it more levels")
    return [AnyOf(tuple(made))] if any_of else made


def _check_known(name: str, known: Iterable[str], what: str) -> None:
    names = list(known)
    if name not in names:
        close = difflib.get_close_matches(name, names, 1, 0.0)
        nearest = f": did you mean {close[0]}?" if close else ""
        raise UsageError(f"there is no {what} {name!r}{nearest} there are {', '.join(names)}")


def _conditions(value: Any) -> Conditions:
    return parse_conditions(",".join(value) if isinstance(value, list) else str(value))


def _condition(value: Any) -> Condition:
    (one, *more) = _conditions(value)
    if more:
        raise UsageError(f"theirs is one condition, not {value!r}")
    return one


def _levels(value: Any) -> Levels:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return (zork.NAME,) if text == zork.NAME else parse_levels(text)


def _level(value: Any) -> int | str:
    return _levels(value)[0]


def _number(value: Any) -> float:
    named = {"solved": SOLVED, "well": WELL}
    if isinstance(value, str):
        _check_known(value, named, "bound")
        return named[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"a bound is a number, solved or well, not {value!r}")
    return float(value)


def _measure(value: Any) -> Measure:
    _check_known(value, MEASURES, "measure")
    return MEASURES[value]


ARGUMENTS: Mapping[str, Callable[[Any], Any]] = {
    "ours": _conditions,
    "conditions": _conditions,
    "theirs": _condition,
    "levels": _levels,
    "from_level": _level,
    "bound": _number,
    "learned": _number,
    "measure": _measure,
}
"""How the arguments of the tests are read."""
