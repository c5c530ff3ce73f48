"""The distinct texts of a batch, longest first, so that each is read once and no padding is."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grue.agents.textkey import text_key
from grue.games.tokens import PADDING

BLOCK = 16
"""Texts that are read together; a pool has a multiple of it."""


class Words(NamedTuple):
    """What the encoder knows of words."""

    embedding: Float[Array, "words embedding"]
    inward: Float[Array, "embedding gates"]
    bias: Float[Array, " gates"]

    def table(self) -> Float[Array, "words gates"]:
        """Embedding and input weights folded: a word's share of the gates is one row."""
        return self.embedding @ self.inward + self.bias


class Pool(NamedTuple):
    texts: Int[Array, "texts length"]
    """Distinct, longest first; empty ones at the end."""
    lengths: Int[Array, " texts"]
    offsets: Int[Array, " texts"]
    """Where a text's words begin if all words are laid end to end."""
    words: Int[Array, ""]
    """All the words."""


def pool(
    texts: Int[Array, "rows length"], used: Bool[Array, " rows"] | None = None
) -> tuple[Pool, Int[Array, " rows"]]:
    """The pool of some texts, and where in it each of them is. Unused rows may be anywhere."""
    rows = len(texts)
    used = jnp.ones(rows, bool) if used is None else used
    lengths = (texts != PADDING).sum(1).astype(jnp.int32)
    one, two = text_key(texts).T
    equal = (one[:, None] == one) & (two[:, None] == two) & used
    first = equal.argmax(1).astype(jnp.int32)
    number = jnp.arange(rows, dtype=jnp.int32)
    is_first = used & (first == number)

    # Ranks by counting: small, and no sort to wait for.
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
    """The vector of each place. Its gradient is a product, so that sums have one order."""
    return vectors[place]


def _rows_forward(vectors: Array, place: Array):
    return vectors[place], (vectors.shape[0], place)


def _rows_backward(residuals: tuple[int, Array], slope: Array):
    count, place = residuals
    chosen = jax.nn.one_hot(place.reshape(-1), count)
    total = jnp.einsum(
        "rt,ru->tu",
        chosen,
        slope.reshape(-1, slope.shape[-1]),
        precision=jax.lax.Precision.HIGHEST,
    )
    return total, None


rows_of.defvjp(_rows_forward, _rows_backward)


def padded(texts: Int[Array, "rows words"], length: int) -> Int[Array, "rows length"]:
    return jnp.pad(texts, ((0, 0), (0, length - texts.shape[1])), constant_values=PADDING)
