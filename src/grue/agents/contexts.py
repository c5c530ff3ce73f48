"""Score contexts: assigns a network head to each score (the paper's J).

Heads are assigned round robin, in the order in which scores are first seen. Scores may fall,
repeat and be negative.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

CAPACITY = 128
"""Distinct scores that are stored; later ones share the last entry."""


class ScoreContexts(NamedTuple):
    seen: Int[Array, " capacity"]
    """Scores in the order of their first appearance."""
    count: Int[Array, ""]


def init(capacity: int = CAPACITY) -> ScoreContexts:
    """J = {}"""
    return ScoreContexts(jnp.zeros(capacity, jnp.int32), jnp.int32(0))


def assign(
    contexts: ScoreContexts, score: Int[Array, ""], heads: int | Int[Array, ""]
) -> tuple[ScoreContexts, Int[Array, ""]]:
    """Adds a score if it is new, and returns its head J(u)."""
    known = (contexts.seen == score) & (jnp.arange(len(contexts.seen)) < contexts.count)
    is_new = ~known.any()
    place = jnp.minimum(contexts.count, len(contexts.seen) - 1)
    seen = jnp.where(is_new, contexts.seen.at[place].set(score), contexts.seen)
    order = jnp.where(is_new, place, known.argmax())
    count = jnp.minimum(contexts.count + is_new, len(contexts.seen))
    return ScoreContexts(seen, count), (order % heads).astype(jnp.int32)


def head(
    contexts: ScoreContexts, score: Int[Array, ""], heads: int | Int[Array, ""]
) -> Int[Array, ""]:
    """The head of a score. A new score gets the next head and is not added."""
    return assign(contexts, score, heads)[1]
