"""An environment in the form of gymnax, which need not be installed.

env = grue.gymnax(grue.make("saladworld-1"))
params = env.default_params
observation, state = env.reset(key, params)
observation, state, reward, terminated, truncated, info = env.step(key, state, action, params)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from grue.engine.environment import Environment
from grue.engine.hosted import EmulatorEnv
from grue.engine.hosted_set import HostedSetEnv
from grue.engine.stacked import StackedEnv
from grue.engine.step import Step
from grue.errors import UsageError

ANY = -1
"""As ``params.game``: the key draws the game of each episode."""


class GymnaxParams(NamedTuple):
    game: Any = ANY
    """The number of a game of a set; -1 draws one for each episode."""
    max_steps_in_episode: Any = 0
    """A further step limit; 0: only the environment's own limit."""


class GymnaxState(NamedTuple):
    game: Any
    """The state of the environment."""
    time: Array
    admissible_set: Array
    """For each command, whether it would change the game now: a mask for an agent."""


class GymnaxEnv:
    """``reset`` and ``step`` with keys and parameters. After an end, the next episode begins.

    ``step`` gives six values, with terminated and truncated; with ``legacy`` five, with done.
    """

    def __init__(self, env: Environment, legacy: bool = False) -> None:
        if not isinstance(env, Environment):
            raise UsageError(f"{env!r} is no environment; give the result of grue.make")
        if isinstance(env, EmulatorEnv | HostedSetEnv):
            raise UsageError("gymnax and Stoa step compiled games; this one is hosted")
        self.env, self.legacy = env, legacy

    @property
    def default_params(self) -> GymnaxParams:
        return GymnaxParams(jnp.int32(ANY), jnp.int32(self.env.episode_steps))

    def reset(self, key: Any, params: GymnaxParams | None = None) -> tuple[Array, GymnaxState]:
        return self.reset_env(key, self.default_params if params is None else params)

    def step(
        self, key: Any, state: GymnaxState, action: Any, params: GymnaxParams | None = None
    ) -> tuple[Any, ...]:
        """After the end of an episode, observation and state are those of the next beginning.

        ``info`` describes the step itself: its own observation is ``info["observation"]``.
        """
        params = self.default_params if params is None else params
        own, following = jax.random.split(key)
        seen, onward, *values, info = self.step_env(own, state, action, params)
        done = values[1] if self.legacy else values[1] | values[2]
        anew, begun = self.reset_env(following, params)
        onward = jax.tree.map(lambda new, old: jnp.where(done, new, old), begun, onward)
        return jnp.where(done, anew, seen), onward, *values, info

    def reset_env(self, key: Any, params: GymnaxParams) -> tuple[Array, GymnaxState]:
        state, step = self.begin(key, params)
        return step.observation, state

    def begin(self, key: Any, params: GymnaxParams) -> tuple[GymnaxState, Step]:
        state, step = self.env.reset(key)
        if isinstance(self.env, StackedEnv):
            number = jnp.where(params.game == ANY, state.game, params.game)
            state, step = self.env.reset(key, number)
        return self._state(state, step, jnp.int32(0)), step

    def step_env(
        self, key: Any, state: GymnaxState, action: Any, params: GymnaxParams
    ) -> tuple[Any, ...]:
        """One step; after the end of an episode, the next one is not begun."""
        after, step = self.advance(state, action, params)
        reward = jnp.asarray(step.reward, jnp.float32)
        late = step.truncated
        ends = [step.terminated, late]
        if self.legacy:
            ends = [step.terminated | late]
        info = {
            "discount": jnp.where(step.terminated, 0.0, 1.0),
            "observation": step.observation,
            "score": step.score,
            "subtasks": step.subtasks,
            "admissible": step.admissible,
            "terminated": step.terminated,
            "truncated": late,
        }
        if isinstance(self.env, StackedEnv):
            info["game"] = after.game.game
        return step.observation, after, reward, *ends, info

    def advance(
        self, state: GymnaxState, action: Any, params: GymnaxParams
    ) -> tuple[GymnaxState, Step]:
        following, step = self.env.step(state.game, action)
        after = self._state(following, step, state.time + 1)
        return after, step._replace(truncated=self._late(after, params) & ~step.terminated)

    def _state(self, state: Any, step: Step, time: Array) -> GymnaxState:
        return GymnaxState(state, time, step.admissible_set)

    def get_obs(
        self, state: GymnaxState, params: GymnaxParams | None = None, key: Any = None
    ) -> Any:
        """The tokens that look would print."""
        return self.env.look(state.game)

    def is_terminal(self, state: GymnaxState, params: GymnaxParams | None = None) -> Array:
        return state.game.over | self._late(
            state, self.default_params if params is None else params
        )

    def _late(self, state: GymnaxState, params: GymnaxParams) -> Array:
        """Whether the episode has reached the step limit of its game or of ``params``."""
        limit = self.env.episode_steps
        if isinstance(self.env, StackedEnv):
            limit = jnp.asarray(self.env.episode_limits)[state.game.game]
        most = jnp.asarray(params.max_steps_in_episode)
        return (state.game.steps >= limit) | ((most > 0) & (state.time >= most))

    def discount(self, state: GymnaxState, params: GymnaxParams | None = None) -> Array:
        return jnp.where(state.game.over, 0.0, 1.0)

    @property
    def name(self) -> str:
        names = getattr(self.env, "names", None)
        return f"{len(names)} games" if names else vars(self.env)["game"].name

    @property
    def num_actions(self) -> int:
        return len(self.env.commands)

    def action_space(self, params: GymnaxParams | None = None) -> DiscreteSpace:
        return DiscreteSpace(self.num_actions)

    def observation_space(self, params: GymnaxParams | None = None) -> TokenSpace:
        return TokenSpace(len(self.env.vocabulary), self.env.observation_length)


class DiscreteSpace:
    """Numbers from 0 to n - 1."""

    def __init__(self, n: int) -> None:
        self.n, self.shape, self.dtype = n, (), jnp.int32

    def sample(self, key: Any) -> Array:
        return jax.random.randint(key, self.shape, 0, self.n, self.dtype)

    def contains(self, x: Any) -> Array:
        return (jnp.asarray(x) >= 0) & (jnp.asarray(x) < self.n)


class TokenSpace:
    """Rows of token numbers."""

    def __init__(self, words: int, length: int) -> None:
        self.low, self.high = 0, words - 1
        self.shape, self.dtype = (length,), np.dtype(np.int32)

    def sample(self, key: Any) -> Array:
        return jax.random.randint(key, self.shape, self.low, self.high + 1)

    def contains(self, x: Any) -> Array:
        row = jnp.asarray(x)
        return (row.shape == self.shape) & ((row >= self.low) & (row <= self.high)).all()


def gymnax(env: Environment, legacy: bool = False) -> GymnaxEnv:
    """The environment in gymnax's form: six values of ``step``, or five with ``legacy``."""
    return GymnaxEnv(env, legacy)
