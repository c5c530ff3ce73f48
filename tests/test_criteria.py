"""What each test of a claim takes, and the verdicts that they add up to."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from made_records import HIGH, LOW, MIDDLE, drqn, made_record, on_zork, sc

from grue.experiments.conditions import BASELINE, SC, Condition
from grue.experiments.records import Record
from grue.reports.claims import Claim, judge, read_claims
from grue.reports.claims_page import claims_page
from grue.reports.criteria import (
    FINAL,
    HIGHEST,
    SCORE,
    SCORE_AT_HALF,
    SCORE_SPEED,
    SPEED,
    UNSTEADINESS,
    AnyOf,
    Better,
    FewAdmissible,
    Improves,
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
from grue.reports.statistics import Estimate
from grue.reports.verdicts import SHORT, Answer, Cell, Data, Outcome, Test, Verdict, decide

AE_DQN, NO_LOOK = Condition("ae-dqn"), Condition("drqn", look=False)
CQLH, ACQLH = Condition("drqn", "cqlh"), Condition("drqn", "acqlh")


def outcome(test: Test, *records: Record) -> Outcome:
    return test.run(Data(records))


# Tests by themselves


def test_bounds() -> None:
    cell = Cell(SC, 1)
    high = sc(1, (0.85, 0.9, 0.95))
    assert outcome(Reaches(cell, 0.9), high) == Outcome("yes", "0.900 ± 0.041")
    assert outcome(Reaches(cell, 0.91), high).answer == "no"
    assert outcome(StaysBelow(cell, 0.9), high).answer == "no"
    assert outcome(StaysBelow(cell, 0.91), high).answer == "yes"
    assert str(Reaches(cell, 0.9)) == "sc on level 1: at least 0.9"
    assert str(StaysBelow(cell, 0.9)) == "sc on level 1: below 0.9"


def test_comparisons() -> None:
    cells = Cell(SC, 2), Cell(BASELINE, 2)
    turned = Cell(BASELINE, 2), Cell(SC, 2)
    far = sc(2, HIGH), drqn(2, LOW)
    # The least and the largest difference that resamples of three can have come up often.
    told = "0.900 ± 0.082 against 0.200 ± 0.082: +0.700 "
    better = outcome(Better(*cells), *far)
    assert better.answer == "yes"
    assert re.fullmatch(re.escape(told) + r"\[\+0\.5\d\d, \+0\.8\d\d\]", better.numbers)
    assert outcome(NoBetter(*cells), *far).answer == "no"
    assert outcome(Near(*cells), *far).answer == "no"
    assert outcome(NotWorse(*cells), *far).answer == "yes"
    assert outcome(NotWorse(*turned), *far).answer == "no"
    assert outcome(Better(*turned), *far).answer == "no"

    close = sc(2, (0.3, 0.5, 0.7)), drqn(2, (0.3, 0.45, 0.7))
    assert outcome(Better(*cells), *close).answer == "undecided"  # The interval holds 0 and 0.1.
    assert outcome(Near(*cells), *close).answer == "undecided"

    assert str(Better(*cells)) == "sc is better than drqn by 0.1 or more, level 2"
    faster = "sc learns faster than drqn by 0.1 or more, level 2"
    assert str(Better(*cells, measure=SPEED)) == faster
    assert str(NoBetter(*cells)) == "sc is not better than drqn by 0.1 or more, level 2"
    assert str(SlightlyBetter(*cells)) == "sc is better than drqn by 0.2 at most, level 2"
    assert str(Near(*cells)) == "sc is within 0.1 of drqn, level 2"
    assert str(NotWorse(*cells)) == "sc is at most 0.1 below drqn, level 2"
    apart = Better(Cell(SC, 3), Cell(SC, 4))
    assert str(apart) == "sc on level 3 is better than sc on level 4 by 0.1 or more"


@pytest.mark.parametrize(
    ("value", "low", "high", "better", "slightly"),
    [
        (0.1, 0.001, 0.2, "yes", "yes"),  # Just enough.
        (0.099, 0.001, 0.2, "undecided", "yes"),  # Surely more than nothing, perhaps not enough.
        (0.1, 0.0, 0.2, "undecided", "undecided"),  # Enough, but perhaps nothing.
        (0.05, 0.01, 0.0999, "no", "yes"),  # Surely more than nothing, and surely not enough.
        (0.05, 0.01, 0.1, "undecided", "yes"),
        (0.2, 0.1, 0.3, "yes", "yes"),  # Twice as much is still not large.
        (0.201, 0.1, 0.3, "yes", "undecided"),
        (0.3, 0.2, 0.4, "yes", "undecided"),
        (0.3, 0.201, 0.4, "yes", "no"),
        (0.05, 0.0, 0.1, "undecided", "undecided"),
        (0.05, 0.0, 0.0999, "no", "no"),
        (0.0, -0.01, 0.01, "no", "no"),
        (0.1, -0.01, 0.2, "undecided", "undecided"),
        (-0.1, -0.3, 0.2, "undecided", "undecided"),
        (-0.2, -0.3, -0.05, "no", "no"),
    ],
)
def test_better_takes_a_difference_that_counts(
    value: float, low: float, high: float, better: Answer, slightly: Answer
) -> None:
    cells = Cell(SC, 2), Cell(BASELINE, 2)
    opposite = {"yes": "no", "no": "yes", "undecided": "undecided"}[better]
    # On Zork I 3.5 points are what a tenth is here.
    for measure, unit in ((FINAL, 1.0), (SCORE, 35.0)):
        found = Estimate(unit * value, unit * low, unit * high)
        assert Better(*cells, measure=measure).answer(found) == better
        assert NoBetter(*cells, measure=measure).answer(found) == opposite
        assert SlightlyBetter(*cells, measure=measure).answer(found) == slightly


@pytest.mark.parametrize(
    ("low", "high", "near", "not_worse"),
    [
        (0.01, 0.05, "yes", "yes"),
        (0.05, 0.3, "undecided", "yes"),
        (0.2, 0.3, "no", "yes"),
        (0.0, 0.1, "yes", "yes"),
        (-0.01, 0.2, "undecided", "yes"),
        (-0.3, 0.2, "undecided", "undecided"),
        (-0.3, -0.05, "undecided", "undecided"),
        (-0.3, -0.2, "no", "no"),
    ],
)
def test_near_goes_by_the_interval(
    low: float, high: float, near: Answer, not_worse: Answer
) -> None:
    cells = Cell(SC, 2), Cell(BASELINE, 2)
    # Where in it the mean is makes no difference.
    for value in (low, (low + high) / 2, high):
        found = Estimate(value, low, high)
        assert Near(*cells).answer(found) == near
        assert NotWorse(*cells).answer(found) == not_worse
    points = Estimate(0.0, 35 * low, 35 * high)
    assert Near(*cells, measure=SCORE).answer(points) == near


def test_speed_is_the_mean_over_training() -> None:
    early = sc(1, MIDDLE, rise=(1, 1, 1, 1))
    late = drqn(1, MIDDLE, rise=(0, 0, 0, 1))
    cells = Cell(SC, 1), Cell(BASELINE, 1)
    assert outcome(Better(*cells), early, late).answer == "undecided"
    faster = outcome(Better(*cells, measure=SPEED), early, late)
    assert faster.answer == "yes"
    assert faster.numbers.startswith("0.500 ± 0.082 against 0.125 ± 0.020: +0.375 ")


def test_improvement_over_the_levels_there_are() -> None:
    test = Improves(SC, BASELINE, (1, 2, 3))
    assert str(test) == "sc is likely to beat drqn, levels 1 to 3 together"
    first = [sc(1, HIGH), drqn(1, LOW)]
    assert outcome(test, *first).answer == "yes"
    sure = "probability of improvement 1.000 [1.000, 1.000]"
    assert outcome(test, *first).numbers == f"{sure} on level 1"
    assert outcome(test, *first, sc(3, HIGH), drqn(3, LOW)).numbers == f"{sure} on levels 1, 3"
    whole = [*first, sc(2, HIGH), drqn(2, LOW), sc(3, HIGH), drqn(3, LOW)]
    assert outcome(test, *whole).numbers == sure
    # A win and a loss are no improvement.
    assert outcome(test, *first, sc(2, LOW), drqn(2, HIGH)).answer == "no"
    assert outcome(test, sc(1, MIDDLE), drqn(1, (0.4, 0.5, 0.55))).answer == "undecided"
    assert outcome(test, sc(1, HIGH), drqn(2, LOW)) == Outcome(None, "")


def test_any_of() -> None:
    masked = made_record(1, "drqn", "masking", HIGH)
    dropped = made_record(1, "drqn", "dropout", LOW)
    base = drqn(1, MIDDLE)
    tests = tuple(
        Better(Cell(Condition("drqn", gate), 1), Cell(BASELINE, 1))
        for gate in ("masking", "dropout")
    )
    found = outcome(AnyOf(tests), masked, dropped, base)
    assert found.answer == "yes"
    assert found.numbers.count("against 0.500 ± 0.082") == 2
    assert outcome(AnyOf(tests[1:]), dropped, base).answer == "no"
    assert outcome(AnyOf(tests), masked, base).answer == "yes"  # One is enough.
    assert outcome(AnyOf(tests), dropped, base) == Outcome(None, "")
    assert str(decide([AnyOf(tests)], Data([masked, base]))) == "holds"
    assert decide([AnyOf(tests)], Data([dropped, base])).missing == (tests[0].ours,)
    assert " or " in str(AnyOf(tests))


def test_few_admissible_commands() -> None:
    def with_commands(count: float) -> Record:
        return drqn(1, MIDDLE, columns={"admissible_commands": np.full((3, 4), count)})

    test = FewAdmissible(Cell(BASELINE, 1))
    assert outcome(test, with_commands(2.5)) == Outcome("yes", "2.5 of 8 commands")
    assert outcome(test, with_commands(4.0)) == Outcome("no", "4.0 of 8 commands")


def test_a_value_that_vanishes() -> None:
    def with_values(*values: float) -> Record:
        return drqn(1, MIDDLE, columns={"inadmissible_value": np.tile(values, (3, 1))})

    test = Vanishes(Cell(BASELINE, 1))
    assert outcome(test, with_values(1.0, 2.0, 0.5, 0.1)) == Outcome(
        "yes", "0.100 ± 0.000, 0.050 ± 0.000 of the peak"
    )
    assert outcome(test, with_values(1.0, 2.0, 0.5, 0.3)).answer == "no"
    assert outcome(test, drqn(1, MIDDLE)) == Outcome(None, "")
    assert str(test).endswith("ends at most 10% of its peak")


def test_what_a_record_does_not_tell_is_not_tested() -> None:
    whole = drqn(1, MIDDLE)
    bare = replace(whole, columns={"fraction_average": whole.columns["fraction_average"]})
    assert outcome(Reaches(Cell(BASELINE, 1), 0.5), bare).answer == "yes"
    assert outcome(FewAdmissible(Cell(BASELINE, 1)), bare) == Outcome(None, "")
    cells = Cell(BASELINE, 1), Cell(SC, 1)
    assert outcome(Better(*cells, measure=SCORE), bare, sc(1, MIDDLE)) == Outcome(None, "")
    assert np.isnan(HIGHEST.of(bare)).all()
    nothing = replace(whole, columns={"fraction_average": np.full((3, 4), np.nan)})
    assert np.isnan(FINAL.of(nothing)).all()
    assert np.isnan(SPEED.of(nothing)).all()


def test_only_finished_runs_of_the_paper_count() -> None:
    test = Reaches(Cell(SC, 1), 0.5)
    assert outcome(test, sc(1, HIGH)).answer == "yes"
    assert outcome(test, sc(2, HIGH)).answer is None
    assert outcome(test, sc(1, HIGH[:2])).answer is None  # Two seeds are too few.
    assert outcome(test, sc(1, HIGH, batch_size=64)).answer is None
    assert outcome(test, sc(1, HIGH, steps=100_000)).answer is None
    unfinished = sc(1, (0.9, 0.9, 0.9), rise=(1, 1, 1, float("nan")))
    assert outcome(test, unfinished).answer is None


def test_other_games_have_their_own_scale_and_measure() -> None:
    """Zork I is trained longer, and told by its score."""
    cell = Cell(SC, "zork1")
    config = cell.config()
    assert (config.game, config.agent, config.seeds) == ("zork1", "sc", (0, 1, 2, 3, 4))
    assert (config.steps, config.discount) == (2_000_000, 0.8)
    record = on_zork(SC, (5, 10, 30, 34), seeds=3)
    test = Reaches(cell, 35.0, SCORE)
    assert str(test) == "sc on zork1: at least 35"
    assert outcome(test, record) == Outcome("no", "34.000 ± 0.000")
    assert (
        str(Better(cell, Cell(BASELINE, "zork1"), SCORE))
        == "sc is better than drqn by 3.5 or more, zork1"
    )
    claim = Claim("z", "Zork", "It waits.", "so", (test, Reaches(Cell(SC, 3), 0.5)))
    assert "\nNot yet run: level 3, zork1: sc.\n" in claims_page(judge([], (claim,)), "x")


SHORTER = ("steps", "epsilon_steps", "activation", "adam_by_head")
"""The settings of drqn and sc that are different at the short scale."""


def test_short_runs_count_where_there_are_no_others() -> None:
    """And are never compared with long ones: one game is told at one scale."""
    short = {name: getattr(SHORT.config(SC, "zork1", (0,)), name) for name in SHORTER}
    brief_sc = on_zork(SC, (1, 2, 3, 4), seeds=3, **short)
    brief_drqn = on_zork(BASELINE, (0, 0, 0, 0), seeds=3, **short)
    long_sc = on_zork(SC, (5, 6, 7, 8), seeds=3)
    end = Reaches(Cell(SC, "zork1"), 4.0, SCORE)
    assert outcome(end, brief_sc) == Outcome("yes", "4.000 ± 0.000")
    assert outcome(end, brief_sc, long_sc) == Outcome("yes", "8.000 ± 0.000")
    # Too few of them count for nothing.
    assert outcome(end, brief_sc, long_sc.only([0, 1])) == Outcome("yes", "4.000 ± 0.000")
    better = Better(Cell(SC, "zork1"), Cell(BASELINE, "zork1"), SCORE)
    assert outcome(better, brief_sc, brief_drqn).answer == "yes"
    assert outcome(better, long_sc, brief_drqn).answer is None
    other = on_zork(SC, (9, 9, 9, 9), seeds=3, **short | {"steps": 400_000})
    assert outcome(end, other).answer is None
    claim = Claim("z", "Zork", "It waits.", "so", (end,))
    page = claims_page(judge([brief_sc], (claim,)), "x")
    assert "activation relu in place of elu" in page
    assert "adam by head false in place of true" in page
    told = "These runs are at the scale short: steps 500,000 in place of 2,000,000, "
    assert told in claims_page(judge([brief_sc], (claim,)), "x")
    assert told not in claims_page(judge([long_sc], (claim,)), "x")
    assert told not in claims_page(judge([], (claim,)), "x")


def test_measures_of_the_score() -> None:
    record = on_zork(SC, (8, 12, 36, 34), seeds=3)
    measures = {HIGHEST: 36, SCORE: 34, SCORE_SPEED: 22.5, SCORE_AT_HALF: 12, UNSTEADINESS: 10}
    for measure, value in measures.items():
        assert measure.of(record).tolist() == [value] * 3, measure.name
    # Eight rows of 250,000 steps and windows of 600,000: each third row, counted from the end.
    scores = np.array([[0.0, 1, 9, 9, 4, 9, 9, 6]])
    fine = replace(
        record.only([0]),
        config=replace(record.config, seeds=(0,), average_over=600_000),
        steps=np.arange(1, 9) * 250_000,
        columns={"score_average": scores},
    )
    assert UNSTEADINESS.of(fine).tolist() == [(2 + 3) / 2]


def test_half_of_the_steps() -> None:
    test = NotWorseAtHalf(Cell(SC, "zork1"), Cell(AE_DQN, "zork1"))
    assert str(test) == ("sc after half of the steps is at most 3.5 below the end of ae-dqn, zork1")
    theirs = on_zork(AE_DQN, (0, 0, 0, 20), seeds=3)
    near = outcome(test, on_zork(SC, (0, 16.5, 0, 0), seeds=3), theirs)
    assert near == Outcome("yes", "16.500 ± 0.000 against 20.000 ± 0.000: -3.500 [-3.500, -3.500]")
    assert outcome(test, on_zork(SC, (40, 16.25, 40, 40), seeds=3), theirs).answer == "no"
    assert outcome(test, theirs).answer is None


def test_two_that_learned_nothing_are_not_called_comparable() -> None:
    (claim,) = [each for each in read_claims() if each.id == "zork-half-of-the-steps"]
    learned, nothing = (0, 12, 12, 12), (0, 0, 0, 0)
    for scores, answer in ((learned, "yes"), (nothing, "no")):
        both = on_zork(SC, scores, seeds=3), on_zork(AE_DQN, scores, seeds=3)
        assert [outcome(test, *both).answer for test in claim.tests] == [answer]


def test_one_run_that_passes_the_mark_is_enough() -> None:
    test = NoneReaches(Cell(SC, "zork1"), 35.0, HIGHEST)
    assert str(test) == "sc on zork1: below 35 in every seed"
    record = on_zork(SC, (5, 34, 30, 30))  # With half a point more in one seed.
    found = Outcome("yes", "34.200 ± 0.187, the largest 34.500")
    assert outcome(test, record) == found
    assert outcome(NoneReaches(Cell(SC, "zork1"), 34.5, HIGHEST), record).answer == "no"


def test_what_fewer_steps_do_not_reach_is_undecided() -> None:
    """At the scale short the paper's three quarters of the steps are still to come."""
    cell = Cell(SC, "zork1")
    short = {name: getattr(SHORT.config(SC, "zork1", (0,)), name) for name in SHORTER}
    below, above = (
        on_zork(SC, (5, 30, 30, 30), 3, **short),
        on_zork(SC, (5, 35, 30, 30), 3, **short),
    )
    for kind in (NoneReaches, StaysBelow):
        test = kind(cell, 35.0, HIGHEST)
        assert outcome(test, below).answer == "undecided"
        assert outcome(test, below).numbers.endswith(", after 500,000 of 2,000,000 steps")
        assert outcome(test, above).answer == "no"
        assert outcome(test, on_zork(SC, (5, 30, 30, 30), 3)).answer == "yes"
    assert outcome(Reaches(cell, 35.0, HIGHEST), below).answer == "undecided"
    assert outcome(Reaches(cell, 35.0, HIGHEST), above).answer == "yes"
    (claim,) = [each for each in read_claims() if each.id == "zork-35-points"]
    answers = {outcome(test, below).answer for test in claim.tests}
    assert answers == {None, "undecided"}


