"""The fast operations against the plain ones, for the CPU and for the GPU (interpreted)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import SIZES as SMALL
from small_networks import make_network

from grue.agents import optimiser
from grue.agents.kernels import adam, cpu, gpu
from grue.agents.kernels.cell import PLAIN
from grue.agents.kernels.cpu import context as heads_on_cpu
from grue.agents.kernels.cpu import encoder as reading
from grue.agents.kernels.gpu import by_head
from grue.agents.kernels.gpu.cell import SQUASHING
from grue.agents.kernels.texts import BLOCK, Pool, WordWeights, pool
from grue.agents.network import ACTIVATIONS, ContextLSTM, Memory, Network, NetworkSizes, TextEncoder

SIZES = NetworkSizes(words=30, commands=4, heads=4, embedding=5, encoder=32, context=64)
CHANCE = np.random.default_rng(4)
STEPS, BATCH = 4, 16
make_pool = jax.jit(pool)


def some_texts(rows: int, distinct: int = 9, longest: int = 11) -> np.ndarray:
    texts = CHANCE.integers(1, SIZES.words, (distinct, longest))
    lengths = CHANCE.integers(0, longest + 1, distinct)
    texts[np.arange(longest) >= lengths[:, None]] = 0
    return texts[CHANCE.integers(0, distinct, rows)]


def normal(*shape: int) -> jax.Array:
    """NumPy's: each shape of JAX's own takes a program."""
    return jnp.asarray(CHANCE.normal(size=shape), jnp.float32)


def close(found: object, wanted: object) -> None:
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-4, atol=2e-5)


# The distinct texts


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_a_pool_holds_each_text_once_longest_first(seed: int, kinds: int) -> None:
    chance = np.random.default_rng(seed)
    texts = np.sort(chance.integers(0, 3, (20, 4)), axis=1)[:, ::-1]
    texts = texts[chance.integers(0, kinds, 20)]
    used = chance.random(20) < 0.7
    found, place = make_pool(jnp.asarray(texts), jnp.asarray(used))
    wanted = {tuple(text) for text in texts[used].tolist() if any(text)}
    kept = np.asarray(found.texts)[np.asarray(found.lengths) > 0]
    held = [tuple(text) for text in kept.tolist()]
    assert len(held) == len(set(held))
    assert set(held) == wanted
    lengths = np.asarray(found.lengths)
    assert (np.diff(lengths) <= 0).all()
    assert len(lengths) % BLOCK == 0
    assert int(found.words) == lengths.sum()
    assert np.asarray(found.offsets).tolist() == (np.cumsum(lengths) - lengths).tolist()
    for row in np.flatnonzero(used & texts.any(1)):
        assert np.asarray(found.texts)[place[row]].tolist() == texts[row].tolist()


# The encoder

Encode = Callable[[WordWeights, jax.Array, Pool], jax.Array]


def encode_as_on_the_gpu(words: WordWeights, recurrent: jax.Array, found: Pool) -> jax.Array:
    return gpu.encode(words.table(), recurrent, found, interpret=True)


ENCODERS: dict[str, Encode] = {"cpu": cpu.encode, "gpu": encode_as_on_the_gpu}


@pytest.fixture(scope="module")
def plain_encoding():
    encoder = TextEncoder(SIZES, jax.random.key(0))
    texts = jnp.asarray(some_texts(40))
    weight = normal(40, SIZES.encoder)
    total = eqx.filter_value_and_grad(lambda encoder: (encoder(texts) * weight).sum())
    return encoder, texts, weight, eqx.filter_jit(total)(encoder)


@pytest.mark.parametrize("machine", ENCODERS)
def test_texts_are_read_as_the_plain_scan_reads_them(machine: str, plain_encoding) -> None:
    encoder, texts, weight, wanted = plain_encoding
    found, place = make_pool(texts)

    def total(encoder: TextEncoder) -> jax.Array:
        vectors = ENCODERS[machine](encoder.words, encoder.recurrent, found)
        return (vectors[place] * weight).sum()

    close(eqx.filter_jit(eqx.filter_value_and_grad(total))(encoder), wanted)


def test_many_words_are_added_up_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row by row, not by a product: the same sums."""
    texts = jnp.asarray(some_texts(BLOCK))
    found, _ = make_pool(texts)
    encoder = TextEncoder(SIZES, jax.random.key(0))
    slopes = []
    for most in (reading.MANY_WORDS, 8):
        monkeypatch.setattr(reading, "MANY_WORDS", most)

        def total(words: WordWeights) -> jax.Array:
            return jnp.square(cpu.encode(words, encoder.recurrent, found)).sum()

        slopes.append(jax.jit(jax.grad(total))(encoder.words))
    assert SIZES.words > 8
    close(*slopes)


