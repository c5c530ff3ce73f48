"""Score contexts: which network head is in charge at which score (the paper's J).

Heads are given out by round robin in the order in which scores are first seen. With one head this
is the baseline. Scores may fall, repeat and be negative.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

CAPACITY = 128
"""Distinct scores that are remembered; later ones share the last place."""


class ScoreContexts(NamedTuple):
    seen: Int[Array, " capacity"]
    """The scores in the order in which they were first seen."""
    count: Int[Array, ""]


def init(capacity: int = CAPACITY) -> ScoreContexts:
    """No score has been seen yet: J = {}."""
    return ScoreContexts(jnp.zeros(capacity, jnp.int32), jnp.int32(0))


def assign(
    contexts: ScoreContexts, score: Int[Array, ""], heads: int | Int[Array, ""]
) -> tuple[ScoreContexts, Int[Array, ""]]:
    """The head J(u) of a score, and the contexts with the score in them."""
    known = _known(contexts, score)
    is_new = ~known.any()
    place = jnp.minimum(contexts.count, len(contexts.seen) - 1)
    seen = jnp.where(is_new, contexts.seen.at[place].set(score), contexts.seen)
    order = jnp.where(is_new, place, known.argmax())
    count = jnp.minimum(contexts.count + is_new, len(contexts.seen))
    return ScoreContexts(seen, count), (order % heads).astype(jnp.int32)


def head(
    contexts: ScoreContexts, score: Int[Array, ""], heads: int | Int[Array, ""]
) -> Int[Array, ""]:
    """The head of a score that has been seen; one that has not gets the next head, unrecorded."""
    return assign(contexts, score, heads)[1]


def _known(contexts: ScoreContexts, score: Int[Array, ""]) -> Bool[Array, " capacity"]:
    places = jnp.arange(len(contexts.seen))
    return (contexts.seen == score) & (places < contexts.count)
