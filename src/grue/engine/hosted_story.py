"""A Z-machine story in Jericho's emulator, with the interface of ``HostedEnv``.

Where Jericho knows a story, score, end and change of the world are Jericho's. Else the score is
read from the story's own memory, where versions 1 to 3 must keep it; the end from the text, or from
the emulator's halt; and the change of the world from the objects and globals (``changes.py``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from grue.engine.changes import world_bytes
from grue.engine.emulator import (
    close_emulator,
    open_emulator,
    restart_emulator,
    take_command,
)
from grue.engine.feedback import tidy
from grue.engine.hosted_textworld import HostedEnv
from grue.engine.step import Step
from grue.games.game import Game
from grue.games.zmachine.story import Story

STATUS_LINE = re.compile(r"\A>[^\n]*\n")
"""Room, score and moves, which the emulator prints first for versions 1 to 3."""
PROMPT = re.compile(r"\n>\s*\Z")
ENDED = re.compile(r"^\s*\*{3,}\s*(\S.*?)\s*\*{3,}\s*$", re.MULTILINE)
"""*** You have died ***, as Infocom's stories and those of Inform say it."""
MEMORY = 0
"""Where a snapshot of the emulator has the story's memory."""
WON = re.compile(r"\bw[io]n\b|\bvictor", re.IGNORECASE)


@dataclass(frozen=True)
class StoryState:
    snapshot: tuple[Any, ...] | None
    """None where nobody goes back."""
    score: int
    steps: int
    over: bool
    won: bool


class StoryEnv:
    """Plays a story. Its admissible sets are not known: every command is in them."""

    def __init__(
        self,
        game: Story,
        episode_steps: int | None = None,
        one_life: bool = True,
        snapshots: bool = True,
    ) -> None:
        """With ``one_life`` the loss of a life ends the game, as in training.

        Without ``snapshots`` a state can be stepped from only while it is the last one.
        """
        self.game = game
        self.episode_steps = game.episode_steps if episode_steps is None else episode_steps
        self.one_life = one_life
        self._emulator = open_emulator(game.story)
        self._known: bool = self._emulator.is_fully_supported
        self.score_refusal: str | None = None if self._known else game.file.score_refusal()
        """Why the score cannot be read; None when it can."""
        self.max_score: int | None = game.max_score
        if self.max_score is None and self._known:
            self.max_score = int(self._emulator.get_max_score())
        # A story that Jericho does not know is read from them.
        self._snapshots = snapshots or not self._known
        self._current: StoryState | None = None

    def reset(self, seed: int = 0) -> tuple[StoryState, Step]:
        """Starts an episode; the same commands under the same seed play alike."""
        text = self._read(restart_emulator(self._emulator, seed))
        snapshot = self._snapshot()
        state = StoryState(snapshot, self._score(snapshot), 0, False, False)
        self._current = state
        return state, self._report(state, text, reward=0, admissible=False)

    def step(self, state: StoryState, action: int | str) -> tuple[StoryState, Step]:
        """Takes a command, by its index in ``game.commands`` or as words of one's own."""
        _, raw = take_command(self._emulator, self.game.commands, action, state, self._current)
        over, won = self._ending(raw)
        snapshot = self._snapshot()
        following = StoryState(snapshot, self._score(snapshot), state.steps + 1, over, won)
        self._current = following
        reward = following.score - state.score
        changed = self._changed(state, following) or reward != 0 or over
        return following, self._report(following, self._read(raw), reward, changed)

    def tell(self, state: StoryState, command: str) -> str:
        """What a command would print, without taking it."""
        _, raw = take_command(self._emulator, self.game.commands, command, state, self._current)
        self._current = None
        return self._read(raw)

    def prepare(self) -> None:
        """Finds out beforehand what steps need to know: it takes longer than a step may."""
        if not self._known:
            _ = self._world

    def close(self) -> None:
        self._current = None
        close_emulator(self._emulator)

    def admissible_set(self, state: StoryState) -> np.ndarray:
        return np.full(len(self.game.commands), not state.over)

    def _read(self, raw: str) -> str:
        if self.game.file.version <= 3:
            raw = STATUS_LINE.sub("", raw)
        return tidy(PROMPT.sub("", raw))

    def _snapshot(self) -> tuple[Any, ...] | None:
        return self._emulator.get_state() if self._snapshots else None

    def _score(self, snapshot: tuple[Any, ...] | None) -> int:
        if self._known:
            return int(self._emulator.get_score())
        if self.score_refusal is not None:
            return 0
        assert snapshot is not None
        return self.game.file.score(snapshot[MEMORY].tobytes())

    def _ending(self, raw: str) -> tuple[bool, bool]:
        """Whether the game is over, and whether it is won."""
        halted = self._emulator._emulator_halted()
        victory = self.game.victory
        ended = ENDED.search(raw)
        if victory is not None:
            won = victory in raw
        elif self._known:
            won = bool(self._emulator.victory())
        else:
            won = ended is not None and WON.search(ended[1]) is not None
        lost = bool(self._emulator.game_over()) if self._known else ended is not None
        return halted or won or (lost and self.one_life), won

    def _changed(self, before: StoryState, after: StoryState) -> bool:
        """Whether the last command changed the world."""
        if self._known:
            return bool(self._emulator._world_changed())
        return not np.array_equal(self._world_in(before), self._world_in(after))

    def _world_in(self, state: StoryState) -> np.ndarray:
        assert state.snapshot is not None
        return state.snapshot[MEMORY][self._world]

    @cached_property
    def _world(self) -> np.ndarray:
        return _world_of(self.game.digest, self.game)

    def _report(self, state: StoryState, text: str, reward: int, admissible: bool) -> Step:
        return Step(
            observation=None,
            text=text,
            reward=reward,
            score=state.score,
            terminated=state.over,
            truncated=not state.over and state.steps >= self.episode_steps,
            admissible=admissible,
            admissible_set=self.admissible_set(state),
            subtasks=np.array([state.won]),
        )


_WORLDS: dict[str, np.ndarray] = {}


def _world_of(digest: str, game: Story) -> np.ndarray:
    """Found once in a process, in an emulator of its own: other games go on where they are."""
    if digest not in _WORLDS:
        emulator = open_emulator(game.story)
        try:
            _WORLDS[digest] = world_bytes(game, emulator)
        finally:
            close_emulator(emulator)
    return _WORLDS[digest]


def host(
    game: Game | Story,
    episode_steps: int | None = None,
    one_life: bool = True,
    snapshots: bool = True,
) -> HostedEnv | StoryEnv:
    """A game in an emulator of this process."""
    if isinstance(game, Story):
        return StoryEnv(game, episode_steps, one_life, snapshots)
    return HostedEnv(game, episode_steps)
