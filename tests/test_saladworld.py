"""The benchmark against the paper: its tables, its scores, its texts, and that it can be won."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import pytest

import grue
from grue.engine.hosted import HostedEnv, HostedState
from grue.games.game import Fact, Game
from grue.games.logic import Action, Facts, Logic, ground
from grue.games.saladworld.world import LEVELS

# Jain et al. (2020), Table 1 and the table of subtasks:
# rooms, objects, subtasks, commands, maximum, scores that can be had; then the step limit.
TABLE = {
    1: (4, 2, 2, 8, 15, {10, 15}, 100),
    2: (7, 4, 3, 15, 20, {5, 10, 15, 20}, 200),
    3: (7, 4, 3, 15, 20, {5, 10, 15, 20}, 200),
    4: (9, 8, 4, 50, 25, {5, 10, 15, 20, 25}, 200),
    5: (11, 15, 5, 141, 30, {5, 10, 15, 20, 25, 30}, 200),
    6: (12, 20, 6, 283, 35, {5, 10, 15, 20, 25, 30, 35}, 200),
    7: (12, 20, 7, 295, 40, {5, 10, 15, 20, 25, 30, 35, 40}, 200),
}
REWARDS = (10, 5, 5, 5, 5, 5, 5)
MARKET, LETTUCE, TOMATO, PARSLEY, BANANA, APPLE, MEAL = range(7)


@pytest.fixture
def game(level: int) -> Game:
    return grue.load(f"saladworld-{level}")


def errands(level: int) -> list[tuple[str, ...]]:
    return [subtask.errand for subtask in LEVELS[level - 1].subtasks]


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


# Winnable: levels 1 to 3, by looking at every state.


def changes(logic: Logic, commands: Iterable[str]) -> dict[str, list[Action]]:
    return {c: [a for a in logic.actions[c] if a.changes_state] for c in commands}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_every_state_can_still_be_won(number: int) -> None:
    """All states within the level's commands, and from each of them a way to the end."""
    game = grue.load(f"saladworld-{number}")
    logic = ground(game)
    # Facts as bits: there are tens of thousands of states.
    index: dict[Fact, int] = {}

    def bits(facts: Collection[Fact]) -> int:
        return sum(1 << index.setdefault(fact, len(index)) for fact in facts)

    table = [
        [(bits(a.needs), bits(a.adds), bits(a.removes)) for a in actions]
        for actions in changes(logic, game.commands).values()
    ]
    wins = [[bits(win) for win in quest.wins] for quest in logic.quests]
    fails = [bits(fail) for quest in logic.quests for fail in quest.fails]
    goal = (1 << len(wins)) - 1

    start: tuple[int, int] = (bits(logic.initial), 0)
    before: dict[tuple[int, int], list[tuple[int, int]]] = {start: []}
    queue: deque[tuple[int, int]] = deque([start])
    while queue:
        state = queue.popleft()
        facts, done = state
        if done == goal:
            continue
        for actions in table:
            possible = [a for a in actions if a[0] & facts == a[0]]
            assert len(possible) <= 1
            for _, adds, removes in possible:
                then = facts & ~removes | adds
                assert not any(fail & then == fail for fail in fails)
                held = sum(
                    1 << i for i, quest in enumerate(wins) if any(w & then == w for w in quest)
                )
                following = (then, done | held)
                if following not in before:
                    before[following] = []
                    queue.append(following)
                before[following].append(state)

    rewards = [quest.reward for quest in logic.quests]
    scores = {sum(r for i, r in enumerate(rewards) if done >> i & 1) for _, done in before if done}
    assert scores == TABLE[number][5]

    winnable = {state for state in before if state[1] == goal}
    queue = deque(winnable)
    while queue:
        for state in before[queue.popleft()]:
            if state not in winnable:
                winnable.add(state)
                queue.append(state)
    assert winnable == set(before)
    # Level 1 can be counted by hand: 3 rooms before the market is entered, then 4 rooms times 5
    # places for the lettuce, then the end. The others are too large to have ended early.
    assert len(before) == 24 if number == 1 else len(before) > 10_000


# Winnable: levels 4 to 7, by an argument over their commands.

