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

    All heads in one product, then the others' hidden units set to nothing: small beside the context
    LSTM, and no weights are copied.
    """
    first, first_bias, second, second_bias = layers
    mine = jax.nn.one_hot(head, len(first))
    hidden = jnp.einsum("...c,kch->...kh", h, first) + first_bias
    hidden = activation(hidden) * mine[..., None]
    return jnp.einsum("...kh,kha->...a", hidden, second) + mine @ second_bias
