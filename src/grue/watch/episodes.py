"""Many episodes of an agent: where it goes, where subtasks are done, where episodes end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from grue.engine.compiled import CompiledEnv
from grue.engine.environment import Environment
from grue.training.evaluate import AT_ONCE, Evaluation, play_episodes
from grue.watch.session import Mind

MOST_EPISODES = 10_000
ENDS = ("won", "lost", "limit")


@dataclass
class EpisodeTally:
    """Counts over episodes. Those by room are empty if the game's rooms are not known."""

    env: Environment
    episodes: int = 0
    steps: int = 0
    score: int = 0
    ends: np.ndarray = field(default_factory=lambda: np.zeros(len(ENDS), int))
    tried: np.ndarray = field(init=False)
    worked: np.ndarray = field(init=False)
    done: np.ndarray = field(init=False)
    """Episodes that did each subtask."""
    rooms: dict[str, np.ndarray] | None = None

    def __post_init__(self) -> None:
        commands, subtasks = len(self.env.commands), len(self.env.subtask_names)
        self.tried, self.worked = np.zeros(commands, int), np.zeros(commands, int)
        self.done = np.zeros(subtasks, int)
        if isinstance(self.env, CompiledEnv):
            count = len(self.env.game.arrays["exit_to"])
            self.rooms = {
                "steps": np.zeros(count, int),
                "episodes": np.zeros(count, int),
                "ends": np.zeros((count, len(ENDS)), int),
                "subtasks": np.zeros((count, subtasks), int),
            }

    def add(self, played: Evaluation) -> None:
        trace = played.trace
        on, action = np.asarray(trace.played), np.asarray(trace.action)
        ends = np.where(played.won, 0, np.where(played.steps < on.shape[1], 1, 2))
        self.episodes += len(played)
        self.steps += int(on.sum())
        self.score += int(played.score.sum())
        self.ends += np.bincount(ends, minlength=len(ENDS))
        np.add.at(self.tried, action[on], 1)
        np.add.at(self.worked, action[on & np.asarray(trace.admissible)], 1)
        done = np.asarray(trace.subtasks) & on[..., None]
        new = done.copy()
        new[:, 1:] &= ~done[:, :-1]
        self.done += new.any(1).sum(0)
        if self.rooms is not None:
            self._add_rooms(action, on, new, ends)

    def _add_rooms(
        self, action: np.ndarray, on: np.ndarray, new: np.ndarray, ends: np.ndarray
    ) -> None:
        assert self.rooms is not None
        before, after = (np.asarray(r) for r in _rooms_program(self.env)(action))
        np.add.at(self.rooms["steps"], before[on], 1)
        for room in range(len(self.rooms["steps"])):
            self.rooms["episodes"][room] += ((before == room) & on).any(1).sum()
        # A subtask counts where its command was given.
        episode, step, subtask = np.nonzero(new)
        np.add.at(self.rooms["subtasks"], (before[episode, step], subtask), 1)
        last = on.sum(1) - 1
        np.add.at(self.rooms["ends"], (after[np.arange(len(last)), last], ends), 1)

    def told(self) -> dict[str, Any]:
        order = np.argsort(-self.tried, kind="stable")
        rooms = self.rooms
        return {
            "episodes": self.episodes,
            "steps": self.steps,
            "score": self.score,
            "ends": dict(zip(ENDS, self.ends.tolist(), strict=True)),
            "subtasks": self.done.tolist(),
            "commands": [
                {
                    "command": self.env.commands[number],
                    "tried": int(self.tried[number]),
                    "worked": int(self.worked[number]),
                }
                for number in order.tolist()
                if self.tried[number]
            ],
            "rooms": None if rooms is None else {n: table.tolist() for n, table in rooms.items()},
        }


def play_many(mind: Mind, episodes: int, epsilon: float, seed: int) -> Iterator[EpisodeTally]:
    """Plays episodes in batches of one program, and yields the counts after each batch."""
    player = mind.player
    env, agent, state, parameters, _ = player.trained
    tally = EpisodeTally(env)
    for first in range(0, episodes, AT_ONCE):
        size = min(AT_ONCE, episodes - first)
        played = play_episodes(
            env, agent, state, parameters, player.config, AT_ONCE, epsilon, seed, first
        )
        if size < AT_ONCE:
            trace = jax.tree.map(lambda leaf, size=size: leaf[:size], played.trace)
            played = Evaluation(env, epsilon, played.judges, trace)
        tally.add(played)
        yield tally


@lru_cache(maxsize=4)
def _rooms_program(env: Environment) -> Callable[..., Any]:
    """The rooms before and after every command of some episodes."""

    def episode(actions: Any) -> Any:
        def step(state: Any, action: Any) -> Any:
            after, _ = env.step(state, action)
            return after, (state.room, after.room)

        return jax.lax.scan(step, env.reset()[0], actions)[1]

    return jax.jit(jax.vmap(episode))
