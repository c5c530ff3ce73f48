"""Φ_A(k) for a GPU, without a kernel of its own."""

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
    """Each state scored by its head.

    One state reads the weights of its head where they lie. Many are scored by all heads in one
    product, then the others' hidden units are set to nothing: small beside the context LSTM, and no
    weights are copied.
    """
    if h.ndim == 1:
        first, first_bias, second, second_bias = (layer[head] for layer in layers)
        return activation(h @ first + first_bias) @ second + second_bias
    first, first_bias, second, second_bias = layers
    mine = jax.nn.one_hot(head, len(first))
    hidden = jnp.einsum("...c,kch->...kh", h, first) + first_bias
    hidden = activation(hidden) * mine[..., None]
    return jnp.einsum("...kh,kha->...a", hidden, second) + mine @ second_bias
