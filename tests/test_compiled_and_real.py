"""The compiled engine against the real game, turn by turn."""

from __future__ import annotations

import random

import jax
import numpy as np
import pytest
from both_engines import HOME, Pair, Play, account, same_tree, wander
from hypothesis import given, note, settings
from hypothesis import strategies as st

from grue.engine.compiled import State
from grue.engine.hosted import HostedState
from grue.engine.verify import Verifier
from grue.games.gamefile import CompiledGame
from grue.games.tokens import squeeze

pytestmark = pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning")


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
