"""An LSTM cell and its gradient. Gate order: forget, input, output, candidate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Squashing(NamedTuple):
    sigmoid: Callable[[Array], Array]
    tanh: Callable[[Array], Array]


PLAIN = Squashing(jax.nn.sigmoid, jnp.tanh)


def cell(
    gates: Float[Array, "*batch gates"], c: Float[Array, "*batch units"]
) -> tuple[Float[Array, "*batch units"], Float[Array, "*batch units"]]:
    """The new h and c."""
    return cell_of_parts(jnp.split(gates, 4, axis=-1), c)


def cell_of_parts(
    gates: Sequence[Array], c: Array, squashing: Squashing = PLAIN
) -> tuple[Array, Array]:
    forget, take, show, new = gates
    sigmoid, tanh = squashing
    # The forget gate has a bias of 1.
    c = sigmoid(forget + 1.0) * c + sigmoid(take) * tanh(new)
    return sigmoid(show) * tanh(c), c


def cell_backward(
    gates: Float[Array, "*batch gates"],
    c_before: Float[Array, "*batch units"],
    c: Float[Array, "*batch units"],
    dh: Float[Array, "*batch units"],
    dc: Float[Array, "*batch units"],
) -> tuple[Float[Array, "*batch gates"], Float[Array, "*batch units"]]:
    """Gradients with respect to the gates and to the previous c."""
    parts, dc = cell_backward_of_parts(jnp.split(gates, 4, axis=-1), c_before, c, dh, dc)
    return jnp.concatenate(parts, axis=-1), dc


def cell_backward_of_parts(
    gates: Sequence[Array],
    c_before: Array,
    c: Array,
    dh: Array,
    dc: Array,
    squashing: Squashing = PLAIN,
) -> tuple[list[Array], Array]:
    forget, take, show, new = gates
    forget, take, show = (squashing.sigmoid(gate) for gate in (forget + 1.0, take, show))
    new, shown = squashing.tanh(new), squashing.tanh(c)
    dc = dc + dh * show * (1 - shown * shown)
    parts = [
        dc * c_before * forget * (1 - forget),
        dc * new * take * (1 - take),
        dh * shown * show * (1 - show),
        dc * take * (1 - new * new),
    ]
    return parts, dc * forget
