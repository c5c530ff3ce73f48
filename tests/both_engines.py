"""A game on the compiled engine and on the real one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from grue.engine.compiled import CompiledEnv
from grue.engine.hosted_textworld import HostedEnv
from grue.engine.step import Step
from grue.engine.verify import Verifier
from grue.games.tokens import squeeze

Pair = Callable[[int], Verifier]
Account = dict[str, Any]
TO_MARKET = ("go south", "go east", "go east")
HOME = ("go west", "go west", "go north")


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


def admissible(env: HostedEnv, step: Step) -> set[str]:
    """Commands that would change the game, of the hosted engine."""
    return {c for c, yes in zip(env.game.commands, step.admissible_set, strict=True) if yes}


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
