"""AE-DQN: the bandits and the network by hand, its memory against what was played, its learning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import grue
from grue.agents import elimination
from grue.agents.aedqn import Batch, EliminationAgent, Learned, Study
from grue.agents.agent import AgentState, RunParameters
from grue.agents.convolution import ConvolutionNetwork, ConvolutionSizes
from grue.agents.elimination import Bandit, Tally
from grue.agents.gating import registered_gates
from grue.agents.registry import Setup
from grue.agents.replay import EpisodicReplay
from grue.engine.compiled import CompiledEnv
from grue.engine.step import Step
from grue.training.algorithm import Program, Run, Sums
from grue.training.programs import build, parameters_of

CONFIG = grue.TrainConfig.preset(
    "small",
    game="saladworld-1",
    agent="ae-dqn",
    steps=2_000,
    epsilon_steps=2_000,
    episode_steps=50,
    learning_starts=400,
    metrics_every=400,
    average_over=400,
    target_every=400,
    replay_steps=1_500,
    batch_size=8,
    state_history=3,
    word_vector=8,
    value_filters=8,
    elimination_filters=6,
    elimination_rows=5,
    look_every=0,
)
STEPS = CONFIG.metrics_every
UPDATES = CONFIG.target_every // CONFIG.update_every


class Now(NamedTuple):
    """Where a game stands."""

    game: Any
    seen: Step
    state: Any
    look: Any
    inventory: Any


class Played(NamedTuple):
    env: CompiledEnv
    agent: EliminationAgent
    program: Program
    parameters: RunParameters
    after: Callable[[int], Run]
    """The first run after so many rows of metrics, its keys as numbers."""
    sums: list[Sums]
    """Of the rows so far."""
    start: Now
    turn: Callable[[Now, Any], Now]
    study: Callable[[Study, EpisodicReplay], Study]
    """The studying of one period."""


SEEDS = (3, 4)


@pytest.fixture(scope="module")
def played() -> Played:
    """Two runs side by side; the tests look at the first."""
    env, agent, program = build(CONFIG, 1, many=True)
    parameters = parameters_of(CONFIG)
    known = [begun(program, parameters, SEEDS)]
    sums: list[Sums] = []

    def after(rows: int) -> Run:
        while len(known) <= rows:
            # Learning from an empty memory means nothing, and saves another program here.
            number = jnp.int32((len(known) - 1) * STEPS)
            following, counted = program.advance(_running(known[-1]), number, True, STEPS)
            known.append(_plain(following))
            sums.append(jax.tree.map(lambda part: np.asarray(part)[0], counted))
        return jax.tree.map(lambda part: jnp.asarray(part[0]), known[rows])

    assert isinstance(env, CompiledEnv)
    assert isinstance(agent, EliminationAgent)
    look, inventory = env.look, env.inventory

    def turn(now: Now, action: Any) -> Now:
        game, seen = env.step(now.game, action)
        return Now(game, seen, agent.perceive(now.state, game, seen), look(game), inventory(game))

    def study(study: Study, memory: EpisodicReplay) -> Study:
        return jax.lax.fori_loop(0, UPDATES, lambda _, s: agent.study(s, memory), study)

    first = after(0).episode
    start = Now(first.game, first.seen, first.memory, None, None)
    functions = jax.jit(turn), jax.jit(study)
    return Played(env, agent, program, parameters, after, sums, start, *functions)


def begun(program: Program, parameters: RunParameters, seeds: tuple[int, ...]) -> Any:
    both = jax.tree.map(lambda value: jnp.stack([value] * 2), parameters)
    return _plain(program.init(jnp.array(seeds), both))


def _plain(run: Run) -> Any:
    """A copy in NumPy's arrays, which a program cannot use up; keys as numbers."""
    keys = jax.random.key_data(run.play_key), jax.random.key_data(run.replay_key)
    return jax.tree.map(np.array, run._replace(play_key=keys[0], replay_key=keys[1]))


def _running(plain: Any) -> Run:
    run = jax.tree.map(jnp.asarray, plain)
    keys = jax.random.wrap_key_data(run.play_key), jax.random.wrap_key_data(run.replay_key)
    return run._replace(play_key=keys[0], replay_key=keys[1])


def agent_with(env: CompiledEnv, **values: Any) -> EliminationAgent:
    settings = replace(CONFIG, **values).settings
    return EliminationAgent(Setup(env, settings, registered_gates(), 1))


