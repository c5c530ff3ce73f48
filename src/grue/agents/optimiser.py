"""Adam on clipped gradients (Kingma and Ba 2015), as in optax, in one pass.

``by_head``: each head has its own Adam with its own step count. Heads absent from the batch are not
updated. Otherwise one Adam updates all heads that ever had a gradient. A head's first gradient may
then come when the count is high and v still zero, and moves its weights by about thirty learning
rates.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grue.agents.gating import annealed
from grue.agents.kernels import select
from grue.agents.kernels.adam import moved, moved_all, moved_heads, rates
from grue.agents.network import Network

if TYPE_CHECKING:
    from grue.agents.settings import ReplaySettings


class AdamState(NamedTuple):
    count: Int[Array, ""]
    """Number of updates."""
    uses: Int[Array, " heads"]
    """Number of updates in which the head had a gradient."""
    first: Network
    """m"""
    second: Network
    """v"""


def init(network: Network) -> AdamState:
    zeros = jax.tree.map(jnp.zeros_like, network)
    heads = len(network.context.weights)
    return AdamState(jnp.int32(0), jnp.zeros(heads, jnp.int32), zeros, zeros)


def update(
    network: Network,
    slope: Network,
    state: AdamState,
    used: Bool[Array, " heads"],
    working: select.Weights | None,
    learning_rate: float | Float[Array, ""],
    clip: float,
    by_head: bool = True,
) -> tuple[Network, AdamState, select.Weights | None]:
    """θ, the moments and the context LSTM's working weights after a step.

    ``used``: the heads that have a gradient.
    """
    count, uses = state.count + 1, state.uses + used
    scale = _clipped(slope, used, clip)
    # Without a gradient the moments are zero: such heads need no update.
    moving = used if by_head else uses > 0
    own = jnp.maximum(uses, 1) if by_head else jnp.full_like(uses, count)
    now, of_heads = rates(count, scale, learning_rate), rates(own, scale, learning_rate)

    parts = [_apart(whole) for whole in (network, state.first, state.second, slope)]
    theta, m, v, gradient = (weights for weights, _, _ in parts)
    *weights, working = select.adam(theta, m, v, gradient, working, used, moving, of_heads)
    move_head = partial(moved_heads, moving=moving, now=of_heads)
    heads = moved_all(move_head, *(small for _, small, _ in parts))
    others = moved_all(partial(moved, now=now), *(rest for _, _, rest in parts))
    network, first, second = map(_joined, weights, heads, others)
    return network, AdamState(count, uses, first, second), working


def learning_rate(settings: ReplaySettings, updates: Int[Array, ""]) -> float | Float[Array, ""]:
    """The step size after so many updates; a constant unless ``learning_rate_end`` is set."""
    if settings.learning_rate_end is None:
        return settings.learning_rate
    step = settings.learning_starts + updates * settings.update_every
    start, end = settings.learning_rate, settings.learning_rate_end
    return annealed(step, start, end, settings.learning_rate_steps)


def _clipped(slope: Network, used: Bool[Array, " heads"], clip: float) -> Float[Array, ""]:
    """The factor that clips the whole gradient."""
    large, *rest = _apart(slope)
    squares = select.sum_of_squares(large, used)
    squares = squares + sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(rest))
    return clip_factor(squares, clip)


def clip_factor(squares: Any, clip: float) -> Float[Array, ""]:
    """The factor that limits a gradient's norm, given the sum of its squares."""
    norm = jnp.sqrt(squares)
    return jnp.where(norm < clip, 1.0, clip / jnp.maximum(norm, clip))


def _heads(network: Network) -> list[Any]:
    """The arrays with a row for each head."""
    return [network.context.weights, network.context.bias, network.scorer]


def _apart(network: Network) -> tuple[select.Weights, Any, Network]:
    """The context LSTM's weights (most of θ), the heads' other weights, and the shared ones."""
    weights, *small = _heads(network)
    return weights, small, eqx.tree_at(_heads, network, [None] * 3)


def _joined(weights: select.Weights, small: Any, rest: Network) -> Network:
    return eqx.tree_at(_heads, rest, [weights, *small], is_leaf=lambda leaf: leaf is None)
