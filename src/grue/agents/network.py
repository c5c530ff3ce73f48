"""The network: Φ_R reads texts, H(k) remembers, Φ_A(k) scores commands, Φ_C judges admissibility.

Sizes are the paper's by default. All K heads' weights lie in one array with the head first, so
that runs with different numbers of heads have the same shape.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from grue.games.tokens import PADDING


class NetworkSizes(NamedTuple):
    words: int
    commands: int
    heads: int = 5
    embedding: int = 20
    encoder: int = 64
    context: int = 512
    hidden: int = 128


class Memory(NamedTuple):
    """The state that the context LSTM carries from step to step, whichever head is in charge."""

    h: Float[Array, "*batch context"]
    c: Float[Array, "*batch context"]


class TextEncoder(eqx.Module):
    """Φ_R: embedding, LSTM, mean over the words."""

    embedding: Float[Array, "words embedding"]
    inward: Float[Array, "embedding gates"]
    recurrent: Float[Array, "encoder gates"]
    bias: Float[Array, " gates"]

    def __init__(self, sizes: NetworkSizes, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 3)
        gates = 4 * sizes.encoder
        self.embedding = jax.random.normal(keys[0], (sizes.words, sizes.embedding))
        self.inward = _uniform(keys[1], (sizes.embedding, gates), sizes.encoder)
        self.recurrent = _uniform(keys[2], (sizes.encoder, gates), sizes.encoder)
        self.bias = jnp.zeros(gates)

    def __call__(self, texts: Int[Array, "texts length"]) -> Float[Array, "texts encoder"]:
        """One vector for each text; a text without words gives zeros."""
        # Embedding and input weights folded: a word's share of the gates is one row.
        rows = self.embedding @ self.inward + self.bias
        start = jnp.zeros((len(texts), len(self.recurrent)))

        def read(memory: Memory, words: Int[Array, " texts"]):
            following = _lstm(rows[words] + memory.h @ self.recurrent, memory.c)
            return following, following.h

        _, states = jax.lax.scan(read, Memory(start, start), texts.T)
        is_word = (texts.T != PADDING)[..., None]
        count = jnp.maximum(is_word.sum(0), 1)
        return jnp.where(is_word, states, 0.0).sum(0) / count


class ContextLSTM(eqx.Module):
    """H(k): one LSTM for each head, all on the same memory."""

    inward: Float[Array, "heads inputs gates"]
    recurrent: Float[Array, "heads context gates"]
    bias: Float[Array, "heads gates"]

    def __init__(self, sizes: NetworkSizes, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key)
        gates = 4 * sizes.context
        shape = (sizes.heads, 2 * sizes.encoder, gates)
        self.inward = _uniform(keys[0], shape, sizes.context)
        self.recurrent = _uniform(keys[1], (sizes.heads, sizes.context, gates), sizes.context)
        self.bias = jnp.zeros((sizes.heads, gates))

    def __call__(
        self,
        head: Int[Array, ""],
        memory: Memory,
        inputs: Float[Array, " inputs"],
    ) -> Memory:
        gates = inputs @ self.inward[head] + memory.h @ self.recurrent[head] + self.bias[head]
        return _lstm(gates, memory.c)


class ActionScorer(eqx.Module):
    """Φ_A(k): two layers for each head, one value for each command."""

    first: Float[Array, "heads context hidden"]
    first_bias: Float[Array, "heads hidden"]
    second: Float[Array, "heads hidden commands"]
    second_bias: Float[Array, "heads commands"]

    def __init__(self, sizes: NetworkSizes, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key)
        shape = (sizes.heads, sizes.context, sizes.hidden)
        self.first = _uniform(keys[0], shape, sizes.context)
        self.first_bias = jnp.zeros((sizes.heads, sizes.hidden))
        shape = (sizes.heads, sizes.hidden, sizes.commands)
        self.second = _uniform(keys[1], shape, sizes.hidden)
        self.second_bias = jnp.zeros((sizes.heads, sizes.commands))

    def __call__(
        self, head: Int[Array, ""], h: Float[Array, " context"]
    ) -> Float[Array, " commands"]:
        hidden = jax.nn.relu(h @ self.first[head] + self.first_bias[head])
        return hidden @ self.second[head] + self.second_bias[head]


class AdmissibilityClassifier(eqx.Module):
    """Φ_C: the shape of one action scorer; gives logits, ξ̂ is their sigmoid."""

    scorer: ActionScorer

    def __init__(self, sizes: NetworkSizes, key: PRNGKeyArray) -> None:
        self.scorer = ActionScorer(sizes._replace(heads=1), key)

    def __call__(self, h: Float[Array, " context"]) -> Float[Array, " commands"]:
        return self.scorer(jnp.int32(0), h)


class Outputs(NamedTuple):
    values: Float[Array, "*batch commands"]
    """Q(h_t, ·, u_t)"""
    logits: Float[Array, "*batch commands"]
    """Of ξ̂(h_t, ·)."""


class Network(eqx.Module):
    """Everything that is learned, end to end."""

    encoder: TextEncoder
    context: ContextLSTM
    scorer: ActionScorer
    classifier: AdmissibilityClassifier

    def __init__(self, sizes: NetworkSizes, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 4)
        self.encoder = TextEncoder(sizes, keys[0])
        self.context = ContextLSTM(sizes, keys[1])
        self.scorer = ActionScorer(sizes, keys[2])
        self.classifier = AdmissibilityClassifier(sizes, keys[3])

    def memory(self) -> Memory:
        """h_0 = 0"""
        zeros = jnp.zeros(self.context.recurrent.shape[1])
        return Memory(zeros, zeros)

    def inputs(
        self, observation: Int[Array, " length"], command: Int[Array, " words"]
    ) -> Float[Array, " inputs"]:
        """w_t: the feedback and the command before it, each read by Φ_R."""
        return jnp.concatenate([self.encoder(observation[None])[0], self.encoder(command[None])[0]])

    def step(
        self, head: Int[Array, ""], memory: Memory, inputs: Float[Array, " inputs"]
    ) -> tuple[Memory, Outputs]:
        """h_t, Q(h_t, ·) of the head in charge, and ξ̂(h_t, ·)."""
        memory = self.context(head, memory, inputs)
        return memory, Outputs(self.scorer(head, memory.h), self.classifier(memory.h))

    def sequence(
        self, heads: Int[Array, " length"], inputs: Float[Array, "length inputs"]
    ) -> Outputs:
        """The outputs along a sequence that starts with an empty memory."""

        def one(memory: Memory, at: tuple[Array, Array]):
            return self.step(at[0], memory, at[1])

        return jax.lax.scan(one, self.memory(), (heads, inputs))[1]


def _lstm(gates: Float[Array, "*batch gates"], c: Float[Array, "*batch context"]) -> Memory:
    keep, take, show, new = jnp.split(gates, 4, axis=-1)
    # The forget gate starts out open.
    c = jax.nn.sigmoid(keep + 1.0) * c + jax.nn.sigmoid(take) * jnp.tanh(new)
    return Memory(jax.nn.sigmoid(show) * jnp.tanh(c), c)


def _uniform(key: PRNGKeyArray, shape: tuple[int, ...], fan: int) -> Array:
    bound = 1 / math.sqrt(fan)
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)