# The bandits


count = jax.jit(elimination.count)
solve = jax.jit(elimination.solve, static_argnums=1)
interval = jax.jit(elimination.interval, static_argnums=2)
allowed = jax.jit(elimination.allowed, static_argnums=2)


def counted(features: Any, action: Any, signal: Any, weight: Any, commands: int) -> Tally:
    features = np.asarray(features, np.float32)
    size = features.shape[1]
    return count(
        Tally(jnp.zeros((commands, size, size)), jnp.zeros((commands, size))),
        features,
        np.asarray(action, np.int32),
        np.asarray(signal, bool),
        np.asarray(weight, np.float32),
    )


def test_bandit_by_hand() -> None:
    # Command 0 did nothing in two states [1, 0]; command 1 did something in [1, 2].
    tally = counted([[1, 0], [1, 0], [1, 2]], [0, 0, 1], [1, 1, 0], [1, 1, 1], 3)
    assert tally.products[0].tolist() == [[2, 0], [0, 0]]
    assert tally.products[1].tolist() == [[1, 2], [2, 4]]
    assert tally.signals.tolist() == [[2, 0], [0, 0], [0, 0]]

    bandit = solve(tally, 1.0)
    # (I + 2 e₁e₁ᵀ)⁻¹, (I + [[1, 2], [2, 4]])⁻¹ = [[5, -2], [-2, 2]] / 6, and I
    np.testing.assert_allclose(bandit.inverse[0], [[1 / 3, 0], [0, 1]], atol=1e-6)
    np.testing.assert_allclose(bandit.inverse[1], np.array([[5, -2], [-2, 2]]) / 6, atol=1e-6)
    np.testing.assert_allclose(bandit.inverse[2], np.eye(2), atol=1e-6)
    np.testing.assert_allclose(bandit.weights, [[2 / 3, 0], [0, 0], [0, 0]], atol=1e-6)

    middle, half = interval(bandit, jnp.array([[1.0, 0.0], [0.0, 3.0]]), 0.25)
    np.testing.assert_allclose(middle, [[2 / 3, 0, 0], [0, 0, 0]], atol=1e-6)
    squares = [[1 / 3, 5 / 6, 1], [9, 3, 9]]
    np.testing.assert_allclose(half, np.sqrt(0.25 * np.array(squares)), atol=1e-6)
    # 2/3 - √(1/12) = 0.378: above 0.3 and below 0.4
    assert allowed(middle, half, 0.3).tolist() == [[False, True, True], [True] * 3]
    assert allowed(middle, half, 0.4).all()


def test_more_trials_narrow_the_interval_until_the_command_goes() -> None:
    state = jnp.array([[0.5, 1.0]])
    lows = []
    for trials in (0, 1, 10, 100):
        tally = counted([[0.5, 1.0]], [0], [1], [trials], 2)
        middle, half = interval(solve(tally, 0.1), state, 1.0)
        lows.append(float(middle[0, 0] - half[0, 0]))
        assert bool(allowed(middle, half, 0.6)[0, 1])
    assert lows == sorted(lows)
    assert lows[0] < 0 < 0.6 < lows[-1] < 1


def test_weights_count_and_zero_is_not_there() -> None:
    once = counted([[1, 2], [3, 4]], [0, 1], [1, 0], [1, 1], 2)
    twice = counted([[1, 2], [3, 4], [9, 9]], [0, 1, -1], [1, 0, 1], [2, 2, 0], 2)
    np.testing.assert_array_equal(twice.products, 2 * once.products)
    np.testing.assert_array_equal(twice.signals, 2 * once.signals)


def test_ridge_regression_is_that_of_numpy() -> None:
    draws = np.random.default_rng(0)
    rows, features, commands = 200, 7, 3
    phi = draws.normal(size=(rows, features)).astype(np.float32)
    action = draws.integers(commands, size=rows)
    signal = draws.random(rows) < 0.7
    bandit = solve(counted(phi, action, signal, np.ones(rows), commands), 0.1)
    middle, half = interval(bandit, jnp.asarray(phi[:5]), 2.0)
    for command in range(commands):
        own = phi[action == command].astype(np.float64)
        inverse = np.linalg.inv(own.T @ own + 0.1 * np.eye(features))
        theta = inverse @ own.T @ signal[action == command]
        np.testing.assert_allclose(bandit.weights[command], theta, atol=1e-4)
        np.testing.assert_allclose(middle[:, command], phi[:5] @ theta, atol=1e-4)
        width = np.sqrt(2.0 * np.einsum("rf,fg,rg->r", phi[:5], inverse, phi[:5]))
        np.testing.assert_allclose(half[:, command], width, atol=1e-4)


