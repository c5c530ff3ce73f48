"""The paper's claims where they are true and where they are false, and the page of them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from made_records import HIGH, LOW, made_record, on_zork, sc

from grue.cli.entry import main
from grue.errors import GrueError
from grue.experiments.conditions import SC, Condition
from grue.experiments.data_files import shipped
from grue.experiments.figures import parse_conditions
from grue.experiments.records import Record, write_record
from grue.reports.claims import TESTS, Claim, Judged, judge, read_claims
from grue.reports.claims_page import claims_page, counts
from grue.reports.criteria import (
    Reaches,
)
from grue.reports.verdicts import Answer, Cell, Outcome, Verdict

ROOT = Path(__file__).parents[1]
CLAIMS = read_claims()


# The paper's claims


def as_the_paper_says() -> list[Record]:
    """A world in which every sentence is true."""
    solved, half = (0.97, 0.98, 0.99, 0.98, 0.99), (0.5, 0.51, 0.52, 0.51, 0.5)
    low = (0.28, 0.3, 0.31, 0.29, 0.32)
    records = []

    def add(level: int, agent: str, gate: str, final: Sequence[float], early: float) -> None:
        """``early`` is the share of its end that it has from the first row on."""
        rise, commands = (early, early, early, 1.0), np.full((5, 4), 3.0)
        values = np.tile((1.0, 0.6, 0.2, 0.05), (5, 1))
        columns = {"admissible_commands": commands, "inadmissible_value": values}
        records.append(made_record(level, agent, gate, final, rise, columns=columns))

    def more(values: Sequence[float], by: float) -> list[float]:
        return [value + by for value in values]

    for level in range(1, 8):
        hard = level > 3
        drop = 0.2 if level > 4 else 0.0
        for agent in ("tabular", "li-tabular"):
            add(level, agent, "oracle", more(low, -drop / 2) if hard else half, 0.5)
        add(level, "drqn", "oracle", more(low, 0.2 - drop) if hard else more(solved, -0.02), 0.9)
        add(level, "sc", "oracle", more(low, 0.3 - drop) if hard else solved, 1.0)
        add(level, "drqn", "none", low, 0.0)
        for gate in ("dropout", "masking", "cqlh"):
            add(level, "drqn", gate, more(low, 0.2) if level == 1 else low, 0.0)
        plain = more(low, 0.01) if hard else (half if level == 3 else more(solved, -0.01))
        add(level, "sc", "none", plain, 0.6)
        add(level, "sc", "masking", more(low, 0.05) if hard else solved, 0.95 if hard else 0.8)
        for gate in ("dropout", "cqlh"):
            add(level, "sc", gate, more(plain, -0.01), 0.6)
    scores = {
        **{"drqn": (5, 10, 14, 15), "drqn+no-priority": (3, 6, 8, 10)},
        **{"drqn+no-look": (5, 9, 12, 13), "drqn+cqlh": (5, 8, 10, 12)},
        **{"drqn+acqlh": (12, 2, 14, 3), "ae-dqn": (5, 10, 20, 27)},
        **{"sc": (15, 25, 28, 28), "sc+masking": (16, 26, 30, 32)},
    }
    for name, values in scores.items():
        (condition,) = parse_conditions(name)
        records.append(on_zork(condition, values))
    return records


@pytest.fixture(scope="module")
def ideal() -> list[Record]:
    return as_the_paper_says()


def test_all_claims_hold_where_they_are_true(ideal: list[Record]) -> None:
    found = {one.claim.id: str(one.verdict) for one in judge(ideal, CLAIMS)}
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
            columns=dict.fromkeys(
                ("admissible_commands", "inadmissible_value"), np.full((5, 4), 300.0)
            ),
        )
        for record in ideal
    ]
    found = {one.claim.id: one.verdict.word for one in judge(same, CLAIMS)}
    true = {"gating-alone-no-better", "gating-alone-does-not-improve"}
    true |= {"almost-the-oracle", "masking-no-worse-to-level-3", "zork-half-of-the-steps"}
    half = {"baseline-well-to-level-3", "sc-solves-baseline-cannot"}
    half |= {"only-masking-solves-level-3", "faster-from-level-4", "levels-get-harder"}
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
        assert claim.reading
        assert 3 <= len(claim.sentence.split()) <= 30
    assert {one.verdict.word for one in judge([], CLAIMS)} == {"not yet run"}


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
            "waits",
            "Somewhere",
            "It waits.",
            "it is there",
            (Reaches(Cell(Condition("sc", "oracle"), 1), 0.1),),
        ),
    )
    judged = judge([sc(1, HIGH), sc(2, LOW)], claims)
    page = claims_page(judged, "grue report x --claims y")
    assert page.startswith("# The paper's claims, tested\n")
    assert "Generated by `grue report x --claims y`. Do not edit." in page
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
    page = claims_page(judge([], CLAIMS), "x")
    begin, end = page.index("## On Zork I"), page.index("## few-admissible")
    lines = page[begin:end].splitlines()
    assert lines[2] == "Of 8 claims, 8 are not yet run."
    ids = [claim.id for claim in CLAIMS if claim.subject == "Zork I"]
    assert [line.split("]")[0] for line in lines[6:-1]] == [f"| [{id_}" for id_ in ids]
    assert all(id_.startswith("zork-") for id_ in ids)
    assert page[: page.index("## On Zork I")].count("](#") == len(CLAIMS) - 8
    told = "Not yet run: zork1: drqn, drqn with no priority.\n"
    assert page[page.index("## zork-priority\n") :].split("\n\n")[4] + "\n" == told


def test_a_claim_that_records_cannot_tell() -> None:
    claim = Claim("silent", "Somewhere", "It is silent.", "it says nothing", (), needs="a voice")
    page = claims_page(judge([sc(1, HIGH)], (claim,)), "x")
    assert "\nOf 1 claim, 1 is not measured.\n" in page
    told = "Somewhere. Tested: it says nothing.\n\n**Not measured.**\n\nNot measured: a voice.\n"
    assert page.endswith(told)


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
        judge([made_record(1, "sc", "masking", HIGH)], CLAIMS),
        "grue report data --claims docs/claims.md",
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


# Files of claims

WHOLE = """
[remarks]
why = "So it is."
[[claim]]
id = "mine"
where = "Somewhere"
sentence = "It is good."
reading = "it is above a half"
remarks = ["why"]
tests = [
    { test = "reaches", conditions = "sc", levels = [1, 2], bound = 0.5 },
    { test = "better", ours = ["sc", "sc+masking"], theirs = "drqn", levels = "1-2", any = true },
]
"""


def test_a_line_of_tests_is_one_for_every_level_and_condition(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(WHOLE)
    (claim,) = read_claims(path)
    assert claim.remark == "So it is."
    first, second, any_of = map(str, claim.tests)
    assert (first, second) == ("sc on level 1: at least 0.5", "sc on level 2: at least 0.5")
    assert any_of == " or ".join(
        f"{ours} is better than drqn by 0.1 or more, level {level}"
        for level in (1, 2)
        for ours in ("sc", "sc + masking")
    )


def test_every_test_is_used() -> None:
    used = {entry["test"] for claim in _entries() for entry in claim.get("tests", ())}
    assert used == set(TESTS)


def _entries() -> list[dict]:
    return tomllib.loads((ROOT / "docs" / "claims.toml").read_text())["claim"]


def test_the_command_takes_claims_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text(WHOLE)
    write_record(sc(1, HIGH), tmp_path / "data")
    assert main(["report", "data", "--claims", "page.md", "--claims-from", "own.toml"]) == 0
    page = Path("page.md").read_text()
    assert "Generated by `grue report data --claims page.md --claims-from own.toml`" in page
    assert "| [mine](#mine) | “It is good.” | holds so far, 2 of 3 tests not yet run |" in page


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('test = "reaches"', 'test = "reeches"', "no test 'reeches': did you mean reaches? there"),
        ("bound = 0.5", "bount = 0.5", "no argument of reaches 'bount': did you mean bound? there"),
        (", bound = 0.5", "", "the test reaches lacks bound; it takes conditions, levels, bound"),
        ("bound = 0.5", 'bound = "sollved"', "no bound 'sollved': did you mean solved? there are"),
        ("bound = 0.5", "bound = true", "a bound is a number, solved or well, not True"),
        ("bound = 0.5", 'bound = 1, measure = "sped"', "no measure 'sped': did you mean speed?"),
        ('"sc", levels', '"scc", levels', "the condition 'scc': did you mean sc?"),
        ("levels = [1, 2]", "levels = [1, 9]", "levels lie from 1 to 7"),
        ('theirs = "drqn"', 'theirs = ["drqn", "sc"]', "theirs is one condition, not"),
        ('["why"]', '["wy"]', "no remark 'wy': did you mean why? there are why"),
        ('where = "Somewhere"', "", "where is missing or no text"),
        ('where = "Somewhere"', 'were = "Somewhere"', "no entry 'were': did you mean where?"),
        ('reading = "', 'needs = "x"\nreading = "', "either tests, or needs"),
        ("tests = [", "tests = 3\nx = [", "there is no entry 'x'"),
        ("[[claim]]", "[claim]", "has no claim; a claim begins with the line [[claim]]"),
        ("[[claim]]", "[[claim", "own.toml cannot be read as TOML"),
        (WHOLE, "claim = 3", "has no claim"),
        (WHOLE, WHOLE + WHOLE.partition('"So it is."')[2], "there are two claims mine"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, told: str
) -> None:
    path = tmp_path / "own.toml"
    assert old in WHOLE
    path.write_text(WHOLE.replace(old, new, 1))
    write_record(sc(1, HIGH), tmp_path / "data")
    assert main(["report", str(tmp_path / "data"), "--claims-from", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"grue: {path}")
    assert told in error
    assert error.count("\n") == 1


def test_an_installed_grue_has_its_data() -> None:
    """The wheel puts it beside the module that reads it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for name in ("claims.toml", "figures.toml"):
        assert included.pop(f"docs/{name}") == f"grue/experiments/{name}"
        assert shipped(name) == ROOT / "docs" / name
    # Measured speeds, for the planner.
    assert all(included[f"results/bench/{Path(to).name}"] == to for to in included.values())
    assert len(included) == 4
    with pytest.raises(GrueError, match=r"none\.toml is missing from this installation"):
        shipped("none.toml")