def test_more_texts_than_are_read_together() -> None:
    """Of all lengths: most blocks end before the longest text does."""
    encoder = TextEncoder(SIZES, jax.random.key(0))
    rows, longest = 2 * reading.TOGETHER + 9, 2 * reading.AT_ONCE + 3
    texts = CHANCE.integers(1, SIZES.words, (rows, longest))
    texts[np.arange(longest) >= CHANCE.integers(0, longest + 1, rows)[:, None]] = 0
    texts = jnp.asarray(texts)
    found, place = make_pool(texts)
    weight = normal(rows, SIZES.encoder)

    def fast(encoder: TextEncoder) -> jax.Array:
        return (cpu.encode(encoder.words, encoder.recurrent, found)[place] * weight).sum()

    def plain(encoder: TextEncoder) -> jax.Array:
        return (encoder(texts) * weight).sum()

    close(*(eqx.filter_jit(eqx.filter_value_and_grad(each))(encoder) for each in (fast, plain)))
    vectors = cpu.encode_from(encoder.table(), encoder.recurrent, found)
    close(vectors[place], eqx.filter_jit(encoder)(texts))


# The cell


def test_the_gpus_curves_are_the_plain_ones() -> None:
    x = jnp.concatenate([jnp.linspace(-12, 12, 4001), jnp.array([-1e4, -100, -0.0, 100, 1e4])])
    for found, wanted in zip(SQUASHING, PLAIN, strict=True):
        np.testing.assert_allclose(found(x), wanted(x), rtol=0, atol=1e-6)


# The context LSTM


def plain_unroll(context: ContextLSTM, heads: jax.Array, inputs: jax.Array) -> jax.Array:
    def one(memory: Memory, at: tuple[jax.Array, jax.Array]):
        memory = jax.vmap(context)(at[0], memory, at[1])
        return memory, memory.h

    zeros = jnp.zeros((heads.shape[1], SIZES.context))
    return jax.lax.scan(one, Memory(zeros, zeros), (heads, inputs))[1]


def gpu_unroll(context: ContextLSTM, heads: jax.Array, inputs: jax.Array) -> jax.Array:
    weights = jnp.stack(context.weights)
    return gpu.unroll(weights, context.bias, weights, heads, inputs, True)


def cpu_unroll(context: ContextLSTM, heads: jax.Array, inputs: jax.Array) -> jax.Array:
    return cpu.unroll(context.weights, context.bias, heads, inputs)


UNROLLS = {"cpu": cpu_unroll, "gpu": gpu_unroll}


@cache
def weighed(unroll: Callable) -> Callable:
    """The weighed sum of all states, and its gradient."""

    def total(both: tuple[ContextLSTM, jax.Array], heads: jax.Array, weight: jax.Array):
        return (unroll(both[0], heads, both[1]) * weight).sum()

    return eqx.filter_jit(eqx.filter_value_and_grad(total))