def test_what_cannot_be_solved_knows_nothing() -> None:
    tally = Tally(jnp.full((2, 2, 2), jnp.nan).at[1].set(0.0), jnp.ones((2, 2)))
    bandit = solve(tally, 0.5)
    np.testing.assert_array_equal(bandit.inverse[0], 2 * np.eye(2))
    np.testing.assert_array_equal(bandit.weights[0], [0, 0])
    np.testing.assert_allclose(bandit.weights[1], [2, 2], atol=1e-6)


def test_set_is_never_empty() -> None:
    middle = jnp.array([[5.0, 6.0, 7.0], [5.0, 0.0, 7.0]])
    kept = allowed(middle, jnp.zeros_like(middle), 0.6)
    assert kept.tolist() == [[True, True, True], [False, True, False]]


# The network


def test_convolution_is_that_of_numpy() -> None:
    sizes = ConvolutionSizes(words=11, commands=4, history=2, vector=3, filters=5)
    network = eqx.filter_jit(ConvolutionNetwork)(sizes, jax.random.key(1))
    draws = np.random.default_rng(1)
    bias = draws.normal(size=15).astype(np.float32)
    network = eqx.tree_at(lambda whole: whole.encoder.bias, network, jnp.asarray(bias))
    encoder = network.encoder
    texts = draws.integers(0, 11, size=(6, 2, 9))
    texts[0, 0] = 0

    embedding, filters = np.asarray(encoder.embedding), np.asarray(encoder.filters)
    features = np.zeros((6, 15))
    for row in range(6):
        vectors = np.zeros((9, 6))
        for past in range(2):
            for place in range(9):
                if texts[row, past, place]:
                    vectors[place, 3 * past : 3 * past + 3] = embedding[texts[row, past, place]]
        column = 0
        for index, height in enumerate((1, 2, 3)):
            for unit in range(5):
                seen = [
                    sum(
                        vectors[start + word] @ filters[:, column + 5 * word + unit]
                        for word in range(height)
                    )
                    for start in range(9 - height + 1)
                ]
                features[row, 5 * index + unit] = max(0, max(seen) + bias[5 * index + unit])
            column += 5 * height
    found = eqx.filter_jit(lambda network, texts: (network.encoder(texts), network(texts)))
    theirs = found(network, jnp.asarray(texts))
    np.testing.assert_allclose(theirs[0], features, atol=1e-5)
    output = features @ np.asarray(network.output) + np.asarray(network.output_bias)
    np.testing.assert_allclose(theirs[1], output, atol=1e-5)


# The agent


def test_state_is_look_and_inventory_of_the_last_steps(played: Played) -> None:
    agent, env = played.agent, played.env
    now = played.start
    texts = [np.zeros(agent.length, int)] * 2
    carried: set[bool] = set()
    for command in ("look", *grue.load("saladworld-1").walkthrough):
        now = played.turn(now._replace(look=None, inventory=None), env.commands.index(command))
        words = np.concatenate([now.look, now.inventory])
        words = words[words != 0]
        assert len(words) < agent.length
        if command == "look":
            # It changed nothing: the state before was the same.
            texts.append(np.pad(words, (0, agent.length - len(words))))
            np.testing.assert_array_equal(played.start.state, texts)
        texts.append(np.pad(words, (0, agent.length - len(words))))
        assert now.state.shape == (3, agent.length)
        np.testing.assert_array_equal(now.state, texts[-3:])
        carried |= {"lettuce" in env.decode(now.inventory)}
    assert carried == {True, False}


def test_long_texts_are_cut_at_the_end(played: Played) -> None:
    short = agent_with(played.env, state_words=7)
    np.testing.assert_array_equal(short.first_state[-1], played.agent.first_state[-1, :7])
    assert short.first_state.shape == (3, 7)


