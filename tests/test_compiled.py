"""The compiled engine against values worked out by hand, against the real game, and itself."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import grue
from grue import cli
from grue.engine.compiled import CompiledEnv, State
from grue.engine.hosted import HostedState
from grue.engine.make import compiled
from grue.engine.step import Step
from grue.engine.verify import Report, Verifier, verify
from grue.games.gamefile import CompiledGame
from grue.games.tokens import squeeze

Pair = Callable[[int], Verifier]
Account = dict[str, Any]

pytestmark = pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning")


@pytest.fixture(scope="session")
def pair() -> Iterator[Pair]:
    """Both engines of a level; the compiled one's programs are built once for all tests."""
    made: dict[int, Verifier] = {}

    def get(number: int) -> Verifier:
        if number not in made:
            made[number] = Verifier(grue.load(f"saladworld-{number}"))
        return made[number]

    yield get
    for verifier in made.values():
        verifier.real.close()


def account(env: CompiledEnv, step: Step) -> Account:
    """All that a step says, in words; of either engine."""
    text = env.decode(step.observation) if step.text is None else step.text
    possible = np.asarray(step.admissible_set)  # At once: one by one takes a program.
    return {
        "text": squeeze(text),
        "reward": int(step.reward),
        "score": int(step.score),
        "terminated": bool(step.terminated),
        "truncated": bool(step.truncated),
        "admissible": bool(step.admissible),
        "admissible_set": [c for c, yes in zip(env.commands, possible, strict=True) if yes],
        "subtasks": np.asarray(step.subtasks).tolist(),
    }


def same_tree(one: Any, other: Any) -> bool:
    leaves, others = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(leaves) == len(others) and all(map(np.array_equal, leaves, others))


class Play:
    """One game on both engines at once; every turn is compared."""

    def __init__(self, engines: Verifier) -> None:
        self.engines = engines
        self.env = engines.compiled
        self.played: list[str] = []
        self.real_state, self.real = engines.real.reset()
        self.state, self.step = engines._reset()
        self.check()

    def take(self, *commands: str) -> None:
        for command in commands:
            self.played.append(command)
            action = self.env.commands.index(command)
            self.real_state, self.real = self.engines.real.step(self.real_state, action)
            self.state, self.step = self.engines._step(self.state, action)
            self.check()

    def check(self) -> None:
        told = " / ".join(self.played)
        assert account(self.env, self.step) == account(self.env, self.real), told

    @property
    def over(self) -> bool:
        return bool(self.real.terminated or self.real.truncated)

    @property
    def possible(self) -> list[str]:
        return account(self.env, self.real)["admissible_set"]

    @property
    def text(self) -> str:
        return self.env.decode(self.step.observation)


def wander(play: Play, chance: random.Random, turns: int) -> None:
    """Mostly commands that change something, and some of all kinds."""
    for turn in range(turns):
        if play.over:
            return
        choices = play.possible if turn % 3 else play.env.commands
        play.take(chance.choice(choices))


# Level 1 by hand.

TO_MARKET = ("go south", "go east", "go east")
HOME = ("go west", "go west", "go north")
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


# Against the real game.


def test_walkthrough_turn_by_turn(pair: Pair, level: int) -> None:
    engines = pair(level)
    play = Play(engines)
    for command in engines.game.walkthrough:
        assert not play.step.terminated
        play.take(command)
        assert play.step.admissible
    assert play.step.terminated
    assert play.step.subtasks.all()
    assert (
        int(play.step.score) == engines.game.max_score == engines.compiled.game.header["max_score"]
    )


def test_kitchen_work_of_level_7(pair: Pair) -> None:
    """Cutting, frying, roasting, burning, making the meal and eating, and what stops each."""
    play = Play(pair(7))
    way = play.engines.game.walkthrough
    play.take(*way[: way.index("take apple")], "take apple", "dice apple with knife")
    # The knife is elsewhere; the apple is roasted, then burned, and burned it stays.
    play.take("cook apple with oven", "cook apple with oven", "cook apple with oven")
    play.take("cook banana with stove", "put apple on stove", "cook apple with oven")
    play.take("take apple from stove", "insert apple into oven", "take apple", "go east")
    play.take("close red door", "lock red door with red key", "open red door", "go west")
    play.take(
        "go east", "go north", "slice tomato with knife", "take knife", "dice apple with knife"
    )
    play.take("slice tomato with knife", "take tomato", "slice tomato with knife", "drop knife")
    play.take("slice tomato with knife", "prepare meal", "take banana", "put tomato on counter")
    play.take("look", "take tomato from counter", "drop tomato", "take knife", "go south")
    play.take("prepare meal", "go east", "go north", "take carrot", "slice carrot with knife")
    play.take("go south", "go east", "take cucumber", *HOME, "prepare meal")
    play.take("chop cucumber with knife", "prepare meal", "prepare meal", "look")
    play.take("eat meal", "eat meal", "examine fridge", "look")
    burned = "You are carrying: a knife, a banana, a diced burned apple, "
    assert play.env.decode(play.engines._inventory(play.state)).startswith(burned)


