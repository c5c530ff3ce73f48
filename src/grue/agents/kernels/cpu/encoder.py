"""The encoder Φ_R on a CPU.

The backward pass is written by hand, so that its sums are large products.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from grue.agents.kernels.cell import cell, cell_backward
from grue.agents.kernels.cpu.rows import cut, flat
from grue.agents.kernels.texts import Pool, WordWeights

TOGETHER = 32
"""Texts per block."""
AT_ONCE = 8
"""Words of a text whose gradients are summed in one product."""
MANY_WORDS = 512
"""Larger vocabularies use scatter-add instead of a one-hot product."""


@jax.custom_vjp
def encode(
    words: WordWeights, recurrent: Float[Array, "encoder gates"], pool: Pool
) -> Float[Array, "texts encoder"]:
    """The mean of the LSTM's states over the words of each text."""
    return encode_from(words.table(), recurrent, pool)


def encode_from(
    table: Float[Array, "words gates"], recurrent: Float[Array, "encoder gates"], pool: Pool
) -> Float[Array, "texts encoder"]:
    """The same from ``words.table()``, without a gradient."""
    blocks = _blocks(pool)
    means = _read_from(0, _no_means(recurrent, blocks), table, recurrent, blocks)
    return means[: len(pool.lengths)]


class Blocks(NamedTuple):
    """A padded pool, cut into blocks of texts that are read together."""

    texts: Int[Array, "blocks texts length"]
    lengths: Int[Array, "blocks texts"]
    count: Int[Array, ""]
    """The number of non-empty blocks."""