def test_recalled_states_are_those_that_were_met(played: Played) -> None:
    """Against the commands in the memory, played again, through the ends of episodes."""
    agent, memory = played.agent, played.after(1).agent.kept
    written = int(memory.written)
    facts = np.asarray(memory.stored.facts[:written])
    states = np.asarray(jax.jit(agent.recall)(memory, jnp.arange(written)))
    now, ends = played.start, 0
    for number in range(written):
        np.testing.assert_array_equal(states[number], now.state)
        if facts[number, 1] < 0:
            now, ends = played.start, ends + 1
        else:
            now = played.turn(now._replace(look=None, inventory=None), facts[number, 1])
            assert bool(now.seen.admissible) == bool(facts[number, 3] % 2)
    assert ends >= STEPS // 50


def test_sampled_steps_are_steps(played: Played) -> None:
    memory: EpisodicReplay = played.after(1).agent.kept
    many = agent_with(played.env, batch_size=512)
    batch: Batch = jax.jit(many.sample)(memory, jax.random.key(0))
    assert (batch.action >= 0).all()
    np.testing.assert_array_equal(batch.state[:, 1:], batch.following[:, :-1])
    # From the first state of the game every step leads where the game says.
    first = (batch.state == jnp.asarray(many.first_state)).all((1, 2))
    assert first.sum() >= 3
    for row in np.flatnonzero(first):
        after = played.turn(played.start, batch.action[row])
        np.testing.assert_array_equal(batch.following[row], after.state)
        assert float(batch.reward[row]) == float(after.seen.reward)
        assert bool(batch.admissible[row]) == bool(after.seen.admissible)


def test_study_counts_every_step_of_the_memory_once(played: Played) -> None:
    run = played.after(1)
    memory = run.agent.kept
    study = played.study(run.agent.learned.study, memory)
    facts = np.asarray(memory.stored.facts[: int(memory.written)])
    steps = facts[facts[:, 1] >= 0]
    assert len(steps) == STEPS
    # The constant feature counts.
    counts = np.bincount(steps[:, 1], minlength=8)
    np.testing.assert_array_equal(study.tally.products[:, -1, -1], counts)
    nothing = np.bincount(steps[steps[:, 3] % 2 == 0][:, 1], minlength=8)
    np.testing.assert_array_equal(study.tally.signals[:, -1], nothing)


def test_study_of_a_large_memory_is_even(played: Played) -> None:
    """Where a period does not suffice for all, rows stand for those between them."""
    memory = played.after(3).agent.kept
    assert 2 * CONFIG.elimination_rows * UPDATES < 3 * STEPS
    study = played.study(played.after(0).agent.learned.study, memory)
    total = float(study.tally.products[:, -1, -1].sum())
    assert total == pytest.approx(3 * STEPS, rel=0.02)


def test_copy_solves_what_was_counted(played: Played) -> None:
    agent, run = played.agent, played.after(1)
    learned: Learned = run.agent.learned
    study = played.study(learned.study, run.agent.kept)
    after = jax.jit(agent.copy_to_target)(learned._replace(study=study))
    _same(after.bandit, solve(study.tally, CONFIG.elimination_ridge))
    _same(after.encoder, study.encoder)
    _same(after.study.encoder, learned.eliminator.encoder)
    _same(after.target, learned.values)
    assert not np.asarray(after.study.tally.products).any()
    assert int(after.study.done) == 0


