"""How the products are cut up, and how a kernel is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton


class Tile(NamedTuple):
    """How a product is cut up: what one program holds, and how it is loaded."""

    rows: int
    columns: int
    warps: int = 4
    stages: int = 4


# STEP to GRADIENT were chosen on an H200 with benchmarks/kernels.py.
STEP = Tile(rows=64, columns=64, stages=3)
"""Rows of weights at a time, units of one program."""
BACK = Tile(rows=32, columns=128)
"""Rows of one program, gates at a time."""
OUTWARD = Tile(rows=128, columns=128, stages=2)
"""Steps of sequences and outputs of one program."""
INWARD = Tile(rows=128, columns=64, stages=3)
"""Steps of sequences and inputs of one program."""
GRADIENT = Tile(rows=128, columns=128)
"""Inputs and outputs of one program."""
CELL = Tile(rows=8, columns=64)
"""Sequences and units of one program of the cell's gradient."""
POINTWISE = Tile(rows=8, columns=256)
"""Weights of one program of Adam."""
ENCODER = Tile(rows=64, columns=64)
"""Of the sums over words: words at a time, gates of one program."""
ACTING = ENCODER._replace(warps=8)
"""Where a program has a multiprocessor for itself: more warps hide each other's waits."""


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
    """Room for an array that a kernel is to make."""
    return jax.ShapeDtypeStruct(shape, dtype)