def test_switches_make_another_condition() -> None:
    """A record without priority is no baseline, and neither is one without look."""
    test = Better(Cell(BASELINE, "zork1"), Cell(NO_LOOK, "zork1"), SCORE)
    assert str(test) == "drqn is better than drqn with no look by 3.5 or more, zork1"
    base, without = on_zork(BASELINE, (5, 5, 5, 11)), on_zork(NO_LOOK, (5, 5, 5, 7))
    assert outcome(test, base, without).answer == "yes"
    assert outcome(test, base).answer is None
    assert outcome(test, without, on_zork(Condition("drqn", priority=False), (5,) * 4)) == (
        Outcome(None, "")
    )
    unstable = Better(Cell(ACQLH, "zork1"), Cell(CQLH, "zork1"), UNSTEADINESS)
    assert str(unstable) == "drqn + acqlh is less stable than drqn + cqlh by 0.35 or more, zork1"


# Verdicts


@pytest.mark.parametrize(
    ("finals", "word", "told"),
    [
        ({1: HIGH, 2: HIGH}, "holds", "holds"),
        ({1: HIGH, 2: LOW}, "partly", "partly"),
        ({1: LOW, 2: LOW}, "does not hold", "does not hold"),
        ({}, "not yet run", "not yet run"),
        ({1: HIGH}, "holds", "holds so far, 1 of 2 tests not yet run"),
        ({2: LOW}, "does not hold", "does not hold so far, 1 of 2 tests not yet run"),
    ],
)
def test_verdicts(finals: dict[int, tuple[float, ...]], word: str, told: str) -> None:
    tests = [Reaches(Cell(SC, level), 0.5) for level in (1, 2)]
    records = [sc(level, final) for level, final in finals.items()]
    verdict = decide(tests, Data(records))
    assert verdict.word == word
    assert str(verdict) == told
    assert verdict.missing == tuple(Cell(SC, level) for level in (1, 2) if level not in finals)


@pytest.mark.parametrize(
    ("answers", "word"),
    [
        (("yes", "yes"), "holds"),
        (("yes", "undecided"), "undecided"),
        (("undecided",), "undecided"),
        (("yes", "undecided", "no"), "partly"),
        (("no", "undecided"), "does not hold"),
        ((None, "no"), "does not hold"),
        ((None,), "not yet run"),
    ],
)
def test_answers_add_up(answers: tuple[Answer | None, ...], word: str) -> None:
    assert Verdict(tuple(Outcome(one, "") for one in answers), ()).word == word


def test_a_test_on_some_levels_holds_so_far() -> None:
    test = Improves(SC, BASELINE, (1, 2))
    verdict = decide([test], Data([sc(1, HIGH), drqn(1, LOW)]))
    assert str(verdict) == "holds so far"