def _blocks(pool: Pool) -> Blocks:
    size = len(pool.lengths)
    together = min(TOGETHER, size)
    short = -size % together
    texts = jnp.pad(pool.texts, ((0, short), (0, 0)))
    lengths = jnp.pad(pool.lengths, (0, short))
    return Blocks(
        texts.reshape(-1, together, texts.shape[1]),
        lengths.reshape(-1, together),
        -(-(lengths > 0).sum() // together),
    )


def _no_means(recurrent: Array, blocks: Blocks) -> Float[Array, "texts encoder"]:
    return jnp.zeros((blocks.lengths.size, len(recurrent)))


def _read_from(
    first: int, means: Array, table: Array, recurrent: Array, blocks: Blocks
) -> Float[Array, "texts encoder"]:
    """The means of all blocks from ``first`` on."""

    def block(b: Array, means: Array) -> Array:
        said, lengths = blocks.texts[b].T, blocks.lengths[b]
        zeros = jnp.zeros((len(lengths), len(recurrent)))

        def read(i: Array, carry: Any) -> Any:
            h, c, total = carry
            h, c = cell(table[said[i]] + h @ recurrent, c)
            return h, c, total + jnp.where((i < lengths)[:, None], h, 0.0)

        total = jax.lax.fori_loop(0, lengths.max(), read, (zeros, zeros, zeros))[2]
        mean = total / jnp.maximum(lengths, 1)[:, None]
        return jax.lax.dynamic_update_slice(means, mean, (b * len(lengths), 0))

    return jax.lax.fori_loop(first, blocks.count, block, means)


class States(NamedTuple):
    """A block's activations at each word."""

    z: Float[Array, "length texts gates"]
    """Overwritten with dz in the backward pass."""
    h: Float[Array, "length texts encoder"]
    c: Float[Array, "length texts encoder"]


def _room(recurrent: Array, blocks: Blocks) -> States:
    _, texts, length = blocks.texts.shape
    length = -(-length // AT_ONCE) * AT_ONCE
    return States(*(jnp.zeros((length, texts, units * len(recurrent))) for units in (4, 1, 1)))


def _read_and_keep(
    b: int | Array, room: States, table: Array, recurrent: Array, blocks: Blocks
) -> tuple[Float[Array, "texts encoder"], States]:
    """The means of one block, and its states for the backward pass."""
    said, lengths = blocks.texts[b].T, blocks.lengths[b]
    zeros = jnp.zeros_like(room.h[0])

    def read(i: Array, carry: Any) -> Any:
        h, c, total, states = carry
        z = table[said[i]] + h @ recurrent
        h, c = cell(z, c)
        total = total + jnp.where((i < lengths)[:, None], h, 0.0)
        return h, c, total, States(*map(partial(_put, i), states, (z, h, c)))

    read_all = jax.lax.fori_loop(0, lengths.max(), read, (zeros, zeros, zeros, room))
    return read_all[2] / jnp.maximum(lengths, 1)[:, None], read_all[3]


def _encode_forward(words: WordWeights, recurrent: Array, pool: Pool):
    """Keeps the states of the first block only; most pools have just one."""
    table, blocks = words.table(), _blocks(pool)
    mean, states = _read_and_keep(0, _room(recurrent, blocks), table, recurrent, blocks)
    means = jax.lax.dynamic_update_slice(_no_means(recurrent, blocks), mean, (0, 0))
    means = _read_from(1, means, table, recurrent, blocks)
    return means[: len(pool.lengths)], (words, recurrent, pool, states)


def _encode_backward(residuals: Any, d_means: Float[Array, "texts encoder"]):
    """Backward pass through the first block, then the others, which are recomputed."""
    words, recurrent, pool, states = residuals
    table, blocks = words.table(), _blocks(pool)
    d_means = jnp.pad(d_means, ((0, blocks.lengths.size - len(d_means)), (0, 0)))
    d_means = d_means.reshape(*blocks.lengths.shape, -1)
    d_means = d_means / jnp.maximum(blocks.lengths, 1)[..., None]

    def block(b: int | Array, states: States, sums: Any) -> tuple[States, Any]:
        said, lengths, d_mean = blocks.texts[b].T, blocks.lengths[b], d_means[b]
        longest = lengths.max()

        def back(n: Array, carry: Any) -> Any:
            dh, dc, states = carry
            i = longest - 1 - n
            before = jnp.where(i > 0, states.c[jnp.maximum(i - 1, 0)], 0.0)
            dh = dh + jnp.where((i < lengths)[:, None], d_mean, 0.0)
            dz, dc = cell_backward(states.z[i], before, states.c[i], dh, dc)
            return dz @ recurrent.T, dc, states._replace(z=_put(i, states.z, dz))

        def add(n: Array, sums: Any) -> Any:
            return _added(sums, words, said, states, n * AT_ONCE, longest)

        zeros = jnp.zeros_like(d_mean)
        states = jax.lax.fori_loop(0, longest, back, (zeros, zeros, states))[2]
        return states, jax.lax.fori_loop(0, -(-longest // AT_ONCE), add, sums)

    def another(b: Array, carry: Any) -> Any:
        states, sums = carry
        return block(b, _read_and_keep(b, states, table, recurrent, blocks)[1], sums)

    start = jax.tree.map(jnp.zeros_like, (words, recurrent))
    both = jax.lax.fori_loop(1, blocks.count, another, block(0, states, start))
    d_words, d_recurrent = both[1]
    return d_words, d_recurrent, None


def _put(i: Array, rows: Array, row: Array) -> Array:
    return jax.lax.dynamic_update_index_in_dim(rows, row, i, 0)


def _added(
    sums: tuple[WordWeights, Array],
    words: WordWeights,
    said: Int[Array, "length texts"],
    states: States,
    first: Array,
    longest: Array,
) -> tuple[WordWeights, Array]:
    """Adds some words' gradients, via the embedding, which is narrower than its table."""
    (d_embedding, d_inward, d_bias), d_recurrent = sums
    i = first + jnp.arange(AT_ONCE)
    word = said[jnp.minimum(i, len(said) - 1)].reshape(-1)
    h_before = jnp.where((i > 0)[:, None, None], states.h[jnp.maximum(i - 1, 0)], 0.0)
    dz = jnp.where((i < longest)[:, None, None], cut(states.z, first, AT_ONCE), 0.0)
    h_before, dz = flat(h_before), flat(dz)
    if len(d_embedding) > MANY_WORDS:
        d_embedding = d_embedding.at[word].add(dz @ words.inward.T)
    else:
        mine = (jnp.arange(len(d_embedding))[:, None] == word).astype(jnp.float32)
        d_embedding = d_embedding + mine @ (dz @ words.inward.T)
    both = jnp.concatenate([h_before, words.embedding[word]], axis=1).T @ dz
    size = len(d_recurrent)
    d_words = WordWeights(d_embedding, d_inward + both[size:], d_bias + dz.sum(0))
    return d_words, d_recurrent + both[:size]


encode.defvjp(_encode_forward, _encode_backward)
