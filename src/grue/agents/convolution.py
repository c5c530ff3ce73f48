"""The convolutional network of AE-DQN (Zahavy et al. 2018, after Kim 2014).

Filters of height one, two and three words over the last few texts, which are stacked as channels;
a maximum over the positions; then one linear layer.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from grue.agents.kernels.select import vectors_of
from grue.agents.network import normal, uniform
from grue.games.tokens import PADDING

HEIGHTS = (1, 2, 3)
"""Words that a filter covers."""


class ConvolutionSizes(NamedTuple):
    words: int
    commands: int
    history: int
    """Number of texts."""
    vector: int
    filters: int
    """For each height."""

    @property
    def features(self) -> int:
        return len(HEIGHTS) * self.filters


class TextConvolution(eqx.Module):
    """The features of the last few texts."""

    embedding: Float[Array, "words vector"]
    filters: Float[Array, "vectors weights"]
    """A column for each height, word under the filter, and filter."""
    bias: Float[Array, " features"]

    def __init__(self, sizes: ConvolutionSizes, key: PRNGKeyArray) -> None:
        for_words, for_filters = jax.random.split(key)
        self.embedding = normal(for_words, (sizes.words, sizes.vector))
        width = sizes.history * sizes.vector
        heights = np.repeat(HEIGHTS, [height * sizes.filters for height in HEIGHTS])
        # Scaled by the number of inputs, which grows with the height.
        drawn = uniform(for_filters, (width, len(heights)), width)
        self.filters = drawn / np.sqrt(heights).astype(np.float32)
        self.bias = jnp.zeros(sizes.features)

    def __call__(self, texts: Int[Array, "rows history length"]) -> Float[Array, "rows features"]:
        rows, _, length = texts.shape
        is_word = (texts != PADDING)[..., None]
        vectors = jnp.where(is_word, vectors_of(self.embedding, texts), 0.0)
        vectors = jnp.swapaxes(vectors, 1, 2).reshape(rows, length, -1)
        # The product of each word with each row of each filter, then the sums over the rows.
        shares = vectors @ self.filters
        count = len(self.bias) // len(HEIGHTS)
        most, column = [], 0
        for height in HEIGHTS:
            under = []
            for place in range(height):
                words = slice(place, place + length - height + 1)
                under.append(shares[:, words, column : column + count])
                column += count
            most.append(sum(under[1:], under[0]).max(1))
        return jax.nn.relu(jnp.concatenate(most, axis=1) + self.bias)


class ConvolutionNetwork(eqx.Module):
    """A number for each command: Q, or E of action elimination."""

    encoder: TextConvolution
    output: Float[Array, "features commands"]
    output_bias: Float[Array, " commands"]

    def __init__(self, sizes: ConvolutionSizes, key: PRNGKeyArray) -> None:
        below, above = jax.random.split(key)
        self.encoder = TextConvolution(sizes, below)
        self.output = uniform(above, (sizes.features, sizes.commands), sizes.features)
        self.output_bias = jnp.zeros(sizes.commands)

    def __call__(self, texts: Int[Array, "rows history length"]) -> Float[Array, "rows commands"]:
        return self.above(self.encoder(texts))

    def above(self, features: Float[Array, "rows features"]) -> Float[Array, "rows commands"]:
        return features @ self.output + self.output_bias
