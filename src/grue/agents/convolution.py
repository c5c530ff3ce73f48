"""The convolutional network of AE-DQN (Zahavy et al. 2018, after Kim 2014).

Filters of one, two and three words slide over the last few texts, which lie side by side; each
keeps the most that it has seen. One layer above them gives a number for each command.
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
"""Words under a filter."""


class ConvolutionSizes(NamedTuple):
    words: int
    commands: int
    history: int
    """Texts that lie side by side."""
    vector: int
    filters: int
    """For each height."""

    @property
    def features(self) -> int:
        return len(HEIGHTS) * self.filters


class TextConvolution(eqx.Module):
    """The features of some texts in a row."""

    embedding: Float[Array, "words vector"]
    filters: Float[Array, "vectors weights"]
    """For each height, and each word under its filters, a column for each filter."""
    bias: Float[Array, " features"]

    def __init__(self, sizes: ConvolutionSizes, key: PRNGKeyArray) -> None:
        for_words, for_filters = jax.random.split(key)
        self.embedding = normal(for_words, (sizes.words, sizes.vector))
        width = sizes.history * sizes.vector
        heights = np.repeat(HEIGHTS, [height * sizes.filters for height in HEIGHTS])
        # A filter over more words has more inputs.
        drawn = uniform(for_filters, (width, len(heights)), width)
        self.filters = drawn / np.sqrt(heights).astype(np.float32)
        self.bias = jnp.zeros(sizes.features)

    def __call__(self, texts: Int[Array, "rows history length"]) -> Float[Array, "rows features"]:
        rows, _, length = texts.shape
        is_word = (texts != PADDING)[..., None]
        vectors = jnp.where(is_word, vectors_of(self.embedding, texts), 0.0)
        vectors = jnp.swapaxes(vectors, 1, 2).reshape(rows, length, -1)
        # What each word gives to a filter at each of its places, then the sums under the filters.
        shares = vectors @ self.filters
        count = len(self.bias) // len(HEIGHTS)
        most, column = [], 0
        for height in HEIGHTS:
            last = length - height + 1
            under = [
                shares[
                    :, place : place + last, column + place * count : column + (place + 1) * count
                ]
                for place in range(height)
            ]
            most.append(sum(under[1:], under[0]).max(1))
            column += height * count
        return jax.nn.relu(jnp.concatenate(most, axis=1) + self.bias)


class ConvolutionNetwork(eqx.Module):
    """A number for each command: Q, or E of the elimination."""

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
