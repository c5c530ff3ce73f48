"""The interface of all environments.

Compiled games (``CompiledEnv``), sets of them (``StackedEnv``) and pooled games (``PooledEnv``,
real games in subprocesses) run under jit and vmap. Hosted ones (``HostedEnv``, ``StoryEnv``,
``HostedSetEnv``) play the real game in this process.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from grue.engine.emulator import LARGEST_SEED
from grue.engine.step import Step
from grue.errors import UsageError
from grue.games.playable import Knowledge
from grue.games.tokens import Vocabulary

GAME_STREAM = 0x67616D65
"""Folded into a run's key for the game's random stream.

It spells "game" and differs from the small numbers of the run's other streams.
"""


@runtime_checkable
class Environment(Protocol):
    """``reset`` and ``step`` are pure: a state can be kept and stepped from again."""

    commands: tuple[str, ...]
    """The command of each action."""
    vocabulary: Vocabulary
    observation_length: int
    """Tokens per observation: shorter texts are padded, longer ones are cut."""
    episode_steps: int
    max_score: int | None
    """None if it is unknown."""
    subtask_names: tuple[str, ...]
    digest: str
    """Changes when the game's files change."""
    knows: Knowledge
    """What the game can report."""
    why: str | None = None
    """Why it is not compiled; None for a compiled game, or where hosting was asked for."""
    processes: int = 0
    """The number of subprocesses that play it."""
    command_sets: np.ndarray | None = None
    """For each game of a set, whether it has each command. None for one game, which has all."""

    def reset(self, key: Any = None) -> tuple[Any, Step]:
        """The first episode of a random stream, given by a JAX key.

        Hosted games also take an integer: the seed of the first episode. Later episodes add 1.
        """
        ...

    def restart(self, state: Any) -> tuple[Any, Step]:
        """The next episode after the state's."""
        ...

    def step(self, state: Any, action: Any) -> tuple[Any, Step]:
        """Takes a command by its number; hosted games also take any text.

        After the end of a game, the state does not change, and observation and reward are 0.
        Hosted games raise UsageError instead.
        """
        ...

    def look(self, state: Any) -> Any:
        """The tokens that look would print, without a step; see ``knows.look``."""

    def inventory(self, state: Any) -> Any:
        """The tokens that inventory would print, without a step; see ``knows.look``."""

    def exists(self, state: Any) -> Any:
        """For each command, whether the state's game has it."""
        return np.ones(len(self.commands), bool)

    def fraction(self, state: Any, step: Step) -> Any:
        """The fraction of the game's subtasks that are done."""
        return step.subtasks.mean(dtype=np.float32)

    def won(self, state: Any, step: Step) -> Any:
        """Whether all subtasks are done."""
        return step.subtasks.all()

    def fork(self, state: Any, count: int) -> Any:
        """A group that goes on from one moment: ``count`` rows of the same state, for vmap.

        Hosted games give a list.
        """
        import jax
        import jax.numpy as jnp

        check_count(count)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), state)

    def decode(self, observation: Any) -> str:
        """The text of an observation."""
        return self.vocabulary.decode(np.asarray(observation).tolist())

    @property
    def about(self) -> dict[str, Any]:
        """What results depend on besides the files and the settings, for records."""
        return {}

    def notes(self) -> list[str]:
        """Recovered failures since the last call, one line each."""
        return []

    def check(self) -> None:
        """Raises the error that stopped the game, if any: a jitted program cannot raise."""

    def close(self) -> None:
        """Ends its emulators and subprocesses.

        A pooled game restarts them when needed; a hosted game stays closed.
        """


def check_count(count: Any) -> None:
    """Of the rows of a fork."""
    if not isinstance(count, int | np.integer) or count < 1:
        raise UsageError(f"the count of a fork is {count!r}; give a whole number, at least 1")


def check_episode_steps(episode_steps: Any, least: int = 1) -> None:
    if episode_steps is None:
        return
    if not isinstance(episode_steps, int | np.integer) or episode_steps < least:
        raise UsageError(
            f"episode_steps is {episode_steps!r}; give a whole number, at least {least}"
        )


def episode_seed(key: Any, episode: Any) -> Any:
    """The emulator's seed for one episode of a key's random stream."""
    import jax

    return jax.random.randint(jax.random.fold_in(key, episode), (), 0, LARGEST_SEED, "int32")
