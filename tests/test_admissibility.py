"""Admissibility on the hosted engine, against the emulator's memory and against TextWorld."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from both_engines import admissible

import grue
from grue.engine.hosted_textworld import HostedEnv
from grue.games.game import Game

Hosted = Callable[[int], HostedEnv]

pytestmark = pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning")


# e_t against the emulator's memory.


def word(memory: Any, address: int) -> int:
    return int(memory[address]) << 8 | int(memory[address + 1])


# Bookkeeping of the Inform 7 runtime, not of the world. Attributes 30 and 31 are the flags that
# its list writer and its rules for adjectives leave behind, 35 and 36 say that a thing has been
# mentioned, and property 76 holds for each thing the set of actions that were ever tried on it.
# "look", "inventory" and "examine" change these, and nothing else.
SCRATCH_ATTRIBUTES = frozenset((30, 31, 35, 36))
SCRATCH_PROPERTY = 76


def read_world(emulator: Any) -> list[tuple[int, frozenset[int], dict[int, bytes]]]:
    """Parent, attributes and properties of each object, as the Z-machine holds them.

    Jericho's own objects stop at 32 attributes and give property numbers without values, so this
    reads the object table itself (Z-Machine Standards Document 1.1, section 12). Inform keeps
    further properties, how food is cut and cooked among them, in a table at property 3.
    """
    memory = emulator._get_ram()
    address, end = word(memory, 0x0A) + 126, len(memory)
    world = []
    while address < end:
        table = word(memory, address + 12)
        end = min(end, table)  # Property tables follow the objects.
        flags = {i for i in range(48) if int(memory[address + i // 8]) >> (7 - i % 8) & 1}
        properties = read_properties(memory, table)
        properties.pop(SCRATCH_PROPERTY, None)
        world.append((word(memory, address + 6), frozenset(flags) - SCRATCH_ATTRIBUTES, properties))
        address += 14
    return world


def read_properties(memory: Any, table: int) -> dict[int, bytes]:
    found = {}
    at = table + 1 + 2 * int(memory[table])  # past the short name
    while size := int(memory[at]):
        number = size & 63
        if size & 0x80:
            length, at = int(memory[at + 1]) & 63 or 64, at + 2
        else:
            length, at = (2 if size & 0x40 else 1), at + 1
        found[number] = bytes(memory[at : at + length])
        if number == 3:
            more = word(memory, at)
            while identity := word(memory, more) & 0x7FFF:
                size = int(memory[more + 2])
                found[identity] = bytes(memory[more + 3 : more + 3 + size])
                more += 3 + size
        at += length
    return found


@pytest.fixture
def emulator(request: pytest.FixtureRequest) -> Iterator[Any]:
    import jericho

    emulator = jericho.FrotzEnv(str(grue.load(f"saladworld-{request.param}").story), seed=1)
    emulator.reset()
    yield emulator
    emulator.close()


# The last step of a level's way is left out, so that the game goes on. In level 7 the way ends in
# the kitchen with knife, apple, carrot and cucumber; then food is cut, cooked, burned, made into
# the meal and eaten, each once more than it can be.
LAST = {2: "put tomato on counter", 4: "put knife on counter", 7: "insert apple into fridge"}
TOUR = {
    2: (),
    4: (),
    7: (
        *("take tomato", "slice tomato with knife", "slice tomato with knife"),
        *("dice apple with knife", "go south", "go west", "go west"),
        *("cook tomato with stove", "cook tomato with stove", "cook tomato with stove"),
        *("cook apple with oven", "cook apple with oven", "cook apple with oven"),
        *("put tomato on stove", "take tomato from stove", "insert knife into oven", "take knife"),
        *("go east", "close red door", "lock red door with red key", "open red door"),
        *("unlock red door with red key", "open red door", "go east", "go north"),
        *("close fridge", "open fridge", "prepare meal", "prepare meal", "eat meal", "eat meal"),
    ),
}


@pytest.mark.parametrize(
    ("emulator", "number"),
    [(2, 2), (4, 4), (7, 7)],
    indirect=["emulator"],
    ids=["level2", "level4", "level7"],
)
def test_admissible_is_a_change_of_the_emulators_world(
    hosted: Hosted, emulator: Any, number: int, rng: random.Random
) -> None:
    env = hosted(number)
    commands = env.game.commands
    shown = ["look", "inventory", *(f"examine {thing.name}" for thing in env.game.things)]
    state, step = env.reset()
    before = read_world(emulator)
    counts = {True: 0, False: 0}
    rules = set()

    def take(command: str) -> None:
        nonlocal state, step, before
        expected = command in admissible(env, step)
        rules.update(
            a.rule
            for a in env.logic.actions.get(command, ())
            if a.changes_state and a.needs <= state.facts
        )
        state, step = env.step(state, command)
        emulator.step(command)
        after = read_world(emulator)
        assert (after != before) == step.admissible, command
        if command in commands:
            assert expected == step.admissible, command
        before = after
        counts[step.admissible] += 1

    for command in (*env.game.walkthrough, *TOUR[number]):
        if command != LAST[number]:
            take(command)
        # Asides that change nothing, so that the way goes on from where it was.
        for aside in (rng.choice(commands), rng.choice(shown)):
            if not env.logic.admissible(state.facts, aside):
                take(aside)
    for turn in range(120):
        possible = admissible(env, step)
        others = possible if turn % 2 else set(commands) - possible
        take(rng.choice(sorted(others - {LAST[number]})))
    assert min(counts.values()) > 50
    if number == 7:
        every = {a.rule for c in commands for a in env.logic.actions[c] if a.changes_state}
        assert every - rules <= {"lock/c"}


@pytest.mark.parametrize("emulator", [7], indirect=True)
def test_scratch_is_what_looking_changes(emulator: Any) -> None:
    """Shows that the memory left out above is touched by looking, and the rest is not."""
    for command in grue.load("saladworld-7").walkthrough[:63]:
        emulator.step(command)
    before = read_world(emulator)
    memory = emulator._get_ram()
    for command in ("look", "inventory", "examine fridge", "examine counter", "look", "inventory"):
        emulator.step(command)
        assert read_world(emulator) == before, command
    assert (emulator._get_ram() != memory).any()
    emulator.step("take knife")
    assert read_world(emulator) != before


# Against TextWorld's own account of the game.


def expected_by_textworld(game: Game, listed: list[str]) -> set[str]:
    """TextWorld's admissible commands, corrected where its list is not the paper's.

    It lists commands that only show things, and it leaves out the short form of taking from a
    supporter or an open container.
    """
    found = {c for c in listed if c.split()[0] not in ("look", "inventory", "examine")}
    found |= {c.split(" from ")[0] for c in found if c.startswith("take ")}
    return found & set(game.commands)


@pytest.mark.parametrize("number", [3, 7])
def test_facts_and_commands_agree_with_textworld(
    hosted: Hosted, number: int, rng: random.Random
) -> None:
    import textworld

    env = hosted(number)
    game = env.game
    infos = textworld.EnvInfos(facts=True, admissible_commands=True, score=True, won=True)
    other = textworld.start(str(game.story), infos)
    told = other.reset()
    state, step = env.reset()

    def check() -> None:
        theirs = {(p.name, *(a.name for a in p.arguments)) for p in told["facts"]}
        ours = {(f[0], *(game.entity_name(e) for e in f[1:])) for f in state.facts}
        assert ours == theirs
        assert told["score"] == step.score
        if not step.terminated:
            listed = expected_by_textworld(game, told["admissible_commands"])
            assert admissible(env, step) == listed

    check()
    # Half of the walkthrough, for doors and chest, then at random, mostly what changes something.
    for turn in range(150):
        half = len(game.walkthrough) // 2
        if turn < half:
            command = game.walkthrough[turn]
        elif turn % 4 == 0:
            command = rng.choice(game.commands)
        else:
            command = rng.choice(sorted(admissible(env, step)))
        state, step = env.step(state, command)
        told, _, done = other.step(command)
        assert done == step.terminated
        check()
        if done:
            break
    other.close()
    assert turn > 50