CUTS_AND_HEAT = ("slice", "chop", "dice", "cook")
MAKING = ("make", "eat")


def rule(action: Action) -> str:
    return action.rule.split("/")[0]


def touched(actions: Iterable[Action]) -> Facts:
    return frozenset().union(*(a.adds | a.removes for a in actions))


def has_way_back(action: Action, actions: Iterable[Action]) -> bool:
    """Whether an action undoes this one exactly and needs no more than this one leaves behind."""
    left = (action.needs - action.removes) | action.adds
    return any(
        b.adds == action.removes and b.removes == action.adds and b.needs <= left for b in actions
    )


def run(logic: Logic, facts: Facts, commands: Iterable[str]) -> tuple[list[Action], set[int]]:
    """What commands do in the rules alone: the actions taken and the subtasks that were done."""
    taken, done = [], set()
    for command in commands:
        for action in logic.actions[command]:
            if action.changes_state and action.needs <= facts:
                facts = action.apply(facts)
                taken.append(action)
                break
        done |= {i for i, q in enumerate(logic.quests) if any(w <= facts for w in q.wins)}
    return taken, done


def check_can_go_home(
    logic: Logic, actions: Sequence[Action], hidden: Facts
) -> list[tuple[Fact, Fact]]:
    """From every state there is a way back to the start, up to ``hidden`` facts and open locks.

    Take any way from the start and undo its actions from last to first. That works if each has
    an exact way back, and if nothing in between took away what the way back needs. It needs only
    what the action itself needed or left, so it is enough that whatever is not undone touches no
    such fact. Not undone are the actions that touch hidden facts alone, and unlocking where
    there is no locking. Returns the locks that may stay open: (locked, closed) facts.
    """
    seen = [a for a in actions if not a.adds | a.removes <= hidden]
    for action in seen:
        assert not (action.needs | action.adds | action.removes) & hidden, action
    locks = []
    for one_way in [a for a in seen if not has_way_back(a, seen)]:
        assert rule(one_way) == "unlock", f"no way back from: {one_way.event}"
        (locked,), (closed,) = one_way.removes, one_way.adds
        # Nothing wants the lock back, and it never comes back ...
        for other in actions:
            assert locked not in other.adds
            assert locked not in other.needs or rule(other) == "unlock"
        # ... and what else touches the door cannot have come before: it needs the door closed or
        # open, and a door is one of the three at a time.
        states = [locked, closed, ("open", *closed[1:])]
        check_one_at_a_time(logic, actions, states)
        for other in seen:
            if other.removes != one_way.removes and closed in other.needs | other.adds:
                assert set(states[1:]) & other.needs, other
        if (locked, closed) not in locks:
            locks.append((locked, closed))
    return locks


def check_one_at_a_time(logic: Logic, actions: Iterable[Action], facts: Sequence[Fact]) -> None:
    group = set(facts)
    assert len(group & logic.initial) == 1
    for action in actions:
        assert action.removes <= action.needs
        assert len(group & action.adds) == len(group & action.removes) <= 1, action


