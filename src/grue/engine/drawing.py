"""Draws the game of a set that the next episode plays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from grue.errors import UsageError

DRAWS = ("uniform", "in order", "same")


@partial(jax.tree_util.register_dataclass, data_fields=["below"], meta_fields=["order"])
@dataclass(frozen=True)
class Draw:
    """Uniform or by weights; in order, from a game drawn by the key; or always the same game."""

    below: Any
    """The cumulative probability of each game and all games before it."""
    order: str = "uniform"

    @classmethod
    def of(
        cls, count: int, order: str = "uniform", weights: Sequence[int | float] | None = None
    ) -> Draw:
        """``weights`` say how often each of ``count`` games is drawn, relative to the others."""
        if order not in DRAWS:
            raise UsageError(f"there is no draw {order!r}; use {', '.join(DRAWS)}")
        if weights is None:
            return cls(np.linspace(0, 1, count + 1, dtype=np.float32)[1:], order)
        try:
            chances = np.asarray(weights, np.float64)
        except (TypeError, ValueError):
            raise UsageError(f"weights are {weights!r}; give {count} numbers") from None
        if order == "in order":
            raise UsageError("weights are for games that are drawn; leave them out, or draw")
        if chances.shape != (count,) or not np.isfinite(chances).all() or (chances < 0).any():
            raise UsageError(f"give {count} weights, one for each game, each at least 0")
        if not chances.any():
            raise UsageError("all weights are 0; give one game at least a weight above 0")
        below = np.cumsum(chances) / chances.sum()
        return cls(below.astype(np.float32), order)

    def first(self, stream: Any) -> Array:
        """The game of the first episode. Without a key, ``in order`` begins with game 0."""
        if self.order == "in order":
            return (stream[0] % len(self.below)).astype(jnp.int32)
        return self._drawn(stream, jnp.int32(0))

    def next(self, stream: Any, episode: Any, last: Any) -> Array:
        if self.order == "same":
            return last
        if self.order == "in order":
            return (last + 1) % len(self.below)
        return self._drawn(stream, episode)

    def _drawn(self, stream: Any, episode: Any) -> Array:
        none = jnp.zeros_like(episode, jnp.uint32)
        key = _threefry(stream[0], stream[1], none, jnp.asarray(episode).astype(jnp.uint32))
        high, low = _threefry(*key, none, none)
        chance = jax.lax.bitcast_convert_type((high ^ low) >> 9 | ONE, jnp.float32) - 1
        found = jnp.searchsorted(jnp.asarray(self.below), chance, "right", method="scan_unrolled")
        return jnp.minimum(found, len(self.below) - 1).astype(jnp.int32)


ONE = np.uint32(0x3F800000)
"""The bits of 1.0."""
TURNS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _threefry(first: Any, second: Any, high: Any, low: Any) -> tuple[Array, Array]:
    """Threefry 2x32 (Salmon et al. 2011), the random bits of ``jax.random``.

    JAX's own version is slow on a CPU, and a set draws in every step, in case the game ends.
    """
    keys = (first, second, first ^ second ^ np.uint32(0x1BD11BDA))
    high, low = high + first, low + second
    for block in range(5):
        for turn in TURNS[block % 2]:
            high = high + low
            low = high ^ (low << turn | low >> (32 - turn))
        high = high + keys[(block + 1) % 3]
        low = low + keys[(block + 2) % 3] + np.uint32(block + 1)
    return high, low
