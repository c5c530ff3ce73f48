"""The claims and their verdicts as text: sentences, and a page of Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grue.experiments.thinning import SOLVED
from grue.experiments.wishes import tell_levels
from grue.games.zmachine import zork
from grue.reports.claims import Judged
from grue.reports.criteria import NEAR, NEAR_POINTS, UNSTEADINESS, WELL
from grue.reports.statistics import RESAMPLES
from grue.reports.verdicts import LEAST_SEEDS, SHORT, Verdict
from grue.training.config import TrainConfig

HEADING = "# The paper's claims, tested"
SCALE, ZORK = TrainConfig(), TrainConfig(game=zork.NAME)


def terms() -> tuple[str, ...]:
    """The legend: what is measured, and what the words of the tests mean."""
    return (
        "Each claim of the paper is split into tests on the records of our runs. On SaladWorld a "
        "test measures the fraction of subtasks, on Zork I the score, as moving averages over "
        f"{SCALE.average_over:,} steps. Numbers are the mean ± standard deviation over the seeds. "
        f"Brackets hold the 95% interval of a bootstrap over the seeds ({RESAMPLES:,} draws).",
        f"Only runs with the paper's settings count, trained to the end ({SCALE.steps:,} steps, on "
        f"Zork I {ZORK.steps:,}), and only conditions with at least {LEAST_SEEDS} such runs. If a "
        "game has none, runs at the scale short count.",
        f"A level is solved if the mean at the end is at least {SOLVED:g}; an agent does well on "
        f"it from {WELL:g}. If runs with fewer steps than the paper's stay below a bound, the test "
        "is undecided, because more steps might reach it.",
        f"The least difference that counts is d = {NEAR:g}, on Zork I {NEAR_POINTS:g} points, and "
        f"{UNSTEADINESS.near:g} for the change of the score from window to window. The tests use "
        "the interval of the difference of two means.",
        "“Better”, “faster”, “less stable”: yes if the interval lies above 0 and the difference is "
        "at least d; no if the interval ends below d.",
        "“Better by 2d at most”: yes if the interval lies above 0 and the difference is at most "
        "2d; no if the interval holds 0 and ends below d, or begins above 2d.",
        "“Within d”: yes if the interval lies within -d and d; no if it lies outside. “At most d "
        "below”: yes if the interval begins at -d or above; no if it ends below -d.",
        "“Likely to beat”: yes if the interval of the probability of improvement lies above 1/2; "
        "no if it ends at 1/2 or below.",
        "Otherwise a test is undecided: the runs allow both answers. With three or five seeds the "
        "intervals are somewhat too narrow: for two equal conditions, the interval lies above 0 "
        "more often than once in forty cases.",
        "A claim holds if all its tests pass. It holds partly if some pass and some fail, and does "
        "not hold if some fail and none passes. Otherwise it is undecided. “So far” means that "
        "runs are missing which may change the verdict. A claim is not measured if the records do "
        "not contain what it is about.",
    )


def needs_remark(verdict: Verdict) -> bool:
    return verdict.word in ("partly", "does not hold", "undecided")


def missing_words(judged: Judged) -> str:
    """The runs that a claim still needs: "levels 2, 4-7: sc, drqn"."""
    conditions: dict[int | str, list[str]] = {}
    for cell in judged.verdict.missing:
        conditions.setdefault(cell.level, []).append(cell.condition.in_a_list)
    places: dict[str, list[int | str]] = {}
    for level, labels in conditions.items():
        places.setdefault(", ".join(labels), []).append(level)
    return "; ".join(f"{tell_levels(levels)}: {labels}" for labels, levels in places.items())


def counts(judged: Sequence[Judged]) -> str:
    """ "2 hold, 5 hold so far, 1 does not hold, 16 are not yet run"."""
    names = {
        "holds": ("holds", "hold"),
        "partly": ("holds partly", "hold partly"),
        "does not hold": ("does not hold", "do not hold"),
        "undecided": ("is undecided", "are undecided"),
        "not yet run": ("is not yet run", "are not yet run"),
        "not measured": ("is not measured", "are not measured"),
    }
    kinds = [(one.verdict.word, one.verdict.open) for one in judged]
    return ", ".join(
        f"{count} {names[word][count > 1]}{' so far' * so_far}"
        for word in names
        for so_far in (False, True)
        if (count := kinds.count((word, so_far)))
    )


def tally(judged: Sequence[Judged]) -> str:
    text = f"Of {len(judged)} claim{'s' * (len(judged) > 1)}, {counts(judged)}."
    return " ".join(filter(None, [text, _shortness(judged)]))


def _shortness(judged: Sequence[Judged]) -> str:
    """How the scale short differs from the paper's, if claims were tested on such runs."""
    other: dict[str, tuple[Any, Any]] = {}
    short = [one for one in judged if one.verdict.run and one.verdict.scale is SHORT]
    for cell in (cell for one in short for test in one.claim.tests for cell in test.cells):
        usual = cell.config().flat()
        for name, value in cell.config(SHORT).flat().items():
            if value != usual[name]:
                other[name] = value, usual[name]
    if not other:
        return ""
    told = ", ".join(
        f"{name.replace('_', ' ')} {_told(other[name][0])} in place of {_told(other[name][1])}"
        for name in sorted(other, key=lambda name: name != "steps")
    )
    return (
        f"These runs are at the scale short: {told}. They do not show what the agents would reach "
        "in the paper's number of steps."
    )


def _told(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else str(value)


def by_subject(judged: Sequence[Judged]) -> dict[str, list[Judged]]:
    found: dict[str, list[Judged]] = {}
    for one in judged:
        found.setdefault(one.claim.subject, []).append(one)
    return found


def claims_page(judged: Sequence[Judged], command: str) -> str:
    """The whole page. ``command`` regenerates it."""
    lines = [HEADING, "", f"Generated by `{command}`. Do not edit.", ""]
    lines += [line for term in terms() for line in (term, "")]
    for subject, some in by_subject(judged).items():
        lines += [f"## On {subject}", "", tally(some), ""]
        lines += ["| claim | the paper | verdict |", "|---|---|---|"]
        lines += [
            f"| [{one.claim.id}](#{one.claim.id}) | “{one.claim.sentence}” | {one.verdict} |"
            for one in some
        ]
        lines.append("")
    lines.pop()
    for one in judged:
        lines += ["", *_section(one)]
    return "\n".join(lines) + "\n"


def _section(judged: Judged) -> list[str]:
    claim, verdict = judged.claim, judged.verdict
    lines = [
        f"## {claim.id}",
        "",
        f"> {claim.sentence}",
        "",
        f"{_capital(claim.where)}. Tested: {claim.reading}.",
        "",
        f"**{_capital(str(verdict))}.**",
    ]
    if verdict.run:
        lines += ["", "| test | passes | numbers |", "|---|---|---|"]
        for test, outcome in zip(claim.tests, verdict.outcomes, strict=True):
            if outcome.answer is not None:
                lines.append(f"| {test} | {outcome.answer} | {outcome.numbers} |")
    if claim.remark and needs_remark(verdict):
        lines += ["", claim.remark]
    if claim.needs:
        lines += ["", f"Not measured: {claim.needs}."]
    if verdict.missing:
        lines += ["", f"Not yet run: {missing_words(judged)}."]
    return lines


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
