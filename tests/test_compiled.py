"""The compiled engine against values worked out by hand, and its functions as pure ones."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from both_engines import HOME, TO_MARKET, Pair, account, same_tree

import grue
from grue.engine.compiled import State
from grue.engine.step import Step
from grue.engine.verify import Verifier

pytestmark = pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning")

# Level 1 by hand.

FETCHED = (*TO_MARKET, "take lettuce", *HOME)
OBJECTIVE = "You are making a salad. Enter the vegetable market. Put the lettuce on the counter. "
BARE = "There is a counter with nothing on it. There is an exit to the south."
KITCHEN = f"-= Kitchen =- You are in the kitchen. {BARE}"
LIVING_ROOM = "-= Living Room =- You are in the living room. There are exits to the east and north."
OPEN_SPACE = "-= Open Space =- You are in the open space. There are exits to the east and west."
MARKET = (
    "-= Vegetable Market =- You are in the vegetable market. There is an exit to the west."
    " There is a lettuce on the floor."
)
NO_WAY, NOT_SEEN = "You can't go that way.", "You can't see any such thing."
SCORED = "Your score has just gone up by"

# Commands; then of the last one: text, reward, score, e_t, the admissible set, the subtasks done.
AT_HOME, AT_MARKET = {"go south"}, {"go west", "take lettuce"}
CARRYING = {"go west", "drop lettuce"}
BACK = {"go south", "drop lettuce", "put lettuce on counter"}
GOLDEN = [
    ((), OBJECTIVE + KITCHEN, 0, 0, False, AT_HOME, 0),
    (("go north",), NO_WAY, 0, 0, False, AT_HOME, 0),
    (("go south",), LIVING_ROOM, 0, 0, True, {"go north", "go east"}, 0),
    (("go east",), NO_WAY, 0, 0, False, AT_HOME, 0),
    (("go west",), NO_WAY, 0, 0, False, AT_HOME, 0),
    (("look",), KITCHEN, 0, 0, False, AT_HOME, 0),
    (("take lettuce",), NOT_SEEN, 0, 0, False, AT_HOME, 0),
    (("drop lettuce",), NOT_SEEN, 0, 0, False, AT_HOME, 0),
    (("put lettuce on counter",), NOT_SEEN, 0, 0, False, AT_HOME, 0),
    (("go south", "go north"), KITCHEN, 0, 0, True, AT_HOME, 0),
    (("go south", "go east"), OPEN_SPACE, 0, 0, True, {"go east", "go west"}, 0),
    (TO_MARKET, f"{MARKET} {SCORED} ten points.", 10, 10, True, AT_MARKET, 1),
    ((*TO_MARKET, "go north"), NO_WAY, 0, 10, False, AT_MARKET, 1),
    ((*TO_MARKET, "go west"), OPEN_SPACE, 0, 10, True, {"go east", "go west"}, 1),
    # The market counts once.
    ((*TO_MARKET, "go west", "go east"), MARKET, 0, 10, True, AT_MARKET, 1),
    ((*TO_MARKET, "look"), MARKET, 0, 10, False, AT_MARKET, 1),
    (
        (*TO_MARKET, "take lettuce"),
        "You pick up the lettuce from the ground.",
        *(0, 10, True, CARRYING, 1),
    ),
    ((*TO_MARKET, "drop lettuce"), "The lettuce is already here.", 0, 10, False, AT_MARKET, 1),
    ((*TO_MARKET, "put lettuce on counter"), NOT_SEEN, 0, 10, False, AT_MARKET, 1),
    (
        (*TO_MARKET, "take lettuce", "take lettuce"),
        "You already have that.",
        *(0, 10, False, CARRYING, 1),
    ),
    (
        (*TO_MARKET, "take lettuce", "drop lettuce"),
        "You drop the lettuce on the ground.",
        *(0, 10, True, AT_MARKET, 1),
    ),
    ((*FETCHED, "look"), KITCHEN, 0, 10, False, BACK, 1),
    (
        (*FETCHED, "drop lettuce", "look"),
        f"{KITCHEN} There is a lettuce on the floor.",
        *(0, 10, False, {"go south", "take lettuce"}, 1),
    ),
    (
        (*FETCHED, "drop lettuce", "put lettuce on counter"),
        "You need to take the lettuce first.",
        *(0, 10, False, {"go south", "take lettuce"}, 1),
    ),
    (
        (*FETCHED, "put lettuce on counter"),
        f"You put the lettuce on the counter. {SCORED} five points. *** The End ***",
        *(5, 15, True, set(), 2),
    ),
]


@pytest.mark.parametrize(
    ("commands", "text", "reward", "score", "changed", "then", "done"),
    GOLDEN,
    ids=[" / ".join(commands[-2:]) or "opening" for commands, *_ in GOLDEN],
)
def test_level_1_by_hand(
    pair: Pair,
    commands: tuple[str, ...],
    text: str,
    reward: int,
    score: int,
    changed: bool,
    then: set[str],
    done: int,
) -> None:
    engines = pair(1)
    env = engines.compiled
    state, step = engines._reset()
    for command in commands:
        state, step = engines._step(state, env.commands.index(command))
    found = account(env, step)
    assert env.decode(step.observation) == text
    assert (found["reward"], found["score"], found["admissible"]) == (reward, score, changed)
    assert set(found["admissible_set"]) == then
    assert found["subtasks"] == [done > 0, done > 1]
    assert (found["terminated"], found["truncated"]) == (done == 2, False)
    assert int(state.steps) == len(commands)


def test_golden_texts_cover_every_command() -> None:
    taken = {commands[-1] for commands, *_ in GOLDEN if commands}
    assert taken == set(grue.load("saladworld-1").commands)


def test_shapes(pair: Pair) -> None:
    """One length for every observation: words first, then padding."""
    engines = pair(1)
    env = engines.compiled
    state, step = engines._reset()
    opening = len(env.vocabulary.encode(OBJECTIVE + KITCHEN))
    for words, length in ((step.observation, opening), (engines._step(state, 0)[1].observation, 6)):
        assert words.shape == (env.observation_length,)
        assert (np.asarray(words) > 0).tolist() == [i < length for i in range(len(words))]
    assert step.text is None
    assert step.admissible_set.shape == (8,)
    assert step.admissible_set.dtype == step.subtasks.dtype == bool
    assert step.reward.dtype == step.score.dtype == np.int32


# Pure functions.


def run_loop(engines: Verifier, actions: Iterable[int]) -> tuple[list[State], list[Step]]:
    state, _ = engines._reset()
    states, steps = [], []
    for action in actions:
        state, step = engines._step(state, int(action))
        states.append(state)
        steps.append(step)
    return states, steps


def stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)


def test_scan_is_a_loop(pair: Pair, rng: random.Random) -> None:
    engines = pair(1)
    actions = [rng.randrange(8) for _ in range(60)]
    # And it goes on over the end of the game.
    actions += [engines.compiled.commands.index(c) for c in engines.game.walkthrough]
    states, steps = run_loop(engines, actions)
    start, _ = engines._reset()
    last, scanned = jax.jit(lambda s, a: jax.lax.scan(engines.compiled.step, s, a))(
        start, jnp.array(actions)
    )
    assert same_tree(scanned, stack(steps))
    assert same_tree(last, states[-1])


def test_batched_is_single(pair: Pair, rng: random.Random) -> None:
    engines = pair(4)
    commands = engines.compiled.commands
    batch, turns = 6, 34
    lines = [[rng.randrange(len(commands)) for _ in range(turns)] for _ in range(batch - 1)]
    # One of them wins meanwhile.
    lines.append([commands.index(c) for c in engines.game.walkthrough][:turns])
    alone = [run_loop(engines, line) for line in lines]
    assert alone[-1][1][-1].terminated

    start, _ = engines._reset()
    state = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (batch, *leaf.shape)), start)
    together = jax.jit(jax.vmap(engines.compiled.step))
    for turn in range(turns):
        state, step = together(state, jnp.array([line[turn] for line in lines]))
        assert same_tree(state, stack([states[turn] for states, _ in alone])), turn
        assert same_tree(step, stack([steps[turn] for _, steps in alone])), turn


def test_without_jit(pair: Pair) -> None:
    engines = pair(1)
    env = engines.compiled
    with jax.disable_jit():
        state, step = env.reset()
        assert same_tree((state, step), engines._reset())
        for command in (*TO_MARKET, "take lettuce"):
            before, action = state, env.commands.index(command)
            state, step = env.step(before, action)
            assert same_tree((state, step), engines._step(before, action)), command


def test_key_changes_nothing(pair: Pair) -> None:
    reset = pair(1)._reset
    assert same_tree(reset(jax.random.key(0)), reset(jax.random.key(7)))


def test_restart_is_reset_also_within_a_program() -> None:
    env = grue.make("saladworld-1", engine="compiled")
    state, step = jax.jit(env.reset)()
    states = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), state)
    traced = jax.jit(jax.vmap(env.restart))(states)
    with jax.disable_jit():
        plain = grue.make("saladworld-1", engine="compiled").restart(state)
    for again in (plain, env.restart(state), jax.tree.map(lambda leaf: leaf[1], traced)):
        for ours, theirs in zip(
            jax.tree.leaves(again), jax.tree.leaves((state, step)), strict=True
        ):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)


def test_state_after_the_end_stays(pair: Pair) -> None:
    engines = pair(1)
    env = engines.compiled
    states, _ = run_loop(engines, [env.commands.index(c) for c in engines.game.walkthrough])
    over = states[-1]
    for action in range(len(env.commands)):
        state, step = engines._step(over, action)
        assert same_tree(state, over)
        assert account(env, step) == {
            "text": "",
            "reward": 0,
            "score": 15,
            "terminated": True,
            "truncated": False,
            "admissible": False,
            "admissible_set": [],
            "subtasks": [True, True],
        }
        assert not np.asarray(step.observation).any()


# The limit of steps.


def test_limit_of_steps() -> None:
    env = grue.make("saladworld-1", engine="compiled", episode_steps=8)
    way = grue.load("saladworld-1").walkthrough
    assert env.episode_steps == len(way) == 8
    reset, do = jax.jit(env.reset), jax.jit(env.step)

    def flags(commands: Iterable[str]) -> list[tuple[bool, bool]]:
        state, step = reset()
        found = [(bool(step.terminated), bool(step.truncated))]
        for command in commands:
            state, step = do(state, env.commands.index(command))
            found.append((bool(step.terminated), bool(step.truncated)))
        return found

    # The limit is told, not enforced, and a game that ends with it is not cut short by it.
    waiting = [(False, False)] * 8
    assert flags(["look"] * 9) == [*waiting, (False, True), (False, True)]
    assert flags(way) == [*waiting, (True, False)]


def test_limit_of_zero_steps_is_a_limit() -> None:
    env = grue.make("saladworld-1", engine="compiled", episode_steps=0)
    assert env.episode_steps == 0
    assert jax.jit(env.reset)()[1].truncated


def test_limit_of_each_level(pair: Pair, level: int) -> None:
    engines = pair(level)
    env = engines.compiled
    limit = 100 if level == 1 else 200
    assert env.episode_steps == engines.real.episode_steps == limit
    state, step = engines._reset()
    for turn in range(1, limit + 2):
        state, step = engines._step(state, env.commands.index("look"))
        assert bool(step.truncated) == (turn >= limit), turn
        assert not step.terminated
