"""The hosted engine: a real TextWorld story in a real Z-machine, behind pure functions.

``reset`` and ``step`` take and return states that hold a snapshot of the emulator, so a state can
be stepped from as often as one likes. Facts follow what the story itself reports as done, and the
admissible set follows from the facts and the game's rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from grue.engine.emulator import (
    close_emulator,
    open_emulator,
    restart_emulator,
    take_command,
)
from grue.engine.feedback import Feedback, read_feedback
from grue.engine.step import Step
from grue.errors import BrokenFileError
from grue.games.game import Game
from grue.games.logic import Facts, ground


@dataclass(frozen=True)
class HostedState:
    snapshot: tuple[Any, ...]
    facts: Facts
    score: int
    subtasks: tuple[bool, ...]
    steps: int
    over: bool


class HostedEnv:
    """Plays a TextWorld story file through Jericho's emulator."""

    def __init__(self, game: Game, episode_steps: int | None = None) -> None:
        self.game = game
        self.episode_steps = game.episode_steps if episode_steps is None else episode_steps
        self.logic = ground(game)
        self.quests = tuple(quest for quest in self.logic.quests if quest.wins)
        self._emulator = open_emulator(game.story)
        self._current: HostedState | None = None
        self.max_score: int | None = game.max_score
        self.score_refusal: str | None = None

    def reset(self, seed: int = 0) -> tuple[HostedState, Step]:
        """Starts an episode. TextWorld stories draw no random numbers, so seeds play alike."""
        opening = read_feedback(restart_emulator(self._emulator, seed))
        self._emulator.step("tw-trace-actions")
        done = tuple(self._holds(quest.wins, self.logic.initial) for quest in self.quests)
        state = HostedState(
            self._emulator.get_state(), self.logic.initial, opening.score, done, 0, False
        )
        self._current = state
        return state, self._report(state, opening, reward=0, admissible=False)

    def step(self, state: HostedState, action: int | str) -> tuple[HostedState, Step]:
        """Takes a command, by its index in ``game.commands`` or as words of one's own."""
        command, raw = take_command(
            self._emulator, self.game.commands, action, state, self._current
        )
        if self._emulator._emulator_halted():
            raise BrokenFileError(f"the emulator halted after {command!r}; reset to play again")
        feedback = read_feedback(raw)

        facts = state.facts
        for event in feedback.events:
            happened = self.logic.happened(facts, event)
            facts = happened.apply(facts) if happened else facts
        done = tuple(
            was or self._holds(quest.wins, facts)
            for was, quest in zip(state.subtasks, self.quests, strict=True)
        )
        following = HostedState(
            self._emulator.get_state(),
            facts,
            feedback.score,
            done,
            state.steps + 1,
            feedback.won or feedback.lost,
        )
        self._current = following
        return following, self._report(
            following, feedback, feedback.score - state.score, facts != state.facts
        )

    def admissible_set(self, state: HostedState) -> np.ndarray:
        """For each command, whether it would change the state; nothing does once it is over."""
        return np.array(
            [not state.over and self.logic.admissible(state.facts, c) for c in self.game.commands]
        )

    def tell(self, state: HostedState, command: str) -> str:
        """What a command would print, without taking it."""
        return self.step(state, command)[1].text or ""

    def close(self) -> None:
        self._current = None
        close_emulator(self._emulator)

    def _report(
        self, state: HostedState, feedback: Feedback, reward: int, admissible: bool
    ) -> Step:
        return Step(
            observation=None,
            text=feedback.text,
            reward=reward,
            score=state.score,
            terminated=state.over,
            truncated=not state.over and state.steps >= self.episode_steps,
            admissible=admissible,
            admissible_set=self.admissible_set(state),
            subtasks=np.array(state.subtasks),
        )

    @staticmethod
    def _holds(alternatives: tuple[Facts, ...], facts: Facts) -> bool:
        return any(conditions <= facts for conditions in alternatives)
