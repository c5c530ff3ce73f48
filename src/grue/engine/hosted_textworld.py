"""The hosted engine for TextWorld stories, whose world and rules are known.

Facts are updated with the actions that the story reports. The admissible set is computed from the
facts and the rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from grue.engine.feedback import read_feedback
from grue.engine.hosted import Chance, EmulatorEnv, HostedState
from grue.errors import BrokenFileError
from grue.games.game import Game
from grue.games.logic import Facts, ground

KEPT_SETS = 2_000
"""Size of the cache of admissible sets: most commands leave the world as it is."""


class HostedEnv(EmulatorEnv[Game]):
    """Plays a TextWorld story. It is deterministic: all seeds are the same."""

    def __init__(self, game: Game, *options: Any, **more: Any) -> None:
        super().__init__(game, *options, **more)
        self.logic = ground(game)
        self.quests = tuple(quest for quest in self.logic.quests if quest.wins)
        self._admissible: dict[Facts, np.ndarray] = {}

    def admissible_set(self, state: HostedState) -> np.ndarray:
        if state.over:
            return np.zeros(len(self.commands), bool)
        found = self._admissible.get(state.facts)
        if found is None:
            found = np.array([self.logic.admissible(state.facts, c) for c in self.commands])
            found.setflags(write=False)  # It is shared.
            if len(self._admissible) < KEPT_SETS:
                self._admissible[state.facts] = found
        return found

    def facts(self, state: HostedState) -> Facts:
        """The facts of the world now, as TextWorld states them, with the identifiers of things."""
        return state.facts

    def _opening(self, raw: str, chance: Chance) -> tuple[HostedState, str]:
        opening = read_feedback(raw)
        # A turn of its own: quests that hold at the start are done before the first command.
        traced = read_feedback(self._emulator.step("tw-trace-actions")[0])
        facts = self.logic.initial
        done = tuple(_holds(quest.wins, facts) for quest in self.quests)
        over = traced.won or traced.lost
        return HostedState(
            self._snapshot(), traced.score, done, 0, over, chance, facts
        ), opening.text

    def _turn(self, state: HostedState, command: str, raw: str) -> tuple[HostedState, str, bool]:
        if self._emulator._emulator_halted():
            raise BrokenFileError(f"the emulator halted after {command!r}; reset to play again")
        feedback = read_feedback(raw)
        facts = self.logic.after(state.facts, feedback.events)
        done = tuple(
            was or _holds(quest.wins, facts)
            for was, quest in zip(state.subtasks, self.quests, strict=True)
        )
        over, steps = feedback.won or feedback.lost, state.steps + 1
        snapshot = self._snapshot()
        following = HostedState(snapshot, feedback.score, done, steps, over, state.chance, facts)
        return following, feedback.text, facts != state.facts

    def _text(self, raw: str) -> str:
        return read_feedback(raw).text


def _holds(alternatives: tuple[Facts, ...], facts: Facts) -> bool:
    return any(conditions <= facts for conditions in alternatives)
