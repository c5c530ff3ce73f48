"""That every level can be won, from whatever state its commands lead to."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Iterable, Sequence

import pytest
from saladworld_facts import MEAL, TABLE, errands

import grue
from grue.games.game import Fact
from grue.games.logic import Action, Facts, Logic, ground

# Levels 1 to 3, by looking at every state.


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


# Levels 4 to 7, by an argument over their commands.

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
