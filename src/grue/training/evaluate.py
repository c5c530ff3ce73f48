"""Evaluates a trained agent on whole episodes, in one program vmapped over the episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from grue.agents.agent import Agent, AgentState, Episode, RunParameters
from grue.agents.settings import LARGEST
from grue.engine.environment import Environment
from grue.errors import GrueError, UsageError
from grue.training import memory
from grue.training.config import TrainConfig
from grue.training.player import (
    Player,
    Thought,
    begin,
    check_seed,
    decide,
    episode_key,
    load_agent,
    parameters_at,
)
from grue.training.runs import read_run, some_run_folders
from grue.training.stop import Stop
from grue.training.trainer import RunResult

TOP = 3
"""Records keep the estimates for so many commands."""
AT_ONCE = 50
"""Episodes in a batch. Each holds a copy of its head's weights."""


class Trace(NamedTuple):
    """The steps of some episodes, as arrays."""

    played: Bool[Array, "*episodes"]
    """False after the end of the episode."""
    action: Int[Array, "*episodes"]
    forced: Bool[Array, "*episodes"]
    head: Int[Array, "*episodes"]
    candidates: Int[Array, "*episodes"]
    """Their number."""
    top: Int[Array, "*episodes top"]
    """The candidates with the highest Q; other commands if there are too few."""
    values: Float[Array, "*episodes top"]
    """Their Q; -inf for commands that are not candidates."""
    admissibility: Float[Array, "*episodes top"]
    """ξ̂; nan if the agent does not estimate it."""
    observation: Int[Array, "*episodes length"]
    """o_{t+1}"""
    reward: Int[Array, "*episodes"]
    score: Int[Array, "*episodes"]
    admissible: Bool[Array, "*episodes"]
    subtasks: Bool[Array, "*episodes subtasks"]


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
        """Fraction of the subtasks that were completed."""
        return self._last(self.trace.subtasks).mean(1)

    @cached_property
    def won(self) -> np.ndarray:
        return self.fraction == 1

    @property
    def max_score(self) -> int | None:
        return self.env.max_score

    @property
    def opening(self) -> str:
        """The text before the first command: o_1."""
        return _opening(self.env)

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
) -> Evaluation:
    """Plays episodes ε-greedily, with the forced look as in training, from number ``first`` on."""
    if not 1 <= episodes <= LARGEST:
        raise UsageError(f"episodes must be from 1 to {LARGEST}, not {episodes}")
    check_seed(seed)
    play, parameters = _program(env, agent), parameters_at(epsilon, parameters)
    # All batches have the same size: one compiled program.
    size = min(episodes, AT_ONCE)
    number_keys = jax.vmap(episode_key, (None, 0))
    keys = number_keys(seed, jnp.arange(size))
    played = jax.eval_shape(play, state, parameters, jnp.float32(epsilon), keys)
    _check_fits(episodes, memory.bytes_of(played) // size)
    batches = []
    # A KeyboardInterrupt inside a JAX program may be lost, or crash Python.
    with Stop() as stop:
        for number in range(first, first + episodes, size):
            keys = number_keys(seed, number + jnp.arange(size))
            batches.append(jax.device_get(play(state, parameters, jnp.float32(epsilon), keys)))
            env.check()
            stop.heed()
    trace = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:episodes], *batches)
    return Evaluation(env, epsilon, config.gate_kind.classifier, trace)


def _check_fits(episodes: int, each: int) -> None:
    """What is played is kept whole, twice while it is put together."""
    free = memory.free_host_bytes()
    if free is not None and 2 * episodes * each > free:
        raise UsageError(
            f"{episodes} episodes need {memory.told(2 * episodes * each)} of memory, and "
            f"{memory.told(free)} are free; play at most {free // (2 * each)}"
        )


@lru_cache(maxsize=16)
def _opening(env: Environment) -> str:
    return env.decode(jax.jit(env.reset)()[1].observation)


