"""The grounded rules, against values worked out by hand."""

from __future__ import annotations

import pytest

import grue
from grue.games.game import Game
from grue.games.logic import Action, Facts, Logic, Quest, ground

# Level 1: r_0 kitchen, r_1 living room (south), r_2 open space (east), r_3 vegetable market
# (east); f_0 is the lettuce, s_0 the counter.
ROOMS = ("r_0", "r_1", "r_2", "r_3")
PAIRS = (("r_0", "r_1"), ("r_1", "r_2"), ("r_2", "r_3"))


@pytest.fixture(scope="module")
def logic() -> Logic:
    return ground(grue.load("saladworld-1"))


def fact(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def facts(*texts: str) -> Facts:
    return frozenset(fact(text) for text in texts)


def go(direction: str, here: str, there: str, position: str) -> Action:
    return Action(
        f"go/{direction}",
        f"going {direction}",
        (),
        facts(f"at P {here}", f"free {here} {there}", f"free {there} {here}", position),
        facts(f"at P {there}"),
        facts(f"at P {here}"),
    )


def show(rule: str, event: str, nouns: tuple[str, ...], *needs: str) -> Action:
    return Action(rule, event, nouns, facts(*needs), frozenset(), frozenset())


def floor(rule: str, event: str, room: str) -> Action:
    held, lying = "in f_0 I", f"at f_0 {room}"
    before, after = (lying, held) if rule == "take" else (held, lying)
    return Action(rule, event, ("f_0",), facts(f"at P {room}", before), facts(after), facts(before))


COUNTER = ("at P r_0", "at s_0 r_0")
TAKE_FROM_COUNTER = Action(
    "take/s",
    "removing the lettuce from the counter",
    ("f_0", "s_0"),
    facts(*COUNTER, "on f_0 s_0"),
    facts("in f_0 I"),
    facts("on f_0 s_0"),
)
EXPECTED = {
    "go north": [go("north", "r_1", "r_0", "north_of r_0 r_1")],
    "go south": [go("south", "r_0", "r_1", "north_of r_0 r_1")],
    "go east": [
        go("east", "r_1", "r_2", "west_of r_1 r_2"),
        go("east", "r_2", "r_3", "west_of r_2 r_3"),
    ],
    "go west": [
        go("west", "r_2", "r_1", "west_of r_1 r_2"),
        go("west", "r_3", "r_2", "west_of r_2 r_3"),
    ],
    "look": [show("look", "looking", (), f"at P {r}") for r in ROOMS],
    "inventory": [show("inventory", "taking inventory", (), f"at P {r}") for r in ROOMS],
    "take lettuce": [
        TAKE_FROM_COUNTER,
        *(floor("take", "taking the lettuce", r) for r in ROOMS),
    ],
    "take lettuce from counter": [TAKE_FROM_COUNTER],
    "drop lettuce": [floor("drop", "dropping the lettuce", r) for r in ROOMS],
    "put lettuce on counter": [
        Action(
            "put",
            "putting the lettuce on the counter",
            ("f_0", "s_0"),
            facts(*COUNTER, "in f_0 I"),
            facts("on f_0 s_0"),
            facts("in f_0 I"),
        )
    ],
    "eat lettuce": [
        Action(
            "eat",
            "eating the lettuce",
            ("f_0",),
            facts("in f_0 I", "edible f_0"),
            facts("consumed f_0"),
            facts("in f_0 I", "edible f_0"),
        )
    ],
    "examine counter": [show("examine/t", "examining the counter", ("s_0",), *COUNTER)],
    "examine lettuce": [
        show("examine/s", "examining the lettuce", ("f_0",), *COUNTER, "on f_0 s_0"),
        *(
            show("examine/t", "examining the lettuce", ("f_0",), f"at P {r}", f"at f_0 {r}")
            for r in ROOMS
        ),
    ],
}


def test_actions_of_level_1_in_full(logic: Logic) -> None:
    assert set(logic.actions) == set(EXPECTED)
    assert logic.commands == tuple(sorted(EXPECTED))
    for command, actions in EXPECTED.items():
        assert len(logic.actions[command]) == len(actions), command
        assert set(logic.actions[command]) == set(actions), command


def test_facts_of_level_1_in_full(logic: Logic) -> None:
    ways = [f"free {a} {b}" for pair in PAIRS for a, b in (pair, pair[::-1])]
    assert logic.initial == facts(
        *("at P r_0", "at s_0 r_0", "at f_0 r_3"),
        *("edible f_0", "cookable f_0", "raw f_0", "cuttable f_0", "uncut f_0"),
        *ways,
        *("north_of r_0 r_1", "south_of r_1 r_0"),
        *("west_of r_1 r_2", "east_of r_2 r_1", "west_of r_2 r_3", "east_of r_3 r_2"),
    )


def test_quests_of_level_1(logic: Logic) -> None:
    assert logic.quests == (
        Quest(10, (facts("at P r_3"),), (), optional=False),
        Quest(5, (facts("on f_0 s_0"),), (facts("consumed f_0"),), optional=False),
    )


def test_apply_removes_then_adds() -> None:
    (action,) = EXPECTED["put lettuce on counter"]
    before = facts("in f_0 I", "at P r_0", "at s_0 r_0", "raw f_0")
    assert action.apply(before) == facts("on f_0 s_0", "at P r_0", "at s_0 r_0", "raw f_0")
    assert before == facts("in f_0 I", "at P r_0", "at s_0 r_0", "raw f_0")


# The lettuce's place and the player's room, and what then changes the state.
STATES = [
    ("at P r_0", "at f_0 r_3", {"go south"}),
    ("at P r_1", "at f_0 r_3", {"go north", "go east"}),
    ("at P r_3", "at f_0 r_3", {"go west", "take lettuce"}),
    ("at P r_3", "in f_0 I", {"go west", "drop lettuce"}),
    ("at P r_2", "in f_0 I", {"go east", "go west", "drop lettuce"}),
    ("at P r_0", "in f_0 I", {"go south", "drop lettuce", "put lettuce on counter"}),
    ("at P r_0", "on f_0 s_0", {"go south", "take lettuce"}),
    ("at P r_1", "on f_0 s_0", {"go north", "go east"}),
    ("at P r_0", "at f_0 r_0", {"go south", "take lettuce"}),
]


@pytest.mark.parametrize(("player", "lettuce", "expected"), STATES)
def test_admissible_commands_of_level_1(
    logic: Logic, player: str, lettuce: str, expected: set[str]
) -> None:
    now = logic.initial - facts("at P r_0", "at f_0 r_3") | facts(player, lettuce)
    commands = grue.load("saladworld-1").commands
    assert {c for c in commands if logic.admissible(now, c)} == expected


@pytest.mark.parametrize("command", ["look", "inventory", "examine counter", "dance", ""])
def test_showing_and_nonsense_change_nothing(logic: Logic, command: str) -> None:
    assert not logic.admissible(logic.initial, command)


def test_happened_finds_the_action_that_fits(logic: Logic) -> None:
    counter = logic.initial - facts("at f_0 r_3") | facts("on f_0 s_0")
    assert logic.happened(counter, "Removing The Lettuce From The Counter") == TAKE_FROM_COUNTER
    assert logic.happened(logic.initial, "removing the lettuce from the counter") is None
    assert logic.happened(logic.initial, "dancing") is None
    moved = logic.initial - facts("at P r_0") | facts("at P r_2")
    event = logic.happened(moved, "going east")
    assert event is not None
    assert event.adds == facts("at P r_3")


def test_most_specific_rule_comes_first() -> None:
    logic = ground(grue.load("saladworld-7"))
    rules = [action.rule for action in logic.actions["cook tomato with stove"]]
    assert rules == ["cook/stove/burned", "cook/stove/cooked/raw"]
    for actions in logic.actions.values():
        sizes = [len(action.needs) for action in actions]
        assert sizes == sorted(sizes, reverse=True)


def test_meal_needs_both_cuts() -> None:
    game = grue.load("saladworld-7")
    names = {game.entity_name(entity): entity for entity in game.infos}
    carrot, cucumber, meal = names["carrot"], names["cucumber"], names["meal"]
    (make,) = ground(game).actions["prepare meal"]
    assert make.needs == facts(
        f"at P {names['kitchen']}",
        f"cooking_location {names['kitchen']} RECIPE",
        f"out {meal} RECIPE",
        *(f"in {food} I" for food in (carrot, cucumber)),
        *(f"raw {food}" for food in (carrot, cucumber)),
        *(f"ingredient_1 {carrot}", f"sliced {carrot}"),
        *(f"ingredient_2 {cucumber}", f"chopped {cucumber}"),
    )
    assert make.removes == facts(f"in {carrot} I", f"in {cucumber} I")
    assert make.adds == facts(
        f"in {meal} I", f"edible {meal}", f"raw {meal}", f"used {carrot}", f"used {cucumber}"
    )


def test_doors_open_both_ways() -> None:
    game = grue.load("saladworld-3")
    names = {game.entity_name(entity): entity for entity in game.infos}
    garden, market, door = names["garden"], names["supermarket"], names["blue door"]
    opening = ground(game).actions["open blue door"]
    assert {frozenset(a.needs & facts(f"at P {garden}", f"at P {market}")) for a in opening} == {
        facts(f"at P {garden}"),
        facts(f"at P {market}"),
    }
    for action in opening:
        assert action.removes == facts(f"closed {door}")
        assert action.adds == facts(
            f"open {door}", f"free {garden} {market}", f"free {market} {garden}"
        )


def test_grounding_is_done_once_for_a_game() -> None:
    game = grue.load("saladworld-2")
    assert ground(game) is ground(Game("other name", game.story, game.data))
    copy = Game(game.name, game.story, dict(game.data))
    assert ground(copy) is not ground(game)
    assert ground(copy).actions == ground(game).actions
