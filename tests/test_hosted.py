"""The hosted engine against what its games print, and against itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from both_engines import HOME, TO_MARKET, admissible
from hypothesis import given, settings
from hypothesis import strategies as st

import grue
from grue.engine.hosted import HostedState
from grue.engine.hosted_textworld import HostedEnv
from grue.engine.step import Step
from grue.engine.verify import Verifier

Hosted = Callable[[int], HostedEnv]

pytestmark = pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning")


def same(a: Step, b: Step) -> bool:
    pairs: Any = zip(a, b, strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def follow(env: HostedEnv, *commands: str) -> tuple[HostedState, Step]:
    state, step = env.reset()
    for command in commands:
        state, step = env.step(state, command)
    return state, step


# Single steps.


def test_reset(hosted: Hosted) -> None:
    env = hosted(1)
    state, step = env.reset()
    assert step.text == (
        "You are making a salad. Enter the vegetable market. Put the lettuce on the counter.\n\n"
        "-= Kitchen =-\nYou are in the kitchen.\n\n"
        "There is a counter with nothing on it.\n\n"
        "There is an exit to the south."
    )
    assert (step.reward, step.score) == (0, 0)
    assert (step.terminated, step.truncated, step.admissible) == (False, False, False)
    assert step.subtasks.tolist() == [False, False]
    assert admissible(env, step) == {"go south"}
    assert (state.steps, state.over, state.facts) == (0, False, env.logic.initial)


# Level 1: commands, what the last one prints (or its first line), and what can be done then.
GOLDEN = [
    (("go south",), "-= Living Room =-", True, {"go north", "go east"}),
    (("go north",), "You can't go that way.", False, {"go south"}),
    (TO_MARKET, "-= Vegetable Market =-", True, {"go west", "take lettuce"}),
    (
        (*TO_MARKET, "take lettuce"),
        "You pick up the lettuce from the ground.",
        True,
        {"go west", "drop lettuce"},
    ),
    (
        (*TO_MARKET, "take lettuce", "drop lettuce"),
        "You drop the lettuce on the ground.",
        True,
        {"go west", "take lettuce"},
    ),
    (
        (*TO_MARKET, "take lettuce", *HOME),
        "-= Kitchen =-",
        True,
        {"go south", "drop lettuce", "put lettuce on counter"},
    ),
    (
        (*TO_MARKET, "take lettuce", "put lettuce on counter"),
        "You can't see any such thing.",
        False,
        {"go west", "drop lettuce"},
    ),
    (("look",), "-= Kitchen =-", False, {"go south"}),
    (("inventory",), "You are carrying nothing.", False, {"go south"}),
    (("examine counter",), "The counter is solid and clean.", False, {"go south"}),
    (("take counter",), None, False, {"go south"}),
    (("take lettuce",), "You can't see any such thing.", False, {"go south"}),
    (("drop lettuce",), "You can't see any such thing.", False, {"go south"}),
    (("xyzzy",), "That's not a verb I recognise.", False, {"go south"}),
]


@pytest.mark.parametrize(("commands", "first_line", "changed", "then"), GOLDEN)
def test_steps_of_level_1(
    hosted: Hosted,
    commands: tuple[str, ...],
    first_line: str | None,
    changed: bool,
    then: set[str],
) -> None:
    _, step = follow(hosted(1), *commands)
    assert step.admissible is changed
    assert admissible(hosted(1), step) == then
    assert step.text
    if first_line is not None:
        assert step.text.splitlines()[0] == first_line


def test_index_and_words_are_the_same_command(hosted: Hosted) -> None:
    env = hosted(1)
    state, _ = env.reset()
    assert env.game.commands[1] == "go south"
    assert same(env.step(state, 1)[1], env.step(state, "go south")[1])


def test_admissible_commands_at_known_states_of_level_4(hosted: Hosted) -> None:
    env = hosted(4)
    _, step = follow(env)
    assert admissible(env, step) == {"go south", "go west", "open fridge"}

    parsley = ("go west", "take parsley", "go east", "open fridge")
    _, step = follow(env, *parsley)
    assert admissible(env, step) == {
        *("go south", "go west", "close fridge"),
        *("drop parsley", "put parsley on counter", "insert parsley into fridge"),
    }
    _, step = follow(env, *parsley, "insert parsley into fridge")
    out = {"take parsley", "take parsley from fridge"}
    assert admissible(env, step) == {"go south", "go west", "close fridge", *out}
    _, step = follow(env, *parsley, "insert parsley into fridge", "close fridge")
    assert admissible(env, step) == {"go south", "go west", "open fridge"}
    _, step = follow(env, *parsley, "put parsley on counter")
    out = {"take parsley", "take parsley from counter"}
    assert admissible(env, step) == {"go south", "go west", "close fridge", *out}

    garden = ("go south", "go east", "take blue key", "go north")
    _, step = follow(env, *garden)
    assert admissible(env, step) == {
        *("go south", "drop blue key", "unlock blue door with blue key"),
    }
    _, step = follow(env, *garden, "unlock blue door with blue key")
    assert admissible(env, step) == {"go south", "drop blue key", "open blue door"}
    _, step = follow(env, *garden, "unlock blue door with blue key", "open blue door")
    assert admissible(env, step) == {"go south", "go north", "drop blue key", "close blue door"}


def test_meal_of_level_7(hosted: Hosted) -> None:
    env = hosted(7)
    knife_and_carrot = (
        *("go south", "go east", "go south", "take knife", "go north", "go north", "take carrot"),
        *("slice carrot with knife", "go south", "go east", "take cucumber"),
    )
    # With an ingredient that is not cut, nothing is made.
    _, step = follow(env, *knife_and_carrot, *HOME)
    assert "prepare meal" not in admissible(env, step)
    assert "chop cucumber with knife" in admissible(env, step)
    state, step = follow(env, *knife_and_carrot, *HOME, "prepare meal")
    assert not step.admissible
    assert not step.subtasks[6]
    state, step = env.step(state, "chop cucumber with knife")
    assert "prepare meal" in admissible(env, step)
    # Only the kitchen will do.
    _, elsewhere = env.step(env.step(state, "go south")[0], "prepare meal")
    assert not elsewhere.admissible
    state, step = env.step(state, "prepare meal")
    assert (step.reward, bool(step.subtasks[6])) == (5, True)
    assert "eat meal" in admissible(env, step)
    assert not {"drop carrot", "drop cucumber", "prepare meal"} & admissible(env, step)
    # To eat it afterwards loses nothing.
    state, step = env.step(state, "eat meal")
    assert (step.reward, step.terminated, bool(step.subtasks[6])) == (0, False, True)
    assert step.admissible
    state, step = env.step(state, "examine fridge")
    assert step.text is not None
    assert step.text.startswith("A note on the fridge says: slice the carrot and chop the cucumber")
    assert not step.admissible


@pytest.mark.parametrize(
    "command",
    ["quit", "SAVE", "undo", "restart", "look. quit", "look then restore", "tw-print state"],
)
def test_commands_to_the_interpreter_are_refused(hosted: Hosted, command: str) -> None:
    state, _ = hosted(1).reset()
    with pytest.raises(grue.UsageError, match="is a command to the interpreter"):
        hosted(1).step(state, command)


@pytest.mark.parametrize("command", ["look\nlook", "look\x00", "look \x1b[A", "x" * 199, "é" * 100])
def test_commands_that_cannot_be_typed_are_refused(hosted: Hosted, command: str) -> None:
    state, _ = hosted(1).reset()
    with pytest.raises(grue.UsageError, match=r"characters|at most \d+ bytes"):
        hosted(1).step(state, command)
    assert same(hosted(1).step(state, "go south")[1], follow(hosted(1), "go south")[1])


def test_limit_of_steps_truncates() -> None:
    env = grue.make("saladworld-1", "hosted", episode_steps=3)
    state, step = env.reset()
    flags = []
    for _ in range(4):
        state, step = env.step(state, "look")
        flags.append((step.truncated, step.terminated))
    env.close()
    # The limit is told, not enforced: the caller ends the episode.
    assert flags == [(False, False), (False, False), (True, False), (True, False)]


def test_limit_of_zero_steps_is_a_limit() -> None:
    env = grue.make("saladworld-1", "hosted", episode_steps=0)
    assert env.episode_steps == 0
    assert env.reset()[1].truncated
    env.close()


def test_unknown_engine() -> None:
    with pytest.raises(grue.UsageError, match=r"no engine 'steam'; the engines are .*hosted"):
        grue.make("saladworld-1", engine="steam")


# States are pure.


def test_step_from_an_old_state_again(hosted: Hosted) -> None:
    env = hosted(4)
    state, _ = follow(env, "go south", "go east", "take blue key")
    _, first = env.step(state, "go north")
    follow(env, *env.game.walkthrough)  # elsewhere meanwhile
    then, second = env.step(state, "go north")
    assert same(first, second)
    assert then.steps == 4
    assert same(env.step(state, "drop blue key")[1], env.step(state, "drop blue key")[1])


def test_interleaved_states_do_not_meet(hosted: Hosted, rng: random.Random) -> None:
    env = hosted(2)
    lines = [[rng.choice(env.game.commands) for _ in range(25)] for _ in range(3)]
    alone = []
    for commands in lines:
        state, _ = env.reset()
        trace = []
        for command in commands:
            state, step = env.step(state, command)
            trace.append(step)
        alone.append(trace)
    states = [env.reset()[0] for _ in lines]
    for turn in range(25):
        for i, commands in enumerate(lines):
            states[i], step = env.step(states[i], commands[turn])
            assert same(step, alone[i][turn]), (i, turn, commands[turn])


def test_two_environments_at_once(hosted: Hosted) -> None:
    mine, other = (grue.make("saladworld-1", "hosted") for _ in range(2))
    a, _ = mine.reset()
    b, _ = other.reset()
    for command in TO_MARKET:
        a, step = mine.step(a, command)
        b, still = other.step(b, "look")
        assert still.text is not None
        assert still.text.startswith("-= Kitchen =-")
    assert step.score == 10
    # A state of one environment can be stepped in another of the same game.
    assert same(other.step(a, "take lettuce")[1], mine.step(a, "take lettuce")[1])
    mine.close()
    other.close()


def test_seeds(hosted: Hosted) -> None:
    env = hosted(7)
    played = []
    for seed in (0, 0, 1, 123_456_789):
        state, step = env.reset(seed)
        trace = [step]
        for command in env.game.walkthrough[:30]:
            state, step = env.step(state, command)
            trace.append(step)
        played.append(trace)
    for trace in played[1:]:
        assert all(same(a, b) for a, b in zip(played[0], trace, strict=True))


# Properties of any play.


@settings(max_examples=20, deadline=None, derandomize=True)
@given(actions=st.lists(st.integers(0, 14), max_size=40))
def test_any_play_of_level_2(hosted: Hosted, actions: list[int]) -> None:
    env = hosted(2)
    state, step = env.reset()
    total = 0
    for action in actions:
        before, facts = step, state.facts
        state, step = env.step(state, action)
        total += step.reward
        assert step.score == total
        assert (step.subtasks >= before.subtasks).all()
        assert step.score == sum(
            s.reward for s, done in zip(env.game.subtasks, step.subtasks, strict=True) if done
        )
        assert step.terminated == step.subtasks.all()
        assert step.admissible == before.admissible_set[action] == (state.facts != facts)
        assert step.text
        assert not set(step.text) & set("0123456789/>")
        if step.terminated:
            break


# A game that is not SaladWorld.


@pytest.fixture(scope="session")
def game_with_a_fine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rooms; to enter the attic costs two points, the lamp on the stand is worth five."""
    import textworld
    from textworld.generator import compile_game
    from textworld.generator.game import Event, Quest

    maker: Any = textworld.GameMaker()  # whose annotations are not those it takes
    hall, attic = maker.new_room("hall"), maker.new_room("attic")
    maker.connect(hall.north, attic.south)
    maker.set_player(hall)
    lamp, stand = maker.new(type="o", name="lamp"), maker.new(type="s", name="stand")
    attic.add(lamp)
    hall.add(stand)
    maker.quests = [
        Quest([Event(conditions=[maker.new_fact("at", maker.player, attic)])], reward=-2),
        Quest([Event(conditions=[maker.new_fact("on", lamp, stand)])], reward=5),
    ]
    options = textworld.GameOptions()
    options.path = str(tmp_path_factory.mktemp("fine") / "fine.z8")
    return Path(compile_game(maker.build(), options))


