"""Products with the weights of each step's head, for all steps of sequences at once.

A program computes one head, and exits early if no step uses it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int

from grue.agents.kernels.gpu.tile import GRADIENT, INWARD, OUTWARD, Stacked, Tile, call, floats


def outward(
    x: Float[Array, "steps batch inputs"],
    weights: Stacked,
    bias: Float[Array, "heads outputs"],
    heads: Int[Array, "steps batch"],
    interpret: bool,
) -> Float[Array, "steps batch outputs"]:
    """x · W + b, with the first rows of W."""

    def begin(k, columns, shape, weights_ref, bias_ref):
        return jnp.broadcast_to(bias_ref[k, columns][None, :], shape)

    def times(left, k, middle, columns, weights_ref, bias_ref):
        return triton.dot(left, weights_ref[k, middle, columns])

    outputs, chunk = weights.shape[2], 64
    return _product(
        *("context_outward", OUTWARD, chunk, interpret),
        *(x, heads, (weights, bias), outputs, begin, times),
    )


def inward(
    dz: Float[Array, "steps batch outputs"],
    weights: Stacked,
    heads: Int[Array, "steps batch"],
    inputs: int,
    interpret: bool,
) -> Float[Array, "steps batch inputs"]:
    """dz · Wᵀ, with the first rows of W."""

    def begin(k, columns, shape, weights_ref):
        return jnp.zeros(shape, jnp.float32)

    def times(left, k, middle, columns, weights_ref):
        return triton.dot(left, weights_ref[k, columns, middle], trans_b=True)

    chunk = 256 // weights.dtype.itemsize  # As many as fit into shared memory.
    return _product(
        *("context_inward", INWARD, chunk, interpret),
        *(dz, heads, (weights,), inputs, begin, times),
    )


def _product(
    name: str,
    tile: Tile,
    chunk: int,
    interpret: bool,
    left: Float[Array, "steps batch left"],
    heads: Int[Array, "steps batch"],
    given: Sequence[Float[Array, "heads ..."]],
    wide: int,
    begin: Callable[..., Array],
    times: Callable[..., Array],
) -> Float[Array, "steps batch {wide}"]:
    """For each row: ``begin`` of its head, plus ``times`` summed over chunks of columns."""
    steps, batch, deep = left.shape
    total = steps * batch
    tall, some, chunk = tile.rows, math.gcd(tile.columns, wide), math.gcd(chunk, deep)

    def kernel(heads_ref, left_ref, *refs):
        *given_refs, out_ref = refs
        k, first = pl.program_id(0), pl.program_id(2) * tall
        rows, columns = pl.ds(first, tall), pl.ds(pl.program_id(1) * some, some)
        inside = first + jnp.arange(tall) < total
        mine = triton.load(heads_ref.at[rows], mask=inside, other=-1) == k

        @pl.when(jnp.sum(mine.astype(jnp.int32)) > 0)
        def _():
            def add(n, acc):
                middle = pl.ds(n * chunk, chunk)
                mask = jnp.broadcast_to(inside[:, None], (tall, chunk))
                part = triton.load(left_ref.at[rows, middle], mask=mask, other=0.0)
                return acc + times(part, k, middle, columns, *given_refs)

            start = begin(k, columns, (tall, some), *given_refs)
            acc = jax.lax.fori_loop(0, deep // chunk, add, start)
            mask = jnp.broadcast_to(mine[:, None], acc.shape)
            triton.store(out_ref.at[rows, columns], acc, mask=mask)

    grid = (len(given[0]), wide // some, -(-total // tall))
    program = call(name, kernel, floats(total, wide), grid, tile, interpret)
    out = program(heads.reshape(-1), left.reshape(total, deep), *given)
    return out.reshape(steps, batch, wide)


def gradient(
    lefts: Sequence[tuple[Float[Array, "steps batch _"], int]],
    dz: Float[Array, "steps batch outputs"],
    heads: Int[Array, "steps batch"],
    count: int,
    interpret: bool,
) -> Float[Array, "heads rows outputs"]:
    """The sum of leftᵀ · dz over the steps of each head, with all lefts stacked by rows.

    Each left comes with its delay in steps relative to dz. The result is undefined for heads that
    no step uses.
    """
    steps, outputs = dz.shape[0], dz.shape[2]
    widths = [left.shape[2] for left, _ in lefts]
    tall = math.gcd(GRADIENT.rows, *widths)
    wide = math.gcd(GRADIENT.columns, outputs)

    def kernel(dz_ref, heads_ref, used_ref, *refs):
        *left_refs, out_ref = refs
        k, first = pl.program_id(0), pl.program_id(1) * tall
        place, columns = pl.ds(first, tall), pl.ds(pl.program_id(2) * wide, wide)

        def total(left_ref, skip, ago):
            def add(t, acc):
                mine = (heads_ref[t, :] == k)[:, None]
                right = jnp.where(mine, dz_ref[t, :, columns], jnp.zeros((), dz_ref.dtype))
                left = left_ref[t - ago, :, pl.ds(first - skip, tall)]
                return acc + triton.dot(left, right, trans_a=True)

            zeros = jnp.zeros((tall, wide), jnp.float32)
            out_ref[k, place, columns] = jax.lax.fori_loop(ago, steps, add, zeros)

        used, skip = used_ref[k] > 0, 0
        for ref, (_, ago), size in zip(left_refs, lefts, widths, strict=True):
            here = used & (first >= skip) & (first < skip + size)
            pl.when(here)(partial(total, ref, skip, ago))
            skip += size

    rows = sum(widths)
    grid = (count, rows // tall, outputs // wide)
    out = floats(count, rows, outputs)
    program = call("context_gradient", kernel, out, grid, GRADIENT, interpret)
    used = (heads[..., None] == jnp.arange(count)).any((0, 1)).astype(jnp.int32)
    return program(dz, heads, used, *(left for left, _ in lefts))


def bias_gradient(
    dz: Float[Array, "steps batch outputs"], heads: Int[Array, "steps batch"], count: int
) -> Float[Array, "heads outputs"]:
    chosen = jax.nn.one_hot(heads, count, dtype=dz.dtype)
    return jnp.einsum("tbk,tbg->kg", chosen, dz, preferred_element_type=jnp.float32)
