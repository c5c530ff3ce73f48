"""What every game can be asked before it is played, whichever kind of game it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from grue.games.tokens import StoryVocabulary

if TYPE_CHECKING:
    from grue.games.game import Game

DEFAULT_EPISODE_STEPS = 200


@dataclass(frozen=True)
class Subtask:
    text: str
    reward: int


class Knowledge(NamedTuple):
    """What a game can tell beside its texts, and what is said where it cannot."""

    admissible: bool = True
    """Which commands would change the state; else ``admissible_set`` has all commands until the
    game is over."""
    subtasks: bool = True
    """Which parts of the game are done; else the only subtask is to win the game."""
    look: bool = True
    """What look and inventory would print, without a step; else asking is a UsageError."""
    score_refusal: str | None = None
    """Why the score cannot be read: then it is always 0. None if it can be read."""


class Playable(ABC):
    """A TextWorld game (``Game``) or a Z-machine story (``Story``)."""

    kind: ClassVar[str]
    """Which hosted engine plays it."""
    name: str
    story: Path

    @cached_property
    @abstractmethod
    def commands(self) -> tuple[str, ...]:
        """The commands that an agent chooses from, in the order of their index."""

    @cached_property
    @abstractmethod
    def subtasks(self) -> tuple[Subtask, ...]: ...

    @property
    @abstractmethod
    def max_score(self) -> int | None:
        """None if it is not known."""

    @property
    @abstractmethod
    def walkthrough(self) -> tuple[str, ...]:
        """Commands that finish the game, under ``walkthrough_seed``; none if they are not known."""

    @property
    def walkthrough_seed(self) -> int:
        return 0

    @property
    def episode_steps(self) -> int:
        return DEFAULT_EPISODE_STEPS

    @cached_property
    @abstractmethod
    def words(self) -> StoryVocabulary:
        """Every word that the story can print, and those of the commands, in lower case."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """Changes when the game's files change."""

    @property
    @abstractmethod
    def knows(self) -> Knowledge:
        """As far as the files tell; an environment may learn more from the emulator."""

    @abstractmethod
    def textworld(self) -> Game:
        """The game as the compiler reads it; CannotCompileError if only the story is known."""