def test_generated_game_is_won_by_its_walkthrough(made_game: Path) -> None:
    env = grue.make(made_game, "hosted")
    assert isinstance(env, HostedEnv)
    assert env.game.name == "made"
    assert env.game.walkthrough
    state, step = env.reset()
    for command in env.game.walkthrough:
        assert not step.terminated
        assert env.logic.admissible(state.facts, command)
        state, step = env.step(state, command)
        assert step.admissible
    assert step.terminated
    assert step.subtasks.all()
    assert step.score == env.game.max_score > 0
    env.close()


def test_negative_scores(game_with_a_fine: Path) -> None:
    env = grue.make(game_with_a_fine, "hosted")
    state, _ = env.reset()
    seen = []
    for command in ("go north", "take lamp", "go south", "put lamp on stand"):
        state, step = env.step(state, command)
        seen.append((step.reward, step.score, step.terminated))
    assert seen == [(-2, -2, False), (0, -2, False), (0, -2, False), (5, 3, True)]
    assert env.max_score == 3
    env.close()
    engines = Verifier(grue.load(game_with_a_fine))
    report = engines.run(300, seed=0)
    assert str(report.first or "") == ""
    assert {"go/north", "put"} <= report.rules
    told = [engines.compiled.decode(s) for s in _fined(engines)]
    assert told == ["Your score changed by minus two points."]
    engines.real.close()


