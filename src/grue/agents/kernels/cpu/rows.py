"""Slices and reshapes for the CPU operations."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float


def cut(rows: Array, start: Array, size: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(rows, start, size)


def flat(sequences: Float[Array, "batch steps units"]) -> Float[Array, "rows units"]:
    return sequences.reshape(-1, sequences.shape[2])
