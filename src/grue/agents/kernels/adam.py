"""One step of Adam on an array; also used inside the GPU kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

KEEP_FIRST, KEEP_SECOND, TINY = 0.9, 0.999, 1e-8
"""β₁, β₂ and ε: the paper's, and optax's defaults."""

Rates = Float[Array, "*heads 3"]
"""Gradient scale, step size, and the factor of v for bias correction."""


def rates(
    count: Int[Array, "*heads"],
    scale: Float[Array, ""],
    learning_rate: float | Float[Array, ""],
) -> Rates:
    """The rates of a step, counted from 1."""
    first = learning_rate / (1 - KEEP_FIRST ** count.astype(jnp.float32))
    second = 1 / (1 - KEEP_SECOND ** count.astype(jnp.float32))
    return jnp.stack([jnp.broadcast_to(scale, count.shape), first, second], axis=-1)


def moved(
    theta: Array, m: Array, v: Array, gradient: Array, now: Rates | Sequence[Array]
) -> tuple[Array, Array, Array]:
    """θ, m and v after a step."""
    gradient = gradient * now[0]
    m = KEEP_FIRST * m + (1 - KEEP_FIRST) * gradient
    v = KEEP_SECOND * v + (1 - KEEP_SECOND) * gradient * gradient
    return theta - now[1] * m / (jnp.sqrt(v * now[2]) + TINY), m, v


def moved_heads(
    theta: Array, m: Array, v: Array, gradient: Array, moving: Bool[Array, " heads"], now: Rates
) -> tuple[Array, Array, Array]:
    """The same for arrays with a row for each head. Only ``moving`` heads are updated."""
    new = jax.vmap(moved)(theta, m, v, gradient, now)
    which = moving.reshape(-1, *[1] * (theta.ndim - 1))
    theta, m, v = (
        jnp.where(which, after, before) for after, before in zip(new, (theta, m, v), strict=True)
    )
    return theta, m, v


def moved_all(move: Callable[..., tuple[Array, Array, Array]], *four: Any) -> tuple[Any, Any, Any]:
    """New θ, m and v from trees of θ, m, v and the gradient."""
    new = [move(*each) for each in zip(*map(jax.tree.leaves, four), strict=True)]
    tree = jax.tree.structure(four[0])
    theta, m, v = (jax.tree.unflatten(tree, part) for part in zip(*new, strict=True))
    return theta, m, v
