"""The tabular agents: the table against a dictionary, Q-learning by hand, and a level learned."""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array

from grue.agents import tabular
from grue.agents.agent import Agent, AgentState, Episode, RunParameters
from grue.agents.catalogue import AGENTS, GATES
from grue.agents.gating import registered_gates
from grue.agents.registry import Setup
from grue.agents.tabular import Table, TabularAgent, TabularSettings
from grue.engine.compiled import CompiledEnv
from grue.engine.make import make
from grue.errors import UsageError
from grue.training.algorithm import Algorithm, Program, Run, Sums
from grue.training.config import TrainConfig

ENV = make("saladworld-2", "compiled")
COMMANDS = len(ENV.commands)
KEYS = jax.random.split(jax.random.key(0), 4000)
find, add, text_key = jax.jit(tabular.find), jax.jit(tabular.add), jax.jit(tabular.text_key)


@functools.cache
def opening() -> tuple[Any, Any]:
    return jax.jit(ENV.reset)()


def parameters(gate: str = "oracle", *runs: int) -> RunParameters:
    none = jnp.float32(0)
    number = jnp.int32(GATES.number(gate))
    one = RunParameters(number, jnp.int32(1), none, none, jnp.int32(20), none)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, runs), one)


def key(*words: int) -> Array:
    return jnp.array(words, jnp.uint32)


# Keys


def plain_key(tokens: list[int]) -> list[int]:
    """The key in plain numbers."""
    drawn = hashlib.shake_256(b"grue: the keys of texts").digest(8 * len(tokens))
    factors = [factor | 1 for factor in struct.unpack(f"<{2 * len(tokens)}I", drawn)]
    words = zip(tokens, factors[::2], factors[1::2], strict=True)
    sums = [(token * first, token * second) for token, first, second in words]
    return [sum(products) % 2**32 for products in zip(*sums, strict=True)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2**15 - 1), min_size=6, max_size=6))
def test_a_key_is_two_sums_of_products(tokens: list[int]) -> None:
    assert text_key(jnp.array(tokens, jnp.int16)).tolist() == plain_key(tokens)


def test_texts_that_differ_in_a_word_have_other_keys() -> None:
    base = np.random.default_rng(0).integers(0, 200, 60)
    texts = np.concatenate([np.where(np.arange(60) == i, np.arange(200)[:, None], base)
                            for i in range(60)])  # fmt: skip
    keys = np.asarray(jax.jit(jax.vmap(tabular.text_key))(jnp.asarray(texts)))
    assert len(np.unique(keys, axis=0)) == len(np.unique(texts, axis=0)) == 60 * 199 + 1


# The table


def read(table: Table, of: Array) -> list[float]:
    return table.values[find(table, of)].tolist()


def test_a_key_without_a_row_reads_as_zeros() -> None:
    table = tabular.empty_table(4, 3)
    assert int(find(table, key(0, 0))) == 0
    assert read(table, key(0, 0)) == [0, 0, 0]
    table = add(table, key(0, 0), jnp.int32(1), jnp.float32(2.5))
    assert read(table, key(0, 0)) == [0, 2.5, 0]
    assert read(table, key(0, 1)) == [0, 0, 0]
    assert read(table, key(1, 0)) == [0, 0, 0]


def test_a_change_of_0_takes_no_row() -> None:
    table = add(tabular.empty_table(4, 3), key(5, 6), jnp.int32(1), jnp.float32(0))
    assert int(table.used) == int(table.refused) == int(find(table, key(5, 6))) == 0


