"""Finds what a name stands for, if the names of a compiled game share words."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from grue.engine.compiler.model import HELD
from grue.engine.tables import take


def sights(t: Any, state: Any, reach: Array) -> list[Array]:
    """Where things are as far as it matters, and which of two things the story names first.

    ``t`` has the game's arrays; ``reach`` tells how each movable thing relates to the player.
    """
    rows = jnp.arange(len(t.sight_movable))
    found = t["sight_values"][rows, take(reach, t.sight_movable)]
    if not len(t.before_first):
        return [found]
    # The story looks through the room, then through what is carried: the latest moved first,
    # and what a place holds right after the place.
    things, places = len(reach), len(t.place_room)
    age = jnp.where(state.recency > 0, state.recency, -1 - t.thing_rank[:things])
    place_age = -1 - t.thing_rank[things:]
    at = state.locations - len(t.exit_to) - 1
    inside = (at >= 0) & (at < places)
    outer = jnp.where(inside, take(place_age, jnp.clip(at, 0, places - 1)), age)
    keys = (
        jnp.concatenate([reach == HELD, jnp.zeros(places, bool)]),
        jnp.concatenate([outer, place_age]),
        jnp.concatenate([jnp.where(inside, age, 0), jnp.full(places, np.iinfo(np.int32).max)]),
    )
    (held, outer, inner), (held2, outer2, inner2) = (
        [take(key, which) for key in keys] for which in (t.before_first, t.before_second)
    )
    older = (outer > outer2) | ((outer == outer2) & (inner > inner2))
    return [found, jnp.where(held == held2, older, held == t.before_carried)]


def plural(state: Any) -> list[Array]:
    """Whether the last list after "is" or "are" was of several things: the last variable."""
    return [state.variables[-1:] if len(state.variables) else jnp.zeros(1, jnp.int32)]


def question(t: Any, outcome: Array | None) -> list[Array]:
    """Which question was the last answer, as far as it matters."""
    asked = 0 if outcome is None else t["outcome_question"][outcome]
    return [jnp.asarray(t.asked_values)[:, asked]]
