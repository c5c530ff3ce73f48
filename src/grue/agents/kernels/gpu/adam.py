"""In-place Adam for the heads of the context LSTM."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Bool, Float

from grue.agents.kernels.adam import Rates, moved
from grue.agents.kernels.gpu.tile import POINTWISE, Stacked, call, floats


def adam(
    theta: Stacked,
    m: Stacked,
    v: Stacked,
    gradient: Stacked,
    working: Stacked,
    used: Bool[Array, " heads"],
    moving: Bool[Array, " heads"],
    now: Rates,
    interpret: bool = False,
) -> tuple[Array, Array, Array, Array]:
    """One step of Adam in place on the ``moving`` heads, each with its own rates.

    The gradient is read only for ``used`` heads.
    """
    count, rows, gates = theta.shape
    tile = POINTWISE

    def kernel(theta_ref, m_ref, v_ref, g_ref, _, used_ref, moving_ref, now_ref, *out):
        k = pl.program_id(0)
        at = (k, pl.ds(pl.program_id(1) * tile.rows, tile.rows))
        at = (*at, pl.ds(pl.program_id(2) * tile.columns, tile.columns))

        @pl.when(moving_ref[k] > 0)
        def _():
            now = [now_ref[k, i] for i in range(3)]
            gradient = jnp.where(used_ref[k] > 0, g_ref[at], 0.0)
            new = moved(theta_ref[at], m_ref[at], v_ref[at], gradient, now)
            for ref, value in zip(out, (*new, new[0]), strict=True):
                ref[at] = value.astype(ref.dtype)

    out = [floats(*one.shape, dtype=one.dtype) for one in (theta, m, v, working)]
    grid = (count, rows // tile.rows, gates // tile.columns)
    places = {0: 0, 1: 1, 2: 2, 4: 3}
    program = call("adam", kernel, out, grid, tile, interpret, places)
    which = (used.astype(jnp.int32), moving.astype(jnp.int32))
    theta, m, v, working = program(theta, m, v, gradient, working, *which, now)
    return theta, m, v, working


def sum_of_squares(
    gradient: Stacked, used: Bool[Array, " heads"], interpret: bool = False
) -> Float[Array, ""]:
    """Over the heads with a gradient."""
    count, rows, gates = gradient.shape
    tile = POINTWISE
    parts = rows // tile.rows

    def kernel(g_ref, used_ref, out_ref):
        k = pl.program_id(0)
        here = pl.ds(pl.program_id(1) * tile.rows, tile.rows)

        def add(n, acc):
            some = g_ref[k, here, pl.ds(n * tile.columns, tile.columns)]
            return acc + some * some

        zeros = jnp.zeros((tile.rows, tile.columns), jnp.float32)
        turns = gates // tile.columns * used_ref[k]
        out_ref[k, pl.program_id(1)] = jnp.sum(jax.lax.fori_loop(0, turns, add, zeros))

    program = call("sum_of_squares", kernel, floats(count, parts), (count, parts), tile, interpret)
    return program(gradient, used.astype(jnp.int32)).sum()
