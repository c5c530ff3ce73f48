"""H(k): the context LSTM along sequences whose steps are with different heads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int

from grue.agents.kernels.cell import cell_backward, cell_of_parts
from grue.agents.kernels.gpu.tile import BACK, GRADIENT, STEP, call, floats
from grue.agents.kernels.texts import BLOCK


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
    steps = _unroll(bias, working, heads, inputs, interpret, save=False)
    return jnp.stack([step.h for step in steps])


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
    heads = jnp.where(jnp.arange(BLOCK) == 0, head, -1)
    half = working.dtype
    rows = (inputs.astype(half), h.astype(half), c)
    rows = (jnp.broadcast_to(row, (BLOCK, len(row))) for row in rows)
    h, c, _ = _step(bias, working, heads, *rows, interpret, save=False)
    return h[0], c[0]


def _step(
    bias: Array,
    working: Array,
    heads: Array,
    inputs: Array,
    h: Array,
    c: Array,
    interpret: bool,
    save: bool,
) -> Sequence[Array]:
    """h_t, c_t and h_t for the next product (and the gates); rows with no head (-1) are undefined.

    ``inputs`` and ``h`` come as they are multiplied.
    """
    count, _, gates = working.shape
    size, (batch, wide) = gates // 4, inputs.shape
    half = working.dtype

    def kernel(heads_ref, x_ref, h_ref, c_ref, weights_ref, bias_ref, h_out, c_out, half_out, *out):
        k, units = pl.program_id(0), pl.program_id(1) * STEP.columns
        mine = heads_ref[...] == k

        @pl.when(jnp.sum(mine.astype(jnp.int32)) > 0)
        def _():
            columns = [pl.ds(g * size + units, STEP.columns) for g in range(4)]

            def add(left_ref, skip):
                def chunk(n, acc):
                    left = left_ref[:, pl.ds(n * STEP.rows, STEP.rows)]
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
            h, c = cell_of_parts(acc, c_ref[:, pl.ds(units, STEP.columns)])
            mask = jnp.broadcast_to(mine[:, None], h.shape)
            triton.store(h_out.at[:, pl.ds(units, STEP.columns)], h, mask=mask)
            triton.store(c_out.at[:, pl.ds(units, STEP.columns)], c, mask=mask)
            triton.store(half_out.at[:, pl.ds(units, STEP.columns)], h.astype(half), mask=mask)
            if save:
                for g in range(4):
                    triton.store(out[0].at[:, columns[g]], acc[g], mask=mask)

    state = floats(batch, size)
    out = [state, state, floats(batch, size, dtype=half)] + [floats(batch, gates)] * save
    name = "context_step" if batch > BLOCK else "act_step"
    return call(name, kernel, out, (count, size // STEP.columns), STEP, interpret)(
        heads, inputs, h, c, working, bias
    )


class Saved(NamedTuple):
    """What the backward pass needs of a step."""

    h: Float[Array, "batch context"]
    c: Float[Array, "batch context"]
    half: Float[Array, "batch context"]
    """h as it is multiplied."""
    gates: Float[Array, "batch gates"] | None = None


def _unroll(
    bias: Array, working: Array, heads: Array, inputs: Array, interpret: bool, save: bool
) -> list[Saved]:
    c = jnp.zeros((heads.shape[1], working.shape[2] // 4), jnp.float32)
    half = c.astype(working.dtype)
    steps = []
    # Written out: a loop on the device would copy the memory at every turn.
    for head, x in zip(heads, inputs.astype(working.dtype), strict=True):
        steps.append(Saved(*_step(bias, working, head, x, half, c, interpret, save)))
        c, half = steps[-1].c, steps[-1].half
    return steps


def _unroll_forward(
    weights: Array, bias: Array, working: Array, heads: Array, inputs: Array, interpret: bool
):
    steps = _unroll(bias, working, heads, inputs, interpret, save=True)
    return jnp.stack([step.h for step in steps]), (working, heads, inputs, steps)


def _unroll_backward(interpret: bool, residuals: Any, d_hs: Float[Array, "steps batch context"]):
    working, heads, inputs, steps = residuals
    half, wide = working.dtype, inputs.shape[2]
    dh = dc = zeros = jnp.zeros_like(steps[0].h)
    before = [Saved(zeros, zeros, zeros.astype(half)), *steps[:-1]]
    dz, d_inputs = [zeros] * len(steps), [zeros] * len(steps)
    for t in reversed(range(len(steps))):
        d_gates, dc = cell_backward(steps[t].gates, before[t].c, steps[t].c, dh + d_hs[t], dc)
        dz[t] = d_gates.astype(half)
        d_left = _back_through(working, heads[t], dz[t], interpret)
        d_inputs[t], dh = d_left[:, :wide], d_left[:, wide:]

    dz = jnp.stack(dz)
    left = [
        jnp.concatenate([x, step.half], axis=1)
        for x, step in zip(inputs.astype(half), before, strict=True)
    ]
    d_weights = _weight_gradient(jnp.stack(left), dz, heads, len(working), interpret)
    chosen = jax.nn.one_hot(heads, len(working), dtype=half)
    d_bias = jnp.einsum("tbk,tbg->kg", chosen, dz, preferred_element_type=jnp.float32)
    return d_weights, d_bias, jnp.zeros_like(working), None, jnp.stack(d_inputs)


def _back_through(
    weights: Float[Array, "heads rows gates"],
    heads: Int[Array, " batch"],
    dz: Float[Array, "batch gates"],
    interpret: bool,
) -> Float[Array, "batch rows"]:
    """dz · Wᵀ of each row's own head."""
    count, rows, gates = weights.shape
    batch = len(heads)
    some, chunk = BACK.rows, BACK.columns

    def kernel(heads_ref, dz_ref, weights_ref, out_ref):
        k, first = pl.program_id(0), pl.program_id(1) * some
        mine = heads_ref[...] == k

        @pl.when(jnp.sum(mine.astype(jnp.int32)) > 0)
        def _():
            def add(n, acc):
                columns = pl.ds(n * chunk, chunk)
                right = weights_ref[k, pl.ds(first, some), columns]
                return acc + triton.dot(dz_ref[:, columns], right, trans_b=True)

            zeros = jnp.zeros((batch, some), jnp.float32)
            acc = jax.lax.fori_loop(0, gates // chunk, add, zeros)
            mask = jnp.broadcast_to(mine[:, None], acc.shape)
            triton.store(out_ref.at[:, pl.ds(first, some)], acc, mask=mask)

    return call(
        "context_back", kernel, floats(batch, rows), (count, rows // some), BACK, interpret
    )(heads, dz, weights)


def _weight_gradient(
    left: Float[Array, "steps batch rows"],
    dz: Float[Array, "steps batch gates"],
    heads: Int[Array, "steps batch"],
    count: int,
    interpret: bool,
) -> Float[Array, "heads rows gates"]:
    """The sum of left · dz over the steps of each head."""
    steps, _, rows = left.shape
    gates = dz.shape[2]
    tall, wide = GRADIENT.rows, GRADIENT.columns

    def kernel(left_ref, dz_ref, heads_ref, used_ref, out_ref):
        k = pl.program_id(0)
        here, columns = pl.ds(pl.program_id(1) * tall, tall), pl.ds(pl.program_id(2) * wide, wide)

        def add(t, acc):
            mine = (heads_ref[t, :] == k)[:, None]
            right = jnp.where(mine, dz_ref[t, :, columns], jnp.zeros((), dz_ref.dtype))
            return acc + triton.dot(left_ref[t, :, here], right, trans_a=True)

        zeros = jnp.zeros((tall, wide), jnp.float32)
        # A head that no step was with has no gradient: no turn of the loop.
        out_ref[k, here, columns] = jax.lax.fori_loop(0, steps * used_ref[k], add, zeros)

    used = (heads[..., None] == jnp.arange(count)).any((0, 1)).astype(jnp.int32)
    out = floats(count, rows, gates)
    return call(
        "context_gradient", kernel, out, (count, rows // tall, gates // wide), GRADIENT, interpret
    )(left, dz, heads, used)


unroll.defvjp(_unroll_forward, _unroll_backward)
