"""Adam on clipped gradients (Kingma and Ba 2015), as optax computes it, in one pass.

Heads that have never had a gradient are left alone: all their moments are zero, so Adam would not
move them either. On a GPU that saves most of the memory traffic of an update.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grue.agents.kernels import select
from grue.agents.kernels.adam import moved, rates
from grue.agents.network import Network


class AdamState(NamedTuple):
    count: Int[Array, ""]
    first: Network
    """m"""
    second: Network
    """v"""
    touched: Bool[Array, " heads"]
    """Heads of the context LSTM that have had a gradient."""


def init(network: Network) -> AdamState:
    zeros = jax.tree.map(jnp.zeros_like, network)
    return AdamState(jnp.int32(0), zeros, zeros, jnp.zeros(len(network.context.weights), bool))


def update(
    network: Network,
    slope: Network,
    state: AdamState,
    used: Bool[Array, " heads"],
    working: select.Weights | None,
    learning_rate: float,
    clip: float,
) -> tuple[Network, AdamState, select.Weights | None]:
    """θ and the moments after a step, and the context LSTM's weights as they are multiplied.

    ``used`` are the heads that have a gradient now.
    """
    touched = state.touched | used
    count = state.count + 1
    scale = _clipped(slope, touched, clip)
    now = rates(count, scale, learning_rate)

    (theta, rest), (m, m_rest), (v, v_rest), (large, slope_rest) = map(
        _apart, (network, state.first, state.second, slope)
    )
    theta, m, v, working = select.adam(theta, m, v, large, working, touched, now)
    small = jax.tree.map(
        lambda theta, m, v, gradient: moved(theta, m, v, gradient, now),
        *(rest, m_rest, v_rest, slope_rest),
    )
    network, first, second = (
        _joined(large, jax.tree.map(lambda three, i=i: three[i], small, is_leaf=_is_three))
        for i, large in enumerate((theta, m, v))
    )
    return network, AdamState(count, first, second, touched), working


def _clipped(slope: Network, touched: Bool[Array, " heads"], clip: float) -> Float[Array, ""]:
    """What to multiply the gradient with so that its norm is at most ``clip``."""
    large, rest = _apart(slope)
    squares = select.sum_of_squares(large, touched)
    squares = squares + sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(rest))
    norm = jnp.sqrt(squares)
    return jnp.where(norm < clip, 1.0, clip / jnp.maximum(norm, clip))


def _apart(network: Network) -> tuple[select.Weights, Network]:
    """The context LSTM's weights, nearly all there are, and the rest."""
    return network.context.weights, eqx.tree_at(lambda whole: whole.context.weights, network, None)


def _joined(large: select.Weights, rest: Network) -> Network:
    return eqx.tree_at(
        lambda whole: whole.context.weights, rest, large, is_leaf=lambda leaf: leaf is None
    )


def _is_three(node: object) -> bool:
    return isinstance(node, tuple) and len(node) == 3
