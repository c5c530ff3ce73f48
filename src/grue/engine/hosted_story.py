"""The hosted engine for Z-machine stories.

If Jericho knows a story, it reports score, end and changes of the world. Otherwise the score is
read from the memory (versions 1 to 3), the end from the text or the emulator's halt, and changes of
the world from objects and globals (``changes.py``).
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import numpy as np

from grue.engine.changes import world_bytes
from grue.engine.emulator import close_emulator, open_emulator
from grue.engine.feedback import tidy
from grue.engine.hosted import Chance, EmulatorEnv, HostedState, Tokens
from grue.engine.hosted_textworld import HostedEnv
from grue.games.playable import Playable
from grue.games.zmachine.story import Story

STATUS_LINE = re.compile(r"\A>[^\n]*\n")
"""Room, score and moves, printed first in versions 1 to 3."""
PROMPT = re.compile(r"\n>\s*\Z")
ENDED = re.compile(r"^\s*\*{3,}\s*(\S.*?)\s*\*{3,}\s*$", re.MULTILINE)
"""*** You have died ***, as in stories by Infocom and Inform."""
MEMORY = 0
"""The index of the story's memory in a snapshot."""
WON = re.compile(r"\bw[io]n\b|\bvictor", re.IGNORECASE)


class StoryEnv(EmulatorEnv[Story]):
    """Plays a story. Its admissible sets are unknown and contain every command."""

    def __init__(self, game: Story, *options: Any, **more: Any) -> None:
        super().__init__(game, *options, **more)
        self._known: bool = self._emulator.is_fully_supported
        refusal = None if self._known else game.file.score_refusal()
        # A story that Jericho does not know is always read from snapshots.
        look = self.knows.look or not self._known
        self.knows = self.knows._replace(look=look, score_refusal=refusal)
        if self.max_score is None and self._known:
            self.max_score = int(self._emulator.get_max_score())

    def prepare(self) -> None:
        if not self._known:
            _ = self._world

    def _opening(self, raw: str, chance: Chance) -> tuple[HostedState, str]:
        snapshot = self._snapshot()
        state = HostedState(snapshot, self._score(snapshot), (False,), 0, False, chance)
        return state, self._text(raw)

    def _turn(self, state: HostedState, command: str, raw: str) -> tuple[HostedState, str, bool]:
        over, won = self._ending(raw)
        snapshot = self._snapshot()
        score = self._score(snapshot)
        following = HostedState(snapshot, score, (won,), state.steps + 1, over, state.chance)
        changed = self._changed(state, following) or score != state.score or over
        return following, self._text(raw), changed

    def _text(self, raw: str) -> str:
        if self.game.file.version <= 3:
            raw = STATUS_LINE.sub("", raw)
        return tidy(PROMPT.sub("", raw))

    def _score(self, snapshot: tuple[Any, ...] | None) -> int:
        if self._known:
            return int(self._emulator.get_score())
        if self.knows.score_refusal is not None:
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

    def _changed(self, before: HostedState, after: HostedState) -> bool:
        """Whether the last command changed the world."""
        if self._known:
            return bool(self._emulator._world_changed())
        return not np.array_equal(self._world_in(before), self._world_in(after))

    def _world_in(self, state: HostedState) -> np.ndarray:
        assert state.snapshot is not None
        return state.snapshot[MEMORY][self._world]

    @cached_property
    def _world(self) -> np.ndarray:
        """Found once per process, in a separate emulator: other games are not disturbed."""
        digest = self.game.digest
        if digest not in _WORLDS:
            emulator = open_emulator(self.game.story)
            try:
                _WORLDS[digest] = world_bytes(self.game, emulator)
            finally:
                close_emulator(emulator)
        return _WORLDS[digest]


_WORLDS: dict[str, np.ndarray] = {}
HOSTS: dict[str, Any] = {"textworld": HostedEnv, "zmachine": StoryEnv}
"""The environment for each kind of game."""


def host(
    game: Playable,
    episode_steps: int | None = None,
    one_life: bool = True,
    snapshots: bool = True,
    tokens: Tokens | None = None,
) -> EmulatorEnv[Any]:
    """A game in an emulator of this process."""
    return HOSTS[game.kind](game, episode_steps, one_life, snapshots, tokens)
