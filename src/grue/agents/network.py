"""The network: text encoder Φ_R, context LSTM H(k), action scorer Φ_A(k), classifier Φ_C.

The default sizes are the paper's. The weights of the heads are stacked along the first axis.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from grue.agents.kernels import select
from grue.agents.kernels.cell import cell
from grue.agents.kernels.texts import Pool, WordWeights, pool
from grue.games.tokens import PADDING

ACTIVATIONS = {"elu": jax.nn.elu, "relu": jax.nn.relu}


class NetworkSizes(NamedTuple):
    words: int
    commands: int
    heads: int = 5
    embedding: int = 20
    encoder: int = 64
    context: int = 512
    hidden: int = 128
    activation: str = "elu"
    """Of the hidden units."""


class Memory(NamedTuple):
    """The state of the context LSTM, shared by all heads."""

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
        self.embedding = normal(keys[0], (sizes.words, sizes.embedding))
        self.inward = uniform(keys[1], (sizes.embedding, gates), sizes.encoder)
        self.recurrent = uniform(keys[2], (sizes.encoder, gates), sizes.encoder)
        self.bias = jnp.zeros(gates)

    @property
    def words(self) -> WordWeights:
        return WordWeights(self.embedding, self.inward, self.bias)

    def table(self) -> Float[Array, "words gates"]:
        """The input of each word to the gates."""
        return self.words.table()

    def read(
        self, pool: Pool, table: Float[Array, "words gates"] | None = None
    ) -> Float[Array, "texts encoder"]:
        """One vector for each text of a pool. ``table`` saves computing it again."""
        return select.encode(self.words, self.recurrent, pool, table)

    def __call__(self, texts: Int[Array, "texts length"]) -> Float[Array, "texts encoder"]:
        """Reference implementation of ``read``: one vector for each text, zeros if it is empty."""
        rows = self.table()
        start = jnp.zeros((len(texts), len(self.recurrent)))

        def read(memory: Memory, words: Int[Array, " texts"]):
            following = Memory(*cell(rows[words] + memory.h @ self.recurrent, memory.c))
            return following, following.h

        _, states = jax.lax.scan(read, Memory(start, start), texts.T)
        is_word = (texts.T != PADDING)[..., None]
        count = jnp.maximum(is_word.sum(0), 1)
        return jnp.where(is_word, states, 0.0).sum(0) / count


class ContextLSTM(eqx.Module):
    """H(k): one LSTM for each head, with a shared state."""

    weights: select.Weights
    """For each head, the rows for the inputs and then those for h."""
    bias: Float[Array, "heads gates"]

    def __init__(self, sizes: NetworkSizes, key: PRNGKeyArray) -> None:
        gates = 4 * sizes.context
        shape = (sizes.heads, 2 * sizes.encoder + sizes.context, gates)
        self.weights = select.laid_out(uniform(key, shape, sizes.context))
        self.bias = jnp.zeros((sizes.heads, gates))

    def __call__(
        self, head: Int[Array, ""], memory: Memory, inputs: Float[Array, " inputs"]
    ) -> Memory:
        """Reference implementation of one step."""
        rows = jnp.concatenate([inputs, memory.h])
        return Memory(*cell(rows @ jnp.stack(self.weights)[head] + self.bias[head], memory.c))


class Columns(NamedTuple):
    """The output layer of a scorer, a column for each command."""

    second: Float[Array, "heads hidden commands"]
    second_bias: Float[Array, "heads commands"]


class Scorer(eqx.Module):
    """Two layers for each head, one value for each command. A subclass has the second layer."""

    first: Float[Array, "heads context hidden"]
    first_bias: Float[Array, "heads hidden"]
    activation: str = eqx.field(static=True)
    reads_commands: ClassVar[bool] = False
    """Whether ``columns`` needs the encodings of the commands."""

    def __init__(self, sizes: NetworkSizes, key: PRNGKeyArray) -> None:
        self.activation = sizes.activation
        shape = (sizes.heads, sizes.context, sizes.hidden)
        self.first = uniform(key, shape, sizes.context)
        self.first_bias = jnp.zeros((sizes.heads, sizes.hidden))

    @abstractmethod
    def columns(self, vectors: Float[Array, "commands encoder"] | None) -> Columns:
        """The second layer."""

    def __call__(
        self,
        head: Int[Array, "*batch"],
        h: Float[Array, "*batch context"],
        columns: Columns | None = None,
    ) -> Float[Array, "*batch commands"]:
        columns = self.columns(None) if columns is None else columns
        layers = select.Layers(self.first, self.first_bias, *columns)
        return select.score(layers, head, h, ACTIVATIONS[self.activation])


class ActionScorer(Scorer):
    """Φ_A(k) with commands known by their number."""

    second: Float[Array, "heads hidden commands"]
    second_bias: Float[Array, "heads commands"]

    def __init__(self, sizes: NetworkSizes, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key)
        super().__init__(sizes, keys[0])
        shape = (sizes.heads, sizes.hidden, sizes.commands)
        self.second = uniform(keys[1], shape, sizes.hidden)
        self.second_bias = jnp.zeros((sizes.heads, sizes.commands))

    def columns(self, vectors: Float[Array, "commands encoder"] | None) -> Columns:
        return Columns(self.second, self.second_bias)


class AdmissibilityClassifier(eqx.Module):
    """Φ_C: a scorer with one head. Returns the logits of ξ̂."""

    scorer: Scorer

    def __init__(self, sizes: NetworkSizes, key: PRNGKeyArray, scorer: type[Scorer]) -> None:
        self.scorer = scorer(sizes._replace(heads=1), key)

    def __call__(
        self, h: Float[Array, "*batch context"], columns: Columns | None = None
    ) -> Float[Array, "*batch commands"]:
        return self.scorer(jnp.zeros(h.shape[:-1], jnp.int32), h, columns)


class Commands(NamedTuple):
    """The output layers for some commands whose texts were read."""

    values: Columns
    logits: Columns


class Outputs(NamedTuple):
    values: Float[Array, "*batch commands"]
    """Q(h_t, ·, u_t)"""
    logits: Float[Array, "*batch commands"]
    """Of ξ̂(h_t, ·)."""


class Network(eqx.Module):
    """All learned weights, θ."""

    encoder: TextEncoder
    context: ContextLSTM
    scorer: Scorer
    """Φ_A"""
    classifier: AdmissibilityClassifier

    def __init__(
        self, sizes: NetworkSizes, key: PRNGKeyArray, scorer: type[Scorer] = ActionScorer
    ) -> None:
        keys = jax.random.split(key, 4)
        self.encoder = TextEncoder(sizes, keys[0])
        self.context = ContextLSTM(sizes, keys[1])
        self.scorer = scorer(sizes, keys[2])
        self.classifier = AdmissibilityClassifier(sizes, keys[3], scorer)

    def memory(self) -> Memory:
        """h_0 = 0"""
        zeros = jnp.zeros(self.context.bias.shape[1] // 4)
        return Memory(zeros, zeros)

    def inputs(
        self,
        observation: Int[Array, " length"],
        command: Int[Array, " spoken"],
        table: Float[Array, "words gates"] | None = None,
    ) -> Float[Array, " inputs"]:
        """w_t: the encodings of the observation and the previous command."""
        return self.encoder.read(select.pair(observation, command), table)[:2].reshape(-1)

    def step(
        self,
        head: Int[Array, ""],
        memory: Memory,
        inputs: Float[Array, " inputs"],
        working: select.Weights | None = None,
        commands: Commands | None = None,
    ) -> tuple[Memory, Outputs]:
        """h_t, Q(h_t, ·) of the head, and the logits of ξ̂(h_t, ·)."""
        working = self.context.weights if working is None else working
        memory = Memory(*select.step(working, self.context.bias, head, inputs, *memory))
        return memory, self.outputs(head, memory.h, commands)

    def outputs(
        self,
        head: Int[Array, "*batch"],
        h: Float[Array, "*batch context"],
        commands: Commands | None = None,
    ) -> Outputs:
        values, logits = (None, None) if commands is None else commands
        return Outputs(self.scorer(head, h, values), self.classifier(h, logits))

    def of_commands(self, vectors: Float[Array, "commands encoder"]) -> Commands:
        """The output layers for commands, from their encodings."""
        return Commands(self.scorer.columns(vectors), self.classifier.scorer.columns(vectors))

    def read_commands(
        self, texts: Int[Array, "commands length"], table: Float[Array, "words gates"] | None = None
    ) -> Commands | None:
        """The output layers for commands, from their words; None if the words do not matter."""
        if not self.scorer.reads_commands:
            return None
        found, place = pool(texts)
        return self.of_commands(self.encoder.read(found, table)[place])

    def states(
        self,
        heads: Int[Array, "steps batch"],
        inputs: Float[Array, "steps batch inputs"],
        working: select.Weights | None = None,
    ) -> Float[Array, "steps batch context"]:
        """h_t along sequences that start at h_0 = 0."""
        working = self.context.weights if working is None else working
        return select.unroll(self.context.weights, working, self.context.bias, heads, inputs)

    def sequence(
        self,
        heads: Int[Array, " length"],
        inputs: Float[Array, "length inputs"],
        commands: Commands | None = None,
    ) -> Outputs:
        """Reference implementation: the outputs along one sequence."""

        def one(memory: Memory, at: tuple[Array, Array]):
            memory = self.context(at[0], memory, at[1])
            return memory, self.outputs(at[0], memory.h, commands)

        return jax.lax.scan(one, self.memory(), (heads, inputs))[1]


# Drawn as one row: the same numbers, but faster to compile.


def uniform(key: PRNGKeyArray, shape: tuple[int, ...], fan: int) -> Array:
    """Initial weights for ``fan`` inputs."""
    bound = 1 / math.sqrt(fan)
    row = jax.random.uniform(key, (math.prod(shape),), minval=-bound, maxval=bound)
    return row.reshape(shape)


def normal(key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    """Initial word embeddings."""
    return jax.random.normal(key, (math.prod(shape),)).reshape(shape)
