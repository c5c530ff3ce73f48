"""Gymnasium vector environments on the compiled engine: many games in one jitted program.

gymnasium.make_vec("grue/SaladWorld-v0", num_envs=1024, level=3)
gymnasium.make_vec("grue/TextGame-v0", num_envs=1024, game="path/to/story.z8")
gymnasium.make_vec("grue/TextGame-v0", num_envs=1024, game="folder/of/games")
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from grue.engine.compiled import CompiledEnv
from grue.engine.environment import check_episode_steps
from grue.engine.gym import level_name
from grue.engine.make import make
from grue.engine.sets import OneGame, make_many
from grue.engine.stacked import StackedEnv
from grue.engine.step import Step
from grue.errors import CannotCompileError, UsageError
from grue.files import expanded
from grue.games.gamefile import CompiledGame
from grue.games.playable import Playable
from grue.games.registry import known_names

Games = tuple[Any, Any]
"""The states of all games, and which of them have ended and restart at the next step."""


class TextGameVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Copies of a compiled game, or games of a set. Actions are commands.

    Observations are token numbers: 0 is padding, and ``vocabulary.words[i - 1]`` is the word of
    number i. ``infos`` has ``score``, ``subtasks``, ``admissible`` and, unless
    ``admissible=False``, ``admissible_set``, each with a row for every game. The step after the end
    of a game restarts it. With a set there are also ``game``, the number of each game, and
    ``exists``, which commands it has.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": [],
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        game: str | Path | Playable | Sequence[OneGame],
        num_envs: int = 1,
        episode_steps: int | None = None,
        admissible: bool = True,
        **options: Any,
    ) -> None:
        """``game`` may be a folder or a list of games; ``options`` are then grue.make_many's."""
        if not isinstance(num_envs, int | np.integer) or num_envs < 1:
            raise UsageError(f"num_envs is {num_envs!r}; use a whole number, at least 1")
        check_episode_steps(episode_steps)
        self.engine = _compiled_env(game, episode_steps, options)
        self.is_set = isinstance(self.engine, StackedEnv)
        self.num_envs = int(num_envs)
        self.commands = self.engine.commands
        self.vocabulary = self.engine.vocabulary
        self.episode_steps = self.engine.episode_steps
        self.admissible = admissible
        self.single_observation_space = spaces.Box(
            0, len(self.vocabulary) - 1, (self.engine.observation_length,), np.int32
        )
        self.single_action_space = spaces.Discrete(len(self.commands))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._games: Games | None = None
        # One game is compiled into the program; the tables of many games would make it large.
        tables = jax.device_put(self.engine) if self.is_set else None
        self._turn: Any = partial(jax.jit(self._turn_of_all), tables)
        self._begin: Any = partial(jax.jit(self._begin_all), tables)
        self._exists = _exists(self.engine)

    def reset(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        *,
        seed: int | np.integer | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Restarts all games. They are deterministic: seeds only draw the games of a set."""
        self._check_open()
        seeds = seed
        if seed is not None and not isinstance(seed, int | np.integer):
            if len(seed) != self.num_envs:
                raise UsageError(
                    f"there are {len(seed)} seeds for {self.num_envs} environments; give one "
                    "number, one for each, or None"
                )
            seed = None
        if options and "reset_mask" in options:
            raise UsageError(
                "there is no option 'reset_mask' here: ended games restart by themselves, and "
                "reset restarts all"
            )
        super().reset(seed=None if seed is None else int(seed), options=options)
        if self.is_set:
            self._games, step = self._begin(self._keys(seeds))
        else:
            nothing = np.zeros(self.num_envs, np.int32)
            self._games, step = self._turn(self._all_ended, nothing)
        step = jax.device_get(step)
        return step.observation.astype(np.int32), self._infos(step)

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        self._check_open()
        if self._games is None:
            raise gymnasium.error.ResetNeeded("call reset before the first step")
        self._games, step = self._turn(self._games, self._checked(actions))
        # One transfer for everything. Arrays are copied, because JAX's are read-only.
        step = jax.device_get(step)
        return (
            step.observation.astype(np.int32),
            step.reward.astype(np.float64),
            step.terminated.copy(),
            step.truncated.copy(),
            self._infos(step),
        )

    def decode(self, observation: np.ndarray) -> str:
        """The text of one game's observation."""
        return self.engine.decode(observation)

    def close_extras(self, **kwargs: Any) -> None:
        self._games = None

    # In the jitted program

    def _turn_of_all(self, engine: Any, games: Games, actions: jax.Array) -> tuple[Games, Step]:
        engine = self.engine if engine is None else engine
        return jax.vmap(partial(self._turn_of_one, engine))(games, actions)

    def _begin_all(self, engine: Any, keys: jax.Array) -> tuple[Games, Step]:
        states, step = jax.vmap(engine.reset)(keys)
        return (states, jnp.zeros(self.num_envs, bool)), self._reported(step)

    def _turn_of_one(self, engine: Any, game: Games, action: jax.Array) -> tuple[Games, Step]:
        state, ended = game
        state, step = jax.tree.map(
            lambda anew, onward: jnp.where(ended, anew, onward),
            engine.restart(state),
            engine.step(state, action),
        )
        return (state, step.terminated | step.truncated), self._reported(step)

    def _reported(self, step: Step) -> Step:
        """Unused results are left out, so that they are not computed."""
        return step if self.admissible else step._replace(admissible_set=None)

    # On the host

    @cached_property
    def _all_ended(self) -> Games:
        """Ended games, which restart at the next turn: reset needs no other program."""
        state, _ = jax.eval_shape(self.engine.reset)
        blank = jax.tree.map(lambda leaf: np.zeros((self.num_envs, *leaf.shape), leaf.dtype), state)
        return blank, np.ones(self.num_envs, bool)

    def _keys(self, seeds: Any) -> Any:
        """A random key for each game of a set."""
        if not isinstance(seeds, Sequence):
            seeds = [None] * self.num_envs
        drawn = self.np_random.integers(2**31, size=self.num_envs)
        numbers = [new if seed is None else seed for new, seed in zip(drawn, seeds, strict=True)]
        return jax.vmap(jax.random.key)(np.array(numbers, np.uint32))

    def _checked(self, actions: Any) -> np.ndarray:
        numbers = np.asarray(actions)
        if numbers.shape != (self.num_envs,) or numbers.dtype.kind not in "iu":
            raise UsageError(
                f"the actions have the shape {numbers.shape} and the type {numbers.dtype}; give "
                f"{self.num_envs} whole numbers, one for each environment"
            )
        wrong = np.flatnonzero((numbers < 0) | (numbers >= len(self.commands)))
        if wrong.size:
            raise UsageError(
                f"environment {wrong[0]} got the action {numbers[wrong[0]]}: "
                f"use 0 to {len(self.commands) - 1}"
            )
        return numbers.astype(np.int32)

    def _check_open(self) -> None:
        if self.closed:
            raise gymnasium.error.ClosedEnvironmentError("the environment is closed: make another")

    def _infos(self, step: Step) -> dict[str, Any]:
        """In Gymnasium's format: each array has a mask of its games, which are all here."""
        arrays = {
            "score": step.score.astype(np.int64),
            "subtasks": step.subtasks.copy(),
            "admissible": step.admissible.copy(),
        }
        if self.admissible:
            arrays["admissible_set"] = step.admissible_set.astype(np.int8)
        if self._exists is not None:
            assert self._games is not None
            arrays["game"] = np.asarray(self._games[0].game).astype(np.int64)
            arrays["exists"] = self._exists[arrays["game"]]
        return arrays | {f"_{name}": np.ones(self.num_envs, bool) for name in arrays}


class SaladWorldVectorEnv(TextGameVectorEnv):
    """Copies of a SaladWorld level."""

    def __init__(self, level: int = 1, **options: Any) -> None:
        """``options`` are those of TextGameVectorEnv."""
        super().__init__(level_name(level), **options)


def _exists(engine: CompiledEnv | StackedEnv) -> np.ndarray | None:
    """For each game of a set the commands that it has."""
    if not isinstance(engine, StackedEnv):
        return None
    owns = [set(engine.single(number).commands) for number in range(len(engine.names))]
    return np.array([[command in own for command in engine.commands] for own in owns], np.int8)


def _compiled_env(
    game: str | Path | Playable | Sequence[OneGame],
    episode_steps: int | None,
    options: dict[str, Any],
) -> CompiledEnv | StackedEnv:
    try:
        if not isinstance(game, str | Path | Playable | CompiledGame):
            return make_many(game, "compiled", episode_steps=episode_steps, **options)
        is_name = str(game) in known_names()
        if isinstance(game, str | Path) and not is_name and expanded(game).is_dir():
            return make_many(game, "compiled", episode_steps=episode_steps, **options)
        if options:
            raise UsageError(f"{', '.join(options)}: only for a folder or a list of games")
        return make(game, "compiled", episode_steps)
    except CannotCompileError as error:
        raise CannotCompileError(
            f"{error}; for many hosted games use "
            'gymnasium.make_vec(..., vectorization_mode="async"), whose observations are texts'
        ) from None