@pytest.mark.parametrize(("number", "shares"), [(3, (0.45, 0.9)), (6, (0.7,)), (7, (0.93,))])
def test_every_command_from_states_on_the_way(
    pair: Pair, number: int, shares: tuple[float, ...]
) -> None:
    engines = pair(number)
    play = Play(engines)
    way = engines.game.walkthrough
    for share in shares:
        play.take(*way[len(play.played) : int(share * len(way))])
        for action, command in enumerate(play.env.commands):
            _, real = engines.real.step(play.real_state, action)
            _, step = engines._step(play.state, action)
            assert account(play.env, step) == account(play.env, real), (play.played, command)


def draw_play(data: st.DataObject, play: Play, turns: int) -> None:
    """Follows the walkthrough for a while, then takes drawn commands."""
    way = play.engines.game.walkthrough
    try:
        play.take(*way[: data.draw(st.integers(0, len(way) - 1), label="turns of the walkthrough")])
        for _ in range(data.draw(st.integers(0, turns), label="turns after it")):
            if play.over:
                return
            changing = data.draw(st.booleans())
            play.take(data.draw(st.sampled_from(play.possible if changing else play.env.commands)))
    finally:
        note(" / ".join(play.played))


@pytest.mark.parametrize("number", [2, 4, 5, 7])
@settings(max_examples=6, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_play_is_the_real_game(pair: Pair, number: int, data: st.DataObject) -> None:
    draw_play(data, Play(pair(number)), turns=30)


def test_look_and_inventory_anywhere(pair: Pair, rng: random.Random) -> None:
    engines = pair(7)
    play = Play(engines)
    seen = set()
    for command in engines.game.walkthrough[:42]:
        play.take(command)
        wander(play, rng, rng.randrange(2))
        before = jax.tree.map(np.array, play.state)
        for words, name in ((engines._look, "look"), (engines._inventory, "inventory")):
            _, real = engines.real.step(play.real_state, name)
            text = play.env.decode(words(play.state))
            assert squeeze(text) == squeeze(real.text or ""), (play.played, name)
            seen.add(text)
        assert same_tree(before, play.state)
    assert "You are carrying nothing." in seen
    assert len(seen) > 25


def test_lists_name_the_latest_first(pair: Pair) -> None:
    engines = pair(4)
    play = Play(engines)
    play.take("go west", "take parsley", "go east", "go south", "go east", "take blue key")
    play.take("go south", "take knife")

    def carried() -> str:
        return play.env.decode(engines._inventory(play.state))

    assert carried() == "You are carrying: a knife, a blue key and some parsley."
    play.take("drop knife", "take knife from table", "take knife")
    assert carried() == "You are carrying: a knife, a blue key and some parsley."
    play.take("drop blue key", "take blue key")
    assert carried() == "You are carrying: a blue key, a knife and some parsley."
    play.take("drop blue key", "drop knife", "look")
    assert play.text.endswith("There is a knife and a blue key on the floor.")
    play.take("drop parsley", "look")
    assert play.text.endswith("There is some parsley, a knife and a blue key on the floor.")
    play.take("take knife", "drop knife", "look")
    assert play.text.endswith("There is a knife, some parsley and a blue key on the floor.")
    assert carried() == "You are carrying nothing."


# The admissible set, four ways.


def by_decision_tables(game: CompiledGame, state: State) -> np.ndarray:
    """Each command's own table says whether it would change the state."""
    arrays, variables = game.arrays, np.asarray(state.variables)
    found = []
    for command in range(len(game.commands)):
        index = int(arrays["command_offset"][command])
        for variable, stride in zip(
            arrays["command_variables"][command], arrays["command_strides"][command], strict=True
        ):
            index += int(variables[variable]) * int(stride)
        found.append(bool(arrays["outcome_changes"][arrays["decision_table"][index]]))
    return np.array(found)


def by_doing(engines: Verifier, state: State) -> list[bool]:
    """What every command in fact changes of the world."""
    found = []
    for action in range(len(engines.compiled.commands)):
        after, step = engines._step(state, action)
        world = ("room", "locations", "statuses")
        changed = any(not np.array_equal(getattr(state, f), getattr(after, f)) for f in world)
        assert changed == step.admissible, engines.compiled.commands[action]
        found.append(changed)
    return found


def test_admissible_masks(pair: Pair, rng: random.Random) -> None:
    engines = pair(7)
    way = engines.game.walkthrough
    sets = set()
    for _ in range(4):
        play = Play(engines)
        play.take(*way[: rng.randrange(len(way) - 3)])
        for _ in range(6):
            wander(play, rng, 4)
            if play.over:
                break
            mask = np.asarray(play.step.admissible_set)
            logic = engines.real.logic
            grounded = [logic.admissible(play.real_state.facts, c) for c in play.env.commands]
            assert mask.tolist() == grounded, play.played
            assert np.array_equal(mask, by_decision_tables(play.env.game, play.state)), play.played
            sets.add(mask.tobytes())
        if not play.over:
            assert play.step.admissible_set.tolist() == by_doing(engines, play.state), play.played
    assert len(sets) > 15


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


# Verification, and that it finds faults.


def test_verify_finds_nothing(pair: Pair, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 300 if level < 4 else 150
    if level > 2:  # Every command is tried above; here it would need another large program.
        monkeypatch.setattr("grue.engine.verify.SWEEP_SHARE", 10**9)
    report = pair(level).run(steps, seed=level)
    assert str(report.first or "") == ""
    assert report.mismatches == 0
    assert report.steps >= steps
    # It did more than walk into walls.
    assert len(report.rules) >= 5


def faulty(name: str, index: Any, value: Any) -> CompiledGame:
    """Level 1 with one number changed."""
    game = compiled(grue.load("saladworld-1"))
    arrays = {key: array.copy() for key, array in game.arrays.items()}
    assert arrays[name][index] != value
    arrays[name][index] = value
    return CompiledGame(game.header, arrays)


def outcome_of(command: str) -> tuple[int, int]:
    """Where a command's decision table has its first outcome that changes something, and it."""
    game = compiled(grue.load("saladworld-1"))
    arrays = game.arrays
    number = game.commands.index(command)
    ends = [*arrays["command_offset"].tolist()[1:], len(arrays["decision_table"])]
    for index in range(arrays["command_offset"][number], ends[number]):
        outcome = int(arrays["decision_table"][index])
        if arrays["outcome_changes"][outcome]:
            return index, outcome
    raise AssertionError(command)


def wrong_token() -> CompiledGame:
    game = compiled(grue.load("saladworld-1"))
    (number,) = game.vocabulary.encode("pick")
    (place,) = np.flatnonzero(game.arrays["tokens"] == number)
    return faulty("tokens", place, game.vocabulary.encode("put")[0])


def wrong_outcome() -> CompiledGame:
    return faulty("decision_table", outcome_of("take lettuce")[0], outcome_of("drop lettuce")[1])


def wrong_opening() -> CompiledGame:
    game = compiled(grue.load("saladworld-1"))
    bit = np.uint32(1 << game.commands.index("look"))
    possible = game.arrays["mask_possible"]
    return faulty("mask_possible", (0, 0), possible[0, 0] | bit)


def wrong_mask() -> CompiledGame:
    """One bit of the row for the second room: "go east" is not possible there."""
    game = compiled(grue.load("saladworld-1"))
    arrays = game.arrays
    row = arrays["mask_offset"][arrays["mask_variables"].tolist().index(0)] + 1
    bit = np.uint32(1 << game.commands.index("go east"))
    assert arrays["masks"][row, 0, 0] & bit
    return faulty("masks", (row, 0, 0), arrays["masks"][row, 0, 0] & ~bit)


def wrong_reward() -> CompiledGame:
    return faulty("quest_reward", 0, 5)


def wrong_end() -> CompiledGame:
    return faulty("quest_needed", 1, False)


FAULTS: list[tuple[Callable[[], CompiledGame], set[str], str]] = [
    (wrong_token, {"text differs"}, "put up the lettuce from the ground"),
    (wrong_outcome, {"text differs", "admissible set: take lettuce, drop lettuce"}, "You drop"),
    (wrong_mask, {"admissible set: go east"}, "-= Living Room =-"),
    (wrong_reward, {"text differs", "reward: real 10, compiled 5"}, "five points"),
    (wrong_end, {"terminated: real 0, compiled 1"}, "*** The End ***"),
]


@pytest.mark.parametrize(
    ("fault", "expected", "shown"), FAULTS, ids=[fault.__name__ for fault, *_ in FAULTS]
)
def test_verify_catches(
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[], CompiledGame],
    expected: set[str],
    shown: str,
) -> None:
    monkeypatch.setattr("grue.engine.verify.compiled", lambda _: fault())
    # Play alone finds these; sweeps over all commands would take longer to compile.
    monkeypatch.setattr("grue.engine.verify.SWEEP_SHARE", 10**9)
    report = verify("saladworld-1", steps=200, seed=0)
    assert report.mismatches > 0
    assert report.first is not None
    assert expected <= set(report.first.differences)
    # Both transcripts are shown, up to the command that differs.
    told = str(report.first)
    real, ours = told.split("--- real\n")[1].split("\n--- compiled\n")
    last = report.first.commands[-1] if report.first.commands else ""
    assert f"> {last}\n" in real
    assert f"> {last}\n" in ours
    assert shown in ours
    assert (squeeze(real) != squeeze(ours)) == ("text differs" in report.first.differences)


def test_verify_ends_when_the_openings_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """No episode gets as far as a step, so counting steps would never end."""
    monkeypatch.setattr("grue.engine.verify.compiled", lambda _: wrong_opening())
    report = verify("saladworld-1", steps=40, seed=0)
    assert (report.steps, report.mismatches) == (0, 1)
    assert report.first is not None
    assert report.first.commands == ()
    assert report.first.differences == ("admissible set: look",)
    assert len(report.first.real) == len(report.first.compiled) == 1


def test_verify_catches_a_wrong_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking without a step is compared as well, although it is no command."""
    game = compiled(grue.load("saladworld-1"))
    wrong = faulty("inventory_frame", (), int(game.arrays["opening_frame"]))
    monkeypatch.setattr("grue.engine.verify.compiled", lambda _: wrong)
    monkeypatch.setattr("grue.engine.verify.SWEEP_SHARE", 0)  # after every step
    report = verify("saladworld-1", steps=1, seed=0)
    assert report.first is not None
    assert report.first.commands[1:] == ("inventory",)
    assert report.first.differences == ("text differs",)
    assert "You are carrying" in report.first.real[-1]
    assert "You are making a salad" in report.first.compiled[-1]


def test_same_seed_same_verification(pair: Pair) -> None:
    reports = [pair(2).run(60, seed) for seed in (3, 3)]
    assert reports[0] == reports[1]
    assert reports[0].steps >= 60


def test_reports_add_up() -> None:
    total = Report(3, 1, None, {"take"}) + Report(4, 0, None, {"drop"})
    assert total == Report(7, 1, None, {"take", "drop"})


def test_verify_at_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", "saladworld-1", "--steps", "12", "--seed", "1"]) == 0
    assert capsys.readouterr().out == "saladworld-1: 12 steps, 0 mismatches\n"


def test_verify_at_the_command_line_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    game = grue.load("saladworld-1")
    story = tmp_path / "wrong.z8"
    shutil.copy(game.story, story)
    shutil.copy(game.story.with_suffix(".json"), story.with_suffix(".json"))
    wrong_reward().save(story.with_suffix(".grue.npz"))
    assert cli.main(["verify", str(story), "--steps", "40"]) == 1
    out, err = capsys.readouterr()
    assert " 0 mismatches" not in out
    assert "reward: real 10, compiled 5" in out
    assert out.index("--- real") < out.index("ten points") < out.index("--- compiled")
    assert "five points" in out.split("--- compiled")[1]
    assert err.strip() == f"grue: the compiled {story} differs from the real game"


# What a hosted state and a compiled one have in common.


def test_world_is_the_same(pair: Pair, rng: random.Random) -> None:
    """Locations on the device are the facts of the logic."""
    engines = pair(5)
    play = Play(engines)
    play.take(*engines.game.walkthrough[:20])
    wander(play, rng, 30)
    assert located(play.state, engines) == facts_located(play.real_state, engines)


def located(state: State, engines: Verifier) -> dict[str, str]:
    from grue.engine.compiler.model import Model

    model = Model(engines.game, engines.real.logic)
    holders = [*model.rooms, "I", *model.places]
    found = {m: holders[int(i)] for m, i in zip(model.movables, state.locations, strict=True)}
    return {"P": model.rooms[int(state.room)], **found}


def facts_located(state: HostedState, engines: Verifier) -> dict[str, str]:
    movable = {"P", *engines.game.entities_of_type("o")}
    kinds = ("at", "in", "on")
    return {f[1]: f[2] for f in state.facts if f[0] in kinds and len(f) == 3 and f[1] in movable}