@lru_cache(maxsize=16)
def _program(env: Environment, agent: Agent) -> Callable[..., Trace]:
    """``play(state, parameters, epsilon, keys)``: one episode for each key."""
    top = min(TOP, len(env.commands))

    def episode(
        state: AgentState, parameters: RunParameters, epsilon: Float[Array, ""], key: PRNGKeyArray
    ) -> Trace:
        def step(before: Episode, _: None) -> tuple[Episode, Trace]:
            decision, action, forced = decide(env, agent, state, parameters, epsilon, key, before)
            world, seen = env.step(before.game, action)
            allowed = jnp.where(decision.candidates, decision.values, -jnp.inf)
            values, best = jax.lax.top_k(allowed, top)
            trace = Trace(
                played=~(before.seen.terminated | before.seen.truncated),
                action=action,
                forced=forced,
                head=decision.head,
                candidates=decision.candidates.sum(),
                top=best,
                values=values,
                admissibility=(
                    jnp.full(top, jnp.nan)
                    if decision.admissibility is None
                    else decision.admissibility[best]
                ),
                observation=seen.observation,
                reward=seen.reward,
                score=seen.score,
                admissible=seen.admissible,
                subtasks=seen.subtasks,
            )
            memory = agent.perceive(decision.memory, world, seen)
            return Episode(world, seen, action, before.time + 1, memory), trace

        start = Episode(*begin(env, key), jnp.int32(-1), jnp.int32(0), agent.start(state))
        return jax.lax.scan(step, start, None, length=env.episode_steps)[1]

    return jax.jit(jax.vmap(episode, in_axes=(None, None, None, 0)))


COLUMNS = ("run", "steps", "play", "score", "max", "fraction", "won")


@dataclass(frozen=True)
class RunEvaluation:
    """A trained run, played greedily and, if asked for, with the final ε of its training."""

    name: str
    steps: int
    """Training steps."""
    greedy: Evaluation
    exploring: Evaluation | None
    notes: tuple[str, ...] = ()
    """Failures of a hosted game."""

    def rows(self) -> Iterator[tuple[str, ...]]:
        """One table row for greedy play, one for ε-greedy play."""
        for play in (self.greedy, self.exploring):
            if play is None:
                continue
            many = play is self.exploring
            mean = float(play.score.mean())
            yield (
                self.name,
                f"{self.steps:,}",
                f"ε {play.epsilon:g}" if many else "greedy",
                f"{mean:.2f}" if many else f"{mean:g}",
                "-" if play.max_score is None else str(play.max_score),
                f"{play.fraction.mean():.3f}",
                f"{play.won.sum()} of {len(play)}" if many else ("yes" if play.won[0] else "no"),
            )

    def to_json(self, transcript: bool = False) -> dict[str, Any]:
        told: dict[str, Any] = {"run": self.name, "steps": self.steps}
        told["max_score"] = self.greedy.max_score
        for name, play in (("greedy", self.greedy), ("exploring", self.exploring)):
            if play is not None:
                told[name] = {
                    "epsilon": play.epsilon,
                    "episodes": len(play),
                    "score": float(play.score.mean()),
                    "fraction": float(play.fraction.mean()),
                    "wins": int(play.won.sum()),
                }
        if transcript:
            told["transcript"] = [dataclasses.asdict(step) for step in self.greedy.record()]
        return told


def evaluate_runs(
    folder: Path, episodes: int = 100, seed: int = 0, greedy_only: bool = False
) -> Iterator[RunEvaluation | GrueError]:
    """Evaluates every run in a folder, or the run that the folder is.

    A run in a folder that cannot be played does not spoil the others: its error is returned.
    """
    for path in some_run_folders(folder):
        try:
            run = read_run(path)
            player = load_agent(run.folder)
        except GrueError as error:
            if path == folder:
                raise
            yield error
            continue
        greedy, exploring = evaluate_player(player, 1, 0.0, seed), None
        if not greedy_only:
            exploring = evaluate_player(player, episodes, run.config.epsilon_end, seed)
        inside = run.folder != folder and run.folder.is_relative_to(folder)
        name = str(run.folder.relative_to(folder)) if inside else run.folder.name
        player.close()
        notes = tuple(player.env.notes())
        yield RunEvaluation(name, player.trained_steps, greedy, exploring, notes)
