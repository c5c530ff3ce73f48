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
            chosen = (jnp.arange(len(table))[:, None] == word).astype(jnp.float32)
            return (
                dz @ recurrent.T,
                dc,
                d_table + chosen @ dz,
                d_recurrent + h_before.T @ dz,
            )

        zeros = jnp.zeros((together, size))
        carry = jax.lax.fori_loop(0, lengths.max(), back, (zeros, zeros, *carry))
        return carry[2:]

    start = jnp.zeros_like(table), jnp.zeros_like(recurrent)
    d_table, d_recurrent = jax.lax.fori_loop(0, blocks, block, start)
    return d_table, d_recurrent, None


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
    return _unroll(weights, bias, heads, inputs)[0][1:]


class Plan(NamedTuple):
    """In which order the steps are taken: as long as it can be with one head.

    A head's weights then stay near, where a change at every step would fetch them anew. An item
    is a step of the sequences that are with one head at it; those that came back to a lower head
    wait for the next round. So every step of a sequence comes after the one before.
    """

    items: Int[Array, " items"]
    count: Int[Array, ""]
    item_of: Int[Array, "steps batch"]


def plan(heads: Int[Array, "steps batch"], count: int) -> Plan:
    steps, batch = heads.shape
    rounds = jnp.cumsum(heads[1:] < heads[:-1], axis=0)
    rounds = jnp.concatenate([jnp.zeros((1, batch), jnp.int32), rounds])
    item_of = (rounds * count + heads) * steps + jnp.arange(steps)[:, None]
    used = jnp.zeros(steps * count * steps, bool).at[item_of.reshape(-1)].set(True)
    most = steps * min(batch, steps * count)
    return Plan(jnp.nonzero(used, size=most, fill_value=0)[0], used.sum(), item_of)


class Item(NamedTuple):
    step: Int[Array, ""]
    head: Int[Array, ""]
    rows: Int[Array, " batch"]
    """Its sequences first."""
    size: Int[Array, ""]
    """How many they are."""
    places: Int[Array, " batch"]
    """Where to write the rows; past the end for those that are not its own."""


