"""The paper's claims where they are true and where they are false, and the page of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from made_records import HIGH, LOW, made_record, on_zork, sc

from grue.cli.entry import main
from grue.experiments.conditions import Condition
from grue.experiments.figures import (
    SC,
    SC_ORACLE,
    parse_conditions,
)
from grue.experiments.records import Record, write_record
from grue.reports.claims import CLAIMS, Claim, Judged, judge
from grue.reports.claims_page import claims_page, counts
from grue.reports.criteria import (
    Reaches,
)
from grue.reports.verdicts import Answer, Cell, Outcome, Verdict

ROOT = Path(__file__).parents[1]


# The paper's claims


def as_the_paper_says() -> list[Record]:
    """A world in which every sentence is true."""
    solved, stuck = (0.97, 0.98, 0.99, 0.98, 0.99), (0.38, 0.4, 0.41, 0.39, 0.42)
    half = (0.5, 0.51, 0.52, 0.51, 0.5)
    records = []

    def add(level: int, agent: str, gate: str, final: Sequence[float], fast: float = 1.0) -> None:
        rise = (0.3 * fast, 0.5 * fast, 0.7, 1.0)
        commands = {"admissible_commands": np.full((5, 4), 3.0)}
        records.append(made_record(level, agent, gate, final, rise, columns=commands))

    def less(values: Sequence[float], by: float) -> list[float]:
        return [value - by for value in values]

    for level in range(1, 8):
        hard = level > 3
        drop = 0.05 if level > 4 else 0.0
        add(level, "tabular", "oracle", less(stuck, 0.2 + drop) if hard else half)
        add(level, "li-tabular", "oracle", less(stuck, 0.15 + drop) if hard else half)
        add(level, "drqn", "oracle", less(stuck, drop) if hard else less(solved, 0.01), 1.2)
        add(level, "sc", "oracle", less(stuck, drop - 0.05) if hard else solved, 1.4)
        base = less(stuck, 0.1)
        add(level, "drqn", "none", base, 0.5)
        for gate in ("dropout", "masking", "cqlh"):
            add(level, "drqn", gate, [v + 0.2 for v in base] if level == 1 else base, 0.5)
        plain = less(stuck, 0.09) if hard else (half if level == 3 else less(solved, 0.01))
        add(level, "sc", "none", plain, 0.9)
        add(level, "sc", "masking", less(stuck, 0.05) if hard else less(solved, 0.005), 1.1)
        for gate in ("dropout", "cqlh"):
            add(level, "sc", gate, less(plain, 0.01), 0.9)
    scores = {
        **{"drqn": (5, 10, 14, 15), "drqn+no-priority": (3, 6, 8, 10)},
        **{"drqn+no-look": (5, 9, 12, 13), "drqn+cqlh": (5, 8, 10, 12)},
        **{"drqn+acqlh": (12, 2, 14, 3), "ae-dqn": (5, 10, 20, 27)},
        **{"sc": (15, 25, 28, 28), "sc+masking": (16, 26, 30, 30)},
    }
    for name, values in scores.items():
        (condition,) = parse_conditions(name)
        records.append(on_zork(condition, values))
    return records


@pytest.fixture(scope="module")
def ideal() -> list[Record]:
    return as_the_paper_says()


def test_all_claims_hold_where_they_are_true(ideal: list[Record]) -> None:
    found = {one.claim.id: str(one.verdict) for one in judge(ideal)}
    assert found == {claim.id: "holds" for claim in CLAIMS}


def test_claims_fail_where_they_are_false(ideal: list[Record]) -> None:
    """Every agent does the same everywhere: what says that one is better or fails is false."""
    same = [
        on_zork(Condition.of(record.config), (36, 36, 36, 36))
        if record.game == "zork1"
        else made_record(
            int(record.game[-1]),
            record.agent,
            record.gate,
            (0.96, 0.97, 0.98, 0.96, 0.97),
            columns={"admissible_commands": np.full((5, 4), 300.0)},
        )
        for record in ideal
    ]
    found = {one.claim.id: one.verdict.word for one in judge(same)}
    true = {"gating-alone-no-better", "gating-alone-does-not-improve"}
    true |= {"almost-the-oracle", "masking-no-worse-to-level-3", "zork-half-of-the-steps"}
    half = {"baseline-well-to-level-3", "sc-solves-baseline-cannot"}
    half |= {"only-masking-solves-level-3", "faster-from-level-4", "zork-look"}
    expected = {id_: "holds" if id_ in true else "does not hold" for id_ in found}
    # Whether one is likely to beat the other is open where both do the same.
    likely = {"masking-best", "sc-mitigates", "enhancements-improve"}
    expected |= dict.fromkeys(half, "partly") | dict.fromkeys(likely, "undecided")
    assert found == expected


def test_claims_are_told_apart() -> None:
    ids = [claim.id for claim in CLAIMS]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z0-9-]+", id_) for id_ in ids)
    for claim in CLAIMS:
        assert claim.tests
        assert claim.where
        assert claim.test
        assert 3 <= len(claim.sentence.split()) <= 30
    assert {one.verdict.word for one in judge([])} == {"not yet run"}


# The page


def test_page_of_claims() -> None:
    claims = (
        Claim(
            "rises",
            "caption of fig:one",
            "It rises.",
            "it is above 0.5",
            tuple(Reaches(Cell(SC, level), 0.5) for level in (1, 2, 3)),
            "Level 2 is harder here.",
        ),
        Claim(
            "waits", "Somewhere", "It waits.", "it is there", (Reaches(Cell(SC_ORACLE, 1), 0.1),)
        ),
    )
    judged = judge([sc(1, HIGH), sc(2, LOW)], claims)
    page = claims_page(judged, "grue report x --claims y")
    assert page.startswith("# The paper's claims, tested\n")
    assert "Made by `grue report x --claims y`: do not edit." in page
    assert "## On SaladWorld\n\nOf 2 claims, 1 holds partly so far, 1 is not yet run.\n\n|" in page
    assert "## On Zork I" not in page
    told = "partly so far, 1 of 3 tests not yet run"
    assert f"| [rises](#rises) | “It rises.” | {told} |" in page
    assert "| [waits](#waits) | “It waits.” | not yet run |" in page
    begin, end = page.index("## rises"), page.index("## waits")
    assert page[begin:end] == (
        "## rises\n\n> It rises.\n\nCaption of fig:one. Tested: it is above 0.5.\n\n"
        "**Partly so far, 1 of 3 tests not yet run.**\n\n"
        "| test | passes | numbers |\n|---|---|---|\n"
        "| sc on level 1: at least 0.5 | yes | 0.900 ± 0.082 |\n"
        "| sc on level 2: at least 0.5 | no | 0.200 ± 0.082 |\n\n"
        "Level 2 is harder here.\n\nNot yet run: level 3: sc.\n\n"
    )
    assert page[end:] == (
        "## waits\n\n> It waits.\n\nSomewhere. Tested: it is there.\n\n**Not yet run.**\n\n"
        "Not yet run: level 1: sc + oracle.\n"
    )


def test_claims_on_zork_have_a_table_of_their_own() -> None:
    page = claims_page(judge([]), "x")
    begin, end = page.index("## On Zork I"), page.index("## few-admissible")
    lines = page[begin:end].splitlines()
    assert lines[2] == "Of 8 claims, 8 are not yet run."
    ids = [claim.id for claim in CLAIMS if claim.subject == "Zork I"]
    assert [line.split("]")[0] for line in lines[6:-1]] == [f"| [{id_}" for id_ in ids]
    assert all(id_.startswith("zork-") for id_ in ids)
    assert page[: page.index("## On Zork I")].count("](#") == len(CLAIMS) - 8
    told = "Not yet run: zork1: drqn, drqn with no priority.\n"
    assert page[page.index("## zork-priority\n") :].split("\n\n")[4] + "\n" == told


def test_counts() -> None:
    def of(*answers: Answer | None, missing: tuple[Cell, ...] = ()) -> Judged:
        claim = Claim("a", "b", "c", "d", ())
        return Judged(claim, Verdict(tuple(Outcome(one, "") for one in answers), missing))

    so_far = of("yes", missing=(Cell(SC, 1),))
    judged = [of("yes"), of("yes"), so_far, of("yes", "no"), of("undecided"), of("no"), of(None)]
    assert counts(judged) == (
        "2 hold, 1 holds so far, 1 holds partly, 1 does not hold, 1 is undecided, 1 is not yet run"
    )
    assert counts([so_far, of("no"), of(None)] * 2) == (
        "2 hold so far, 2 do not hold, 2 are not yet run"
    )


def test_command_writes_the_page_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_record(made_record(1, "sc", "masking", HIGH), tmp_path / "data")
    assert main(["report", "data", "--claims", "docs/claims.md"]) == 0
    assert capsys.readouterr().out == "docs/claims.md\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "docs"]
    expected = claims_page(
        judge([made_record(1, "sc", "masking", HIGH)]), "grue report data --claims docs/claims.md"
    )
    assert (tmp_path / "docs" / "claims.md").read_text() == expected


def test_committed_page_is_that_of_the_committed_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/claims.md says what results/saladworld and results/zork say."""
    monkeypatch.chdir(ROOT)
    made = tmp_path / "claims.md"
    assert main(["report", "results/saladworld", "results/zork", "--claims", str(made)]) == 0
    text = made.read_text().replace(str(made), "docs/claims.md")
    assert (ROOT / "docs" / "claims.md").read_text() == text
