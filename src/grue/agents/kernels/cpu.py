"""The two operations for a CPU: loops as long as the texts, and products as large as the heads.

The backward passes are written out, so that the sums over all steps are one large product each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from grue.agents.kernels.cell import cell, cell_backward
from grue.agents.kernels.texts import Pool

TOGETHER = 64
"""Texts that are read together."""
MANY_WORDS = 512
"""In a larger vocabulary a word's row is written to where it is, not found by a product."""
SIZES = (4, 8, 16, 24)
"""Numbers of rows for which there is a product of its own; beyond, all rows."""
SLICE = 64
"""The same for the sums over all steps, by this much."""


# Φ_R


@jax.custom_vjp
def encode(
    table: Float[Array, "words gates"], recurrent: Float[Array, "encoder gates"], pool: Pool
) -> Float[Array, "texts encoder"]:
    """The mean of the LSTM's states over the words of each text.

    ``table`` holds each word's share of the gates.
    """
    return _encode(table, recurrent, pool, save=False)[0]


def _blocks(pool: Pool) -> tuple[int, Int[Array, ""], Pool]:
    """How many texts go together, how many such blocks have words, and the pool filled up."""
    size = len(pool.lengths)
    together = min(TOGETHER, size)
    short = -size % together
    texts = jnp.pad(pool.texts, ((0, short), (0, 0)))
    lengths = jnp.pad(pool.lengths, (0, short))
    blocks = -(-(lengths > 0).sum() // together)
    return together, blocks, pool._replace(texts=texts, lengths=lengths)


def _encode(table: Array, recurrent: Array, pool: Pool, save: bool):
    together, blocks, filled = _blocks(pool)
    count, longest = filled.texts.shape
    size = len(recurrent)
    words = filled.texts.T
    room = (longest, count, size) if save else (1, 1, 1)

    def block(b: Array, carry: Any) -> Any:
        first = b * together
        lengths = jax.lax.dynamic_slice(filled.lengths, (first,), (together,))
        zeros = jnp.zeros((together, size))

        def read(i: Array, carry: Any) -> Any:
            h, c, total, hs, cs = carry
            word = jax.lax.dynamic_slice(words, (i, first), (1, together))[0]
            h, c = cell(table[word] + h @ recurrent, c)
            if save:
                hs = jax.lax.dynamic_update_slice(hs, h[None], (i, first, 0))
                cs = jax.lax.dynamic_update_slice(cs, c[None], (i, first, 0))
            return h, c, total + jnp.where((i < lengths)[:, None], h, 0.0), hs, cs

        means, hs, cs = carry
        _, _, total, hs, cs = jax.lax.fori_loop(
            0, lengths.max(), read, (zeros, zeros, zeros, hs, cs)
        )
        mean = total / jnp.maximum(lengths, 1)[:, None]
        return jax.lax.dynamic_update_slice(means, mean, (first, 0)), hs, cs

    start = (
        jnp.zeros((count, size)),
        jax.lax.empty(room, jnp.float32),
        jax.lax.empty(room, jnp.float32),
    )
    means, hs, cs = jax.lax.fori_loop(0, blocks, block, start)
    return means[: len(pool.lengths)], hs, cs


def _encode_forward(table: Array, recurrent: Array, pool: Pool):
    means, hs, cs = _encode(table, recurrent, pool, save=True)
    return means, (table, recurrent, pool, hs, cs)


def _encode_backward(residuals: Any, d_means: Float[Array, "texts encoder"]):
    table, recurrent, pool, hs, cs = residuals
    together, blocks, filled = _blocks(pool)
    size = len(recurrent)
    words = filled.texts.T
    d_means = jnp.pad(d_means, ((0, len(filled.lengths) - len(d_means)), (0, 0)))
    d_means = d_means / jnp.maximum(filled.lengths, 1)[:, None]

    def block(b: Array, carry: Any) -> Any:
        first = b * together
        lengths = jax.lax.dynamic_slice(filled.lengths, (first,), (together,))
        d_mean = jax.lax.dynamic_slice(d_means, (first, 0), (together, size))

        def states(of: Array, i: Array) -> Array:
            return jax.lax.dynamic_slice(of, (i, first, 0), (1, together, size))[0]

        def back(n: Array, carry: Any) -> Any:
            dh, dc, d_table, d_recurrent = carry
            i = lengths.max() - 1 - n
            before = jnp.maximum(i - 1, 0)
            h_before = jnp.where(i > 0, states(hs, before), 0.0)
            c_before = jnp.where(i > 0, states(cs, before), 0.0)
            word = jax.lax.dynamic_slice(words, (i, first), (1, together))[0]
            z = table[word] + h_before @ recurrent
            dh = dh + jnp.where((i < lengths)[:, None], d_mean, 0.0)
            dz, dc = cell_backward(z, c_before, states(cs, i), dh, dc)
            return (
                dz @ recurrent.T,
                dc,
                _add_by_word(d_table, word, dz),
                d_recurrent + h_before.T @ dz,
            )

        zeros = jnp.zeros((together, size))
        carry = jax.lax.fori_loop(0, lengths.max(), back, (zeros, zeros, *carry))
        return carry[2:]

    start = jnp.zeros_like(table), jnp.zeros_like(recurrent)
    d_table, d_recurrent = jax.lax.fori_loop(0, blocks, block, start)
    return d_table, d_recurrent, None


def _add_by_word(
    total: Float[Array, "words gates"],
    word: Int[Array, " texts"],
    rows: Float[Array, "texts gates"],
) -> Float[Array, "words gates"]:
    """Adds each row to that of its word."""
    if len(total) > MANY_WORDS:
        return total.at[word].add(rows)
    return total + (jnp.arange(len(total))[:, None] == word).astype(jnp.float32) @ rows


encode.defvjp(_encode_forward, _encode_backward)


# H(k)

Heads = tuple[Array, ...]
"""The weights of each head as an array of its own: to take one out of a larger one copies it."""


@jax.custom_vjp
def unroll(
    weights: Heads,
    bias: Float[Array, "heads gates"],
    heads: Int[Array, "steps batch"],
    inputs: Float[Array, "steps batch inputs"],
) -> Float[Array, "steps batch context"]:
    """The states of the context LSTM along sequences, from an empty memory."""
    return _unroll(weights, bias, heads, inputs)[0]


def _unroll(weights: Heads, bias: Array, heads: Array, inputs: Array):
    zeros = jnp.zeros((heads.shape[1], weights[0].shape[1] // 4))

    def one(carry: Any, at: Any) -> Any:
        h, c = carry
        head, by, x = at
        z = by_head(jnp.concatenate([x, h], axis=1), by, weights) + bias[head]
        h, c = cell(z, c)
        return (h, c), (h, c, z)

    at = (heads, sort_by_head(heads, len(weights)), inputs)
    return jax.lax.scan(one, (zeros, zeros), at)[1]


class Sorted(NamedTuple):
    """Rows in the order of their heads; more than one set of them, if need be."""

    order: Int[Array, "*sets rows"]
    place: Int[Array, "*sets rows"]
    """Where each row is in that order."""
    counts: Int[Array, "*sets heads"]
    """Rows of each head."""
    firsts: Int[Array, "*sets heads"]
    in_use: Int[Array, "*sets heads"]
    """The heads that have rows first."""


def sort_by_head(heads: Int[Array, "*sets rows"], count: int) -> Sorted:
    order = jnp.argsort(heads, axis=-1, stable=True)
    counts = (heads[..., None] == jnp.arange(count)).sum(-2)
    return Sorted(
        order,
        jnp.argsort(order, axis=-1),
        counts,
        jnp.cumsum(counts, -1) - counts,
        jnp.argsort(counts == 0, axis=-1, stable=True),
    )


def by_head(
    rows: Float[Array, "rows columns"], by: Sorted, weights: Heads, transposed: bool = False
) -> Array:
    """Each row times the weights of its head, or the weights transposed.

    There is a product for each head and each of some numbers of rows.
    """

    def times(left: Array, right: Array) -> Array:
        return jax.lax.dot_general(left, right, (((1,), (1 if transposed else 0,)), ((), ())))

    if len(weights) == 1:
        return times(rows, weights[0])
    total = len(rows)
    # What lies past the rows is never used: it need not be anything.
    in_order = rows[jnp.pad(by.order, (0, total))]
    sizes = (*[size for size in SIZES if size < total], total)

    def product(k: int, size: int):
        def multiply(first: Array) -> Array:
            left = jax.lax.dynamic_slice(in_order, (first, 0), (size, rows.shape[1]))
            return jnp.pad(times(left, weights[k]), ((0, total - size), (0, 0)))

        return multiply

    products = [product(k, size) for k in range(len(weights)) for size in sizes]

    def add(number: Array, out: Array) -> Array:
        k = by.in_use[number]
        which = k * len(sizes) + (jnp.array(sizes) < by.counts[k]).sum()
        # A product reaches past its head's rows: the next head writes over that.
        some = jax.lax.switch(which, products, by.firsts[k])
        return jax.lax.dynamic_update_slice(out, some, (by.firsts[k], 0))

    out = jax.lax.empty((2 * total, weights[0].shape[0 if transposed else 1]), rows.dtype)
    return jax.lax.fori_loop(0, (by.counts > 0).sum(), add, out)[by.place]


def by_one_head(
    rows: Float[Array, "batch columns"], head: Int[Array, ""], weights: Heads
) -> Float[Array, "batch gates"]:
    """Rows times the weights of one head."""
    products = [lambda left, each=each: left @ each for each in weights]
    return jax.lax.switch(head, products, rows) if len(products) > 1 else products[0](rows)


def _unroll_forward(weights: Heads, bias: Array, heads: Array, inputs: Array):
    hs, cs, z = _unroll(weights, bias, heads, inputs)
    return hs, (weights, heads, inputs, hs, cs, z)


def _unroll_backward(residuals: Any, d_hs: Float[Array, "steps batch context"]):
    weights, heads, inputs, hs, cs, z = residuals
    wide = inputs.shape[2]
    zeros = jnp.zeros_like(hs[0])
    h_before = jnp.concatenate([zeros[None], hs[:-1]])
    c_before = jnp.concatenate([zeros[None], cs[:-1]])

    def one(carry: Any, at: Any) -> Any:
        dh, dc = carry
        by, d_h, z, before, c = at
        dz, dc = cell_backward(z, before, c, dh + d_h, dc)
        d_rows = by_head(dz, by, weights, transposed=True)
        return (d_rows[:, wide:], dc), (dz, d_rows[:, :wide])

    at = (sort_by_head(heads, len(weights)), d_hs, z, c_before, cs)
    dz, d_inputs = jax.lax.scan(one, (zeros, zeros), at, reverse=True)[1]
    left = _flat(jnp.concatenate([inputs, h_before], axis=2))
    d_weights, d_bias = _sum_by_head(left, _flat(dz), heads.reshape(-1), len(weights))
    return d_weights, d_bias, None, d_inputs


def _flat(steps: Float[Array, "steps batch units"]) -> Float[Array, "rows units"]:
    return steps.reshape(-1, steps.shape[2])


def _sum_by_head(
    left: Float[Array, "rows columns"],
    dz: Float[Array, "rows gates"],
    head: Int[Array, " rows"],
    count: int,
) -> tuple[Heads, Float[Array, "heads gates"]]:
    """The sums of left · dz and of dz over the rows of each head."""
    if count == 1:
        return (left.T @ dz,), dz.sum(0)[None]
    by = sort_by_head(head, count)
    room = -(-len(left) // SLICE) * SLICE
    # A head's slice reaches past its rows by less than SLICE.
    order = jnp.pad(by.order, (0, room - len(left) + SLICE))
    left, dz = left[order], dz[order]

    def with_size(size: int):
        def product(first: Array, mine: Array) -> tuple[Array, Array]:
            there = (jnp.arange(size) < mine)[:, None]
            rows = jax.lax.dynamic_slice(left, (first, 0), (size, left.shape[1]))
            right = jax.lax.dynamic_slice(dz, (first, 0), (size, dz.shape[1]))
            right = jnp.where(there, right, 0.0)
            return rows.T @ right, right.sum(0)

        return product

    def nothing(first: Array, mine: Array) -> tuple[Array, Array]:
        return jnp.zeros((left.shape[1], dz.shape[1])), jnp.zeros(dz.shape[1])

    products = [nothing, *[with_size(size) for size in range(SLICE, room + 1, SLICE)]]
    sums = [
        jax.lax.switch(-(-by.counts[k] // SLICE), products, by.firsts[k], by.counts[k])
        for k in range(count)
    ]
    weights, biases = zip(*sums, strict=True)
    return weights, jnp.stack(biases)


unroll.defvjp(_unroll_forward, _unroll_backward)