@pytest.mark.parametrize("machine", UNROLLS)
@pytest.mark.parametrize("count", [1, 4])
def test_heads_along_sequences(machine: str, count: int) -> None:
    """The fourth head is never in charge: it has no gradient, on a GPU not even zeros."""
    context = ContextLSTM(SIZES._replace(heads=count), jax.random.key(2))
    context = eqx.tree_at(lambda c: c.bias, context, context.bias + 0.1)
    heads = jnp.asarray(CHANCE.integers(0, min(count, 3), (STEPS, BATCH)), jnp.int32)
    inputs = normal(STEPS, BATCH, 2 * SIZES.encoder)
    weight = normal(STEPS, BATCH, SIZES.context)

    wanted = weighed(plain_unroll)((context, inputs), heads, weight)
    total, (slope, d_inputs) = weighed(UNROLLS[machine])((context, inputs), heads, weight)
    if count == 4:
        assert not np.asarray(slope.bias[3]).any()
        fourth = np.asarray(slope.weights[3])
        assert np.isnan(fourth).all() if machine == "gpu" else not fourth.any()
        nothing = (*slope.weights[:3], jnp.zeros_like(slope.weights[3]))
        slope = eqx.tree_at(lambda c: c.weights, slope, nothing)
    close((total, (slope, d_inputs)), wanted)


@pytest.mark.parametrize("steps", [2, 17])
def test_all_steps_at_once_on_the_gpu(steps: int) -> None:
    """In fewer rows than a program holds, and in more than two of them do."""
    inputs, outputs = 32, 256
    weights, bias = normal(4, 2 * inputs, outputs), normal(4, outputs)
    heads = jnp.asarray(CHANCE.integers(0, 3, (steps, BATCH)), jnp.int32)
    x, dz = normal(steps, BATCH, inputs), normal(steps, BATCH, outputs)
    own = weights[heads][:, :, :inputs]
    close(
        by_head.outward(x, weights, bias, heads, True),
        jnp.einsum("tbi,tbio->tbo", x, own, precision="highest") + bias[heads],
    )
    close(
        by_head.inward(dz, weights, heads, inputs, True),
        jnp.einsum("tbo,tbio->tbi", dz, own, precision="highest"),
    )


