"""What training asks of a game, whichever engine plays it: pure functions on arrays, and names."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from grue.engine.step import Step
from grue.games.tokens import Vocabulary

GAME_STREAM = 0x67616D65
"""The name of the random stream that a game's own chance is drawn from: a run's key folded with it.

It spells "game", and is none of the small numbers that the run's other streams have.
"""


@runtime_checkable
class Environment(Protocol):
    """A game for jit and vmap: compiled, or hosted in other processes."""

    commands: tuple[str, ...]
    vocabulary: Vocabulary
    observation_length: int
    episode_steps: int
    knows_admissible: bool
    """Whether ``admissible_set`` is true; else every command is in it."""

    @property
    def max_score(self) -> int | None:
        """None where it is not known."""
        ...

    @property
    def subtask_names(self) -> tuple[str, ...]: ...

    @property
    def digest(self) -> str:
        """Tells whether the game's files are the same."""
        ...

    def reset(self, key: Any = None) -> tuple[Any, Step]:
        """The first episode of a stream of chance."""
        ...

    def restart(self, state: Any) -> tuple[Any, Step]:
        """The episode after the one that a state belongs to."""
        ...

    def step(self, state: Any, action: Any) -> tuple[Any, Step]: ...

    def look(self, state: Any) -> Any:
        """The words of looking around now, without spending a step."""
        ...

    def inventory(self, state: Any) -> Any:
        """The words of taking inventory now, without spending a step."""
        ...

    def decode(self, observation: Any) -> str:
        """The text of an observation."""
        ...

    def notes(self) -> list[str]:
        """What went wrong and was mended since they were last asked for, in lines."""
        ...

    def check(self) -> None:
        """Raises what made it give up, if it did: within a program nothing can be raised."""
        ...

    def close(self) -> None:
        """Ends the processes that it holds, if any; they come back when they are needed."""
        ...
