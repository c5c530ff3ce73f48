"""The update against a slow one written out step by step in NumPy."""

from __future__ import annotations

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_networks import SIZES, make_network

from grue.agents import contexts, learner, optimiser
from grue.agents.agent import RunParameters
from grue.agents.deep import DeepSettings
from grue.agents.drrn import TextScorer
from grue.agents.gating import GATES, registered_gates
from grue.agents.learner import Learner, Learning
from grue.agents.network import ActionScorer, Network
from grue.agents.replay import ReplayStep, Sequences

BATCH, STEPS, WORDS = 3, 5, 4
LOOK = 3
SETTINGS = DeepSettings(minimum_history=2, learning_rate=0.01)
COMMAND_WORDS = jnp.array([[1, 2, 0], [3, 0, 0], [4, 5, 6], [7, 8, 0]])


def learning(gate: str = "none", settings: DeepSettings = SETTINGS) -> Learning:
    """The gate's number is an array: one program for all of them."""
    number, none = jnp.int32(GATES.number(gate)), jnp.float32(0)
    parameters = RunParameters(number, jnp.int32(3), none, none, jnp.int32(0), none)
    return Learning(settings, registered_gates(), parameters, LOOK)


def texts(chance: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Some texts, a few of them alike, padded at the end."""
    known = chance.integers(1, SIZES.words, (7, WORDS))
    known[np.arange(WORDS) >= chance.integers(0, WORDS + 1, (7, 1))] = 0
    return known[chance.integers(0, 7, shape)]


def make_batch() -> Sequences:
    chance = np.random.default_rng(3)
    shape = (BATCH, STEPS + 1)
    rows = ReplayStep(
        observation=jnp.asarray(texts(chance, shape), jnp.int32),
        score=jnp.asarray(np.sort(chance.choice([0, 10, 15], shape), axis=1), jnp.int32),
        action=jnp.asarray(chance.integers(0, SIZES.commands, shape), jnp.int32),
        reward=jnp.asarray(chance.choice([0.0, 5.0, -1.0], shape), jnp.float32),
        admissible=jnp.asarray(chance.random(shape) < 0.5),
        terminated=jnp.zeros(shape, bool).at[1, STEPS - 1].set(True),
        # Eight to a byte, of which four are commands; now and then none is admissible.
        admissible_set=jnp.asarray((chance.random((*shape, 8)) < 0.3) & (np.arange(8) < 4)),
    )
    previous = jnp.concatenate([jnp.array([[-1], [2], [-1]]), rows.action[:, :-1]], axis=1)
    # The last sequence is of a short episode that ended by the clock after three steps.
    valid = jnp.ones((BATCH, STEPS), bool).at[2, 3:].set(False)
    return Sequences(rows, previous.astype(jnp.int32), valid)


@pytest.fixture(scope="module")
def known() -> contexts.ScoreContexts:
    found = contexts.init()
    for score in (0, 10, 15):
        found, _ = contexts.assign(found, jnp.int32(score), 3)
    return found


@pytest.fixture(scope="module", params=[ActionScorer, TextScorer])
def networks(request: pytest.FixtureRequest) -> tuple[Network, Network]:
    online, target = (make_network(SIZES, jax.random.key(seed), request.param) for seed in (0, 1))
    return online, target


read_inputs, take_step = eqx.filter_jit(Network.inputs), eqx.filter_jit(Network.step)
read_commands = eqx.filter_jit(Network.read_commands)


def slow_outputs(network: Network, batch: Sequences, b: int) -> tuple[np.ndarray, np.ndarray]:
    order = {0: 0, 10: 1, 15: 2}
    memory, values, logits = network.memory(), [], []
    known = read_commands(network, COMMAND_WORDS)
    for i in range(STEPS + 1):
        before = int(batch.previous[b, i])
        command = COMMAND_WORDS[LOOK if before < 0 else before]
        at = read_inputs(network, batch.rows.observation[b, i].astype(jnp.int32), command)
        head = jnp.int32(order[int(batch.rows.score[b, i])])
        memory, outputs = take_step(network, head, memory, at, None, known)
        values.append(np.asarray(outputs.values))
        logits.append(np.asarray(outputs.logits))
    return np.array(values), np.array(logits)


Slow = list[tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]]


@pytest.fixture(scope="module")
def slow(networks: tuple[Network, Network]) -> Slow:
    """What both networks say along each sequence."""
    batch = make_batch()
    online, target = networks
    return [(slow_outputs(online, batch, b), slow_outputs(target, batch, b)) for b in range(BATCH)]


def slow_loss(
    slow: Slow, batch: Sequences, gate: str, settings: DeepSettings
) -> tuple[float, float]:
    errors, entropies = [], []
    for b in range(BATCH):
        (values, logits), (their_values, their_logits) = slow[b]
        begins = settings.first_steps and int(batch.previous[b, 0]) < 0
        for i in range(0 if begins else settings.minimum_history, STEPS):
            if not batch.valid[b, i]:
                continue
            a = int(batch.rows.action[b, i])
            possible = np.asarray(batch.rows.admissible_set)[b, i + 1, : SIZES.commands]
            if gate != "oracle" or not settings.oracle_in_targets or not possible.any():
                possible = np.ones(SIZES.commands, bool)
            choosing = values if settings.double else their_values
            best = their_values[i + 1][np.where(possible, choosing[i + 1], -np.inf).argmax()]
            believed = 1 / (1 + np.exp(-their_logits[i, a]))
            same = their_values[i + 1 if settings.consistent_with_next else i, a]
            after = {
                "cqlh": believed * best + (1 - believed) * same,
                "acqlh": believed * best,
            }.get(gate, best)
            y = float(batch.rows.reward[b, i])
            if not batch.rows.terminated[b, i]:
                y += settings.discount * after
            if batch.returns is not None:
                y = max(y, float(batch.returns[b, i]))
            errors.append((y - values[i, a]) ** 2)
            chance = 1 / (1 + np.exp(-logits[i, a]))
            right = chance if batch.rows.admissible[b, i] else 1 - chance
            entropies.append(-np.log(right))
    return float(np.mean(errors)), float(np.mean(entropies))


fast_loss = eqx.filter_jit(learner.loss)
fast_update = eqx.filter_jit(learner.update)


def begun(network: Network) -> Learner:
    return learner.init(network, SETTINGS.precision, COMMAND_WORDS)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("as_in_the_appendix", [True, False])
def test_the_loss_is_the_slow_one(
    gate: str,
    as_in_the_appendix: bool,
    networks: tuple[Network, Network],
    known: contexts.ScoreContexts,
    slow: Slow,
) -> None:
    settings = replace(
        SETTINGS, consistent_with_next=as_in_the_appendix, oracle_in_targets=as_in_the_appendix
    )
    batch, own = make_batch(), learning(gate, settings)
    online, target = networks
    total, (parts, used) = fast_loss(online, None, target, batch, known, COMMAND_WORDS, own)
    assert used.tolist() == [True, True, True]
    q, classifier = slow_loss(slow, batch, gate, settings)
    assert float(parts["q_loss"]) == pytest.approx(q, rel=2e-5)
    assert float(parts["classifier_loss"]) == pytest.approx(classifier, rel=2e-5)
    needs = gate in ("dropout", "masking", "cqlh", "acqlh")
    assert float(total) == pytest.approx(q + needs * classifier, rel=2e-5)


@pytest.mark.parametrize("gate", ["oracle", "masking", "cqlh"])
def test_double_q_learning(
    gate: str, networks: tuple[Network, Network], known: contexts.ScoreContexts, slow: Slow
) -> None:
    (online, target), batch, losses = networks, make_batch(), []
    for double in (False, True):
        own = learning(gate, replace(SETTINGS, double=double))
        _, (parts, used) = fast_loss(online, None, target, batch, known, COMMAND_WORDS, own)
        assert used.tolist() == [True, True, True]
        losses.append(float(parts["q_loss"]))
        q, _ = slow_loss(slow, batch, gate, own.settings)
        assert losses[-1] == pytest.approx(q, rel=2e-5)
    assert losses[0] != pytest.approx(losses[1], rel=4e-5)


def test_targets_are_at_least_the_returns(
    networks: tuple[Network, Network], known: contexts.ScoreContexts, slow: Slow
) -> None:
    """Some returns are above the target and some below."""
    (online, target), own = networks, learning("masking")
    returns = np.random.default_rng(5).normal(size=(BATCH, STEPS)).astype(np.float32)
    losses = []
    for given in (None, returns - 100.0, returns, returns + 100.0):
        batch = make_batch()._replace(returns=None if given is None else jnp.asarray(given))
        _, (parts, _) = fast_loss(online, None, target, batch, known, COMMAND_WORDS, own)
        losses.append(float(parts["q_loss"]))
        q, _ = slow_loss(slow, batch, "masking", SETTINGS)
        assert losses[-1] == pytest.approx(q, rel=2e-5)
    assert losses[0] == losses[1]
    assert len(set(losses)) == 3


@pytest.mark.parametrize("trace", [0.0, 0.5])
def test_the_first_steps_of_an_episode_have_an_error_if_wanted(
    trace: float, networks: tuple[Network, Network], known: contexts.ScoreContexts, slow: Slow
) -> None:
    """Two of the three sequences begin an episode; the other keeps its minimum history."""
    (online, target), batch, losses = networks, make_batch(), []
    assert (np.asarray(batch.previous[:, 0]) < 0).tolist() == [True, False, True]
    for first_steps in (False, True):
        settings = replace(SETTINGS, first_steps=first_steps, trace=trace)
        own = learning("masking", settings)
        _, (parts, _) = fast_loss(online, None, target, batch, known, COMMAND_WORDS, own)
        losses.append((float(parts["q_loss"]), float(parts["classifier_loss"])))
        q, classifier = slow_loss(slow, batch, "masking", settings)
        assert losses[-1][1] == pytest.approx(classifier, rel=2e-5)
        if trace == 0:
            assert losses[-1][0] == pytest.approx(q, rel=2e-5)
    assert losses[0][0] != pytest.approx(losses[1][0], rel=1e-3)


@pytest.mark.parametrize("trace", [0.0, 0.5])
def test_sequences_that_begin_an_episode_need_no_history(
    trace: float, networks: tuple[Network, Network], known: contexts.ScoreContexts
) -> None:
    """With ``first_steps`` they are trained on as with a minimum history of 0."""
    batch = make_batch()
    batch = batch._replace(previous=batch.previous.at[:, 0].set(-1))
    ways = {"first_steps": True}, {"minimum_history": 0}
    (one, told), (two, also) = (
        fast_update(
            begun(networks[0]),
            batch,
            known,
            COMMAND_WORDS,
            learning("cqlh", replace(SETTINGS, trace=trace, **way)),
        )
        for way in ways
    )
    assert jax.tree.map(float, told) == jax.tree.map(float, also)
    jax.tree.map(np.testing.assert_array_equal, one, two)


@pytest.mark.parametrize("gate", ["none", "cqlh"])
def test_steps_past_the_end_carry_no_error(
    gate: str, networks: tuple[Network, Network], known: contexts.ScoreContexts
) -> None:
    """Neither the loss nor the step of the weights knows what stands in them."""
    batch, own = make_batch(), learning(gate)
    past = ~np.asarray(batch.valid)
    assert past[:, SETTINGS.minimum_history :].any()
    past = jnp.asarray(np.concatenate([past, np.zeros((BATCH, 1), bool)], 1))
    rows = batch.rows._replace(
        action=jnp.where(past, (batch.rows.action + 1) % SIZES.commands, batch.rows.action),
        reward=jnp.where(past, 1e6, batch.rows.reward),
        admissible=batch.rows.admissible ^ past,
        terminated=batch.rows.terminated ^ past,
    )
    other = batch._replace(rows=rows)
    (one, told), (two, also) = (
        fast_update(begun(networks[0]), each, known, COMMAND_WORDS, own) for each in (batch, other)
    )
    assert jax.tree.map(float, told) == jax.tree.map(float, also)
    jax.tree.map(np.testing.assert_array_equal, one, two)


def updated(
    networks: tuple[Network, Network], known: contexts.ScoreContexts, gate: str
) -> tuple[Learner, list[float]]:
    now, errors = begun(networks[0]), []
    for _ in range(60):
        now, told = fast_update(now, make_batch(), known, COMMAND_WORDS, learning(gate))
        errors.append(float(told["q_loss"]))
    return now, errors


def test_updates_lower_the_error_and_leave_the_target_alone(
    networks: tuple[Network, Network], known: contexts.ScoreContexts
) -> None:
    now, errors = updated(networks, known, "none")
    assert errors[-1] < 0.5 * errors[0]
    for before, after in zip(
        jax.tree.leaves(networks[0]), jax.tree.leaves(now.target), strict=True
    ):
        np.testing.assert_array_equal(before, after)


def test_without_a_learned_gate_the_classifier_is_not_trained(
    networks: tuple[Network, Network], known: contexts.ScoreContexts
) -> None:
    plain, _ = updated(networks, known, "none")
    masked, _ = updated(networks, known, "masking")
    before = networks[0].classifier.scorer.first
    np.testing.assert_array_equal(plain.network.classifier.scorer.first, before)
    assert not np.array_equal(masked.network.classifier.scorer.first, before)


def test_the_target_is_copied(networks: tuple[Network, Network]) -> None:
    now = begun(networks[0])._replace(network=networks[1])
    copied = learner.copy_to_target(now).target
    for wanted, found in zip(jax.tree.leaves(networks[1]), jax.tree.leaves(copied), strict=True):
        np.testing.assert_array_equal(wanted, found)


def test_the_clip_bounds_the_gradient(
    networks: tuple[Network, Network], known: contexts.ScoreContexts
) -> None:
    batch = make_batch()
    huge = batch._replace(rows=batch.rows._replace(reward=batch.rows.reward * 1e6))
    now, _ = fast_update(begun(networks[0]), huge, known, COMMAND_WORDS, learning())
    # Adam's first step has the size of the learning rate whatever the gradient.
    for new, old in zip(jax.tree.leaves(now.network), jax.tree.leaves(networks[0]), strict=True):
        assert float(jnp.abs(new - old).max()) <= SETTINGS.learning_rate * 1.001
    # The first moment remembers the clipped gradient: 0.1 of a norm of 5.
    first = now.optimiser.first
    norm = jnp.sqrt(sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(first)))
    assert float(norm) == pytest.approx(0.1 * SETTINGS.gradient_clip, rel=1e-4)


def test_the_learning_rate_falls_linearly_to_its_end() -> None:
    falls = {"learning_rate_end": 0.002, "learning_rate_steps": 5_000}
    own = replace(SETTINGS, learning_starts=1_000, update_every=4, **falls)
    # The first update is at step 1,000: a fifth of the way from 0.01 to 0.002.
    found = [float(optimiser.learning_rate(own, jnp.int32(n))) for n in (0, 375, 1_000, 2_000)]
    assert found == pytest.approx([0.0084, 0.006, 0.002, 0.002])
    assert optimiser.learning_rate(SETTINGS, jnp.int32(375)) == 0.01


def test_updates_take_the_learning_rate_of_their_step(
    networks: tuple[Network, Network], known: contexts.ScoreContexts
) -> None:
    falls = {"learning_rate_end": 0.0, "learning_rate_steps": 4_000}
    own = replace(SETTINGS, learning_starts=2_000, update_every=4, **falls)
    now = begun(networks[0])
    moved = []
    for count in (0, 250, 500):
        at = now._replace(optimiser=now.optimiser._replace(count=jnp.int32(count)))
        after, _ = fast_update(at, make_batch(), known, COMMAND_WORDS, learning("none", own))
        # A head's Adam is at its first step, which has the size of the learning rate.
        before, then = (tree.scorer.first_bias for tree in (networks[0], after.network))
        moved.append(float(jnp.abs(then - before).max()))
    assert moved == pytest.approx([0.005, 0.0025, 0.0], rel=1e-3, abs=1e-9)