@pytest.mark.parametrize("batch", [1, 3, 32])
def test_rows_go_to_their_heads_whatever_their_number(batch: int) -> None:
    weights = normal(5, 6, 7)
    rows = normal(batch, 6)
    for heads in (np.zeros(batch), np.full(batch, 4), np.arange(batch) % 5, np.arange(batch) // 9):
        heads = jnp.asarray(heads, jnp.int32)
        close(multiply(rows, heads, tuple(weights)), jnp.einsum("br,brc->bc", rows, weights[heads]))


def test_sequences_that_change_to_another_head_lie_between_those_of_both() -> None:
    heads = jnp.asarray([[1, 0, 0, 1, 0], [1, 0, 1, 1, 0], [1, 1, 1, 1, 0]])
    order = cpu.side_by_side(heads)
    assert order.tolist() == [4, 1, 2, 0, 3]
    assert heads_on_cpu.reach(heads[:, order], 2).spans.tolist() == [[3, 2], [2, 3], [1, 4]]
    assert heads_on_cpu.reach(heads, 2).spans.tolist() == [[4, 4], [4, 4], [1, 4]]


@jax.jit
def multiply(rows: jax.Array, heads: jax.Array, weights: tuple[jax.Array, ...]) -> jax.Array:
    return heads_on_cpu.by_head(rows, heads_on_cpu.reach(heads, len(weights)), weights)


BY_HAND = {
    "relu": lambda z: np.maximum(z, 0.0),
    "elu": lambda z: np.where(z > 0, z, np.exp(z) - 1.0),
}


@cache
def scoring(machine: Callable, activation: Callable) -> tuple[Callable, Callable]:
    """The scores, and the gradient of their sum by the layers."""

    def score(layers: tuple[jax.Array, ...], heads: jax.Array, h: jax.Array) -> jax.Array:
        return machine(layers, heads, h, activation)

    return jax.jit(score), jax.jit(jax.grad(lambda *given: score(*given).sum()))


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("machine", [cpu.score, gpu.score])
@pytest.mark.parametrize("heads", [[0] * 6, [3, 1, 1, 0, 3, 3]])
def test_a_state_is_scored_by_its_head(
    machine: Callable[..., jax.Array], heads: list[int], name: str
) -> None:
    """And only the layers of heads in use have a gradient."""
    activation = ACTIVATIONS[name]
    shapes = ((4, 5, 7), (4, 7), (4, 7, 3), (4, 3))
    layers = tuple(normal(*shape) for shape in shapes)
    h = normal(6, 5)
    expected = []
    for row, k in zip(np.asarray(h), heads, strict=True):
        first, first_bias, second, second_bias = (np.asarray(layer)[k] for layer in layers)
        expected.append(BY_HAND[name](row @ first + first_bias) @ second + second_bias)
    score, slope_of = scoring(machine, activation)
    close(score(layers, jnp.asarray(heads), h), jnp.asarray(expected))
    close(score(layers, jnp.int32(heads[0]), h[0]), jnp.asarray(expected[0]))

    slope = slope_of(layers, jnp.asarray(heads), h)
    touched = [bool(jnp.abs(slope[3][k]).sum() > 0) for k in range(4)]
    assert touched == [k in heads for k in range(4)]
    assert not any(np.asarray(slope[0])[k].any() for k in range(4) if k not in heads)


def test_one_step_on_the_gpu() -> None:
    context = ContextLSTM(SIZES, jax.random.key(2))
    inputs = normal(2 * SIZES.encoder)
    h, c = normal(SIZES.context), normal(SIZES.context)
    weights = jnp.stack(context.weights)
    found = gpu.step_one(weights, context.bias, jnp.int32(2), inputs, h, c, True)
    close(found, context(jnp.int32(2), Memory(h, c), inputs))


# Adam


update = eqx.filter_jit(optimiser.update)


def some_slope(network: Network, number: int, size: float) -> Network:
    chance = np.random.default_rng(number)
    return jax.tree.map(
        lambda leaf: jnp.asarray(size * chance.normal(size=leaf.shape), jnp.float32), network
    )


def of_head(network: Network, k: int) -> list[Any]:
    scorer = jax.tree.map(lambda leaf: leaf[k], network.scorer)
    return jax.tree.leaves([network.context.weights[k], network.context.bias[k], scorer])


def without_heads(slope: Network, used: Sequence[bool]) -> Network:
    """A gradient that is zero for the other heads."""

    def kept(leaf: Any) -> Any:
        return leaf * jnp.reshape(jnp.array(used), (-1, *[1] * (leaf.ndim - 1)))

    weights, bias = kept(jnp.stack(slope.context.weights)), kept(slope.context.bias)
    parts = [tuple(weights), bias, jax.tree.map(kept, slope.scorer)]
    return eqx.tree_at(lambda n: [n.context.weights, n.context.bias, n.scorer], slope, parts)


def same(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("by_head", [True, False])
def test_a_head_may_have_an_adam_of_its_own(by_head: bool) -> None:
    """It is optax's over the updates in which the head is used; else over all of them."""
    network = make_network(SMALL, jax.random.key(0))
    theirs = optax.adam(0.01)
    uses = [(True, False, False), (True, False, True), (True, False, False), (True, False, True)]
    slopes = [without_heads(some_slope(network, n, 0.1), used) for n, used in enumerate(uses)]
    found, ours = network, optimiser.init(network)
    for used, slope in zip(uses, slopes, strict=True):
        found, ours, _ = update(found, slope, ours, jnp.array(used), None, 0.01, 1e9, by_head)

    @eqx.filter_jit
    def step(wanted: Any, slope: Any, state: Any) -> Any:
        changes, state = theirs.update(slope, state)
        return optax.apply_updates(wanted, changes), state

    def optaxs(chosen: Sequence[Any]) -> Any:
        wanted: Any = network
        state = theirs.init(wanted)
        for slope in chosen:
            wanted, state = step(wanted, slope, state)
        return wanted

    always, now_and_then = optaxs(slopes), optaxs(slopes[1::2] if by_head else slopes)
    same(of_head(found, 0), of_head(always, 0))
    same(of_head(found, 2), of_head(now_and_then, 2))
    same(*(jax.tree.leaves([n.encoder, n.classifier]) for n in (found, always)))
    for one, two in zip(of_head(found, 1), of_head(network, 1), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(("by_head", "way"), [(True, 1.0), (False, 31.76)])
def test_a_late_heads_first_gradient(by_head: bool, way: float) -> None:
    """How far it moves the head, in learning rates.

    By hand, with one Adam for all: m is 0.1 g and v 0.001 g², neither corrected, and until both
    have died down the way is 0.1 / √0.001 ⋅ 1 / (1 - 0.9 / √0.999) = 31.76.
    """
    network = make_network(SMALL, jax.random.key(0))
    early, late = jnp.array([True, False, False]), jnp.array([False, False, True])
    slopes = [without_heads(some_slope(network, 0, 0.1), used.tolist()) for used in (early, late)]
    state = optimiser.init(network)._replace(count=jnp.int32(100_000))
    found, state, _ = update(network, slopes[1], state, late, None, 1e-6, 1e9, by_head)
    for _ in range(120):
        found, state, _ = update(found, slopes[0], state, early, None, 1e-6, 1e9, by_head)
    moved = jnp.abs(found.scorer.first_bias[2] - network.scorer.first_bias[2])
    np.testing.assert_allclose(moved / 1e-6, way, rtol=0.01)


def test_adam_is_optaxs() -> None:
    network = make_network(SMALL, jax.random.key(0))
    theirs = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(0.01))
    wanted: Any = network
    state, ours = theirs.init(wanted), optimiser.init(network)
    found = network
    everything = jnp.ones(SMALL.heads, bool)
    their_step = jax.jit(theirs.update)
    # Gradients above the clip and below it.
    for number, size in enumerate([1.0, 1e-3, 0.1, 10.0]):
        slope = some_slope(network, number, size)
        changes, state = their_step(slope, state)
        wanted = optax.apply_updates(wanted, changes)
        found, ours, working = update(found, slope, ours, everything, None, 0.01, 0.5)
        assert working is None
        same(jax.tree.leaves(found), jax.tree.leaves(wanted))


def test_adam_on_the_gpu_moves_heads_at_their_own_rates_and_leaves_others_alone() -> None:
    """A head that moves and has no gradient goes on by its moments: what is there is not read."""
    theta, m, v, gradient = (normal(4, 8, 256) for _ in range(4))
    v = jnp.abs(v)
    moving, used = jnp.array([True, False, True, True]), jnp.array([True, False, True, False])
    gradient = jnp.where(used[:, None, None], gradient, jnp.nan)
    now = adam.rates(jnp.array([3, 1, 70, 5]), jnp.float32(0.5), 0.01)
    wanted = jax.vmap(adam.moved)(theta, m, v, jnp.nan_to_num(gradient), now)
    working = jnp.zeros_like(theta, jnp.bfloat16)
    found = gpu.adam(theta, m, v, gradient, working, used, moving, now, True)
    for new, old, step in zip(found[:3], (theta, m, v), wanted, strict=True):
        np.testing.assert_allclose(new[moving], step[moving], rtol=1e-5, atol=1e-8)
        np.testing.assert_array_equal(new[1], old[1])
    np.testing.assert_array_equal(found[3][moving], found[0][moving].astype(jnp.bfloat16))
    squares = gpu.sum_of_squares(gradient, used, True)
    assert float(squares) == pytest.approx(float(jnp.square(gradient[::2]).sum()), rel=1e-5)
