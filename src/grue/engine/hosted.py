"""What all hosted games have in common: a real story in Jericho's emulator, behind the contract.

``reset`` and ``step`` take and return states that hold a snapshot of the emulator, so a state can
be stepped from as often as one likes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from grue.engine.emulator import (
    LARGEST_SEED,
    check_seed,
    close_emulator,
    open_emulator,
    restart_emulator,
    take_command,
)
from grue.engine.environment import Environment, episode_seed
from grue.engine.step import Step
from grue.errors import UsageError
from grue.games.logic import Facts
from grue.games.playable import Playable
from grue.games.tokens import Vocabulary

OBSERVATION_LENGTH = 128
"""Words of a text that an agent sees; the end of a longer one is cut off."""
LOOK, INVENTORY = "look", "inventory"
KEPT_TEXTS = 50_000
"""Texts whose tokens are remembered."""

G = TypeVar("G", bound=Playable)


class Tokens:
    """Texts as rows of token numbers, padded with 0 to one length."""

    def __init__(self, vocabulary: Vocabulary, length: int = OBSERVATION_LENGTH) -> None:
        self.vocabulary = vocabulary
        self.length = length
        self._rows: dict[str, np.ndarray] = {}

    def __call__(self, text: str) -> np.ndarray:
        row = self._rows.get(text)
        if row is None:
            row = np.zeros(self.length, np.int32)
            numbers = self.vocabulary.encode(text)[: self.length]
            row[: len(numbers)] = numbers
            row.setflags(write=False)  # Others get the same row.
            if len(self._rows) < KEPT_TEXTS:
                self._rows[text] = row
        return row


class RealGame(Environment, Generic[G]):
    """The names that the contract asks for, of a game that is played by its story."""

    def __init__(self, game: G, episode_steps: int | None, tokens: Tokens | None) -> None:
        """``tokens`` by default know every word of the story, in lower case."""
        self.game = game
        self.tokens = Tokens(game.words) if tokens is None else tokens
        self.commands = game.commands
        self.vocabulary = self.tokens.vocabulary
        self.observation_length = self.tokens.length
        self.episode_steps = game.episode_steps if episode_steps is None else episode_steps
        self.max_score = game.max_score
        self.subtask_names = tuple(subtask.text for subtask in game.subtasks)
        self.digest = game.digest
        self.knows = game.knows


class Chance(NamedTuple):
    """Which seed an episode has: a whole number counts up, a JAX key draws them."""

    stream: Any
    episode: int = 0

    @classmethod
    def of(cls, key: Any) -> Chance:
        if key is None:
            return cls(0)
        if not isinstance(key, Integral):
            return cls(key)
        check_seed(int(key))
        return cls(int(key))

    @property
    def seed(self) -> int:
        if isinstance(self.stream, int):
            return (self.stream + self.episode) % (LARGEST_SEED + 1)
        return int(episode_seed(self.stream, self.episode))


@dataclass(frozen=True)
class HostedState:
    snapshot: tuple[Any, ...] | None
    """None where nobody goes back."""
    score: int
    subtasks: tuple[bool, ...]
    steps: int
    over: bool
    chance: Chance
    facts: Facts = frozenset()
    """The world, where its rules are known."""


class EmulatorEnv(RealGame[G], ABC):
    """A game in an emulator of this process; its kinds differ in how they read what it prints."""

    def __init__(
        self,
        game: G,
        episode_steps: int | None = None,
        one_life: bool = True,
        snapshots: bool = True,
        tokens: Tokens | None = None,
    ) -> None:
        """With ``one_life`` the loss of a life ends the game, as in training.

        In TextWorld's games it always does. Without ``snapshots`` a state can be stepped from only
        while it is the last one.
        """
        super().__init__(game, episode_steps, tokens)
        self.one_life = one_life
        self.knows = game.knows._replace(look=snapshots)
        self._emulator = open_emulator(game.story)
        self._current: HostedState | None = None

    def reset(self, key: Any = None) -> tuple[HostedState, Step]:
        """Starts an episode; the same commands under the same seed play alike."""
        return self._begin(Chance.of(key))

    def restart(self, state: HostedState) -> tuple[HostedState, Step]:
        stream, episode = state.chance
        return self._begin(Chance(stream, episode + 1))

    def step(self, state: HostedState, action: int | str) -> tuple[HostedState, Step]:
        """Takes a command, by its index in ``commands`` or as words of one's own."""
        command, raw = take_command(self._emulator, self.commands, action, state, self._current)
        following, text, changed = self._turn(state, command, raw)
        self._current = following
        return following, self._report(following, text, following.score - state.score, changed)

    def look(self, state: HostedState) -> np.ndarray:
        return self.tokens(self.tell(state, LOOK))

    def inventory(self, state: HostedState) -> np.ndarray:
        return self.tokens(self.tell(state, INVENTORY))

    def tell(self, state: HostedState, command: str) -> str:
        """What a command would print, without taking it; nothing once the game is over."""
        if not self.knows.look:
            raise UsageError(f"{self.game.name} was opened without snapshots: open it with them")
        if state.over:
            return ""
        _, raw = take_command(self._emulator, self.commands, command, state, self._current)
        self._current = None
        return self._text(raw)

    def admissible_set(self, state: HostedState) -> np.ndarray:
        """For each command, whether it would change the state; nothing does once it is over."""
        return np.full(len(self.commands), not state.over)

    def prepare(self) -> None:
        """Finds out beforehand what steps need to know, if that takes longer than a step may."""

    def close(self) -> None:
        self._current = None
        close_emulator(self._emulator)

    # What the kinds of games differ in

    @abstractmethod
    def _opening(self, raw: str, chance: Chance) -> tuple[HostedState, str]:
        """The first state, and its text."""

    @abstractmethod
    def _turn(self, state: HostedState, command: str, raw: str) -> tuple[HostedState, str, bool]:
        """The state after a command, its text, and whether the world changed."""

    @abstractmethod
    def _text(self, raw: str) -> str:
        """What a player reads of the emulator's output."""

    # What they share

    def _begin(self, chance: Chance) -> tuple[HostedState, Step]:
        raw = restart_emulator(self._emulator, chance.seed)
        state, text = self._opening(raw, chance)
        self._current = state
        return state, self._report(state, text, 0, False)

    def _snapshot(self) -> tuple[Any, ...] | None:
        return self._emulator.get_state() if self.knows.look else None

    def _report(self, state: HostedState, text: str, reward: int, admissible: bool) -> Step:
        return Step(
            observation=self.tokens(text),
            text=text,
            reward=reward,
            score=state.score,
            terminated=state.over,
            truncated=not state.over and state.steps >= self.episode_steps,
            admissible=admissible,
            admissible_set=self.admissible_set(state),
            subtasks=np.array(state.subtasks, bool),
        )
