"""The claims and their verdicts, as words and as a page of Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from grue.games import zork
from grue.reports.claims import NEAR, SOLVES, WELL, Judged
from grue.reports.reproduce import tell_levels
from grue.reports.statistics import RESAMPLES
from grue.reports.verdicts import LEAST_SEEDS, SHORT
from grue.reports.zork_claims import NEAR_POINTS
from grue.training.config import TrainConfig

RESULTS = {True: "yes", False: "no", None: "not yet run"}
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
        f"A level is solved where the mean at the end is at least {SOLVES:g} (with ε = "
        f"{SCALE.epsilon_end:g} no agent stays at 1), and done well at {WELL:g}. One condition is "
        "above or better than another where the interval of the difference of their means lies "
        f"above 0; it is near another where the means differ by at most {NEAR:g}, on Zork I by "
        f"{NEAR_POINTS:g} points. It is likely to beat another "
        "where the interval of the probability of improvement lies above 1/2.",
        "A claim holds if all its tests pass, partly if some do, and does not hold if none does. "
        "“So far” means that runs are missing.",
    )


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
    """ "7 hold, 2 hold partly, 1 does not hold, 16 are not yet run"."""
    words = [one.verdict.word for one in judged]
    names = (
        ("holds", "hold", "holds"),
        ("partly", "hold partly", "holds partly"),
        ("does not hold", "do not hold", "does not hold"),
        ("not yet run", "are not yet run", "is not yet run"),
    )
    return ", ".join(
        f"{count} {one if count == 1 else many}"
        for word, many, one in names
        if (count := words.count(word))
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
    return (
        f"These runs are at the scale short: {short.steps:,} steps in place of {paper.steps:,}, ε "
        f"falls over {short.epsilon_steps:,} in place of {paper.epsilon_steps:,}, and ae-dqn is "
        f"smaller than its authors' ({short.value_filters} filters of each height in place of "
        f"{paper.value_filters}, words of {short.word_vector} numbers in place of "
        f"{paper.word_vector})."
    )


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
        f"{_capital(claim.where)}. Tested: {claim.test}.",
        "",
        f"**{_capital(str(verdict))}.**",
    ]
    if verdict.run:
        lines += ["", "| test | passes | numbers |", "|---|---|---|"]
        for test, outcome in zip(claim.tests, verdict.outcomes, strict=True):
            if outcome.passed is not None:
                lines.append(f"| {test} | {RESULTS[outcome.passed]} | {outcome.numbers} |")
    if claim.note and verdict.word in ("partly", "does not hold"):
        lines += ["", claim.note]
    if verdict.missing:
        lines += ["", f"Not yet run: {missing_words(judged)}."]
    return lines


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
