"""Plays whole episodes with a trained agent: one scanned program, vmapped over the episodes.

Nothing is learned; how a command is chosen is in ``player.py``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from grue.agents.agent import Agent, AgentState, Episode, RunParameters
from grue.engine.environment import Environment
from grue.errors import UsageError
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
from grue.training.runs import read_runs
from grue.training.stop import Stop
from grue.training.train import RunResult

TOP = 3
"""Commands of which a record keeps what the agent thought."""
AT_ONCE = 50
"""Episodes that are played side by side: each holds a copy of its head's weights."""


class Trace(NamedTuple):
    """What happened at every step of some episodes, as arrays."""

    played: Bool[Array, "*episodes"]
    """False after the episode's end."""
    action: Int[Array, "*episodes"]
    forced: Bool[Array, "*episodes"]
    head: Int[Array, "*episodes"]
    candidates: Int[Array, "*episodes"]
    """How many there were."""
    top: Int[Array, "*episodes top"]
    """The best candidates, then, where there are too few, any others."""
    values: Float[Array, "*episodes top"]
    """Their Q; -inf for what is no candidate."""
    admissibility: Float[Array, "*episodes top"]
    """nan for an agent that does not estimate it."""
    observation: Int[Array, "*episodes length"]
    """o_{t+1}"""
    reward: Int[Array, "*episodes"]
    score: Int[Array, "*episodes"]
    admissible: Bool[Array, "*episodes"]
    subtasks: Bool[Array, "*episodes subtasks"]
    """Done so far."""


@dataclass(frozen=True)
class PlayedStep:
    number: int
    """From 1 on."""
    command: str
    forced: bool
    """The "look" of every I_look steps, in place of the agent's choice."""
    text: str
    """What the game answered: o_{t+1}."""
    head: int
    top: tuple[Thought, ...]
    """The best candidates by Q, three at most."""
    candidates: int
    reward: int
    score: int
    admissible: bool
    subtasks: tuple[str, ...]
    """Those that this step completed."""


@dataclass(frozen=True)
class Evaluation:
    """Some episodes. ``score``, ``fraction``, ``won`` and ``steps`` have one value for each."""

    env: Environment
    epsilon: float
    judges: bool
    """Whether the gate trains the classifier, so that ξ̂ means something."""
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
        """Of the subtasks that were done."""
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
        """The steps of an episode in words."""
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
    """Plays so many episodes with the agent of a run: greedily, or with an ε."""
    player = load_agent(run)
    try:
        return evaluate_player(player, episodes, epsilon, seed)
    finally:
        player.close()


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
) -> Evaluation:
    """Plays so many episodes, with the forced look as in training; greedily with an ε of 0."""
    if episodes < 1:
        raise UsageError(f"episodes must be at least 1, not {episodes}")
    check_seed(seed)
    play, parameters = _program(env, agent), parameters_at(epsilon, parameters)
    # Batches of one size, so that there is one program.
    size = min(episodes, AT_ONCE)
    number_keys = jax.vmap(episode_key, (None, 0))
    batches = []
    # An exception inside one of JAX's programs may be lost there, or end Python.
    with Stop() as stop:
        for first in range(0, episodes, size):
            keys = number_keys(seed, first + jnp.arange(size))
            batches.append(jax.device_get(play(state, parameters, jnp.float32(epsilon), keys)))
            env.check()
            stop.heed()
    trace = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:episodes], *batches)
    return Evaluation(env, epsilon, config.gate_kind.classifier, trace)


@lru_cache(maxsize=16)
def _opening(env: Environment) -> str:
    return env.decode(jax.jit(env.reset)()[1].observation)


@lru_cache(maxsize=16)
def _program(env: Environment, agent: Agent) -> Callable[..., Trace]:
    """``play(state, parameters, epsilon, keys)``: one episode for each key."""
    top = min(TOP, len(env.commands))

    def episode(
        state: AgentState,
        parameters: RunParameters,
        epsilon: Float[Array, ""],
        key: PRNGKeyArray,
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
    """A trained run, played greedily and, unless that was left out, with the ε it ended on."""

    name: str
    steps: int
    """Of training."""
    greedy: Evaluation
    exploring: Evaluation | None
    notes: tuple[str, ...] = ()
    """What went wrong with a hosted game."""

    def rows(self) -> Iterator[tuple[str, ...]]:
        """A line of a table for each way to play."""
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
        told: dict[str, Any] = {
            "run": self.name,
            "steps": self.steps,
            "max_score": self.greedy.max_score,
        }
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
) -> Iterator[RunEvaluation]:
    """Plays every run of a folder, which may be a run folder itself."""
    for run in read_runs([folder]):
        player = load_agent(run.folder)
        greedy, exploring = evaluate_player(player, 1, 0.0, seed), None
        if not greedy_only:
            exploring = evaluate_player(player, episodes, run.config.epsilon_end, seed)
        inside = run.folder != folder and run.folder.is_relative_to(folder)
        name = str(run.folder.relative_to(folder)) if inside else run.folder.name
        player.close()
        notes = tuple(player.env.notes())
        yield RunEvaluation(name, player.trained_steps, greedy, exploring, notes)
