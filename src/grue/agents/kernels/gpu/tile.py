"""Tile sizes, and how a kernel is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float


class Tile(NamedTuple):
    """The part of a product that one program computes, and Triton's launch settings."""

    rows: int
    columns: int
    warps: int = 4
    stages: int = 4


Stacked = Float[Array, "heads rows gates"]
"""The weights of all heads."""

# STEP to GRADIENT were chosen on an H200 with benchmarks/kernels.py.
STEP = Tile(rows=64, columns=64, stages=3)
"""Rows of weights per iteration, units per program."""
BACK = Tile(rows=32, columns=128)
"""Rows per program, gates per iteration."""
OUTWARD = Tile(rows=128, columns=128, stages=2)
"""Steps of sequences and outputs per program."""
INWARD = Tile(rows=128, columns=64, stages=3)
"""Steps of sequences and inputs per program."""
GRADIENT = Tile(rows=128, columns=128)
"""Inputs and outputs per program."""
CELL = Tile(rows=8, columns=64)
"""Sequences and units per program of the cell's gradient."""
POINTWISE = Tile(rows=8, columns=256)
"""Weights per program of Adam."""
ENCODER = Tile(rows=64, columns=64)
"""Sums over words: words per iteration, gates per program."""
ACTING = ENCODER._replace(warps=8)
"""For a single program per multiprocessor: more warps hide latency."""


def call(
    name: str,
    kernel: Callable,
    out: Any,
    grid: tuple[int, ...],
    tile: Tile,
    interpret: bool,
    in_place: Mapping[int, int] = MappingProxyType({}),
) -> Callable:
    return pl.pallas_call(
        kernel,
        name=name,
        out_shape=out,
        input_output_aliases=dict(in_place),
        grid=grid,
        interpret=interpret,
        compiler_params=triton.CompilerParams(num_warps=tile.warps, num_stages=tile.stages),
    )


def floats(*shape: int, dtype: Any = jnp.float32) -> Any:
    """Shape and type of a kernel's output."""
    return jax.ShapeDtypeStruct(shape, dtype)
