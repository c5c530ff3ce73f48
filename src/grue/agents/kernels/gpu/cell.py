"""The LSTM cell with faster sigmoid and tanh, accurate to about 1e-6."""

from __future__ import annotations

import math
from functools import partial

import jax
from jaxtyping import Array

from grue.agents.kernels.cell import Squashing, cell_backward_of_parts, cell_of_parts

LOG2_E = math.log2(math.e)


def sigmoid(x: Array) -> Array:
    return _sigmoid_of(-LOG2_E, x)


def tanh(x: Array) -> Array:
    return 2.0 * _sigmoid_of(-2.0 * LOG2_E, x) - 1.0


def _sigmoid_of(scale: float, x: Array) -> Array:
    root = jax.lax.rsqrt(1.0 + jax.lax.exp2(scale * x))
    return root * root


SQUASHING = Squashing(sigmoid, tanh)
forward = partial(cell_of_parts, squashing=SQUASHING)
backward = partial(cell_backward_of_parts, squashing=SQUASHING)
