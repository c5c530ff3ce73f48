"""The benchmark against the paper: its tables, its scores, its texts."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from saladworld_facts import BANANA, LETTUCE, MARKET, MEAL, REWARDS, TABLE, TOMATO, errands

import grue
from grue.engine.hosted import HostedState
from grue.engine.hosted_textworld import HostedEnv
from grue.games.game import Game
from grue.games.logic import ground
from grue.games.saladworld.world import LEVELS


@pytest.fixture
def game(level: int) -> Game:
    return grue.load(f"saladworld-{level}")


# The tables.


def test_counts_are_those_of_the_paper(level: int, game: Game) -> None:
    rooms, objects, subtasks, commands, maximum, _, limit = TABLE[level]
    assert len(game.rooms) == rooms
    assert len(game.objects) == objects
    assert len(game.subtasks) == subtasks
    assert len(game.commands) == len(set(game.commands)) == commands
    assert game.max_score == maximum
    assert game.episode_steps == limit
    assert tuple(s.reward for s in game.subtasks) == REWARDS[:subtasks]


def test_table_of_the_docs_is_that_of_the_games(level: int, game: Game) -> None:
    page = Path(__file__).parents[1] / "docs" / "saladworld.md"
    rows = re.findall(rf"^\| {level} \|(.*)\|$", page.read_text(), re.MULTILINE)
    assert [[int(cell) for cell in row.split("|")] for row in rows] == [
        [
            *(len(game.rooms), len(game.objects), len(game.subtasks), len(game.commands)),
            *(game.max_score, game.episode_steps, len(game.walkthrough)),
        ]
    ]


def test_rooms_of_the_paper_are_there() -> None:
    names = {room.name for room in grue.load("saladworld-7").rooms}
    assert names == {
        *("kitchen", "vegetable market", "open space", "garden", "supermarket", "backyard"),
        *("cutlery shop", "fruit shop", "playroom", "cookhouse"),
        *("living room", "patio"),  # ours
    }


def test_every_level_starts_in_the_kitchen_with_nothing(game: Game) -> None:
    assert game.start == "kitchen"
    assert not [fact for fact in game.facts if fact[0] == "in" and fact[2] == "I"]


def test_blue_door_is_farther_from_level_3_on() -> None:
    def door(level: int) -> tuple[str, str]:
        rooms = grue.load(f"saladworld-{level}").rooms
        return next(
            (room.name, direction)
            for room in rooms
            for direction, way in room.exits.items()
            if way.door == "blue door" and room.name != "supermarket"
        )

    assert door(2) == ("open space", "south")
    assert {door(n) for n in range(3, 8)} == {("garden", "north")}


# The command sets.

MOVES = ["go north", "go south", "go east", "go west", "look"]


def test_commands_of_level_1() -> None:
    assert list(grue.load("saladworld-1").commands) == [
        *MOVES,
        "take lettuce",
        "drop lettuce",
        "put lettuce on counter",
    ]


@pytest.mark.parametrize("number", [2, 3])
def test_commands_of_levels_2_and_3(number: int) -> None:
    assert list(grue.load(f"saladworld-{number}").commands) == [
        *MOVES,
        "take lettuce",
        "take blue key",
        "take tomato",
        "drop lettuce",
        "drop blue key",
        "drop tomato",
        "put lettuce on counter",
        "put tomato on counter",
        "unlock blue door with blue key",
        "open blue door",
    ]


PORTABLES = {
    4: ["lettuce", "blue key", "tomato", "parsley", "knife"],
    5: ["chest key", "banana"],
    6: ["red key", "apple", "carrot", "cucumber"],
}
SUPPORTERS = {
    4: ["counter", "table"],
    5: ["shelf", "showcase", "sofa", "patio chair"],
    6: ["bench", "stove"],
}
CONTAINERS = {4: ["fridge"], 5: ["wooden chest"], 6: ["oven"]}
LOCKS = {4: ["blue door"], 5: ["wooden chest"], 6: ["red door"]}
KEYS = {"blue door": "blue key", "wooden chest": "chest key", "red door": "red key"}
KITCHEN_COMMANDS = {
    "slice carrot with knife",
    "chop cucumber with knife",
    "slice lettuce with knife",
    "slice tomato with knife",
    "chop parsley with knife",
    "dice apple with knife",
    "cook tomato with stove",
    "cook banana with stove",
    "cook apple with oven",
    "prepare meal",
    "eat meal",
    "examine fridge",
}


def upto(level: int, table: dict[int, list[str]]) -> list[str]:
    return [name for first, names in table.items() if first <= level for name in names]


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_commands_from_level_4_follow_the_rule(number: int) -> None:
    portables, supporters = upto(number, PORTABLES), upto(number, SUPPORTERS)
    containers = upto(number, CONTAINERS)
    expected = set(MOVES) | {"open fridge", "close fridge"}
    for x in portables:
        expected |= {f"take {x}", f"drop {x}"}
        expected |= {f"put {x} on {s}" for s in supporters}
        expected |= {f"insert {x} into {c}" for c in containers}
        expected |= {f"take {x} from {place}" for place in (*supporters, *containers)}
    for lock in upto(number, LOCKS):
        expected |= {f"open {lock}", f"close {lock}"}
        expected |= {f"unlock {lock} with {KEYS[lock]}", f"lock {lock} with {KEYS[lock]}"}
    if number == 7:
        expected |= KITCHEN_COMMANDS
    omitted = {"lock blue door with blue key"} if number == 4 else set()
    assert expected - set(grue.load(f"saladworld-{number}").commands) == omitted
    assert set(grue.load(f"saladworld-{number}").commands) <= expected


def test_every_command_can_be_understood(game: Game) -> None:
    assert set(game.commands) <= set(ground(game).actions)


# The scores, found by playing the real game.


def play(
    env: HostedEnv, state: HostedState, commands: Iterable[str], scores: set[int]
) -> HostedState:
    """Plays commands and checks each reward against the paper's table."""
    for command in commands:
        following, step = env.step(state, command)
        new = [i for i, done in enumerate(following.subtasks) if done and not state.subtasks[i]]
        assert step.reward == sum(REWARDS[i] for i in new), command
        assert step.score == state.score + step.reward
        assert step.terminated == all(following.subtasks)
        scores.add(int(step.score))
        state = following
        if step.terminated:
            break
    return state


