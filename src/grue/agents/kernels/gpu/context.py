"""The context LSTM H(k) along sequences whose steps use different heads.

Reading the weights of the heads dominates the cost of a step. So everything that does not depend on
the previous step is computed for all steps at once, which reads the weights once. Each step writes
its results in place into arrays for all steps, so nothing is concatenated or cleared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int

from grue.agents.kernels.gpu import by_head, cell
from grue.agents.kernels.gpu.tile import BACK, CELL, STEP, Stacked, call, floats
from grue.agents.kernels.texts import BLOCK


class Along(NamedTuple):
    """Activations of all steps; before the first step only their shapes."""

    h: Float[Array, "steps batch context"]
    c: Float[Array, "steps batch context"]
    half: Float[Array, "steps batch context"]
    """h in the type for products."""
    gates: Float[Array, "steps batch gates"]
    """Before a step the part from its inputs; after it the full gates, if they are saved."""


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def unroll(
    weights: Stacked,
    bias: Float[Array, "heads gates"],
    working: Stacked,
    heads: Int[Array, "steps batch"],
    inputs: Float[Array, "steps batch inputs"],
    interpret: bool = False,
) -> Float[Array, "steps batch context"]:
    """The states of the context LSTM along sequences, from a zero state.

    ``working`` are the weights in the type for products. The gradient is with respect to
    ``weights``, and undefined for heads that no step uses.
    """
    return _unroll(bias, working, heads, inputs.astype(working.dtype), interpret, save=False).h


def step_one(
    working: Stacked,
    bias: Float[Array, "heads gates"],
    head: Int[Array, ""],
    inputs: Float[Array, " inputs"],
    h: Float[Array, " context"],
    c: Float[Array, " context"],
    interpret: bool = False,
) -> tuple[Array, Array]:
    """One step of one sequence: h and c. The product needs 16 rows, so all are the same."""
    _, rows, gates = working.shape
    size = gates // 4
    left = jnp.concatenate([inputs, h]).astype(working.dtype)

    def kernel(head_ref, left_ref, c_ref, weights_ref, bias_ref, *new):
        k, units = head_ref[0], pl.program_id(0) * STEP.columns
        here, columns = pl.ds(units, STEP.columns), _columns(units, size)
        shape = (BLOCK, STEP.columns)
        acc = tuple(jnp.broadcast_to(bias_ref[k, column][None, :], shape) for column in columns)
        acc = _with_product(
            *(acc, lambda some: left_ref[:, some], weights_ref), *(k, 0, rows, columns)
        )
        both = cell.forward(acc, jnp.broadcast_to(c_ref[here][None, :], shape))
        for ref, value in zip(new, both, strict=True):
            ref[:, here] = value

    out = [floats(BLOCK, size)] * 2
    program = call("act_step", kernel, out, (size // STEP.columns,), STEP, interpret)
    h, c = program(head[None], jnp.broadcast_to(left, (BLOCK, rows)), c, working, bias)
    return h[0], c[0]


def _unroll(
    bias: Array, working: Array, heads: Array, inputs: Array, interpret: bool, save: bool
) -> Along:
    steps, batch, wide = inputs.shape
    shape = (steps, batch, working.shape[2] // 4)
    share = by_head.outward(inputs, working, bias, heads, interpret)
    along = Along(floats(*shape), floats(*shape), floats(*shape, dtype=working.dtype), share)
    for t in range(steps):
        along = _step(t, working, heads, along, wide, interpret, save)
    return along


def _columns(units: Array, size: int) -> list[Any]:
    """The columns of the four gates of some units."""
    return [pl.ds(g * size + units, STEP.columns) for g in range(4)]


def _with_product(
    acc: tuple[Array, ...],
    left: Callable[[Any], Array],
    weights_ref: Any,
    k: Array,
    skip: int,
    rows: int,
    columns: Sequence[Any],
) -> tuple[Array, ...]:
    """acc + left · W for one head, some rows of W per iteration."""

    def add(n, acc):
        some = left(pl.ds(n * STEP.rows, STEP.rows))
        here = pl.ds(skip + n * STEP.rows, STEP.rows)
        return tuple(
            one + triton.dot(some, weights_ref[k, here, column])
            for one, column in zip(acc, columns, strict=True)
        )

    return jax.lax.fori_loop(0, rows // STEP.rows, add, acc)


def _in_place(
    name: str,
    kernel: Callable,
    grid: tuple[int, ...],
    tile: Any,
    interpret: bool,
    t: int,
    given: Sequence[Array],
    changed: Sequence[Any],
) -> Sequence[Array]:
    """Calls a kernel of step t with its inputs and the arrays that it changes or creates.

    t is an argument, not a constant, so that all steps share one kernel.
    """
    shapes = [floats(*one.shape, dtype=one.dtype) for one in changed]
    old = [(i, one) for i, one in enumerate(changed) if not isinstance(one, jax.ShapeDtypeStruct)]
    places = {1 + len(given) + n: i for n, (i, _) in enumerate(old)}

    def with_new(t_ref, *refs):
        kernel(t_ref[0], *refs[: len(given)], *refs[len(given) + len(old) :])

    program = call(name, with_new, shapes, grid, tile, interpret, places)
    return program(jnp.full(1, t, jnp.int32), *given, *(one for _, one in old))


def _step(
    t: int, working: Array, heads: Array, along: Along, wide: int, interpret: bool, save: bool
) -> Along:
    """Step t of all sequences."""
    count, rows, gates = working.shape
    size, first = gates // 4, t == 0

    def kernel(t, heads_ref, weights_ref, h_ref, c_ref, half_ref, gates_ref):
        k, units = pl.program_id(0), pl.program_id(1) * STEP.columns
        mine = heads_ref[t, :] == k

        @pl.when(jnp.sum(mine.astype(jnp.int32)) > 0)
        def _():
            here, columns = pl.ds(units, STEP.columns), _columns(units, size)
            acc = tuple(gates_ref[t, :, column] for column in columns)
            c = jnp.zeros_like(acc[0])
            if not first:
                acc = _with_product(
                    *(acc, lambda some: half_ref[t - 1, :, some], weights_ref),
                    *(k, wide, rows - wide, columns),
                )
                c = c_ref[t - 1, :, here]
            h, c = cell.forward(acc, c)
            mask = jnp.broadcast_to(mine[:, None], h.shape)
            for ref, value in ((h_ref, h), (c_ref, c), (half_ref, h)):
                triton.store(ref.at[t, :, here], value.astype(ref.dtype), mask=mask)
            if save:
                for column, z in zip(columns, acc, strict=True):
                    triton.store(gates_ref.at[t, :, column], z, mask=mask)

    name = "context_begin" if first else "context_step"
    grid = (count, size // STEP.columns)
    return Along(*_in_place(name, kernel, grid, STEP, interpret, t, (heads, working), along))


def _unroll_forward(
    weights: Array, bias: Array, working: Array, heads: Array, inputs: Array, interpret: bool
):
    inputs = inputs.astype(working.dtype)
    along = _unroll(bias, working, heads, inputs, interpret, save=True)
    return along.h, (working, heads, inputs, along)


class Back(NamedTuple):
    """Gradients of all steps; before the first backward step only their shapes."""

    dz: Float[Array, "steps batch gates"]
    """In the type for products."""
    dc: Float[Array, "batch context"]
    d_before: Float[Array, "steps batch context"]
    """Gradient with respect to h_{t-1}; undefined for t = 0."""


def _unroll_backward(interpret: bool, residuals: Any, d_hs: Float[Array, "steps batch context"]):
    working, heads, inputs, along = residuals
    steps, batch, wide = inputs.shape
    count, _, gates = working.shape
    size = gates // 4
    dz = floats(steps, batch, gates, dtype=working.dtype)
    back = Back(dz, floats(batch, size), floats(steps, batch, size))
    for t in reversed(range(steps)):
        back = _through_cell(t, along, d_hs, back, interpret)
        if t > 0:
            back = _through_product(t, working, heads, back, wide, interpret)
    dz, lefts = back.dz, [(inputs, 0), (along.half, 1)]
    d_inputs = by_head.inward(dz, working, heads, wide, interpret)
    d_weights = by_head.gradient(lefts, dz, heads, count, interpret)
    d_bias = by_head.bias_gradient(dz, heads, count)
    return d_weights, d_bias, jnp.zeros_like(working), None, d_inputs


def _through_cell(t: int, along: Along, d_hs: Array, back: Back, interpret: bool) -> Back:
    """dz of step t."""
    steps, batch, size = d_hs.shape
    last = t == steps - 1

    def kernel(t, gates_ref, c_ref, d_hs_ref, *refs):
        *before, dz_ref, dc_ref = refs
        units = pl.program_id(1) * CELL.columns
        rows, here = pl.ds(pl.program_id(0) * CELL.rows, CELL.rows), pl.ds(units, CELL.columns)
        columns = [pl.ds(g * size + units, CELL.columns) for g in range(4)]
        dh = d_hs_ref[t, rows, here]
        dc = jnp.zeros_like(dh)
        if not last:
            dh, dc = dh + before[0][t + 1, rows, here], dc_ref[rows, here]
        c_before = jnp.where(t > 0, c_ref[jnp.maximum(t - 1, 0), rows, here], 0.0)
        z = [gates_ref[t, rows, column] for column in columns]
        parts, dc = cell.backward(z, c_before, c_ref[t, rows, here], dh, dc)
        dc_ref[rows, here] = dc
        for column, part in zip(columns, parts, strict=True):
            dz_ref[t, rows, column] = part.astype(dz_ref.dtype)

    grid = (batch // CELL.rows, size // CELL.columns)
    given = (along.gates, along.c, d_hs) + (() if last else (back.d_before,))
    dz, dc = _in_place(
        *("context_cell_back", kernel, grid, CELL, interpret), *(t, given, (back.dz, back.dc))
    )
    return back._replace(dz=dz, dc=dc)


def _through_product(
    t: int, working: Array, heads: Array, back: Back, wide: int, interpret: bool
) -> Back:
    """Gradient with respect to h_{t-1}: dz · Wᵀ with the weights of each row's head."""
    count, rows, gates = working.shape
    batch = heads.shape[1]
    some, chunk = BACK.rows, BACK.columns

    def kernel(t, heads_ref, dz_ref, weights_ref, out_ref):
        k, first = pl.program_id(0), pl.program_id(1) * some
        mine = heads_ref[t, :] == k

        @pl.when(jnp.sum(mine.astype(jnp.int32)) > 0)
        def _():
            def add(n, acc):
                columns = pl.ds(n * chunk, chunk)
                right = weights_ref[k, pl.ds(wide + first, some), columns]
                return acc + triton.dot(dz_ref[t, :, columns], right, trans_b=True)

            zeros = jnp.zeros((batch, some), jnp.float32)
            acc = jax.lax.fori_loop(0, gates // chunk, add, zeros)
            mask = jnp.broadcast_to(mine[:, None], acc.shape)
            triton.store(out_ref.at[t, :, pl.ds(first, some)], acc, mask=mask)

    (d_before,) = _in_place(
        *("context_back", kernel, (count, (rows - wide) // some), BACK, interpret),
        *(t, (heads, back.dz, working), (back.d_before,)),
    )
    return back._replace(d_before=d_before)


unroll.defvjp(_unroll_forward, _unroll_backward)