def _fined(engines: Verifier) -> list[Any]:
    """What is printed on the way into the attic, from the score on."""
    state, _ = engines._reset()
    _, step = engines._step(state, engines.game.commands.index("go north"))
    words = engines.compiled.vocabulary.encode("Your score changed by minus two points.")
    printed = np.asarray(step.observation)
    start = int(np.flatnonzero(printed == words[0])[-1])
    return [printed[start:]]


def test_quests_that_hold_at_the_start(tmp_path: Path) -> None:
    """They are done, and score, before the first command."""
    import textworld
    from textworld.generator import compile_game
    from textworld.generator.game import Event, Quest

    maker: Any = textworld.GameMaker()
    hall, attic = maker.new_room("hall"), maker.new_room("attic")
    maker.connect(hall.north, attic.south)
    maker.set_player(hall)
    lamp, stand = maker.new(type="o", name="lamp"), maker.new(type="s", name="stand")
    hall.add(lamp, stand)
    maker.quests = [
        Quest([Event(conditions=[maker.new_fact("at", lamp, hall)])], reward=2),
        Quest([Event(conditions=[maker.new_fact("at", maker.player, hall)])], reward=3),
        Quest([Event(conditions=[maker.new_fact("on", lamp, stand)])], reward=5),
    ]
    options = textworld.GameOptions()
    options.path = str(tmp_path / "decided.z8")
    engines = Verifier(grue.load(compile_game(maker.build(), options)))
    report = engines.run(300, seed=0)
    assert str(report.first or "") == ""
    _, step = engines._reset()
    assert (int(step.score), step.subtasks.tolist()) == (5, [True, True, False])
    assert not step.terminated
    engines.real.close()
