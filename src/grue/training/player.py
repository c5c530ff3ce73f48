"""A trained agent that plays: how it decides, and the object that plays command by command.

Nothing is learned. The agent's state is the same before every command, so a score that training
never met gets the head that would be next, and is not recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from grue.agents.agent import Agent, AgentState, Decision, Episode, RunParameters
from grue.agents.settings import LARGEST
from grue.engine.environment import GAME_STREAM, Environment
from grue.engine.step import Step
from grue.errors import UsageError
from grue.training.algorithm import look_is_forced
from grue.training.config import TrainConfig
from grue.training.runs import load_state, read_config
from grue.training.train import RunResult, Trained

PLAY_STREAM = 0x706C6179
"""It spells "play", and keeps this chance apart from that of a run with the same seed."""


@dataclass(frozen=True)
class Thought:
    """What the agent thinks of a command."""

    command: str
    value: float
    """Q"""
    admissibility: float | None
    """ξ̂; None for an agent that does not estimate it."""


def decide(
    env: Environment,
    agent: Agent,
    state: AgentState,
    parameters: RunParameters,
    epsilon: Float[Array, ""],
    key: PRNGKeyArray,
    now: Episode,
) -> tuple[Decision, Int[Array, ""], Bool[Array, ""]]:
    """What the agent thinks, the command that is played, and whether it is the forced look."""
    time = now.time + 1
    decision = agent.act(state, now, parameters, epsilon, jax.random.fold_in(key, time))[1]
    forced = look_is_forced(parameters, time)
    return decision, jnp.where(forced, env.commands.index("look"), decision.action), forced


def begin(env: Environment, key: PRNGKeyArray) -> tuple[Any, Step]:
    """The game of an episode."""
    return env.reset(jax.random.fold_in(key, GAME_STREAM))


def episode_key(seed: int, number: int | Int[Array, ""]) -> PRNGKeyArray:
    """An episode depends on the seed and its own number alone."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), PLAY_STREAM), number)


def parameters_at(epsilon: float, parameters: RunParameters) -> RunParameters:
    """Of play at an ε: greedy play does not soften the gate either (ε₁ = 0)."""
    if not 0 <= epsilon <= 1:
        raise UsageError(f"epsilon lies from 0 to 1, not {epsilon}")
    return parameters if epsilon > 0 else parameters._replace(softness=jnp.float32(0))


def check_seed(seed: int) -> None:
    if not 0 <= seed <= LARGEST:
        raise UsageError(f"seed lies from 0 to {LARGEST}, not {seed}")


@lru_cache(maxsize=16)
def _beginner(env: Environment) -> Callable[[PRNGKeyArray], tuple[Any, Step]]:
    return jax.jit(lambda key: begin(env, key))


@lru_cache(maxsize=16)
def _decider(env: Environment, agent: Agent) -> Callable[..., tuple[Decision, Any, Any]]:
    return jax.jit(lambda *known: decide(env, agent, *known))


@lru_cache(maxsize=16)
def _stepper(env: Environment) -> Callable[[Any, Any], tuple[Any, Step]]:
    return jax.jit(env.step)


@lru_cache(maxsize=16)
def _perceiver(agent: Agent) -> Callable[[Any, Any, Step], Any]:
    return jax.jit(agent.perceive)


class Player:
    """Plays a game with a trained agent, command by command: ``reset``, then ``act`` and ``step``.

    The first episode is the first of ``grue.evaluate`` with the same seed and ε, and so on.
    """

    def __init__(self, trained: Trained, config: TrainConfig, seed: int = 0) -> None:
        check_seed(seed)
        self.trained = trained
        self.env, self._agent, self._learned, self._parameters, self.trained_steps = trained
        self.config = config
        self.seed = seed
        self.state: Any = None
        """The game's: ``step`` moves it on."""
        self.decision: Decision | None = None
        """Of the last ``act``, with one value for every command; None before the first."""
        self._next = 0
        self._time = 0
        self._previous = -1
        self._key: PRNGKeyArray | None = None

    def reset(self, episode: int | None = None) -> Step:
        """Begins the next episode, or that of a number."""
        number = self._next if episode is None else episode
        if not 0 <= number < LARGEST:
            raise UsageError(f"episode lies from 0 to {LARGEST - 1}, not {number}")
        self._next = number + 1
        self._time, self._previous, self.decision = 0, -1, None
        self._key = episode_key(self.seed, number)
        self.state, step = _beginner(self.env)(self._key)
        return self._told(step)

    def act(self, step: Step, epsilon: float = 0.0) -> int:
        """The number of the command to play now; once for every step. Greedy with an ε of 0."""
        if self._key is None:
            raise UsageError("no episode has begun: reset() begins one and gives its first step")
        if step.terminated or step.truncated:
            raise UsageError("the episode is over: reset() begins the next one")
        agent, parameters = self._agent, parameters_at(epsilon, self._parameters)
        # Words are for the host only.
        seen = step._replace(text=None)
        if self.decision is None:
            memory = agent.start(self._learned)
        else:
            memory = _perceiver(agent)(self.decision.memory, self.state, seen)
        now = Episode(self.state, seen, jnp.int32(self._previous), jnp.int32(self._time), memory)
        self.decision, action, _ = _decider(self.env, agent)(
            self._learned, parameters, jnp.float32(epsilon), self._key, now
        )
        self._time += 1
        self._previous = int(action)
        return self._previous

    def step(self, action: int) -> Step:
        """Plays a command, the agent's or another, by its number in ``env.commands``."""
        if self.decision is None:
            raise UsageError("an agent acts before every step: call act(step) first")
        if not 0 <= action < len(self.env.commands):
            last = len(self.env.commands) - 1
            raise UsageError(f"a command is a number from 0 to {last}, not {action}")
        self._previous = int(action)
        self.state, step = _stepper(self.env)(self.state, jnp.int32(action))
        return self._told(step)

    def thoughts(self) -> tuple[Thought, ...]:
        """What the agent thought of the commands that it chose from, the best first."""
        if self.decision is None:
            return ()
        values = np.asarray(self.decision.values)
        estimates = self.decision.admissibility
        candidates = np.flatnonzero(self.decision.candidates)
        best = candidates[np.argsort(-values[candidates], stable=True)]
        return tuple(
            Thought(
                self.env.commands[i],
                float(values[i]),
                None if estimates is None else float(estimates[i]),
            )
            for i in best
        )

    def close(self) -> None:
        """Ends the processes of a hosted game; they come back when they are needed."""
        self.env.close()

    def _told(self, step: Step) -> Step:
        """A step as plain numbers and words."""
        step = jax.device_get(step)
        self.env.check()
        return step._replace(text=self.env.decode(step.observation))


def load_agent(run: Path | str | RunResult, seed: int = 0) -> Player:
    """The agent of a run, as it is in the latest checkpoint: a run folder, or a run of
    ``grue.train``'s result."""
    if isinstance(run, RunResult):
        return Player(run.trained, run.config, seed)
    return Player(load_state(run), read_config(Path(run))[0], seed)
