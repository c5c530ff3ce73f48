"""Finds the distinct texts of a batch, longest first: each is read once, without padding."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grue.agents.textkey import text_key
from grue.games.tokens import PADDING

BLOCK = 16
"""Texts per GPU program. A pool's size is a multiple of it."""


class WordWeights(NamedTuple):
    """The encoder's weights for words."""

    embedding: Float[Array, "words embedding"]
    inward: Float[Array, "embedding gates"]
    bias: Float[Array, " gates"]

    def table(self) -> Float[Array, "words gates"]:
        """The product of embedding and input weights: each word's contribution to the gates."""
        return self.embedding @ self.inward + self.bias


class Pool(NamedTuple):
    texts: Int[Array, "texts length"]
    """Distinct, longest first; empty ones at the end."""
    lengths: Int[Array, " texts"]
    offsets: Int[Array, " texts"]
    """Start of each text when all words are concatenated."""
    words: Int[Array, ""]
    """The number of all words."""


def pool(
    texts: Int[Array, "rows length"], used: Bool[Array, " rows"] | None = None
) -> tuple[Pool, Int[Array, " rows"]]:
    """The pool of some texts, and the index of each in it (arbitrary for unused rows)."""
    rows = len(texts)
    used = jnp.ones(rows, bool) if used is None else used
    lengths = (texts != PADDING).sum(1).astype(jnp.int32)
    one, two = text_key(texts).T
    equal = (one[:, None] == one) & (two[:, None] == two) & used
    first = equal.argmax(1).astype(jnp.int32)
    number = jnp.arange(rows, dtype=jnp.int32)
    is_first = used & (first == number)

    # Ranks by counting are faster than a sort here.
    order = jnp.where(is_first, lengths * rows + (rows - 1 - number), -1)
    rank = (order[:, None] < order).sum(1).astype(jnp.int32)
    size = -(-rows // BLOCK) * BLOCK
    source = jnp.full(size, rows, jnp.int32)
    source = source.at[jnp.where(is_first, rank, size)].set(number, mode="drop")
    found = source < rows
    source = jnp.minimum(source, rows - 1)
    lengths = jnp.where(found, lengths[source], 0)
    ends = jnp.cumsum(lengths)
    return Pool(texts[source], lengths, ends - lengths, ends[-1]), rank[first]


@jax.custom_vjp
def rows_of(
    vectors: Float[Array, "texts units"], place: Int[Array, "*rows"]
) -> Float[Array, "*rows units"]:
    """``vectors[place]``. Its gradient is a matrix product, so it is deterministic."""
    return vectors[place]


def _rows_forward(vectors: Array, place: Array):
    return vectors[place], (vectors.shape[0], place)


def _rows_backward(residuals: tuple[int, Array], slope: Array):
    count, place = residuals
    chosen = jax.nn.one_hot(place.reshape(-1), count)
    total = jnp.einsum(
        "rt,ru->tu", chosen, slope.reshape(-1, slope.shape[-1]), precision=jax.lax.Precision.HIGHEST
    )
    return total, None


rows_of.defvjp(_rows_forward, _rows_backward)


def padded(texts: Int[Array, "rows words"], length: int) -> Int[Array, "rows length"]:
    return jnp.pad(texts, ((0, 0), (0, length - texts.shape[1])), constant_values=PADDING)
