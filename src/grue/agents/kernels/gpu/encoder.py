"""The encoder Φ_R: the mean of an LSTM's states over the words of each text."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int

from grue.agents.kernels.gpu import cell
from grue.agents.kernels.gpu.tile import ACTING, ENCODER, call, floats
from grue.agents.kernels.texts import BLOCK, Pool


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def encode(
    table: Float[Array, "words gates"],
    recurrent: Float[Array, "encoder gates"],
    pool: Pool,
    interpret: bool = False,
) -> Float[Array, "texts encoder"]:
    """The mean of the LSTM's states over the words of each text.

    ``table`` has each word's contribution to the gates.
    """
    return _encode(table, recurrent, pool, interpret, save=False)[0]


def _encode_forward(table: Array, recurrent: Array, pool: Pool, interpret: bool):
    means, hs, cs = _encode(table, recurrent, pool, interpret, save=True)
    return means, (table, recurrent, pool, hs, cs)


def _encode(table: Array, recurrent: Array, pool: Pool, interpret: bool, save: bool):
    texts, longest = pool.texts.shape
    size = len(recurrent)
    places = texts * longest

    def kernel(table_ref, recurrent_ref, texts_ref, lengths_ref, offsets_ref, mean_ref, *saved):
        here, lengths, offsets, gates, weights = _block(recurrent_ref, lengths_ref, offsets_ref)

        def inputs(i):
            word = texts_ref[here, jnp.minimum(i, longest - 1)]
            return tuple(table_ref[word, gate] for gate in gates)

        def read(i, carry):
            h, c, total, x = carry
            # Prefetches the next word.
            following = inputs(i + 1)
            h, c = cell.forward([x[g] + triton.dot(h, weights[g]) for g in range(4)], c)
            if save:
                place = jnp.where(i < lengths, offsets + i, places)
                saved[0][place, :] = h
                saved[1][place, :] = c
            return h, c, total + jnp.where((i < lengths)[:, None], h, 0.0), following

        zeros = jnp.zeros((BLOCK, size), jnp.float32)
        start = (zeros, zeros, zeros, inputs(0))
        total = jax.lax.fori_loop(0, jnp.max(lengths), read, start)[2]
        mean_ref[here, :] = total / jnp.maximum(lengths, 1).astype(jnp.float32)[:, None]

    # The extra last place takes writes past the end of a text.
    out = [floats(texts, size)] + [floats(places + 1, size)] * (2 if save else 0)
    name, tile = ("encode", ENCODER) if texts > BLOCK else ("act_encode", ACTING)
    return call(name, kernel, out, (texts // BLOCK,), tile, interpret)(
        table, recurrent, pool.texts, pool.lengths, pool.offsets
    )


def _block(recurrent_ref, lengths_ref, offsets_ref):
    """This program's texts, their lengths and offsets, and the four gates' columns and weights."""
    here = pl.ds(pl.program_id(0) * BLOCK, BLOCK)
    lengths = lengths_ref[here]
    offsets = offsets_ref[here]
    size = recurrent_ref.shape[0]
    gates = [pl.ds(g * size, size) for g in range(4)]
    weights = [recurrent_ref[:, gate] for gate in gates]
    return here, lengths, offsets, gates, weights


def _encode_backward(interpret: bool, residuals: Any, d_means: Float[Array, "texts encoder"]):
    table, recurrent, pool, hs, cs = residuals
    texts, longest = pool.texts.shape
    size, places = len(recurrent), texts * longest
    shapes = ((4 * size,), (size,), ())
    types = (jnp.float32, jnp.float32, jnp.int32)
    out = [floats(places + 1, *shape, dtype=d) for shape, d in zip(shapes, types, strict=True)]
    kernel = partial(_backward_kernel, places)
    dz, before, word = call("encode_backward", kernel, out, (texts // BLOCK,), ENCODER, interpret)(
        table, recurrent, pool.texts, pool.lengths, pool.offsets, hs, cs, d_means
    )
    d_table = _sum_by_word(dz, word, pool.words, len(table), interpret)
    d_recurrent = _sum_products(before, dz, pool.words, interpret)
    return d_table, d_recurrent, None


def _backward_kernel(places, table_ref, recurrent_ref, texts_ref, lengths_ref, offsets_ref, *refs):
    """Writes dz, h_{t-1} and the word at each place."""
    hs_ref, cs_ref, d_ref, dz_ref, before_ref, word_ref = refs
    here, lengths, offsets, gates, weights = _block(recurrent_ref, lengths_ref, offsets_ref)
    d_mean = d_ref[here, :] / jnp.maximum(lengths, 1).astype(jnp.float32)[:, None]
    longest_here = jnp.max(lengths)

    def fetch(i):
        """Everything at word i that does not depend on the gradient."""
        i = jnp.maximum(i, 0)
        there = i < lengths
        place = jnp.where(there, offsets + i, places)
        inner = (there & (i > 0))[:, None]
        before = jnp.where(i > 0, jnp.maximum(place - 1, 0), place)
        word = texts_ref[here, i]
        h_before = jnp.where(inner, hs_ref[before, :], 0.0)
        c_before = jnp.where(inner, cs_ref[before, :], 0.0)
        c = jnp.where(there[:, None], cs_ref[place, :], 0.0)
        return word, place, h_before, c_before, c, tuple(table_ref[word, g] for g in gates)

    def back(n, carry):
        dh, dc, (word, place, h_before, c_before, c, x) = carry
        i = longest_here - 1 - n
        following = fetch(i - 1)
        z = [x[g] + triton.dot(h_before, weights[g]) for g in range(4)]
        dh = dh + jnp.where((i < lengths)[:, None], d_mean, 0.0)
        dz, dc = cell.backward(z, c_before, c, dh, dc)
        dh = sum(triton.dot(dz[g], weights[g], trans_b=True) for g in range(4))
        for g in range(4):
            dz_ref[place, gates[g]] = dz[g]
        before_ref[place, :] = h_before
        word_ref[place] = word
        return dh, dc, following

    zeros = jnp.zeros_like(d_mean)
    start = (zeros, zeros, fetch(longest_here - 1))
    jax.lax.fori_loop(0, longest_here, back, start)


def _sum_by_word(
    dz: Float[Array, "places gates"],
    word: Int[Array, " places"],
    count: Int[Array, ""],
    words: int,
    interpret: bool,
) -> Float[Array, "words gates"]:
    """For each word, the sum of dz over the places where it was read."""
    tile, gates = ENCODER.columns, dz.shape[1]
    tiles = -(-words // tile)

    def kernel(dz_ref, word_ref, count_ref, out_ref):
        mine = pl.program_id(0) * tile + jnp.arange(tile)
        columns = pl.ds(pl.program_id(1) * tile, tile)

        def product(here, inside):
            read = triton.load(word_ref.at[here], mask=inside, other=-1)
            chosen = (mine[:, None] == read[None, :]).astype(jnp.float32)
            return triton.dot(chosen, _loaded(dz_ref, here, columns, inside))

        total = _sum_over_places(count_ref, (tile, tile), product)
        out_ref[pl.ds(pl.program_id(0) * tile, tile), columns] = total

    out = floats(tiles * tile, gates)
    program = call("sum_by_word", kernel, out, (tiles, gates // tile), ENCODER, interpret)
    return program(dz, word, count[None])[:words]


def _sum_products(
    before: Float[Array, "places encoder"],
    dz: Float[Array, "places gates"],
    count: Int[Array, ""],
    interpret: bool,
) -> Float[Array, "encoder gates"]:
    """The sum of h_{t-1}ᵀ · dz."""
    size, gates = before.shape[1], dz.shape[1]
    tile = 32

    def kernel(before_ref, dz_ref, count_ref, out_ref):
        columns = pl.ds(pl.program_id(0) * tile, tile)

        def product(here, inside):
            left = _loaded(before_ref, here, pl.ds(0, size), inside)
            return triton.dot(left, _loaded(dz_ref, here, columns, inside), trans_a=True)

        out_ref[:, columns] = _sum_over_places(count_ref, (size, tile), product)

    program = call(
        "sum_products", kernel, floats(size, gates), (gates // tile,), ENCODER, interpret
    )
    return program(before, dz, count[None])


def _sum_over_places(count_ref, shape, product):
    """Sums ``product(places, which of them are used)`` over all words, a tile at a time."""
    total, rows = count_ref[0], ENCODER.rows

    def add(n, acc):
        return acc + product(pl.ds(n * rows, rows), n * rows + jnp.arange(rows) < total)

    steps = (total + rows - 1) // rows
    return jax.lax.fori_loop(0, steps, add, jnp.zeros(shape, jnp.float32))


def _loaded(ref, here, columns, inside):
    mask = inside[:, None] & (jnp.arange(columns.size) >= 0)
    return triton.load(ref.at[here, columns], mask=mask, other=0.0)


encode.defvjp(_encode_forward, _encode_backward)