def test_a_full_table_refuses_new_texts_and_goes_on_with_the_old() -> None:
    table = tabular.empty_table(2, 3)
    for word in (7, 8, 9, 9):
        table = add(table, key(word, word), jnp.int32(0), jnp.float32(word))
    table = add(table, key(7, 7), jnp.int32(2), jnp.float32(1))
    assert (int(table.used), int(table.refused)) == (2, 2)
    assert [read(table, key(word, word)) for word in (7, 8, 9)] == [[7, 0, 1], [8, 0, 0], [0] * 3]
    assert table.values[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("first", [0, 2**32 - 1], ids=["first slot", "last slot"])
def test_keys_of_one_slot_lie_side_by_side_until_the_window_is_full(first: int) -> None:
    table = tabular.empty_table(2 * tabular.WINDOW, 1)
    for second in range(tabular.WINDOW + 3):
        table = add(table, key(first, second), jnp.int32(0), jnp.float32(second + 1))
    found = [read(table, key(first, second)) for second in range(tabular.WINDOW + 3)]
    assert found == [[n + 1] for n in range(tabular.WINDOW)] + [[0]] * 3
    assert (int(table.used), int(table.refused)) == (tabular.WINDOW, 3)


def test_rows_fill_up_before_windows_do() -> None:
    rows = 4096
    keys = jax.random.bits(jax.random.key(1), (rows + 10, 2), jnp.uint32)

    def put(table: Table, of: Array) -> tuple[Table, None]:
        return tabular.add(table, of, jnp.int32(0), jnp.float32(1)), None

    table, _ = jax.jit(lambda keys: jax.lax.scan(put, tabular.empty_table(rows, 1), keys))(keys)
    assert (int(table.used), int(table.refused)) == (rows, 10)
    assert np.asarray(jax.jit(jax.vmap(tabular.find, (None, 0)))(table, keys)).tolist() == [
        *range(1, rows + 1),
        *[0] * 10,
    ]


# Q-learning


def setup(env: CompiledEnv, **values: Any) -> Setup:
    return Setup(env, TabularSettings(**values), registered_gates(), 1)


@functools.cache
def agent_of(rows: int = 64, name: str = "tabular", **values: Any) -> TabularAgent:
    agent = AGENTS[name].make(setup(ENV, table_rows=rows, **values))
    assert isinstance(agent, TabularAgent)
    return agent


def episode(memory: Array, reward: int = 0, end: str = "") -> Episode:
    game, seen = opening()
    seen = seen._replace(
        reward=jnp.int32(reward),
        terminated=jnp.bool_(end == "terminated"),
        truncated=jnp.bool_(end == "truncated"),
    )
    return Episode(game, seen, jnp.int32(-1), jnp.int32(0), memory)


@pytest.mark.parametrize(
    ("gate", "end", "expected"),
    [
        # 2 + 0.5 (1 + 0.9 · 4 - 2)
        ("none", "", 3.3),
        # 2 + 0.5 (1 + 0.9 · 3 - 2)
        ("oracle", "", 2.85),
        # 2 + 0.5 (1 - 2)
        ("none", "terminated", 1.5),
        ("oracle", "terminated", 1.5),
        ("none", "truncated", 3.3),
        ("oracle", "truncated", 2.85),
    ],
)
def test_one_step_by_hand(gate: str, end: str, expected: float) -> None:
    here, there = key(1, 1), key(2, 2)
    state = agent_of().init(KEYS[0])
    table = add(state.kept, here, jnp.int32(3), jnp.float32(2))
    # The best of all commands is not admissible, and the second best is.
    admissible = np.asarray(opening()[1].admissible_set)
    for command, value in ((admissible.argmin(), 4), (admissible.argmax(), 3)):
        table = add(table, there, jnp.int32(command), jnp.float32(value))
    before, after = episode(here), episode(there, 1, end)
    learn = observe(gate, table_learning_rate=0.5)
    learned = learn(state._replace(kept=table), before, jnp.int32(3), after)
    assert read(learned.kept, here)[3] == pytest.approx(expected, abs=1e-6)
    changed = np.asarray(learned.kept.values) != np.asarray(table.values)
    assert changed.sum() == 1
    # As the paper prints it, if that is wanted.
    printed = observe(gate, table_learning_rate=0.5, oracle_in_targets=False)
    again = printed(state._replace(kept=table), before, jnp.int32(3), after)
    over_all = 1.5 if end == "terminated" else 3.3
    assert read(again.kept, here)[3] == pytest.approx(over_all, abs=1e-6)


def test_a_step_onto_itself_by_hand() -> None:
    state = agent_of().init(KEYS[0])
    here = key(3, 4)
    for _ in range(2):
        state = observe(table_learning_rate=0.5)(
            state, episode(here), jnp.int32(1), episode(here, 2)
        )
    # 0.5 · 2 = 1, then 1 + 0.5 (2 + 0.9 · 1 - 1)
    assert read(state.kept, here)[1] == pytest.approx(1.95, abs=1e-6)


@functools.cache
def observe(gate: str = "none", **values: Any) -> Callable[..., AgentState]:
    agent, now = agent_of(**values), parameters(gate)
    return jax.jit(lambda *step: agent.observe(*step, parameters=now)[0])


class Transition(NamedTuple):
    text: int
    action: int
    reward: int
    following: int
    end: str


TRANSITIONS = st.lists(
    st.builds(
        Transition,
        st.integers(0, 11),
        st.integers(0, COMMANDS - 1),
        # Mostly nothing, as in the games.
        st.sampled_from([0, 0, 0, 0, 5, 10, -5]),
        st.integers(0, 11),
        st.sampled_from(["", "", "terminated", "truncated"]),
    ),
    max_size=60,
)


class DictionaryLearner:
    """Q-learning on a dictionary of texts, with room for some of them."""

    def __init__(self, rows: int, alpha: float, gamma: float) -> None:
        self.rows, self.alpha, self.gamma = rows, alpha, gamma
        self.values: dict[tuple[int, ...], list[float]] = {}
        self.refused = 0

    def of(self, text: tuple[int, ...]) -> list[float]:
        return self.values.get(text, [0.0] * COMMANDS)

    def learn(self, text: tuple[int, ...], following: tuple[int, ...], t: Transition) -> None:
        future = 0.0 if t.end == "terminated" else self.gamma * max(self.of(following))
        change = self.alpha * (t.reward + future - self.of(text)[t.action])
        if text not in self.values and change:
            if len(self.values) == self.rows:
                self.refused += 1
                return
            self.values[text] = [0.0] * COMMANDS
        if text in self.values:
            self.values[text][t.action] += change


@pytest.mark.parametrize("rows", [3, 64])
@settings(max_examples=25, deadline=None)
@given(
    transitions=TRANSITIONS,
    texts=st.lists(st.tuples(*[st.integers(0, 200)] * 5), min_size=12, max_size=12, unique=True),
)
def test_as_a_dictionary_would(
    rows: int, transitions: list[Transition], texts: list[tuple[int, ...]]
) -> None:
    plain = DictionaryLearner(rows, 0.1, 0.9)
    keys = [text_key(jnp.array(text, jnp.int16)) for text in texts]
    state = AgentState((), tabular.empty_table(rows, COMMANDS))
    for t in transitions:
        plain.learn(texts[t.text], texts[t.following], t)
        before, after = episode(keys[t.text]), episode(keys[t.following], t.reward, t.end)
        state = observe()(state, before, jnp.int32(t.action), after)
    table = state.kept
    assert (int(table.used), int(table.refused)) == (len(plain.values), plain.refused)
    for text, of in zip(texts, keys, strict=True):
        assert bool(find(table, of)) == (text in plain.values)
        assert read(table, of) == pytest.approx(plain.of(text), abs=1e-6, rel=1e-6)


def test_update_changes_nothing() -> None:
    agent = agent_of()
    state = agent.init(KEYS[0])
    learned, told = agent.update(state, parameters(), KEYS[0])
    assert learned == agent.copy_to_target(learned) == state.learned
    assert told == {}


# The state


def walk(env: CompiledEnv, agents: list[Agent], steps: int) -> tuple[Any, ...]:
    """What a random player of admissible commands sees, and the agents' keys for it."""
    game, seen = jax.jit(env.reset)()

    def step(carry: tuple[Any, Any], draw: Array) -> tuple[tuple[Any, Any], tuple[Any, ...]]:
        game, seen = carry
        action = jax.random.categorical(draw, jnp.where(seen.admissible_set, 0.0, -jnp.inf))
        game, seen = env.step(game, action)
        texts = seen.observation, env.look(game), env.inventory(game)
        keys = [agent.perceive(key(0, 0), game, seen) for agent in agents]
        return (game, seen), (*texts, *keys)

    _, found = jax.jit(lambda draws: jax.lax.scan(step, (game, seen), draws))(KEYS[:steps])
    return jax.tree.map(np.asarray, found)


@pytest.mark.parametrize("number", [2, 4])
def test_the_states_are_the_texts(number: int) -> None:
    env = make(f"saladworld-{number}", "compiled")
    agents = [AGENTS[name].make(setup(env)) for name in ("tabular", "li-tabular")]
    feedback, look, inventory, by_feedback, by_both = walk(env, agents, 300)
    both = np.concatenate([look, inventory], 1)
    for texts, keys in [(feedback, by_feedback), (both, by_both)]:
        assert keys[::30].tolist() == [plain_key(text) for text in texts[::30].tolist()]
        # One to one: neither two texts for a key nor two keys for a text.
        pairs = np.unique(np.concatenate([texts, keys], 1), axis=0)
        assert len(pairs) == len(np.unique(texts, axis=0)) == len(np.unique(keys, axis=0)) > 20
    assert env.decode(look[0]).startswith("-=")
    assert "carrying" in env.decode(inventory[0])


def test_the_state_of_li_is_not_that_of_the_feedback() -> None:
    """A refused command says something else in the same place."""
    game, seen = opening()
    refused = int(np.flatnonzero(~np.asarray(seen.admissible_set))[0])
    after = jax.jit(ENV.step)(game, refused)
    keys = {}
    for name in ("tabular", "li-tabular"):
        perceive = jax.jit(agent_of(name=name).perceive)
        keys[name] = [perceive(key(0, 0), *at).tolist() for at in (opening(), after)]
    assert keys["tabular"][0] != keys["tabular"][1]
    assert keys["li-tabular"][0] == keys["li-tabular"][1]


@pytest.mark.parametrize("name", ["tabular", "li-tabular"])
def test_an_episode_starts_in_the_state_of_the_opening(name: str) -> None:
    agent = agent_of(name=name)
    first = jax.jit(agent.perceive)(key(0, 0), *opening())
    assert agent.start(agent.init(KEYS[0])).tolist() == first.tolist()


# The choice


@pytest.mark.parametrize(
    ("epsilon", "shares"),
    [
        # The best candidates are 0 and 3, the others 2 and 5.
        (0.0, [1 / 2, 0, 0, 1 / 2, 0, 0]),
        (1.0, [1 / 4, 0, 1 / 4, 1 / 4, 0, 1 / 4]),
        (0.4, [0.4, 0, 0.1, 0.4, 0, 0.1]),
    ],
)
def test_ties_are_broken_by_lot(epsilon: float, shares: list[float]) -> None:
    values = jnp.array([1.0, 9.0, -1.0, 1.0, 1.0, 0.0])
    candidates = jnp.array([True, False, True, True, False, True])
    draw = jax.vmap(lambda key: tabular.choose(key, values, candidates, jnp.float32(epsilon)))
    found = np.bincount(np.asarray(jax.jit(draw)(KEYS)), minlength=6) / len(KEYS)
    assert (found[np.array(shares) == 0] == 0).all()
    # Four standard errors.
    assert np.abs(found - shares).max() < 4 * 0.5 / len(KEYS) ** 0.5


@pytest.mark.parametrize("gate", ["none", "oracle"])
def test_an_agent_that_knows_nothing_tries_every_candidate(gate: str) -> None:
    agent = agent_of()
    state = agent.init(KEYS[0])

    def decide(key: Array) -> Any:
        start = episode(agent.start(state))
        return agent.act(state, start, parameters(gate), jnp.float32(0), key)[1]

    decisions = jax.jit(jax.vmap(decide))(KEYS[:500])
    allowed = np.ones(COMMANDS, bool) if gate == "none" else np.asarray(opening()[1].admissible_set)
    assert (np.asarray(decisions.candidates) == allowed).all()
    assert set(np.asarray(decisions.action).tolist()) == set(np.flatnonzero(allowed).tolist())
    assert decisions.admissibility is None
    assert not np.asarray(decisions.head).any()


@pytest.mark.parametrize("gate", ["dropout", "masking", "cqlh", "acqlh"])
@pytest.mark.parametrize("name", ["tabular", "li-tabular"])
def test_gates_that_need_a_classifier_are_refused(name: str, gate: str) -> None:
    expected = f"{name} has no classifier: its gate is none or oracle, not '{gate}'"
    with pytest.raises(UsageError, match=expected):
        TrainConfig(agent=name, gate=gate)


@pytest.mark.parametrize("gate", ["none", "oracle"])
@pytest.mark.parametrize("name", ["tabular", "li-tabular"])
def test_gates_that_need_none_are_taken(name: str, gate: str) -> None:
    assert TrainConfig(agent=name, gate=gate).gate == gate


# Training


@functools.cache
def program(many: bool) -> tuple[TabularAgent, Program]:
    """``li-tabular`` on the first level, with a table of a shape that nothing else has."""
    made = setup(make("saladworld-1", "compiled"), table_rows=77, epsilon_steps=5_000)
    agent = TabularAgent(made, look_and_inventory=True)
    return agent, Algorithm(made.env, agent, made.settings, (), many).program()


def trained(seeds: list[int], steps: int) -> tuple[Run, Sums]:
    _, many = program(True)
    run = many.init(jnp.array(seeds, jnp.int32), parameters("oracle", len(seeds)))
    sums = []
    for step in range(0, steps, 1_000):
        run, counted = many.advance(run, jnp.int32(step), False, 1_000)
        sums.append(jax.device_get(counted))
    return run, jax.tree.map(lambda *of: np.stack(of), *sums)


def test_li_tabular_learns_the_first_level() -> None:
    run, sums = trained([0, 1], 20_000)
    fraction = sums["fraction"][-5:].sum(0) / sums["episodes"][-5:].sum(0)
    assert (fraction > 0.9).all()
    assert not np.asarray(run.agent.kept.refused).any()
    # The memory of an episode is the key of where it stands.
    perceive = jax.jit(jax.vmap(program(True)[0].perceive))
    here = perceive(run.episode.memory, run.episode.game, run.episode.seen)
    assert here.tolist() == run.episode.memory.tolist()


def test_a_seed_decides_everything() -> None:
    run, sums = trained([3, 4], 3_000)
    again, same = trained([3, 4], 3_000)
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), sums, same))
    assert (run.agent.kept.values == again.agent.kept.values).all()
    assert (run.agent.kept.values[0] != run.agent.kept.values[1]).any()


def test_side_by_side_as_alone() -> None:
    together, _ = trained([3, 4], 1_000)
    _, one = program(False)
    alone = one.init(jnp.int32(4), parameters())
    alone, _ = one.advance(alone, jnp.int32(0), False, 1_000)
    np.testing.assert_array_equal(together.agent.kept.slots[1], alone.agent.kept.slots)
    np.testing.assert_allclose(together.agent.kept.values[1], alone.agent.kept.values, rtol=1e-6)


def test_the_table_is_changed_in_place() -> None:
    _, many = program(True)
    run = many.init(jnp.array([0, 1], jnp.int32), parameters("oracle", 2))
    text = many.advance.lower(run, jnp.int32(0), False, 1_000).compile().as_text()
    values, slots = "f32[2,78,8]", "u32[2,544,3]"
    assert values in text
    assert slots in text
    copied = [line for line in text.splitlines() if " copy(" in line]
    assert not [line for line in copied if values in line or slots in line]
