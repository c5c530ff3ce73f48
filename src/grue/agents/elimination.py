"""Action elimination with one linear bandit for each command (Zahavy et al. 2018).

With φ the features of a state and e = 1 if command a did nothing in it,

    V_a = λ I + Σ φ φᵀ,   b_a = Σ φ e,   θ_a = V_a⁻¹ b_a,

and a is eliminated if the lower end of its confidence interval is above a threshold:

    θ_aᵀ φ - √(β φᵀ V_a⁻¹ φ) > ℓ.

A command that was rarely tried in similar states has a wide interval and is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

SMALLEST_SHARE = 1e-7
"""Smallest ridge, as a fraction of the trace: a smaller one vanishes in 32-bit rounding."""


class Tally(NamedTuple):
    """Sums over the steps counted so far."""

    products: Float[Array, "commands features features"]
    """Σ φ φᵀ"""
    signals: Float[Array, "commands features"]
    """Σ φ e"""


class Bandit(NamedTuple):
    inverse: Float[Array, "commands features features"]
    """V_a⁻¹"""
    weights: Float[Array, "commands features"]
    """θ_a"""


def with_constant(features: Float[Array, "rows units"]) -> Float[Array, "rows features"]:
    """φ: the network's features and a constant 1."""
    return jnp.concatenate([features, jnp.ones((len(features), 1))], axis=1)


def empty_tally(commands: int, features: int) -> Tally:
    return Tally(jnp.zeros((commands, features, features)), jnp.zeros((commands, features)))


def unsolved(commands: int, features: int, ridge: float) -> Bandit:
    """Bandits without data."""
    inverse = jnp.broadcast_to(jnp.eye(features) / ridge, (commands, features, features))
    return Bandit(inverse, jnp.zeros((commands, features)))


def count(
    tally: Tally,
    features: Float[Array, "rows features"],
    action: Int[Array, " rows"],
    inadmissible: Bool[Array, " rows"],
    weight: Float[Array, " rows"],
) -> Tally:
    """Adds weighted steps to the sums."""
    # Matrix products, not scatter-adds: their order of summation is fixed.
    taken = jax.nn.one_hot(action, len(tally.signals)) * weight[:, None]
    exact = jax.lax.Precision.HIGHEST
    weighted = taken[:, :, None] * features[:, None, :]
    products = jnp.einsum("rcf,rg->cfg", weighted, features, precision=exact)
    signals = jnp.einsum("rcf,r->cf", weighted, inadmissible.astype(jnp.float32), precision=exact)
    return Tally(tally.products + products, tally.signals + signals)


def solve(tally: Tally, ridge: float) -> Bandit:
    """The bandit of each command. One that cannot be solved in 32 bits is ``unsolved``."""
    identity = jnp.eye(tally.signals.shape[1])
    trace = jnp.trace(tally.products, axis1=1, axis2=2)
    least = jnp.maximum(ridge, SMALLEST_SHARE * trace)
    root = jnp.linalg.cholesky(tally.products + least[:, None, None] * identity)
    whole = jnp.broadcast_to(identity, root.shape)
    half = jax.scipy.linalg.solve_triangular(root, whole, lower=True)
    exact = jax.lax.Precision.HIGHEST
    inverse = jnp.einsum("ckf,ckg->cfg", half, half, precision=exact)
    weights = jnp.einsum("cfg,cg->cf", inverse, tally.signals, precision=exact)
    solved = jnp.isfinite(inverse).all((1, 2)) & jnp.isfinite(weights).all(1)
    otherwise = unsolved(len(weights), weights.shape[1], ridge)
    return Bandit(
        jnp.where(solved[:, None, None], inverse, otherwise.inverse),
        jnp.where(solved[:, None], weights, otherwise.weights),
    )


def interval(
    bandit: Bandit, features: Float[Array, "rows features"], confidence: float
) -> tuple[Float[Array, "rows commands"], Float[Array, "rows commands"]]:
    """The expected signal of each command in each state, and half the width of its interval."""
    middle = features @ bandit.weights.T
    spread = jnp.einsum("rf,cfg,rg->rc", features, bandit.inverse, features)
    return middle, jnp.sqrt(confidence * jnp.maximum(spread, 0.0))


def allowed(
    middle: Float[Array, "rows commands"],
    half_width: Float[Array, "rows commands"],
    threshold: float,
) -> Bool[Array, "rows commands"]:
    """The commands that are not eliminated; all if none were left."""
    kept = middle - half_width <= threshold
    return kept | ~kept.any(1, keepdims=True)
