"""TARGETS and the losses of Algorithm 1.

Names follow the paper: Q(h_t, a_t) is ``q_t``, the values after the step ``q_next``, the estimate
ξ̂(h_t, a_t) ``admissibility``. All functions take any batch shape.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grue.agents.gating import After, GateSet, best_of


def q_target(
    reward: Float[Array, "*batch"],
    terminated: Bool[Array, "*batch"],
    next_value: Float[Array, "*batch"],
    discount: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """y = r if the game ended, else r + γ · next_value. A time limit does not end the game."""
    return reward + discount * jnp.where(terminated, 0.0, next_value)


def traced_target(
    reward: Float[Array, "steps *batch"],
    terminated: Bool[Array, "steps *batch"],
    next_value: Float[Array, "steps *batch"],
    goes_on: Bool[Array, "steps *batch"],
    discount: float,
    trace: float,
) -> Float[Array, "steps *batch"]:
    """Peng's Q(λ): y_t = r_t + γ ((1 - λ) · next_value_t + λ · y_{t+1}) along sequences.

    λ is ``trace``, but 0 for steps after which the sequence does not continue.
    """

    def back(after: Array, step: tuple[Array, ...]) -> tuple[Array, Array]:
        r, end, value, more = step
        mixed = jnp.where(more, (1 - trace) * value + trace * after, value)
        y = q_target(r, end, mixed, discount)
        return y, y

    steps = (reward, terminated, next_value, goes_on)
    return jax.lax.scan(back, jnp.zeros_like(next_value[0]), steps, reverse=True)[1]


def next_value(
    gates: GateSet,
    gate: int | Int[Array, ""],
    q_next: Float[Array, "*batch commands"],
    q_next_same: Float[Array, "*batch"],
    admissibility: Float[Array, "*batch"],
    next_admissible: Bool[Array, "*batch room"] | None = None,
    exists: Bool[Array, "*batch commands"] | None = None,
    believed: Float[Array, "*batch commands"] | None = None,
    chooser: Float[Array, "*batch commands"] | None = None,
) -> Float[Array, "*batch"]:
    """The value after a step, by gate: max_a Q(h', a) unless the gate says otherwise.

    All maxima are over the commands that the game has: those in ``exists``, if given.
    ``believed`` is ξ̂(h_{t+1}, ·), for gates that take the maximum over the commands with a high ξ̂;
    by default 1. With ``chooser``, the values of θ, a maximum is the value of the command that they
    prefer (double Q-learning).
    The oracle's maximum is over ``next_admissible`` if given (padded to whole bytes). CQLH uses
    ξ̂ · max_a Q(h', a) + (1 - ξ̂) · ``q_next_same``; ACQLH drops the second term. ``q_next_same`` is
    Q(h_{t+1}, a_t) in the paper's appendix and Algorithm 1, and Q(h_t, a_t) in its equation (4).
    """
    every = jnp.ones(q_next.shape, bool) if exists is None else exists
    if exists is not None:
        q_next = jnp.where(exists, q_next, -jnp.inf)
    possible = highest = best_of(q_next, every, chooser)
    if next_admissible is not None:
        may = next_admissible[..., : q_next.shape[-1]]
        # If no command is admissible, as after the end, the maximum is over all.
        may = may | ~may.any(-1, keepdims=True)
        possible = best_of(q_next, may, chooser)
    believed = jnp.ones_like(q_next) if believed is None else believed
    after = After(highest, q_next_same, admissibility, possible, q_next, believed, None, chooser)
    return gates.value(gate, after)


def of_action(
    values: Float[Array, "*batch commands"], action: Int[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """The value of the command that was taken."""
    return jnp.take_along_axis(values, action[..., None], axis=-1)[..., 0]


def squared_error(
    target: Float[Array, "*batch"], q_t: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """(y - Q)², without a gradient through the target."""
    return jnp.square(jax.lax.stop_gradient(target) - q_t)


def huber_error(
    target: Float[Array, "*batch"], q_t: Float[Array, "*batch"], delta: float = 1.0
) -> Float[Array, "*batch"]:
    """The squared error within ``delta``, linear beyond."""
    size = jnp.abs(jax.lax.stop_gradient(target) - q_t)
    return jnp.where(size <= delta, size**2, 2 * delta * size - delta**2)


def bandit_cross_entropy(
    logit: Float[Array, "*batch"], admissible: Bool[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """BCE(e_t, ξ̂(h_t, a_t)) of the command that was taken."""
    return jnp.logaddexp(0.0, jnp.where(admissible, -logit, logit))
