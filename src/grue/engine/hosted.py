"""Shared by all hosted games: a real story in Jericho's emulator.

States hold a snapshot of the emulator, so that any state can be stepped from again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from grue.engine.emulator import (
    LARGEST_SEED,
    check_command,
    check_seed,
    close_emulator,
    open_emulator,
    restart_emulator,
)
from grue.engine.environment import Environment, check_count, episode_seed
from grue.engine.step import Step
from grue.errors import UsageError
from grue.games.logic import Facts
from grue.games.playable import Playable
from grue.games.tokens import Vocabulary

OBSERVATION_LENGTH = 128
"""Tokens per observation; longer texts are cut."""
LOOK, INVENTORY = "look", "inventory"
KEPT_TEXTS = 50_000
"""Size of the cache of texts."""

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
            row.setflags(write=False)  # The row is shared.
            if len(self._rows) < KEPT_TEXTS:
                self._rows[text] = row
        return row


class RealGame(Environment, Generic[G]):
    """The attributes of ``Environment`` for a game played from its story."""

    def __init__(self, game: G, episode_steps: int | None, tokens: Tokens | None) -> None:
        """By default ``tokens`` has every word of the story, in lower case."""
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
    """The seeds of episodes: counted up from an integer, or drawn with a JAX key."""

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
    """None if the game has no snapshots."""
    score: int
    subtasks: tuple[bool, ...]
    steps: int
    over: bool
    chance: Chance
    facts: Facts = frozenset()
    """The world, if its rules are known."""


class EmulatorEnv(RealGame[G], ABC):
    """A game in an emulator of this process. Subclasses parse the output."""

    def __init__(
        self,
        game: G,
        episode_steps: int | None = None,
        one_life: bool = True,
        snapshots: bool = True,
        tokens: Tokens | None = None,
    ) -> None:
        """With ``one_life``, death ends the game, as in training and always in TextWorld games.

        Without ``snapshots``, only the last state can be stepped from.
        """
        super().__init__(game, episode_steps, tokens)
        self.one_life = one_life
        self.knows = game.knows._replace(look=snapshots)
        self._emulator = open_emulator(game.story)
        self._current: HostedState | None = None

    def reset(self, key: Any = None) -> tuple[HostedState, Step]:
        """Starts an episode. The same seed and commands give the same results."""
        return self._begin(Chance.of(key))

    def restart(self, state: HostedState) -> tuple[HostedState, Step]:
        stream, episode = state.chance
        return self._begin(Chance(stream, episode + 1))

    def step(self, state: HostedState, action: int | str) -> tuple[HostedState, Step]:
        """Takes a command, by its index in ``commands`` or as a text."""
        command, raw = self._take(state, action)
        following, text, changed = self._turn(state, command, raw)
        self._current = following
        return following, self._report(following, text, following.score - state.score, changed)

    def fork(self, state: HostedState, count: int) -> list[HostedState]:
        check_count(count)
        return [state] * count

    def look(self, state: HostedState) -> np.ndarray:
        return self.tokens(self.tell(state, LOOK))

    def inventory(self, state: HostedState) -> np.ndarray:
        return self.tokens(self.tell(state, INVENTORY))

    def tell(self, state: HostedState, command: str) -> str:
        """What a command would print, without a step; empty after the end of the game."""
        if not self.knows.look:
            raise UsageError(f"{self.game.name} has no snapshots; open it with snapshots=True")
        if state.over:
            return ""
        _, raw = self._take(state, command)
        self._current = None
        return self._text(raw)

    def admissible_set(self, state: HostedState) -> np.ndarray:
        """For each command, whether it would change the state; none does after the end."""
        return np.full(len(self.commands), not state.over)

    def prepare(self) -> None:
        """Computes in advance what would take too long in a step."""

    def close(self) -> None:
        self._current = None
        close_emulator(self._emulator)

    # For subclasses

    @abstractmethod
    def _opening(self, raw: str, chance: Chance) -> tuple[HostedState, str]:
        """The first state, and its text."""

    @abstractmethod
    def _turn(self, state: HostedState, command: str, raw: str) -> tuple[HostedState, str, bool]:
        """The state after a command, its text, and whether the world changed."""

    @abstractmethod
    def _text(self, raw: str) -> str:
        """The part of the emulator's output for the player."""

    # Shared

    def _take(self, state: HostedState, action: int | str) -> tuple[str, str]:
        """A command in words, and what it prints in a state."""
        if state.over:
            raise UsageError("the game is over; call reset to start again")
        command = action if isinstance(action, str) else self.commands[action]
        check_command(command)
        if state is not self._current:
            if state.snapshot is None:
                raise UsageError("a game without snapshots can only go on from its last state")
            self._emulator.set_state(state.snapshot)
        return command, self._emulator.step(command)[0]

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
