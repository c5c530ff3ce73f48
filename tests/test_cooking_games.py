"""Games of tw-cooking, which papers use most: what their stories report, and what compiles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import grue
from grue.engine.verify import Verifier
from grue.games.logic import ground

pytestmark = [
    pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning"),
    pytest.mark.filterwarnings("ignore:.*compiled near"),
]


def test_what_was_drunk_is_gone(cooking: Callable[..., Path]) -> None:
    env: Any = grue.make(cooking(200), "hosted")
    state, _ = env.reset()
    name = "water"  # The milk is in the recipe: drinking it loses the game.
    water = next(e for e, info in env.game.infos.items() if info["name"] == name)
    place = next(f[2] for f in env.logic.initial if f[0] in ("in", "on") and f[1] == water)
    for command in ("open fridge", f"take {name} from {env.game.entity_name(place)}"):
        state, _ = env.step(state, command)
    drink = env.game.commands.index(f"drink {name}")
    assert ("in", water, "I") in state.facts
    assert env.admissible_set(state)[drink]
    state, step = env.step(state, drink)
    assert step.text == f"You drink the {name}. Not bad."
    assert step.admissible
    assert ("in", water, "I") not in state.facts
    assert ("consumed", water) in state.facts
    named = [command for command in env.game.commands if name in command]
    assert len(named) > 3
    assert not any(env.logic.admissible(state.facts, command) for command in named)
    env.close()


def test_event_that_no_rule_knows_is_told(cooking: Callable[..., Path]) -> None:
    logic = ground(grue.load(cooking(200)))
    with pytest.warns(RuntimeWarning, match="'juggling the milk', and no rule"):
        assert logic.after(logic.initial, ["juggling the milk"]) == logic.initial
    # Known, but the milk is not carried.
    with pytest.warns(RuntimeWarning, match="'dropping the milk', and no rule"):
        logic.after(logic.initial, ["dropping the milk"])


@pytest.mark.parametrize("event", ["waiting", "examining the raw milk", "printing the objective"])
def test_events_that_change_nothing_are_not_told(event: str, cooking: Callable[..., Path]) -> None:
    logic = ground(grue.load(cooking(200)))
    assert logic.after(logic.initial, [event]) == logic.initial


# What compiles


GAMES: dict[str, tuple[int, dict[str, Any]]] = {
    "limited inventory": (201, {"recipe": 2, "take": 2, "drop": True, "open": True}),
    "more carried than there are slots": (202, {"recipe": 3, "take": 1, "drop": True}),
    "inventory at the start": (205, {"recipe": 2, "take": 1, "cut": True}),
    "table and patio table": (204, {"go": 9, "open": True}),
}


@pytest.mark.parametrize(("seed", "settings"), GAMES.values(), ids=GAMES)
def test_cooking_game_is_compiled(
    seed: int,
    settings: dict[str, Any],
    cooking: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("grue.engine.verify.SWEEP_SHARE", 10**9)
    engines = Verifier(grue.load(cooking(seed, **settings)))
    report = engines.run(250, seed=0)
    assert str(report.first or "") == ""
    assert report.steps >= 250
    engines.real.close()


def test_nothing_is_taken_with_full_hands(cooking: Callable[..., Path]) -> None:
    env = grue.make(cooking(201, **GAMES["limited inventory"][1]), "compiled")
    capacity = int(env.game.arrays["capacity"])
    state, step = env.reset()
    take = jax.jit(env.step)
    takes = [i for i, command in enumerate(env.commands) if command.startswith(("take", "open"))]
    told = []
    for _ in range(40):
        for action in takes:
            state, step = take(state, action)
            told.append(env.decode(step.observation))
        if "too many things" in " ".join(told):
            break
    assert env.decode(env.inventory(state)).count(",") <= capacity
    assert "You're carrying too many things already." in told
    possible = [env.commands[i] for i in np.flatnonzero(step.admissible_set)]
    assert not any(command.startswith("take") for command in possible)