def check_winnable(logic: Logic, commands: Collection[str], work: Sequence[Sequence[str]]) -> None:
    """Proves that no play within the commands can lose the game or make it unwinnable.

    ``work`` is an errand for each subtask that does it from the start.
    """
    actions = list({a: None for c in commands for a in logic.actions[c] if a.changes_state})

    # Nothing that ends the game as lost can come about.
    possible = logic.initial | touched(actions)
    for quest in logic.quests:
        for fail in quest.fails:
            assert not fail <= possible, f"a subtask can be lost: {sorted(fail)}"

    # All subtasks but the meal: leave aside how food is cut and cooked, and whatever befalls the
    # meal and its ingredients. None of it is asked for by these subtasks or by the ways to them.
    kitchen = [a for a in actions if rule(a) in (*CUTS_AND_HEAT, *MAKING)]
    spent = {fact[1] for fact in touched(a for a in actions if rule(a) in MAKING)}
    every_fact = logic.initial | touched(actions)
    hidden = touched(kitchen) | {f for f in every_fact if spent & set(f)}
    locks = check_can_go_home(logic, actions, hidden)
    for i, errand in enumerate(work):
        if i == MEAL:
            continue
        assert not any(win & hidden for win in logic.quests[i].wins)
        for home in homes(logic.initial, locks):
            taken, done = run(logic, home, errand)
            assert i in done, f"subtask {i} cannot be done"
            assert not any(a.needs & hidden for a in taken)
    if len(work) <= MEAL:
        assert not kitchen
        return

    # The meal, as long as it has not been made: leave aside how food is cut and cooked.
    (make,) = (a for a in actions if rule(a) == "make")
    (meal,) = logic.quests[MEAL].wins
    assert meal <= make.adds  # To make it is the subtask: there is nothing to lose after it.
    # Before, there is no meal to eat, nor to do anything else with.
    theirs = {f for f in every_fact if f[1] in {fact[1] for fact in meal}}
    changed = [a for a in actions if theirs & (a.adds | a.removes) and a != make]
    assert all(a.needs & theirs - logic.initial for a in changed)
    earlier = [a for a in actions if a not in (make, *changed)]
    cooking = [a for a in earlier if rule(a) in CUTS_AND_HEAT]
    hidden = touched(cooking)
    locks = check_can_go_home(logic, earlier, hidden)
    # The ingredients' own cuts are the only hidden facts that matter, and whichever of them
    # have been made, the errand works.
    ingredients = {fact[1] for fact in make.removes}
    relevant = {f for f in hidden | logic.initial if f in hidden and f[1] in ingredients}
    states = {logic.initial & relevant}
    while (
        more := {
            a.apply(s) & relevant
            for s in states
            for a in cooking
            if a.needs & relevant <= s and (a.adds | a.removes) & relevant
        }
        - states
    ):
        states |= more
    for cuts in states:
        start = (logic.initial - relevant) | cuts
        for home in homes(start, locks):
            taken, done = run(logic, home, work[MEAL])
            assert MEAL in done, f"the meal cannot be made: {sorted(cuts)}"
            assert not any(a.needs & hidden - relevant for a in taken)


def homes(start: Facts, locks: Sequence[tuple[Fact, Fact]]) -> Iterable[Facts]:
    """The start with each choice of locks that have been opened for good."""
    for count in range(len(locks) + 1):
        for chosen in itertools.combinations(locks, count):
            yield start - {a for a, _ in chosen} | {b for _, b in chosen}


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_no_play_within_the_commands_is_lost(number: int) -> None:
    game = grue.load(f"saladworld-{number}")
    check_winnable(ground(game), game.commands, errands(number))


def test_one_way_actions_are_those_known() -> None:
    found = {}
    for number in (4, 5, 6, 7):
        game = grue.load(f"saladworld-{number}")
        actions = [a for c in changes(ground(game), game.commands).values() for a in c]
        found[number] = {rule(a) for a in actions if not has_way_back(a, actions)}
    assert found == {4: {"unlock"}, 5: set(), 6: set(), 7: {*CUTS_AND_HEAT, *MAKING}}


@pytest.mark.parametrize(
    ("number", "added", "removed", "reason"),
    [
        (4, "eat lettuce", None, "can be lost"),
        (7, "eat banana", None, "can be lost"),
        (7, "chop carrot with knife", None, "can be lost"),
        (7, "cook cucumber with stove", None, "can be lost"),
        (5, None, "drop chest key", "no way back from: taking the chest key"),
        (6, None, "open red door", "no way back from: closing the red door"),
        (7, None, "slice carrot with knife", "the meal cannot be made"),
        (7, None, "take banana from wooden chest", "subtask 4 cannot be done"),
    ],
)
def test_the_argument_notices_a_command_set_that_can_lose(
    number: int, added: str | None, removed: str | None, reason: str
) -> None:
    game = grue.load(f"saladworld-{number}")
    commands = {*game.commands, added} - {removed, None}
    work = [[c for c in errand if c != removed] for errand in errands(number)]
    with pytest.raises(AssertionError, match=reason):
        check_winnable(ground(game), {c for c in commands if c}, work)


def test_the_argument_lets_harmless_commands_pass() -> None:
    game = grue.load("saladworld-7")
    more = ("slice banana with knife", "cook lettuce with oven", "drop meal", "take meal")
    check_winnable(ground(game), (*game.commands, *more), errands(7))


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