def test_possible_scores(level: int, env: HostedEnv, rng: random.Random) -> None:
    """From each set of finished subtasks, each subtask that is left can be done next."""
    count = TABLE[level][2]
    past_market = {i for i in (LETTUCE, BANANA, MEAL) if i < count}

    def allowed(done: tuple[bool, ...]) -> bool:
        """Lettuce, banana and cucumber lie in or behind the market, so one enters it too."""
        return done[MARKET] or not any(done[i] for i in past_market)

    state, _ = env.reset()
    found = {state.subtasks: state}
    queue, scores = deque(found), set()
    while queue:
        done = queue.popleft()
        for i, errand in enumerate(errands(level)):
            gain = {i, MARKET} if i in past_market else {i}
            expected = tuple(was or j in gain for j, was in enumerate(done))
            known = expected in found
            # The largest levels play every set of subtasks, but not every way into it.
            if done[i] or (known and level > 5 and rng.random() > 0.1):
                continue
            after = play(env, found[done], errand, scores)
            assert after.subtasks == expected
            if not known:
                found[expected] = after
                queue.append(expected)
    assert scores - {0} == TABLE[level][5]
    assert set(found) == set(filter(allowed, itertools.product((False, True), repeat=count)))


def test_walkthrough_wins_within_the_limit(level: int, game: Game, env: HostedEnv) -> None:
    state, step = env.reset()
    for i, command in enumerate(game.walkthrough):
        assert command in game.commands
        assert step.admissible_set[game.commands.index(command)], command
        state, step = env.step(state, command)
        assert step.admissible, command
        assert step.terminated == (i + 1 == len(game.walkthrough))
    assert step.score == game.max_score
    assert step.subtasks.all()
    assert not step.truncated
    assert len(game.walkthrough) < game.episode_steps
    assert not step.admissible_set.any()


def test_errands_win_in_other_orders(level: int, env: HostedEnv, rng: random.Random) -> None:
    todo = range(TABLE[level][2])
    if level <= 3:
        orders = list(itertools.permutations(todo))
    else:
        orders = [tuple(todo), tuple(reversed(todo)), tuple(rng.sample(todo, len(todo)))]
        assert len(set(orders)) == 3
    for order in orders:
        commands = [command for i in order for command in errands(level)[i]]
        state = play(env, env.reset()[0], commands, set())
        assert state.score == TABLE[level][4], order
        assert state.steps < env.episode_steps


# Free play.


def test_eating_what_a_subtask_needs_loses(hosted: Callable[[int], HostedEnv]) -> None:
    env = hosted(1)
    state, _ = env.reset()
    for command in ("go south", "go east", "go east", "take lettuce"):
        state, step = env.step(state, command)
    state, step = env.step(state, "eat lettuce")
    assert step.text == "You eat the lettuce. Not bad.\n\n*** You lost! ***"
    assert (step.score, step.reward) == (10, 0)
    assert step.terminated
    assert not step.truncated
    assert step.admissible
    assert step.subtasks.tolist() == [True, False]
    assert not step.admissible_set.any()
    with pytest.raises(grue.UsageError, match="the game is over"):
        env.step(state, "look")


