"""Φ_R: the mean of an LSTM's states over the words of each text."""

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

    ``table`` holds each word's share of the gates.
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
        here = pl.ds(pl.program_id(0) * BLOCK, BLOCK)
        lengths = lengths_ref[here]
        offsets = offsets_ref[here]
        gates = [pl.ds(g * size, size) for g in range(4)]
        weights = [recurrent_ref[:, gate] for gate in gates]

        def inputs(i):
            word = texts_ref[here, jnp.minimum(i, longest - 1)]
            return tuple(table_ref[word, gate] for gate in gates)

        def read(i, carry):
            h, c, total, x = carry
            # The next word is fetched while this one is read.
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

    # One place more than there are words: what lies past a text's end goes there.
    out = [floats(texts, size)] + [floats(places + 1, size)] * (2 if save else 0)
    name, tile = ("encode", ENCODER) if texts > BLOCK else ("act_encode", ACTING)
    return call(name, kernel, out, (texts // BLOCK,), tile, interpret)(
        table, recurrent, pool.texts, pool.lengths, pool.offsets
    )


def _encode_backward(interpret: bool, residuals: Any, d_means: Float[Array, "texts encoder"]):
    table, recurrent, pool, hs, cs = residuals
    texts, longest = pool.texts.shape
    size, words = recurrent.shape[0], table.shape[0]
    places = texts * longest

    def kernel(
        table_ref,
        recurrent_ref,
        texts_ref,
        lengths_ref,
        offsets_ref,
        hs_ref,
        cs_ref,
        d_ref,
        dz_ref,
        before_ref,
        word_ref,
    ):
        here = pl.ds(pl.program_id(0) * BLOCK, BLOCK)
        lengths = lengths_ref[here]
        offsets = offsets_ref[here]
        gates = [pl.ds(g * size, size) for g in range(4)]
        weights = [recurrent_ref[:, gate] for gate in gates]
        d_mean = d_ref[here, :] / jnp.maximum(lengths, 1).astype(jnp.float32)[:, None]
        longest_here = jnp.max(lengths)

        def fetch(i):
            """Everything of a step that does not wait for the gradient."""
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

        zeros = jnp.zeros((BLOCK, size), jnp.float32)
        start = (zeros, zeros, fetch(longest_here - 1))
        jax.lax.fori_loop(0, longest_here, back, start)

    out = [
        floats(places + 1, 4 * size),
        floats(places + 1, size),
        floats(places + 1, dtype=jnp.int32),
    ]
    dz, before, word = call("encode_backward", kernel, out, (texts // BLOCK,), ENCODER, interpret)(
        table, recurrent, pool.texts, pool.lengths, pool.offsets, hs, cs, d_means
    )
    d_table = _sum_by_word(dz, word, pool.words, words, interpret)
    d_recurrent = _sum_products(before, dz, pool.words, interpret)
    return d_table, d_recurrent, None


def _sum_by_word(
    dz: Float[Array, "places gates"],
    word: Int[Array, " places"],
    count: Int[Array, ""],
    words: int,
    interpret: bool,
) -> Float[Array, "words gates"]:
    """For each word, the sum of the rows in which it was read."""
    tile, gates = ENCODER.columns, dz.shape[1]
    tiles = -(-words // tile)

    def kernel(dz_ref, word_ref, count_ref, out_ref):
        mine = pl.program_id(0) * tile + jnp.arange(tile)
        columns = pl.ds(pl.program_id(1) * tile, tile)
        total = count_ref[0]

        def add(n, acc):
            at = n * ENCODER.rows + jnp.arange(ENCODER.rows)
            here = pl.ds(n * ENCODER.rows, ENCODER.rows)
            read = triton.load(word_ref.at[here], mask=at < total, other=-1)
            inside = (at < total)[:, None] & (jnp.arange(tile) >= 0)
            values = triton.load(dz_ref.at[here, columns], mask=inside, other=0.0)
            chosen = (mine[:, None] == read[None, :]).astype(jnp.float32)
            return acc + triton.dot(chosen, values)

        zeros = jnp.zeros((tile, tile), jnp.float32)
        steps = (total + ENCODER.rows - 1) // ENCODER.rows
        out_ref[pl.ds(pl.program_id(0) * tile, tile), columns] = jax.lax.fori_loop(
            0, steps, add, zeros
        )

    out = floats(tiles * tile, gates)
    summed = call("sum_by_word", kernel, out, (tiles, gates // tile), ENCODER, interpret)(
        dz, word, count[None]
    )
    return summed[:words]


def _sum_products(
    before: Float[Array, "places encoder"],
    dz: Float[Array, "places gates"],
    count: Int[Array, ""],
    interpret: bool,
) -> Float[Array, "encoder gates"]:
    size, gates = before.shape[1], dz.shape[1]
    tile = 32

    def kernel(before_ref, dz_ref, count_ref, out_ref):
        columns = pl.ds(pl.program_id(0) * tile, tile)
        total = count_ref[0]

        def add(n, acc):
            here = pl.ds(n * ENCODER.rows, ENCODER.rows)
            inside = (n * ENCODER.rows + jnp.arange(ENCODER.rows) < total)[:, None]
            left = triton.load(
                before_ref.at[here, :], mask=inside & (jnp.arange(size) >= 0), other=0.0
            )
            right = triton.load(
                dz_ref.at[here, columns], mask=inside & (jnp.arange(tile) >= 0), other=0.0
            )
            return acc + triton.dot(left, right, trans_a=True)

        zeros = jnp.zeros((size, tile), jnp.float32)
        steps = (total + ENCODER.rows - 1) // ENCODER.rows
        out_ref[:, columns] = jax.lax.fori_loop(0, steps, add, zeros)

    return call("sum_products", kernel, floats(size, gates), (gates // tile,), ENCODER, interpret)(
        before, dz, count[None]
    )


encode.defvjp(_encode_forward, _encode_backward)
