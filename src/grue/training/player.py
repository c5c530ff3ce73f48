"""Plays with a trained agent, command by command.

Nothing is learned and the agent's state never changes: a score not seen in training gets the head
that would be next, and is not recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from grue.agents.agent import Agent, Decision, Episode
from grue.agents.settings import LARGEST
from grue.engine.environment import Environment
from grue.engine.step import Step
from grue.errors import UsageError
from grue.training.config import TrainConfig
from grue.training.jitted import jitted
from grue.training.playing import begin, check_seed, decide, episode_key, parameters_at
from grue.training.runs import load_state, read_config
from grue.training.trainer import RunResult, Trained


@dataclass(frozen=True)
class Thought:
    """The agent's estimates for a command: Q, and ξ̂ if it estimates it."""

    command: str
    value: float
    admissibility: float | None


@lru_cache(maxsize=16)
def programs(env: Environment, agent: Agent) -> tuple[Callable[..., Any], ...]:
    """``begin``, ``decide``, ``env.step`` and ``agent.perceive``, compiled."""

    def act(env: Environment, *given: Any) -> Any:
        return decide(env, agent, *given)

    def step(env: Environment, *given: Any) -> Any:
        return env.step(*given)

    of_env = (jitted(function, env) for function in (begin, act, step))
    return (*of_env, jax.jit(agent.perceive))


class Player:
    """Plays a game with a trained agent: ``reset``, then ``act`` and ``step`` in turn.

    Episode i is episode i of ``grue.evaluate`` with the same seed and ε.
    """

    def __init__(self, trained: Trained, config: TrainConfig, seed: int = 0) -> None:
        check_seed(seed)
        self.trained = trained
        self.env, self._agent, self._learned, self._parameters, self.trained_steps = trained
        self.config, self.seed = config, seed
        self.state: Any = None
        """The state of the game."""
        self.decision: Decision | None = None
        """From the last ``act`` of this episode."""
        self._begin, self._decide, self._step, self._perceive = programs(self.env, self._agent)
        self._next, self._time, self._previous = 0, 0, -1
        self._key: PRNGKeyArray | None = None

    def reset(self, episode: int | None = None) -> Step:
        """Begins the next episode, or the one with this number."""
        number = self._next if episode is None else episode
        if not 0 <= number < LARGEST:
            raise UsageError(f"episode lies from 0 to {LARGEST - 1}, not {number}")
        self._next = number + 1
        self._time, self._previous, self.decision = 0, -1, None
        self._key = episode_key(self.seed, number)
        self.state, step = self._begin(self._key)
        return self._told(step)

    def act(self, step: Step, epsilon: float = 0.0) -> int:
        """The number of the command to play. Call it once for every step."""
        if self._key is None:
            raise UsageError("no episode has begun: reset() begins one and gives its first step")
        if step.terminated or step.truncated:
            raise UsageError("the episode is over: reset() begins the next one")
        parameters = parameters_at(epsilon, self._parameters)
        # JAX takes no strings.
        seen = step._replace(text=None)
        if self.decision is None:
            memory = self._agent.start(self._learned)
        else:
            memory = self._perceive(self.decision.memory, self.state, seen)
        now = Episode(self.state, seen, jnp.int32(self._previous), jnp.int32(self._time), memory)
        self.decision, action, _ = self._decide(
            self._learned, parameters, jnp.float32(epsilon), self._key, now
        )
        self._time += 1
        self._previous = int(action)
        return self._previous

    def step(self, action: int) -> Step:
        """Plays a command, given by its number in ``env.commands``."""
        if self.decision is None:
            raise UsageError("an agent acts before every step: call act(step) first")
        if not 0 <= action < len(self.env.commands):
            last = len(self.env.commands) - 1
            raise UsageError(f"a command is a number from 0 to {last}, not {action}")
        self._previous = int(action)
        self.state, step = self._step(self.state, jnp.int32(action))
        return self._told(step)

    def thoughts(self) -> tuple[Thought, ...]:
        """The agent's estimates for the candidate commands, the highest Q first."""
        if self.decision is None:
            return ()
        values, estimates = np.asarray(self.decision.values), self.decision.admissibility
        candidates = np.flatnonzero(self.decision.candidates)
        best = candidates[np.argsort(-values[candidates], stable=True)]
        known = [None if estimates is None else float(estimates[i]) for i in best]
        return tuple(
            Thought(self.env.commands[i], float(values[i]), estimate)
            for i, estimate in zip(best, known, strict=True)
        )

    def close(self) -> None:
        """Ends the processes of a hosted game. They restart when needed."""
        self.env.close()

    def _told(self, step: Step) -> Step:
        """A step in NumPy arrays, with its text."""
        step = jax.device_get(step)
        self.env.check()
        return step._replace(text=self.env.decode(step.observation))


def load_agent(
    run: Path | str | RunResult, seed: int = 0, step: int | Literal["best"] | None = None
) -> Player:
    """Loads the agent of a run: a run folder or a ``RunResult``.

    ``step`` is that of a stored checkpoint of a run folder, by default the latest. ``"best"`` is
    the one that played best on the validation games.
    """
    if isinstance(run, RunResult):
        return Player(run.trained, run.config, seed)
    return Player(load_state(run, step), read_config(Path(run))[0], seed)