def test_another_cut_of_an_ingredient_loses(hosted: Callable[[int], HostedEnv]) -> None:
    env = hosted(7)
    state, _ = env.reset()
    fetch = ("go south", "go east", "go south", "take knife", "go north", "go north", "take carrot")
    for command in fetch:
        state, _ = env.step(state, command)
    _, step = env.step(state, "dice carrot with knife")
    assert step.text == "You dice the carrot.\n\n*** You lost! ***"
    assert (step.score, step.terminated) == (0, True)


def test_food_of_a_finished_subtask_may_be_eaten(hosted: Callable[[int], HostedEnv]) -> None:
    env = hosted(2)
    state, _ = env.reset()
    state = play(env, state, errands(2)[LETTUCE], set())
    for command in ("take lettuce", "eat lettuce"):
        state, step = env.step(state, command)
    assert step.text == "You eat the lettuce. Not bad."
    assert (step.score, step.terminated) == (15, False)
    assert play(env, state, errands(2)[TOMATO], set()).score == 20


# Without grue.


@pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning")
def test_story_plays_in_textworld(level: int, game: Game) -> None:
    import textworld

    wanted = textworld.EnvInfos(
        admissible_commands=True, score=True, max_score=True, won=True, lost=True
    )
    env = textworld.start(str(game.story), wanted)
    state = env.reset()
    assert state["max_score"] == game.max_score
    done = False
    for command in game.walkthrough:
        assert not done
        # TextWorld lists taking with its place only.
        listed = {c.split(" from ")[0] for c in state["admissible_commands"]}
        assert command.split(" from ")[0] in listed
        state, _, done = env.step(command)
    env.close()
    assert done
    assert (state["won"], state["lost"]) == (True, False)
    assert state["score"] == game.max_score


@pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning")
def test_story_plays_in_jericho(level: int, game: Game) -> None:
    import jericho

    emulator = jericho.FrotzEnv(str(game.story), seed=1)
    text = emulator.reset()[0]
    assert "-= Kitchen =-" in text
    for command in game.walkthrough:
        assert "*** The End ***" not in text
        text = emulator.step(command)[0]
    emulator.close()
    assert "*** The End ***" in text
    assert f"You scored {game.max_score} out of a possible {game.max_score}, in " in text


# Texts.


def test_opening(level: int, env: HostedEnv) -> None:
    text = env.reset()[1].text
    assert text is not None
    goal, room = text.split("\n\n", 1)
    assert goal.startswith("You are making a salad. Enter the vegetable market.")
    assert goal == env.game.objective
    assert len(goal.split()) <= 60
    assert "You are making a salad." not in room
    assert room.startswith("-= Kitchen =-\nYou are in the kitchen.\n")
    assert not re.search(r"textworld|inform|release|serial|[$_|]", text, re.IGNORECASE)


def test_texts_are_short_and_hold_no_clock(level: int, env: HostedEnv, rng: random.Random) -> None:
    state, step = env.reset()
    rooms = set()
    for turn in range(240):
        allowed = [c for c, yes in zip(env.game.commands, step.admissible_set, strict=True) if yes]
        # Every third command is any: refusals must be seen too.
        command = rng.choice(env.game.commands if turn % 3 == 0 else allowed)
        state, step = env.step(state, command)
        assert step.text
        assert not re.search(r"[0-9/>\[\]]|\bturns?\b", step.text), (command, step.text)
        assert step.text == step.text.strip()
        if step.text.startswith("-= "):
            rooms.add(step.text.splitlines()[0])
            assert len(step.text.split()) < 80, step.text
        if step.terminated:
            state, step = env.reset()
    assert len(rooms) >= 4


# The shipped files are what the builder makes.

SERIAL = slice(0x12, 0x18)


def test_rebuild_gives_the_shipped_files(level: int, game: Game, tmp_path: Path) -> None:
    from grue.games.saladworld.builder import build

    story = build(LEVELS[level - 1], tmp_path)
    rebuilt, shipped = bytearray(story.read_bytes()), bytearray(game.story.read_bytes())
    # Inform writes the day of the build into the header and nowhere else. The header's checksum
    # covers what follows the header, so it is the same on every day.
    rebuilt[SERIAL] = shipped[SERIAL] = b"000000"
    assert rebuilt == shipped
    assert json.loads(story.with_suffix(".json").read_text()) == game.data
    assert story.with_suffix(".json").read_bytes() == game.story.with_suffix(".json").read_bytes()
