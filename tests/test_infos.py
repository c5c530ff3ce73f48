"""What TextWorld tells of a game, from compiled states: equal to what the real game tells."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import grue
from grue.engine.hosted_textworld import HostedEnv
from grue.engine.infos import FIXED
from grue.engine.policy import Policy
from grue.errors import UsageError
from grue.games.gamefile import compiled_path
from grue.games.logic import ground
from grue.games.tokens import squeeze

pytestmark = pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning")

Fact = tuple[str, ...]
STATIC = tuple(name for name in FIXED if not name.startswith("possible"))


def real(story: Path, *extras: str) -> Any:
    """TextWorld's own environment with all infos."""
    import textworld

    wanted = ("description", "inventory", "facts", "win_facts", "fail_facts", "won", "lost")
    wanted += ("score", "admissible_commands", "policy_commands", *STATIC)
    infos = textworld.EnvInfos(**dict.fromkeys(wanted, True), extras=list(extras))
    return textworld.start(str(story), infos)


def plain(propositions: Iterable[Any]) -> list[Fact]:
    return sorted((p.name, *(argument.name for argument in p.arguments)) for p in propositions)


def without_slots(facts: Iterable[Fact]) -> tuple[list[Fact], int]:
    """TextWorld may use any free slot: only how many are used can be compared."""
    slots = [fact for fact in facts if fact[0] == "used"]
    return [f for f in facts if not (len(f) == 2 and f[0] in ("used", "free"))], len(slots)


def check(told: Any, state: Any, policy: bool) -> None:
    assert without_slots(told["facts"]) == without_slots(plain(state["facts"]))
    # After the end TextWorld repeats the texts of the step before.
    for name in ("description", "inventory") if not (told["won"] or told["lost"]) else ():
        assert squeeze(told[name]) == squeeze(state[name]), name
    for name in ("won", "lost", "score"):
        assert told[name] == state[name], name
    assert told["admissible_commands"] == state["admissible_commands"]
    assert ("at", "P", told["location"]) in told["facts"]
    if policy:
        assert told["policy_commands"] == state["policy_commands"]


def play(story: Path, commands: Iterable[str], *extras: str, policy: bool = False) -> None:
    """The same commands on TextWorld's environment and on the compiled game."""
    theirs = real(story, *extras)
    env = grue.make(story, "compiled")
    step = jax.jit(env.step)
    state, _ = env.reset()
    shown = theirs.reset()
    told = env.infos(state)
    for name in STATIC:
        assert told[name] == shown[name], name
    for extra in extras:
        assert told[f"extra.{extra}"] == shown[f"extra.{extra}"]
    for ours, name in (("win_facts", "win_facts"), ("fail_facts", "fail_facts")):
        assert told[ours] == [[tuple(plain(event)) for event in quest] for quest in shown[name]]
    check(told, shown, policy)
    for command in commands:
        if state.over:
            break
        state, _ = step(state, env.commands.index(command))
        shown, _, _ = theirs.step(command)
        check(env.infos(state), shown, policy and not state.over)
    theirs.close()


def random_commands(story: Path, count: int, seed: int) -> list[str]:
    """Some admissible, some not."""
    chance = random.Random(seed)
    env = grue.make(story, "compiled")
    step = jax.jit(env.step)
    state, shown = env.reset()
    found = []
    for _ in range(count):
        possible = np.flatnonzero(shown.admissible_set).tolist()
        if possible and chance.random() < 0.8:
            action = chance.choice(possible)
        else:
            action = chance.randrange(len(env.commands))
        found.append(env.commands[action])
        state, shown = step(state, action)
        if shown.terminated:
            break
    return found


def test_cooking(cooking: Callable[..., Path]) -> None:
    """Slots, doors, containers, food that changes."""
    story = cooking(201, recipe=2, take=2, drop=True, open=True)
    play(story, random_commands(story, 60, seed=0), "recipe", "walkthrough")
    play(story, grue.load(story).walkthrough)


def test_policy_along_the_way(made_game: Path) -> None:
    """TextWorld's own policy, at each step of the walkthrough."""
    play(made_game, grue.load(made_game).walkthrough, policy=True)


def test_policy_wins_from_anywhere() -> None:
    env = grue.make("saladworld-3", "compiled")
    take = jax.jit(env.step)
    for seed in range(3):
        chance = random.Random(seed)
        state, step = env.reset()
        for _ in range(12):
            action = chance.choice(np.flatnonzero(step.admissible_set).tolist())
            state, step = take(state, action)
        commands = env.infos(state)["policy_commands"]
        assert commands
        for command in commands:
            assert not step.terminated
            state, step = take(state, env.commands.index(command))
        assert env.infos(state)["won"]
        assert env.infos(state)["policy_commands"] == []


def test_policy_by_hand() -> None:
    """A plan's end, the way back to it, and no way."""
    game = grue.load("saladworld-1")
    logic = ground(game)
    policy = Policy(logic, game.walkthrough, set())
    moves = [c for c in game.walkthrough if logic.actions[c][0].changes_state]
    assert policy.commands(logic.initial, frozenset()) == tuple(moves)
    lost = frozenset(f for f in logic.initial if f[:2] != ("at", "P"))
    assert policy.commands(lost, frozenset()) == ()
    assert Policy(logic, ["juggle"], set()).rests == []


def test_facts_are_those_of_the_hosted_game() -> None:
    env, hosted = grue.make("saladworld-4", "compiled"), HostedEnv(grue.load("saladworld-4"))
    step = jax.jit(env.step)
    state, _ = env.reset()
    real_state, _ = hosted.reset()
    assert env.facts(state) == hosted.facts(real_state)
    for command in grue.load("saladworld-4").walkthrough[:25]:
        action = env.commands.index(command)
        state, _ = step(state, action)
        real_state, _ = hosted.step(real_state, action)
        assert env.facts(state) == hosted.facts(real_state), command
    hosted.close()


def test_refusals(tmp_path: Path) -> None:
    env = grue.make("saladworld-1", "compiled")
    state, _ = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 2))
    with pytest.raises(UsageError, match="facts are of one state"):
        env.facts(state)
    state, _ = env.reset()
    with pytest.raises(KeyError, match="there is no info 'smell'; there are description, "):
        env.infos(state)["smell"]
    alone = tmp_path / "alone.grue.npz"
    alone.write_bytes(compiled_path(grue.load("saladworld-1")).read_bytes())
    env = grue.make(alone, "compiled")
    with pytest.raises(UsageError, match="need the game that it was compiled from"):
        env.facts(state)


def test_a_compiled_file_finds_its_story() -> None:
    env = grue.make(compiled_path(grue.load("saladworld-1")), "compiled")
    state, _ = env.reset()
    assert ("at", "P", env.infos(state)["location"]) in env.infos(state)["facts"]
