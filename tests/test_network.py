"""The network against an independent forward pass in plain NumPy, head by head."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_networks import SIZES, make_network

from grue.agents.drrn import TextScorer
from grue.agents.network import (
    ActionScorer,
    Commands,
    Memory,
    Network,
    NetworkSizes,
    normal,
    uniform,
)

LENGTH = 5
CHANCE = np.random.default_rng(0)
TEXTS = CHANCE.integers(1, SIZES.words, (LENGTH, 6))
TEXTS[1, 4:] = 0  # Padding.
TEXTS[3] = 0  # A text without words.
COMMANDS = CHANCE.integers(1, SIZES.words, (LENGTH, 3))
HEADS = np.array([0, 0, 2, 1, 2])
KNOWN = np.array([[5, 1, 0], [2, 0, 0], [3, 3, 9], [10, 2, 0]])
"""The words of all commands, for scorers that read them."""


@pytest.fixture(scope="module", params=[ActionScorer, TextScorer])
def network(request: pytest.FixtureRequest) -> Network:
    return make_network(SIZES, jax.random.key(1), request.param)


take_step = eqx.filter_jit(Network.step)


@eqx.filter_jit
def known(network: Network) -> Commands | None:
    return network.read_commands(jnp.asarray(KNOWN))


@eqx.filter_jit
def inputs(network: Network) -> jax.Array:
    return jax.vmap(network.inputs)(jnp.asarray(TEXTS), jnp.asarray(COMMANDS))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def numpy_lstm(x, h, c, inward, recurrent, bias):
    gates = x @ inward + h @ recurrent + bias
    size = len(h)
    keep, take, show, new = (gates[i * size : (i + 1) * size] for i in range(4))
    c = sigmoid(keep + 1) * c + sigmoid(take) * np.tanh(new)
    return sigmoid(show) * np.tanh(c), c


def numpy_encode(encoder, words):
    h = c = np.zeros(SIZES.encoder)
    states = []
    for word in words[words != 0]:
        x = np.asarray(encoder.embedding)[word]
        h, c = numpy_lstm(
            x, h, c, *map(np.asarray, (encoder.inward, encoder.recurrent, encoder.bias))
        )
        states.append(h)
    return np.mean(states, 0) if states else np.zeros(SIZES.encoder)


def numpy_scores(scorer, head, h, encoder):
    z = h @ np.asarray(scorer.first)[head] + np.asarray(scorer.first_bias)[head]
    hidden = np.where(z > 0, z, np.exp(z) - 1)
    if not scorer.reads_commands:
        return hidden @ np.asarray(scorer.second)[head] + np.asarray(scorer.second_bias)[head]
    vectors = [numpy_encode(encoder, words) for words in KNOWN]
    vectors = [(each - each.mean()) / np.sqrt(each.var() + 1e-6) for each in vectors]
    meaning, worth = np.asarray(scorer.meaning)[head], np.asarray(scorer.worth)[head]
    bias = float(scorer.bias[head])
    return np.array([hidden @ (meaning @ each) + worth @ each + bias for each in vectors])


def numpy_sequence(network, heads):
    h = c = np.zeros(SIZES.context)
    values, logits = [], []
    weights = network.context
    for t, head in enumerate(heads):
        x = np.concatenate(
            [numpy_encode(network.encoder, TEXTS[t]), numpy_encode(network.encoder, COMMANDS[t])]
        )
        own = np.asarray(weights.weights)[head]
        h, c = numpy_lstm(x, h, c, own[: len(x)], own[len(x) :], np.asarray(weights.bias)[head])
        values.append(numpy_scores(network.scorer, head, h, network.encoder))
        logits.append(numpy_scores(network.classifier.scorer, 0, h, network.encoder))
    return np.array(values), np.array(logits)


@pytest.mark.parametrize("jit", [False, True])
def test_the_whole_network_agrees_with_numpy(network: Network, jit: bool) -> None:
    run = eqx.filter_jit(Network.sequence) if jit else Network.sequence
    found = run(network, jnp.asarray(HEADS), inputs(network), known(network))
    values, logits = numpy_sequence(network, HEADS)
    np.testing.assert_allclose(found.values, values, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(found.logits, logits, rtol=2e-5, atol=1e-6)


def test_padding_changes_nothing(network: Network) -> None:
    short = network.encoder(jnp.asarray(TEXTS[:1]))
    padded = network.encoder(jnp.pad(jnp.asarray(TEXTS[:1]), ((0, 0), (0, 9))))
    np.testing.assert_allclose(short, padded, rtol=1e-6)


def test_a_sequence_equals_its_steps(network: Network) -> None:
    memory, found = network.memory(), []
    for head, at in zip(HEADS, inputs(network), strict=True):
        memory, outputs = take_step(network, jnp.int32(head), memory, at, None, known(network))
        found.append(outputs.values)
    whole = network.sequence(jnp.asarray(HEADS), inputs(network), known(network))
    np.testing.assert_allclose(jnp.stack(found), whole.values, rtol=1e-5, atol=1e-7)


def test_the_memory_is_carried_from_head_to_head(network: Network) -> None:
    one, two = inputs(network)[:2]
    more = None, known(network)
    first, _ = take_step(network, jnp.int32(0), network.memory(), one, *more)
    carried, _ = take_step(network, jnp.int32(1), first, two, *more)
    afresh, _ = take_step(network, jnp.int32(1), network.memory(), two, *more)
    assert isinstance(carried, Memory)
    assert not np.allclose(carried.h, afresh.h)


def test_gradients_touch_only_the_heads_used(network: Network) -> None:
    used = jnp.array([0, 2, 2, 0, 0])

    def loss(weights: Network) -> jax.Array:
        return weights.sequence(used, inputs(weights), known(weights)).values.sum()

    slope = eqx.filter_jit(eqx.filter_grad(loss))(network)
    parts = [jnp.stack(slope.context.weights), slope.context.bias]
    for weights in (*parts, *jax.tree.leaves(slope.scorer)):
        touched = [bool(jnp.abs(weights[head]).sum() > 0) for head in range(SIZES.heads)]
        assert touched == [True, False, True]
    assert jnp.abs(slope.encoder.embedding).sum() > 0
    assert jnp.abs(slope.classifier.scorer.first).sum() == 0


def test_sizes_are_the_papers() -> None:
    sizes = NetworkSizes(words=200, commands=15)
    network = eqx.filter_eval_shape(Network, sizes, jax.random.key(0))
    assert network.encoder.embedding.shape == (200, 20)
    assert network.encoder.recurrent.shape == (64, 256)
    assert [head.shape for head in network.context.weights] == [(128 + 512, 2048)] * 5
    assert network.scorer.first.shape == (5, 512, 128)
    assert network.scorer.second.shape == (5, 128, 15)
    assert network.classifier.scorer.second.shape == (1, 128, 15)


def test_seeds_give_different_weights() -> None:
    zero, one = (make_network(SIZES, jax.random.key(seed), ActionScorer) for seed in (0, 1))
    again = make_network(SIZES, jax.random.key(0), ActionScorer)
    assert not np.array_equal(zero.context.weights[0], one.context.weights[0])
    assert np.array_equal(zero.context.weights[0], again.context.weights[0])


def test_weights_are_those_that_jax_draws() -> None:
    """In one row or not: runs of a seed stay what they were."""
    key, shape = jax.random.key(3), (2, 3, 5)
    drawn = jax.random.uniform(key, shape, minval=-0.5, maxval=0.5)
    np.testing.assert_array_equal(uniform(key, shape, 4), drawn)
    np.testing.assert_array_equal(normal(key, shape), jax.random.normal(key, shape))
