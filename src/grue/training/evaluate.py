"""Evaluates a trained agent on whole episodes, in one program vmapped over the episodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from grue.agents.agent import Agent, AgentState, RunParameters
from grue.agents.settings import LARGEST
from grue.engine.environment import Environment
from grue.engine.stacked import StackedEnv
from grue.errors import UsageError
from grue.training import memory
from grue.training.config import TrainConfig
from grue.training.player import Player, Thought, load_agent
from grue.training.playing import (
    AT_ONCE,
    Trace,
    check_seed,
    episode_key,
    parameters_at,
    traced_play,
)
from grue.training.stop import Stop
from grue.training.trainer import RunResult


@dataclass(frozen=True)
class PlayedStep:
    """One step of an episode; ``number`` counts from 1."""

    number: int
    command: str
    forced: bool
    """Whether it is the forced look."""
    text: str
    """The game's answer, o_{t+1}."""
    head: int
    top: tuple[Thought, ...]
    """At most ``TOP`` candidates, the highest Q first."""
    candidates: int
    reward: int
    score: int
    admissible: bool
    subtasks: tuple[str, ...]
    """Completed by this step."""


@dataclass(frozen=True)
class Evaluation:
    """Played episodes. ``score``, ``fraction``, ``won`` and ``steps`` have a value for each."""

    env: Environment
    epsilon: float
    judges: bool
    """Whether the gate trains the classifier, so that ξ̂ is meaningful."""
    trace: Trace

    def __len__(self) -> int:
        return len(self.trace.played)

    @cached_property
    def steps(self) -> np.ndarray:
        return np.asarray(self.trace.played).sum(1)

    @cached_property
    def score(self) -> np.ndarray:
        return self._last(self.trace.score)

    @cached_property
    def fraction(self) -> np.ndarray:
        """Fraction of the game's subtasks that were completed."""
        done = self._last(self.trace.subtasks)
        if isinstance(self.env, StackedEnv):
            return done.sum(1) / self.env.subtask_counts[self.games]
        return done.mean(1)

    @property
    def games(self) -> np.ndarray:
        """The number of the game of each episode, in a set."""
        return np.asarray(self.trace.game)[:, 0]

    @cached_property
    def won(self) -> np.ndarray:
        return self.fraction == 1

    @property
    def max_score(self) -> int | None:
        return self.env.max_score

    @property
    def opening(self) -> str:
        """The text before the first command of the first episode: o_1."""
        return self.opening_of(0)

    def opening_of(self, episode: int) -> str:
        return _opening(self.env, int(self.games[episode]))

    @property
    def max_scores(self) -> np.ndarray | None:
        """The maximal score of each episode's game; None if it is not known."""
        if isinstance(self.env, StackedEnv):
            return self.env.max_scores[self.games]
        most = self.max_score
        return None if most is None else np.full(len(self), most)

    def record(self, episode: int = 0) -> tuple[PlayedStep, ...]:
        """The steps of an episode, with texts."""
        trace = jax.tree.map(lambda leaf: leaf[episode, : self.steps[episode]], self.trace)
        names = self.env.subtask_names
        before = np.zeros((1, len(names)), bool)
        new = trace.subtasks & ~np.concatenate([before, trace.subtasks[:-1]])
        return tuple(
            PlayedStep(
                number=t + 1,
                command=self.env.commands[trace.action[t]],
                forced=bool(trace.forced[t]),
                text=self.env.decode(trace.observation[t]),
                head=int(trace.head[t]),
                top=tuple(self._thoughts(trace, t)),
                candidates=int(trace.candidates[t]),
                reward=int(trace.reward[t]),
                score=int(trace.score[t]),
                admissible=bool(trace.admissible[t]),
                subtasks=tuple(names[i] for i in np.flatnonzero(new[t])),
            )
            for t in range(len(trace.action))
        )

    def _thoughts(self, trace: Trace, t: int) -> Iterator[Thought]:
        columns = (trace.top[t], trace.values[t], trace.admissibility[t])
        for command, value, admissibility in zip(*columns, strict=True):
            if value > -np.inf:
                estimate = None if np.isnan(admissibility) else float(admissibility)
                yield Thought(self.env.commands[command], float(value), estimate)

    def _last(self, values: Any) -> np.ndarray:
        return np.asarray(values)[np.arange(len(self)), self.steps - 1]


def evaluate(
    run: Path | str | RunResult, episodes: int = 1, epsilon: float = 0.0, seed: int = 0
) -> Evaluation:
    """Plays episodes with the agent of a run, ε-greedily."""
    with closing(load_agent(run)) as player:
        return evaluate_player(player, episodes, epsilon, seed)


def evaluate_player(player: Player, episodes: int, epsilon: float, seed: int) -> Evaluation:
    return play_episodes(*player.trained[:4], player.config, episodes, epsilon, seed)


def play_episodes(
    env: Environment,
    agent: Agent,
    state: AgentState,
    parameters: RunParameters,
    config: TrainConfig,
    episodes: int = 1,
    epsilon: float = 0.0,
    seed: int = 0,
    first: int = 0,
    games: Sequence[int] | None = None,
) -> Evaluation:
    """Plays episodes ε-greedily, with the forced look as in training, from number ``first`` on.

    ``games`` are the games of a set to play, one for each episode; by default they are drawn.
    """
    check_episodes(episodes)
    check_seed(seed)
    play, parameters = traced_play(env, agent), parameters_at(epsilon, parameters)
    # All batches have the same size: one compiled program.
    size = min(episodes, AT_ONCE)
    number_keys = jax.vmap(episode_key, (None, 0))

    def each(number: int) -> tuple[Any, ...]:
        numbers = number + jnp.arange(size)
        # The last batch may have more episodes than are asked for.
        chosen = () if games is None else (jnp.asarray(games)[(numbers - first) % episodes],)
        return number_keys(seed, numbers), *chosen

    played = jax.eval_shape(play, state, parameters, jnp.float32(epsilon), *each(first))
    check_fits(episodes, memory.bytes_of(played) // size)
    batches = []
    # A KeyboardInterrupt inside a JAX program may be lost, or crash Python.
    with Stop() as stop:
        for number in range(first, first + episodes, size):
            given = parameters, jnp.float32(epsilon), *each(number)
            batches.append(jax.device_get(play(state, *given)))
            env.check()
            stop.heed()
    trace = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:episodes], *batches)
    return Evaluation(env, epsilon, config.gate_kind.classifier, trace)


def check_episodes(episodes: int) -> None:
    if not 1 <= episodes <= LARGEST:
        raise UsageError(f"episodes must be from 1 to {LARGEST}, not {episodes}")


def check_fits(episodes: int, each: int) -> None:
    """Refuses more episodes than fit into memory: all steps are kept, and copied once."""
    free = memory.free_host_bytes()
    if free is not None and 2 * episodes * each > free:
        raise UsageError(
            f"{episodes} episodes need {memory.told(2 * episodes * each)} of memory, and "
            f"{memory.told(free)} are free; play at most {free // (2 * each)}"
        )


@lru_cache(maxsize=16)
def _opening(env: Environment, game: int) -> str:
    if isinstance(env, StackedEnv):
        return env.decode(env.reset(game=game)[1].observation)
    return env.decode(jax.jit(env.reset)()[1].observation)
