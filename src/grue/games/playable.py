"""What is known about a game before it is played, for every kind of game."""

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
    """What a game can report besides its texts."""

    admissible: bool = True
    """Which commands would change the state. If not, ``admissible_set`` has all commands."""
    subtasks: bool = True
    """Which subtasks are done. If not, the only subtask is to win the game."""
    look: bool = True
    """The output of look and inventory without a step. If not, asking is a UsageError."""
    chance: bool = False
    """Whether the game draws random numbers, so that seeds matter."""
    score_refusal: str | None = None
    """Why the score cannot be read, and is always 0. None if it can be read."""


class Playable(ABC):
    """A TextWorld game (``Game``) or a Z-machine story (``Story``)."""

    kind: ClassVar[str]
    """Selects the hosted engine."""
    name: str
    story: Path

    @cached_property
    @abstractmethod
    def commands(self) -> tuple[str, ...]:
        """The commands that an agent chooses from, by index."""

    @cached_property
    @abstractmethod
    def subtasks(self) -> tuple[Subtask, ...]: ...

    @property
    @abstractmethod
    def max_score(self) -> int | None:
        """None if it is unknown."""

    @property
    @abstractmethod
    def walkthrough(self) -> tuple[str, ...]:
        """Commands that win the game with ``walkthrough_seed``; empty if unknown."""

    @property
    def walkthrough_seed(self) -> int:
        return 0

    @property
    def episode_steps(self) -> int:
        return DEFAULT_EPISODE_STEPS

    @cached_property
    @abstractmethod
    def words(self) -> StoryVocabulary:
        """Every word that the story can print or that is in the commands, in lower case."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """Changes when the game's files change."""

    @property
    @abstractmethod
    def knows(self) -> Knowledge:
        """As known from the files; the emulator may know more."""

    @abstractmethod
    def textworld(self) -> Game:
        """The game for the compiler; raises CannotCompileError for a Z-machine story."""
