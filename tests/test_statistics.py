"""Aggregates by hand, by enumeration and by scipy; then what must be so for any runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from grue.errors import UsageError
from grue.reports.statistics import (
    Estimate,
    StepsToSolve,
    interquartile_mean,
    mean_difference,
    probability_of_improvement,
    steps_to_solve,
    trimmed_mean,
)

NAN = float("nan")
FEW = 200
"""Resamples, where the interval does not matter."""


def runs(*values: float) -> np.ndarray:
    return np.array(values, float)


fractions = st.lists(st.integers(0, 8).map(lambda n: n / 8), min_size=1, max_size=7).map(np.array)


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ((3.0,), 3.0),
        ((1.0, 2.0, 9.0), 4.0),  # A quarter of three is none.
        ((100.0, 1.0, 3.0, 0.0), 2.0),
        ((0.0, 1.0, 2.0, 3.0, 100.0), 2.0),
        ((8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0), 4.5),
    ],
)
def test_trimmed_means_by_hand(values: tuple[float, ...], mean: float) -> None:
    assert trimmed_mean(runs(*values)) == mean


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20))
def test_trimmed_mean_is_that_of_scipy(values: list[float]) -> None:
    expected = scipy.stats.trim_mean(values, 0.25)
    np.testing.assert_allclose(trimmed_mean(np.array(values)), expected, rtol=1e-9, atol=1e-9)


def test_iqm_pools_the_games() -> None:
    # Sorted: 0, .2, [.4, .5, .5, .6,] 1, 1.
    found = interquartile_mean([runs(0, 0.2, 0.4, 0.6), runs(0.5, 1, 0.5, 1)])
    assert found.value == 0.5
    assert found.low < 0.5 < found.high


def test_intervals_are_those_of_all_resamples() -> None:
    """Four runs have 256 resamples, each the middle two of which count."""
    values = runs(0.1, 0.4, 0.5, 0.9)
    means = [sum(sorted(drawn)[1:3]) / 2 for drawn in itertools.product(values, repeat=4)]
    low, high = np.percentile(means, [2.5, 97.5], method="inverted_cdf")
    found = interquartile_mean([values])
    assert found.value == pytest.approx(0.45)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert (low, high) == (pytest.approx(0.1), pytest.approx(0.9))


def test_each_game_is_drawn_by_itself() -> None:
    """Runs of two games, alike within each: no resample can change the mix."""
    alike = [runs(0, 0, 0, 0), runs(1, 1, 1, 1)]
    assert interquartile_mean(alike) == Estimate(0.5, 0.5, 0.5)
    assert mean_difference(alike, alike[::-1]) == Estimate(0.0, 0.0, 0.0)


def test_the_seed_decides() -> None:
    values = [runs(0.1, 0.35, 0.4, 0.7, 0.95)]
    first = interquartile_mean(values, 50)
    assert interquartile_mean(values, 50) == first
    assert interquartile_mean(values, 50, seed=1) != first
    assert str(Estimate(0.25, 0.125, 1.0)) == "0.250 [0.125, 1.000]"


def test_differences_by_hand() -> None:
    found = mean_difference([runs(0.5, 0.7), runs(1.0)], [runs(0.1), runs(0.2, 0.4)])
    assert found.value == pytest.approx((0.5 + 0.7) / 2)
    assert found.low == pytest.approx((0.4 + 0.6) / 2)
    assert found.high == pytest.approx((0.6 + 0.8) / 2)


def test_probability_of_improvement_by_hand() -> None:
    # 1 beats 0; 2 beats 0 and ties with 2; 3 beats 0 and 2.
    assert probability_of_improvement([runs(1, 2, 3)], [runs(0, 2, 4)]).value == 4.5 / 9
    two_games = probability_of_improvement([runs(1, 2, 3), runs(1)], [runs(0, 2, 4), runs(0)])
    assert two_games.value == (0.5 + 1) / 2
    sure = probability_of_improvement([runs(0.8, 0.9)], [runs(0.1, 0.2, 0.3)])
    assert sure == Estimate(1.0, 1.0, 1.0)


@given(fractions, fractions)
@settings(max_examples=60, deadline=None)
def test_probability_of_improvement_is_mann_whitneys(ours: np.ndarray, theirs: np.ndarray) -> None:
    found = probability_of_improvement([ours], [theirs], FEW)
    pairs = len(ours) * len(theirs)
    u = scipy.stats.mannwhitneyu(ours, theirs, method="asymptotic").statistic
    assert found.value == pytest.approx(u / pairs)
    assert 0 <= found.low <= found.high <= 1
    other = probability_of_improvement([theirs], [ours], FEW)
    assert found.value + other.value == pytest.approx(1)
    # Only the order of the runs counts.
    squeezed = probability_of_improvement([ours**3], [theirs**3], FEW)
    assert squeezed == found


@given(st.lists(fractions, min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_iqm_lies_between_the_runs(strata: list[np.ndarray]) -> None:
    found = interquartile_mean(strata, FEW)
    least, most = min(map(np.min, strata)), max(map(np.max, strata))
    assert least - 1e-12 <= found.low <= found.high <= most + 1e-12
    assert least - 1e-12 <= found.value <= most + 1e-12
    shuffled = interquartile_mean([stratum[::-1] for stratum in strata], FEW)
    assert shuffled.value == pytest.approx(found.value)
    higher = interquartile_mean([stratum + 1 for stratum in strata], FEW)
    assert higher.value == pytest.approx(found.value + 1)
    assert higher.low == pytest.approx(found.low + 1)


@given(fractions, fractions)
@settings(max_examples=60, deadline=None)
def test_difference_turns_round(ours: np.ndarray, theirs: np.ndarray) -> None:
    one = mean_difference([ours], [theirs], FEW)
    other = mean_difference([theirs], [ours], FEW)
    assert one.value == pytest.approx(-other.value)
    assert one.value == pytest.approx(ours.mean() - theirs.mean())


def test_nan_is_left_out() -> None:
    assert interquartile_mean([runs(NAN, 0.25, NAN)]) == Estimate(0.25, 0.25, 0.25)
    assert probability_of_improvement([runs(1, NAN)], [runs(0)]).value == 1


@pytest.mark.parametrize("strata", [[], [runs()], [runs(0.5), runs(NAN)]])
def test_nothing_has_no_statistic(strata: list[np.ndarray]) -> None:
    with pytest.raises(UsageError, match="at least one run of each game"):
        interquartile_mean(strata)


def test_comparisons_need_the_same_games() -> None:
    with pytest.raises(UsageError, match="same games, not on 1 and 2"):
        mean_difference([runs(1)], [runs(1), runs(2)])
    with pytest.raises(UsageError, match="same games, not on 2 and 1"):
        probability_of_improvement([runs(1), runs(2)], [runs(1)])


@pytest.mark.parametrize(
    ("steps", "reached", "median"),
    [
        ((5000,), (5000,), 5000.0),
        ((9000, 1000, 3000), (1000, 3000, 9000), 3000.0),
        ((None, 1000, 3000), (1000, 3000), 3000.0),
        ((None, None, 3000), (3000,), None),  # The middle one never did.
        ((1000, 2000, None, None), (1000, 2000), None),
        ((1000, 2000, 4000, None), (1000, 2000, 4000), 3000.0),
        ((None,), (), None),
        ((), (), None),
    ],
)
def test_steps_to_solve(
    steps: tuple[int | None, ...], reached: tuple[int, ...], median: float | None
) -> None:
    found = steps_to_solve(steps)
    assert found == StepsToSolve(reached, len(steps))
    assert found.median == median