def _same(one: Any, other: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_targets_leave_out_what_is_eliminated(played: Played) -> None:
    agent, run = played.agent, played.after(2)
    learned: Learned = run.agent.learned
    batch: Batch = jax.jit(agent.sample)(run.agent.kept, jax.random.key(5))
    commands, features = learned.bandit.weights.shape
    # By the constant alone, and without doubt: only commands 2 and 5 are left.
    weights = jnp.zeros((commands, features)).at[:, -1].set(1.0).at[jnp.array([2, 5]), -1].set(0.0)
    sure = Bandit(jnp.zeros_like(learned.bandit.inverse), weights)
    y = jax.jit(agent.targets)(learned._replace(bandit=sure), batch)
    q = np.asarray(eqx.filter_jit(learned.target)(batch.following))[:, [2, 5]].max(1)
    wanted = batch.reward + CONFIG.discount * np.where(batch.terminated, 0.0, q)
    np.testing.assert_allclose(y, wanted, atol=1e-6)


def test_rewards_in_the_targets_are_clipped(played: Played) -> None:
    run = played.after(2)
    batch: Batch = jax.jit(played.agent.sample)(run.agent.kept, jax.random.key(5))
    rewards = jnp.tile(jnp.array([-10.0, 0.0, 7.0, 25.0]), 2)
    over = batch._replace(reward=rewards, terminated=jnp.ones(8, bool))
    y = jax.jit(played.agent.targets)(run.agent.learned, over)
    assert y.tolist() == [0.0, 0.0, 7.0, 20.0] * 2
    wider = agent_with(played.env, lowest_reward=-5.0, highest_reward=21.0)
    y = jax.jit(wider.targets)(run.agent.learned, over)
    assert y.tolist() == [-5.0, 0.0, 7.0, 21.0] * 2


def test_a_learning_rate_that_has_fallen_to_0_changes_nothing(played: Played) -> None:
    run = played.after(2)
    batch: Batch = jax.jit(played.agent.sample)(run.agent.kept, jax.random.key(5))
    fallen = agent_with(played.env, learning_rate_end=0.0, learning_rate_steps=1)
    before, key = run.agent.learned, jax.random.key(1)
    _same(jax.jit(fallen.learn)(before, batch, key)[0].values, before.values)
    moved = jax.jit(played.agent.learn)(before, batch, key)[0].values
    pairs = zip(jax.tree.leaves(moved), jax.tree.leaves(before.values), strict=True)
    assert any(not np.array_equal(one, other) for one, other in pairs)


def test_dropout_acts_on_e_alone(played: Played) -> None:
    run = played.after(2)
    batch: Batch = jax.jit(played.agent.sample)(run.agent.kept, jax.random.key(5))
    thinned = agent_with(played.env, elimination_dropout=0.5)
    learn, learn_thinned = jax.jit(played.agent.learn), jax.jit(thinned.learn)
    keys = jax.random.key(1), jax.random.key(2)
    plain = [learn(run.agent.learned, batch, key)[0] for key in keys]
    dropped = [learn_thinned(run.agent.learned, batch, key)[0] for key in keys]
    _same(plain[0], plain[1])
    _same(dropped[0].values, plain[0].values)
    changed = [np.asarray(one.eliminator.output) for one in (*dropped, plain[0])]
    assert not np.array_equal(changed[0], changed[1])
    assert not np.array_equal(changed[0], changed[2])


def test_play_leaves_out_what_is_eliminated_but_not_all(played: Played) -> None:
    agent, run = played.agent, played.after(2)
    learned: Learned = run.agent.learned
    act = jax.jit(agent.act)
    for left in ([], [3], [1, 6]):
        weights = jnp.zeros_like(learned.bandit.weights).at[:, -1].set(1.0)
        weights = weights.at[jnp.array(left, int), -1].set(0.0)
        sure = Bandit(jnp.zeros_like(learned.bandit.inverse), weights)
        state = AgentState(learned._replace(bandit=sure), run.agent.kept)
        for seed in range(5):
            _, decision = act(
                state, run.episode, played.parameters, jnp.float32(1), jax.random.key(seed)
            )
            expected = left or list(range(8))
            assert np.flatnonzero(decision.candidates).tolist() == expected
            assert int(decision.action) in expected


# Learning


def test_learns_what_not_to_do(played: Played) -> None:
    """Commands that do nothing come to be left out, and others hardly ever."""
    played.after(8)
    first, last = played.sums[2], played.sums[7]
    assert last["classifier_loss"] < 0.6 * first["classifier_loss"]
    assert last["classifier_accuracy"] > first["classifier_accuracy"]
    assert last["candidates"] < 0.85 * 8 * STEPS
    assert last["rightly_admitted"] > 0.8 * last["admissible_commands"]
    assert last["wrongly_admitted"] < 0.2 * last["admissible_commands"]


def test_same_seed_same_bits(played: Played) -> None:
    """Whatever is trained beside it."""
    runs = begun(played.program, played.parameters, SEEDS[::-1])
    for number in range(2):
        following, _ = played.program.advance(
            _running(runs), jnp.int32(number * STEPS), True, STEPS
        )
        runs = _plain(following)
    other, first = (jax.tree.map(lambda part, i=i: part[i], runs) for i in range(2))
    _same(first, played.after(2))
    assert (other.agent.kept.stored.facts != first.agent.kept.stored.facts).any()


def test_learned_gates_are_refused() -> None:
    with pytest.raises(grue.UsageError, match="ae-dqn has no classifier: its gate is none or"):
        grue.TrainConfig(agent="ae-dqn", gate="masking")
