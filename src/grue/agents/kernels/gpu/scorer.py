"""The action scorer Φ_A(k) on a GPU, without a custom kernel."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def score(
    layers: tuple[Array, Array, Array, Array],
    head: Int[Array, "*batch"],
    h: Float[Array, "*batch context"],
    activation: Callable[[Array], Array],
) -> Float[Array, "*batch commands"]:
    """Q-values of each state, from its head.

    A single state indexes the weights of its head. A batch is scored by all heads in one product
    and the other heads are masked: this is cheap beside the context LSTM and copies no weights.
    """
    if h.ndim == 1:
        first, first_bias, second, second_bias = (layer[head] for layer in layers)
        return activation(h @ first + first_bias) @ second + second_bias
    first, first_bias, second, second_bias = layers
    mine = jax.nn.one_hot(head, len(first))
    hidden = jnp.einsum("...c,kch->...kh", h, first) + first_bias
    hidden = activation(hidden) * mine[..., None]
    return jnp.einsum("...kh,kha->...a", hidden, second) + mine @ second_bias
