"""The compiled engine: a game as pure functions on arrays, for jit and vmap, on CPU and GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from grue.engine.environment import Environment
from grue.engine.infos import Infos, World
from grue.engine.step import Step
from grue.engine.tables import Tables, derived
from grue.engine.turns import Sizes, State, Turns
from grue.games.game import Game
from grue.games.gamefile import CompiledGame, digest_of
from grue.games.logic import Facts
from grue.games.playable import Knowledge


class CompiledEnv(Environment):
    """``env.reset(key) -> state, step`` and ``env.step(state, action) -> state, step``.

    It is a pytree whose leaves are the game's tables. In a program that closes over it, the tables
    are constants; in a program that takes it as an argument, they are arguments.
    """

    def __init__(
        self, game: CompiledGame, episode_steps: int | None = None, source: Game | None = None
    ) -> None:
        """``source`` is the game that it was compiled from, for ``facts`` and ``infos``."""
        steps = game.header["episode_steps"] if episode_steps is None else episode_steps
        self._become(_Fixed(game, steps, source), derived(game.arrays), None)

    @classmethod
    def alike(cls, header: Mapping[str, Any], games: Sequence[dict[str, Any]]) -> list[CompiledEnv]:
        """Environments that differ in their tables alone, which have the same shapes."""
        fixed = _Fixed(CompiledGame(header, games[0]), header["episode_steps"], None)
        return [_unflatten(fixed, (one, None)) for one in games]

    def _become(self, fixed: _Fixed, tables: dict[str, Any], start: Any) -> None:
        self._fixed = fixed
        game = self.game = fixed.game
        self.source = fixed.source
        self.commands = game.commands
        self.vocabulary = game.vocabulary
        self.episode_steps = fixed.episode_steps
        self.observation_length: int = game.header["observation_length"]
        self.max_score: int = game.header["max_score"]
        self.subtask_names = tuple(text for text, _ in game.header["subtasks"])
        self.digest: str = game.header["game_hash"]
        self.knows = Knowledge()
        self.near: dict[str, Any] = game.header.get("near", {})
        """Commands that are exact only while their things are in sight; none if all are exact."""
        # NumPy arrays: they become constants of whatever program they are traced into.
        self._tables, self._known_start = tables, start
        self._turns = Turns(Tables(tables), fixed.sizes)

    # The pure functions

    def reset(self, key: Any = None) -> tuple[State, Step]:
        """Starts an episode. These games draw no random numbers: the key changes nothing."""
        return self._turns.reset()

    def restart(self, state: State) -> tuple[State, Step]:
        """The next episode. All episodes begin alike, so its first state is computed only once."""
        return jax.tree.map(jnp.asarray, self._start)

    @property
    def _start(self) -> tuple[State, Step]:
        if self._known_start is None:
            # Compiled on its own, so that it runs immediately even while another program is traced.
            with jax.disable_jit(False):
                program = jax.jit(self.reset).lower().compile()
                self._known_start = jax.tree.map(np.asarray, program())
        return self._known_start

    def step(self, state: State, action: Array | int) -> tuple[State, Step]:
        """Takes a command by its number. A game that is over stays as it is."""
        return self._turns.step(state, action)

    def look(self, state: State) -> Array:
        """The words of looking around now, without spending a step."""
        return self._turns.look(state)

    def inventory(self, state: State) -> Array:
        """The words of taking inventory now, without spending a step."""
        return self._turns.inventory(state)

    def admissible_set(self, state: State) -> Array:
        """For each command, whether it would change the state."""
        return self._turns.admissible_set(state)

    # On the host

    def facts(self, state: State) -> Facts:
        """The facts of the world now, as TextWorld states them, with the identifiers of things."""
        return self._world.facts(state)

    def infos(self, state: State) -> Infos:
        """Everything that TextWorld's EnvInfos tell of one state, by name."""
        return Infos(self._world, self, state)

    @cached_property
    def _world(self) -> World:
        return World(self.game, self.source)


class _Fixed:
    """Everything except the tables. Games share a program if this and the shapes are equal."""

    def __init__(self, game: CompiledGame, episode_steps: int, source: Game | None) -> None:
        self.game, self.episode_steps, self.source = game, episode_steps, source

    @cached_property
    def sizes(self) -> Sizes:
        header = self.game.header
        return Sizes(
            commands=len(self.game.commands),
            observation_length=header["observation_length"],
            most_pieces=header["most_pieces"],
            most_tokens=len(self.game.arrays["tokens"]),
            episode_steps=self.episode_steps,
        )

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        header = tuple(sorted((name, str(value)) for name, value in self.game.header.items()))
        return digest_of(self.game.arrays), header, self.episode_steps

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Fixed) and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)


def _flatten(env: CompiledEnv) -> tuple[Sequence[Any], _Fixed]:
    return (env._tables, env._start), env._fixed


def _unflatten(fixed: _Fixed, leaves: Any) -> CompiledEnv:
    env = object.__new__(CompiledEnv)
    env._become(fixed, *leaves)
    return env


jax.tree_util.register_pytree_node(CompiledEnv, _flatten, _unflatten)
