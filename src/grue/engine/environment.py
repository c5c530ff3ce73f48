"""The contract of all games: what an environment offers, whichever engine plays it.

Compiled games (``CompiledEnv``) and pooled ones (``PooledEnv``, real games in subprocesses) run
under jit and vmap. Hosted ones (``HostedEnv``, ``StoryEnv``) play the real game in this process.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from grue.engine.emulator import LARGEST_SEED
from grue.engine.step import Step
from grue.games.playable import Knowledge
from grue.games.tokens import Vocabulary

GAME_STREAM = 0x67616D65
"""The name of the random stream that a game's own chance is drawn from: a run's key folded with it.

It spells "game", and is none of the small numbers that the run's other streams have.
"""


@runtime_checkable
class Environment(Protocol):
    """``reset`` and ``step`` are pure: a state can be kept, and stepped from again."""

    commands: tuple[str, ...]
    """What the numbers of actions mean."""
    vocabulary: Vocabulary
    observation_length: int
    """Tokens of every observation: shorter texts are padded, longer ones lose their end."""
    episode_steps: int
    max_score: int | None
    """None if it is not known."""
    subtask_names: tuple[str, ...]
    digest: str
    """Differs when the game's files differ."""
    knows: Knowledge
    """What the game can tell, and what it says where it cannot."""

    def reset(self, key: Any = None) -> tuple[Any, Step]:
        """The first episode of a stream of chance.

        Hosted games also take a whole number: the seed of the first episode. The next ones add 1.
        """
        ...

    def restart(self, state: Any) -> tuple[Any, Step]:
        """The episode after the one that a state belongs to."""
        ...

    def step(self, state: Any, action: Any) -> tuple[Any, Step]:
        """Takes a command by its number; hosted games also take any words.

        A game that is over stays as it is, without words and reward. A hosted game raises
        UsageError: outside of a program it can.
        """
        ...

    def look(self, state: Any) -> Any:
        """The tokens of looking around now, without a step; see ``knows.look``."""
        ...

    def inventory(self, state: Any) -> Any:
        """The tokens of taking inventory now, without a step; see ``knows.look``."""
        ...

    def decode(self, observation: Any) -> str:
        """The text of tokens."""
        return self.vocabulary.decode(np.asarray(observation).tolist())

    def notes(self) -> list[str]:
        """What went wrong and was mended since they were last asked for, in lines."""
        return []

    def check(self) -> None:
        """Raises what made it give up, if it did: within a program nothing can be raised."""

    def close(self) -> None:
        """Ends the emulators and processes that it holds, if any.

        A pooled game starts its processes again when they are needed; a hosted game stays closed.
        """


def episode_seed(key: Any, episode: Any) -> Any:
    """The seed for the emulator in one episode of a key's stream of chance."""
    import jax

    return jax.random.randint(jax.random.fold_in(key, episode), (), 0, LARGEST_SEED, "int32")
