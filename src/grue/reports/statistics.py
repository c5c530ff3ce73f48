"""Statistics for few runs: aggregates with bootstrap intervals over the seeds.

After Agarwal et al. (2021), *Deep Reinforcement Learning at the Edge of the Statistical Precipice*:
interquartile means, the probability of improvement, and intervals from a stratified bootstrap,
which resamples the runs of each game with replacement.

A stratum holds the values of one condition's seeds on one game. nan is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from grue.errors import UsageError

RESAMPLES = 10_000
CONFIDENCE = 0.95
SEED = 0
TRIM = 0.25
"""The share of the values that an interquartile mean drops at each end."""
Strata = Sequence[np.ndarray]


@dataclass(frozen=True)
class Estimate:
    """A number and its bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def trimmed_mean(values: np.ndarray) -> np.ndarray:
    """The mean along the last axis without a quarter of the values (rounded down) at each end."""
    count = values.shape[-1]
    cut = int(TRIM * count)
    return np.asarray(np.sort(values, axis=-1)[..., cut : count - cut].mean(-1))


def interquartile_mean(strata: Strata, resamples: int = RESAMPLES, seed: int = SEED) -> Estimate:
    """The interquartile mean over the runs of all games."""

    def pooled(drawn: Strata) -> np.ndarray:
        return trimmed_mean(np.concatenate(drawn, axis=-1))

    return _estimate(pooled, [_known(strata)], resamples, seed)


def mean_difference(
    ours: Strata, theirs: Strata, resamples: int = RESAMPLES, seed: int = SEED
) -> Estimate:
    """Our mean minus theirs, averaged over the games."""
    _check_paired(ours, theirs)

    def difference(x: Strata, y: Strata) -> np.ndarray:
        each = [a.mean(-1) - b.mean(-1) for a, b in zip(x, y, strict=True)]
        return np.mean(each, axis=0)

    return _estimate(difference, [_known(ours), _known(theirs)], resamples, seed)


def probability_of_improvement(
    ours: Strata, theirs: Strata, resamples: int = RESAMPLES, seed: int = SEED
) -> Estimate:
    """How often a run of ours beats a run of theirs, averaged over the games.

    On one game it is the Mann-Whitney U divided by the number of pairs: a tie counts one half.
    """
    _check_paired(ours, theirs)

    def improvement(x: Strata, y: Strata) -> np.ndarray:
        return np.mean([_wins(a, b) for a, b in zip(x, y, strict=True)], axis=0)

    return _estimate(improvement, [_known(ours), _known(theirs)], resamples, seed)


@dataclass(frozen=True)
class StepsToSolve:
    """The steps after which seeds reached something; a seed that never did counts as last."""

    reached: tuple[int, ...]
    """The steps of the seeds that did, sorted."""
    seeds: int

    @property
    def median(self) -> float | None:
        """The median over all seeds; None if half of them or more never got there."""
        never = [math.inf] * (self.seeds - len(self.reached))
        middle = float(np.median([*self.reached, *never])) if self.seeds else math.inf
        return middle if math.isfinite(middle) else None


def steps_to_solve(steps: Sequence[int | None]) -> StepsToSolve:
    return StepsToSolve(tuple(sorted(at for at in steps if at is not None)), len(steps))


def _wins(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """The share of pairs in which ours is larger, along the last axes."""
    x, y = ours[..., :, None], theirs[..., None, :]
    return ((x > y) + 0.5 * (x == y)).mean((-2, -1))


def _estimate(
    statistic: Callable[..., np.ndarray], samples: Sequence[Strata], resamples: int, seed: int
) -> Estimate:
    """A statistic with its bootstrap percentile interval."""
    rng = np.random.default_rng(seed)
    drawn = [[_draw(rng, stratum, resamples) for stratum in strata] for strata in samples]
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(statistic(*drawn), [tail, 100 - tail])
    (value,) = statistic(*([stratum[None] for stratum in strata] for strata in samples))
    return Estimate(float(value), float(low), float(high))


def _draw(rng: np.random.Generator, stratum: np.ndarray, resamples: int) -> np.ndarray:
    return stratum[rng.integers(0, len(stratum), (resamples, len(stratum)))]


def _known(strata: Strata) -> list[np.ndarray]:
    known = [np.asarray(stratum, float) for stratum in strata]
    known = [stratum[np.isfinite(stratum)] for stratum in known]
    if not known or not all(len(stratum) for stratum in known):
        raise UsageError("a statistic needs at least one run of each game")
    return known


def _check_paired(ours: Strata, theirs: Strata) -> None:
    if len(ours) != len(theirs):
        raise UsageError(
            f"conditions are compared on the same games, not on {len(ours)} and {len(theirs)} games"
        )