def _item(made: Plan, number: Int[Array, ""], count: int) -> Item:
    item = made.items[number]
    steps, batch = made.item_of.shape
    mine = made.item_of[item % steps] == item
    rows = jnp.argsort(~mine, stable=True)
    size = mine.sum()
    places = jnp.where(jnp.arange(batch) < size, rows, batch)
    return Item(item % steps, item // steps % count, rows, size, places)


def _times(weights: Heads, item: Item, rows: Array, transposed: bool) -> Array:
    """Rows times an item's head; there is a product for some numbers of rows, the rest is zeros."""
    total = len(rows)
    sizes = (*[size for size in SIZES if size < total], total)

    def product(right: Array, size: int):
        def multiply(left: Array) -> Array:
            contract = (((1,), (1 if transposed else 0,)), ((), ()))
            done = jax.lax.dot_general(left[:size], right, contract)
            return jnp.pad(done, ((0, total - size), (0, 0)))

        return multiply

    products = [product(right, size) for right in weights for size in sizes]
    which = item.head * len(sizes) + (jnp.array(sizes) < item.size).sum()
    return jax.lax.switch(which, products, rows)


def _unroll(weights: Heads, bias: Array, heads: Array, inputs: Array):
    """h and c before each step and after the last, and the gates."""
    steps, batch = heads.shape
    size = bias.shape[1] // 4
    made = plan(heads, len(weights))

    def take(number: Array, carry: Any) -> Any:
        hs, cs, gates = carry
        item = _item(made, number, len(weights))
        t, rows = item.step, item.rows
        left = jnp.concatenate([inputs[t][rows], hs[t][rows]], axis=1)
        z = _times(weights, item, left, transposed=False) + bias[item.head]
        h, c = cell(z, cs[t][rows])
        return (
            hs.at[t + 1, item.places].set(h, mode="drop"),
            cs.at[t + 1, item.places].set(c, mode="drop"),
            gates.at[t, item.places].set(z, mode="drop"),
        )

    states = jnp.zeros((steps + 1, batch, size))
    start = (states, states, jnp.zeros((steps, batch, 4 * size)))
    return jax.lax.fori_loop(0, made.count, take, start)


def by_one_head(
    rows: Float[Array, "batch columns"], head: Int[Array, ""], weights: Heads
) -> Float[Array, "batch gates"]:
    """Rows times the weights of one head."""
    products = [lambda left, each=each: left @ each for each in weights]
    return jax.lax.switch(head, products, rows) if len(products) > 1 else products[0](rows)


def _unroll_forward(weights: Heads, bias: Array, heads: Array, inputs: Array):
    hs, cs, gates = _unroll(weights, bias, heads, inputs)
    return hs[1:], (weights, heads, inputs, hs, cs, gates)


def _unroll_backward(residuals: Any, d_hs: Float[Array, "steps batch context"]):
    weights, heads, inputs, hs, cs, gates = residuals
    wide = inputs.shape[2]
    made = plan(heads, len(weights))

    def take(number: Array, carry: Any) -> Any:
        dh, dc, dz, d_inputs = carry
        item = _item(made, made.count - 1 - number, len(weights))
        t, rows, places = item.step, item.rows, item.places
        d_gates, d_cell = cell_backward(
            gates[t][rows], cs[t][rows], cs[t + 1][rows], dh[t + 1][rows], dc[t + 1][rows]
        )
        d_left = _times(weights, item, d_gates, transposed=True)
        return (
            dh.at[t, places].add(d_left[:, wide:], mode="drop"),
            dc.at[t, places].set(d_cell, mode="drop"),
            dz.at[t, places].set(d_gates, mode="drop"),
            d_inputs.at[t, places].set(d_left[:, :wide], mode="drop"),
        )

    dh = jnp.concatenate([jnp.zeros_like(d_hs[:1]), d_hs])
    start = (dh, jnp.zeros_like(dh), jnp.zeros_like(gates), jnp.zeros_like(inputs))
    _, _, dz, d_inputs = jax.lax.fori_loop(0, made.count, take, start)
    rows, head = _flat(dz), heads.reshape(-1)
    left = _flat(jnp.concatenate([inputs, hs[:-1]], axis=2))
    d_weights = _sum_by_head(left, rows, head, len(weights))
    d_bias = jnp.einsum("rk,rg->kg", jax.nn.one_hot(head, len(weights)), rows)
    return d_weights, d_bias, None, d_inputs


def _flat(steps: Float[Array, "steps batch units"]) -> Float[Array, "rows units"]:
    return steps.reshape(-1, steps.shape[2])


def _sum_by_head(
    left: Float[Array, "rows columns"],
    dz: Float[Array, "rows gates"],
    head: Int[Array, " rows"],
    count: int,
) -> Heads:
    """The sum of left · dz over the rows of each head."""
    if count == 1:
        return (left.T @ dz,)
    order = jnp.argsort(head, stable=True)
    counts = (head[:, None] == jnp.arange(count)).sum(0)
    firsts = jnp.cumsum(counts) - counts
    room = -(-len(left) // SLICE) * SLICE
    left, dz = (jnp.pad(part[order], ((0, room), (0, 0))) for part in (left, dz))

    def with_size(size: int):
        def product(first: Array, mine: Array) -> Array:
            there = (jnp.arange(size) < mine)[:, None]
            rows = jax.lax.dynamic_slice(left, (first, 0), (size, left.shape[1]))
            right = jax.lax.dynamic_slice(dz, (first, 0), (size, dz.shape[1]))
            return rows.T @ jnp.where(there, right, 0.0)

        return product

    def nothing(first: Array, mine: Array) -> Array:
        return jnp.zeros((left.shape[1], dz.shape[1]))

    products = [nothing, *[with_size(size) for size in range(SLICE, room + 1, SLICE)]]
    return tuple(
        jax.lax.switch(-(-counts[k] // SLICE), products, firsts[k], counts[k]) for k in range(count)
    )


unroll.defvjp(_unroll_forward, _unroll_backward)
