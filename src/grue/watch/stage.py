"""Where a session is played: a game by itself, or the game of a run."""

from __future__ import annotations

import difflib
import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from grue.engine.environment import Environment
from grue.engine.hosted import EmulatorEnv
from grue.engine.step import Step
from grue.errors import UsageError
from grue.games.game import Game
from grue.games.playable import Playable
from grue.training.playing import begin, episode_key
from grue.watch.world import WatchedWorld

LONGEST_COMMAND = 200


class StageView:
    """Begins episodes and takes commands as text. Steps are in NumPy arrays, with their text."""

    def __init__(self, env: Environment, game: Playable | None) -> None:
        self.env = env
        self.world = WatchedWorld(game) if isinstance(game, Game) else None
        self.objective = game.objective if isinstance(game, Game) else ""
        self.free = isinstance(env, EmulatorEnv)
        """Whether any text is a command."""
        self._index = {command: number for number, command in enumerate(env.commands)}
        if not self.free:
            self._begin, self._step = jax.jit(partial(begin, env)), jax.jit(env.step)

    def begin(self, seed: int, episode: int) -> tuple[Any, Step]:
        if self.free:
            return self.env.reset(seed + episode)
        return self._told(self._begin(episode_key(seed, episode)))

    def step(self, state: Any, command: str) -> tuple[Any, Step]:
        if self.free:
            return self.env.step(state, command)
        return self._told(self._step(state, jnp.int32(self._index[command])))

    def number(self, command: str) -> int | None:
        """The number of a command; None for free text."""
        return self._index.get(command)

    def checked(self, text: str) -> str:
        """The text as a command of this game."""
        command = " ".join(text.split())
        if not command or len(command) > LONGEST_COMMAND:
            raise UsageError(f"a command has 1 to {LONGEST_COMMAND} characters")
        if self.free or command in self._index:
            return command
        if command.lower() in self._index:
            return command.lower()
        near = difflib.get_close_matches(command.lower(), self._index, n=3)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise UsageError(
            f"{command!r} is not one of the {len(self._index)} commands of this run{hint}"
        )

    def told(self) -> dict[str, Any]:
        """What the page needs to know of the game."""
        env = self.env
        limited = env.episode_steps < sys.maxsize
        return {
            "commands": list(env.commands),
            "subtasks": list(env.subtask_names) if env.knows.subtasks else [],
            "maxScore": env.max_score,
            "limit": env.episode_steps if limited else None,
            "knowsAdmissible": env.knows.admissible,
            "scoreUnknown": env.knows.score_refusal,
            "free": self.free,
            "objective": self.objective,
            "map": None if self.world is None else self.world.plan(),
        }

    def _told(self, result: tuple[Any, Step]) -> tuple[Any, Step]:
        state, step = jax.device_get(result)
        self.env.check()
        step = jax.tree.map(np.asarray, step)
        return state, step._replace(text=self.env.decode(step.observation))
