"""H(k): the context LSTM along sequences whose steps are with different heads.

What all steps leave behind is one array each, and a step writes its part of it in place: nothing is
put together afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int

from grue.agents.kernels.cell import cell_backward_of_parts, cell_of_parts
from grue.agents.kernels.gpu.tile import BACK, CELL, GRADIENT, STEP, call, floats
from grue.agents.kernels.texts import BLOCK


class Along(NamedTuple):
    """What the steps leave behind; c and ``half`` also what there was before the first."""

    h: Float[Array, "steps batch context"]
    c: Float[Array, "after batch context"]
    half: Float[Array, "after batch context"]
    """h as it is multiplied."""
    gates: Float[Array, "steps batch gates"] | None
    """Only for the backward pass."""


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def unroll(
    weights: Float[Array, "heads rows gates"],
    bias: Float[Array, "heads gates"],
    working: Float[Array, "heads rows gates"],
    heads: Int[Array, "steps batch"],
    inputs: Float[Array, "steps batch inputs"],
    interpret: bool = False,
) -> Float[Array, "steps batch context"]:
    """The states of the context LSTM along sequences, from an empty memory.

    ``working`` are the weights as they are multiplied; the gradient is that of ``weights``.
    """
    return _unroll(bias, working, heads, inputs.astype(working.dtype), interpret, save=False).h


def step_one(
    working: Float[Array, "heads rows gates"],
    bias: Float[Array, "heads gates"],
    head: Int[Array, ""],
    inputs: Float[Array, " inputs"],
    h: Float[Array, " context"],
    c: Float[Array, " context"],
    interpret: bool = False,
) -> tuple[Array, Array]:
    """One step of one sequence: the other rows that the kernel wants have no head."""
    heads = jnp.where(jnp.arange(BLOCK) == 0, head, -1)[None]
    half = working.dtype
    x = jnp.broadcast_to(inputs.astype(half), (1, BLOCK, len(inputs)))
    c, h = (jnp.broadcast_to(state, (2, BLOCK, len(state))) for state in (c, h))
    along = Along(room_like(c[:1]), c, h.astype(half), None)
    along = _step(0, bias, working, heads, x, along, interpret)
    return along.h[0, 0], along.c[1, 0]


def room_like(array: Array) -> Array:
    """Room that a kernel fills."""
    return jax.lax.empty(array.shape, array.dtype)


def _unroll(
    bias: Array, working: Array, heads: Array, inputs: Array, interpret: bool, save: bool
) -> Along:
    steps, batch = heads.shape
    gates = working.shape[2]
    size, half = gates // 4, working.dtype
    # Of these only the first row, the empty memory, is read before it is written.
    c = jnp.zeros((steps + 1, batch, size), jnp.float32)
    room = jax.lax.empty((steps, batch, gates), jnp.float32) if save else None
    along = Along(room_like(c[1:]), c, c.astype(half), room)
    for t in range(steps):
        along = _step(t, bias, working, heads, inputs, along, interpret)
    return along


def _in_place(
    name: str,
    kernel: Callable,
    grid: tuple[int, ...],
    tile: Any,
    interpret: bool,
    t: int,
    given: Sequence[Array],
    changed: Sequence[Array],
) -> Sequence[Array]:
    """Calls a kernel of step t with what it reads and what it changes.

    t is an argument, not a constant: so all steps are one kernel.
    """
    shapes = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in changed]
    first = 1 + len(given)
    places = {first + i: i for i in range(len(changed))}
    program = call(name, kernel, shapes, grid, tile, interpret, places)
    return program(jnp.full(1, t, jnp.int32), *given, *changed)


def _step(
    t: int, bias: Array, working: Array, heads: Array, inputs: Array, along: Along, interpret: bool
) -> Along:
    """The step from row t to the next; what rows with no head (-1) leave is undefined.

    ``inputs`` come as they are multiplied.
    """
    count, _, gates = working.shape
    size, (_, batch, wide) = gates // 4, inputs.shape
    changed = [array for array in along if array is not None]

    def kernel(t_ref, heads_ref, x_ref, weights_ref, bias_ref, _, c_ref, h_ref, *refs):
        t, k, units = t_ref[0], pl.program_id(0), pl.program_id(1) * STEP.columns
        new = refs[-len(changed) :]
        mine = heads_ref[t, :] == k

        @pl.when(jnp.sum(mine.astype(jnp.int32)) > 0)
        def _():
            columns = [pl.ds(g * size + units, STEP.columns) for g in range(4)]

            def add(left_ref, skip):
                def chunk(n, acc):
                    left = left_ref[t, :, pl.ds(n * STEP.rows, STEP.rows)]
                    rows = pl.ds(skip + n * STEP.rows, STEP.rows)
                    return tuple(
                        acc[g] + triton.dot(left, weights_ref[k, rows, columns[g]])
                        for g in range(4)
                    )

                return chunk

            acc = tuple(
                jnp.broadcast_to(bias_ref[k, columns[g]][None, :], (batch, STEP.columns))
                for g in range(4)
            )
            acc = jax.lax.fori_loop(0, wide // STEP.rows, add(x_ref, 0), acc)
            acc = jax.lax.fori_loop(0, size // STEP.rows, add(h_ref, wide), acc)
            here = pl.ds(units, STEP.columns)
            h, c = cell_of_parts(acc, c_ref[t, :, here])
            mask = jnp.broadcast_to(mine[:, None], h.shape)
            for ref, row, value in zip(new, (t, t + 1, t + 1), (h, c, h), strict=False):
                triton.store(ref.at[row, :, here], value.astype(ref.dtype), mask=mask)
            if along.gates is not None:
                for g in range(4):
                    triton.store(new[3].at[t, :, columns[g]], acc[g], mask=mask)

    name = "context_step" if batch > BLOCK else "act_step"
    new = _in_place(
        *(name, kernel, (count, size // STEP.columns), STEP, interpret),
        *(t, (heads, inputs, working, bias), changed),
    )
    return Along(*new, *[None] * (len(along) - len(changed)))


def _unroll_forward(
    weights: Array, bias: Array, working: Array, heads: Array, inputs: Array, interpret: bool
):
    inputs = inputs.astype(working.dtype)
    along = _unroll(bias, working, heads, inputs, interpret, save=True)
    return along.h, (working, heads, inputs, along)


class Back(NamedTuple):
    """What the steps leave behind on the way back."""

    dz: Float[Array, "steps batch gates"]
    """As it is multiplied."""
    d_left: Float[Array, "after batch rows"]
    """Of inputs and h before; with a row more, for the h that nothing follows."""
    dc: Float[Array, "batch context"]


def _unroll_backward(interpret: bool, residuals: Any, d_hs: Float[Array, "steps batch context"]):
    working, heads, inputs, along = residuals
    steps, batch, wide = inputs.shape
    count, rows, gates = working.shape
    back = Back(
        jax.lax.empty((steps, batch, gates), working.dtype),
        jnp.zeros((steps + 1, batch, rows)),
        jnp.zeros((batch, gates // 4)),
    )
    for t in reversed(range(steps)):
        back = _through_cell(t, along, d_hs, back, wide, interpret)
        back = _through_product(t, working, heads, back, interpret)
    d_weights = _weight_gradient(inputs, along.half, back.dz, heads, count, interpret)
    chosen = jax.nn.one_hot(heads, count, dtype=working.dtype)
    d_bias = jnp.einsum("tbk,tbg->kg", chosen, back.dz, preferred_element_type=jnp.float32)
    d_inputs = back.d_left[:steps, :, :wide]
    return d_weights, d_bias, jnp.zeros_like(working), None, d_inputs


def _through_cell(
    t: int, along: Along, d_hs: Array, back: Back, wide: int, interpret: bool
) -> Back:
    """dz of step t."""
    _, batch, size = d_hs.shape
    assert along.gates is not None

    def kernel(t_ref, gates_ref, c_ref, d_hs_ref, d_left_ref, _, dc_ref, dz_out, dc_out):
        t, units = t_ref[0], pl.program_id(1) * CELL.columns
        rows = pl.ds(pl.program_id(0) * CELL.rows, CELL.rows)
        here = pl.ds(units, CELL.columns)
        columns = [pl.ds(g * size + units, CELL.columns) for g in range(4)]
        dh = d_hs_ref[t, rows, here] + d_left_ref[t + 1, rows, pl.ds(wide + units, CELL.columns)]
        parts, dc = cell_backward_of_parts(
            *([gates_ref[t, rows, column] for column in columns], c_ref[t, rows, here]),
            *(c_ref[t + 1, rows, here], dh, dc_ref[rows, here]),
        )
        dc_out[rows, here] = dc
        for column, part in zip(columns, parts, strict=True):
            dz_out[t, rows, column] = part.astype(dz_out.dtype)

    grid = (batch // CELL.rows, size // CELL.columns)
    dz, dc = _in_place(
        *("context_cell_back", kernel, grid, CELL, interpret),
        *(t, (along.gates, along.c, d_hs, back.d_left), (back.dz, back.dc)),
    )
    return back._replace(dz=dz, dc=dc)


def _through_product(t: int, weights: Array, heads: Array, back: Back, interpret: bool) -> Back:
    """dz · Wᵀ of each row's own head."""
    count, rows, gates = weights.shape
    batch = heads.shape[1]
    some, chunk = BACK.rows, BACK.columns

    def kernel(t_ref, heads_ref, dz_ref, weights_ref, _, out_ref):
        t, k, first = t_ref[0], pl.program_id(0), pl.program_id(1) * some
        mine = heads_ref[t, :] == k

        @pl.when(jnp.sum(mine.astype(jnp.int32)) > 0)
        def _():
            def add(n, acc):
                columns = pl.ds(n * chunk, chunk)
                right = weights_ref[k, pl.ds(first, some), columns]
                return acc + triton.dot(dz_ref[t, :, columns], right, trans_b=True)

            zeros = jnp.zeros((batch, some), jnp.float32)
            acc = jax.lax.fori_loop(0, gates // chunk, add, zeros)
            mask = jnp.broadcast_to(mine[:, None], acc.shape)
            triton.store(out_ref.at[t, :, pl.ds(first, some)], acc, mask=mask)

    (d_left,) = _in_place(
        *("context_back", kernel, (count, rows // some), BACK, interpret),
        *(t, (heads, back.dz, weights), (back.d_left,)),
    )
    return back._replace(d_left=d_left)


def _weight_gradient(
    inputs: Float[Array, "steps batch inputs"],
    h: Float[Array, "after batch context"],
    dz: Float[Array, "steps batch gates"],
    heads: Int[Array, "steps batch"],
    count: int,
    interpret: bool,
) -> Float[Array, "heads rows gates"]:
    """The sum of (inputs, h before) · dz over the steps of each head."""
    steps, _, inward = inputs.shape
    rows, gates = inward + h.shape[2], dz.shape[2]
    tall, wide = math.gcd(GRADIENT.rows, inward), GRADIENT.columns

    def kernel(x_ref, h_ref, dz_ref, heads_ref, used_ref, out_ref):
        k, first = pl.program_id(0), pl.program_id(1) * tall
        columns = pl.ds(pl.program_id(2) * wide, wide)

        def total(left_ref, skip):
            here = pl.ds(first - skip, tall)

            def add(t, acc):
                mine = (heads_ref[t, :] == k)[:, None]
                right = jnp.where(mine, dz_ref[t, :, columns], jnp.zeros((), dz_ref.dtype))
                return acc + triton.dot(left_ref[t, :, here], right, trans_a=True)

            zeros = jnp.zeros((tall, wide), jnp.float32)
            # A head that no step was with has no gradient: no turn of the loop.
            out_ref[k, pl.ds(first, tall), columns] = jax.lax.fori_loop(
                0, steps * used_ref[k], add, zeros
            )

        pl.when(first < inward)(lambda: total(x_ref, 0))
        pl.when(first >= inward)(lambda: total(h_ref, inward))

    used = (heads[..., None] == jnp.arange(count)).any((0, 1)).astype(jnp.int32)
    out = floats(count, rows, gates)
    return call(
        "context_gradient", kernel, out, (count, rows // tall, gates // wide), GRADIENT, interpret
    )(inputs, h, dz, heads, used)


unroll.defvjp(_unroll_forward, _unroll_backward)
