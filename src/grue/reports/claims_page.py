"""The claims and their verdicts, as words and as a page of Markdown."""

from __future__ import annotations

from collections.abc import Sequence

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
    """What the words of the tests mean."""
    return (
        "On SaladWorld numbers are the fraction of subtasks, on Zork I the score, as moving "
        f"averages over {SCALE.average_over:,} steps: mean ± standard deviation over the seeds. "
        "Brackets hold the 95% interval of a bootstrap over the seeds "
        f"({RESAMPLES:,} draws).",
        f"Only runs with the paper's settings, trained to the end ({SCALE.steps:,} steps, on "
        f"Zork I {ZORK.steps:,}), count, and only conditions with at least {LEAST_SEEDS} of them; "
        "for a game that has none, those at the scale short.",
        f"A level is solved where the mean at the end is at least {SOLVED:g}, and done well at "
        f"{WELL:g}. Where runs with fewer steps than the paper's have not reached a bound, the "
        "test is undecided: more steps might reach it.",
        f"The least difference that counts is d = {NEAR:g}, on Zork I {NEAR_POINTS:g} points, and "
        f"for the change of the score from window to window {UNSTEADINESS.near:g}. One condition "
        "is above, better or faster than another if the interval of the difference of their means "
        "lies above 0 and the difference is at least d; it is not if the interval ends below d. "
        "It is slightly better if the interval lies above 0 and the difference is at most 2d; it "
        "is not if the interval holds 0 and ends below d, or begins above 2d. It is near another "
        "if the interval lies within -d and d. It is likely to beat another if the interval of "
        "the probability of improvement lies above 1/2, and is not if it lies below. Between yes "
        "and no a test is undecided: its runs allow for both.",
        "With three or five seeds such intervals are rather too narrow: for two conditions that "
        "are the same, the interval lies above 0 more often than in one case of forty.",
        "A claim holds if all its tests pass, partly if some pass and some do not, does not hold "
        "if none passes and some do not, and is undecided otherwise. “So far” means that runs are "
        "missing, and that more of them may change it. A claim is not measured if no record could "
        "tell it.",
    )


def needs_remark(verdict: Verdict) -> bool:
    return verdict.word in ("partly", "does not hold", "undecided")


def missing_words(judged: Judged) -> str:
    """What a claim still needs: "levels 2, 4-7: sc, drqn"."""
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
    notes = dict.fromkeys(_shortness(one) for one in judged if one.verdict.run)
    return " ".join([text, *filter(None, notes)])


def _shortness(judged: Judged) -> str:
    """What the paper's scale is not, of a claim whose runs are shorter."""
    if judged.verdict.scale is not SHORT:
        return ""
    cell = judged.claim.tests[0].cells[0]
    short, paper = cell.config(SHORT), cell.config()
    usual = paper.flat()
    other = {name: (now, usual[name]) for name, now in short.flat().items() if now != usual[name]}
    told = ", ".join(
        f"{name.replace('_', ' ')} {_told(other[name][0])} in place of {_told(other[name][1])}"
        for name in sorted(other, key=lambda name: name != "steps")
    )
    return (
        f"These runs are at the scale short: {told}. What agents would come to in the paper's "
        "steps they do not tell."
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
    """The whole page; ``command`` is what makes it anew."""
    lines = [HEADING, "", f"Made by `{command}`: do not edit.", ""]
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
