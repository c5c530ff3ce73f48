"""An environment in the form of Stoa, which need not be installed: every step is a ``TimeStep``.

env = grue.stoa(grue.make("saladworld-1"))
state, timestep = env.reset(key)
state, timestep = env.step(state, action)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from grue.engine.environment import Environment
from grue.engine.gymnax import DiscreteSpace, GymnaxEnv, GymnaxParams, GymnaxState, TokenSpace
from grue.engine.stacked import StackedEnv
from grue.engine.step import Step

FIRST, MID, TERMINATED, TRUNCATED = range(4)
"""Stoa's types of a step."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TimeStep:
    """What a step gives. After a truncation the discount is still 1, so targets bootstrap."""

    step_type: Array
    reward: Array
    discount: Array
    observation: Array
    extras: dict[str, Array] = field(default_factory=dict)
    """The score, the subtasks, the admissible commands, and the game if there are several."""

    def first(self) -> Array:
        return self.step_type == FIRST

    def mid(self) -> Array:
        return self.step_type == MID

    def last(self) -> Array:
        return self.terminated() | self.truncated()

    done = last

    def terminated(self) -> Array:
        return self.step_type == TERMINATED

    def truncated(self) -> Array:
        return self.step_type == TRUNCATED

    def replace(self, **changes: Any) -> TimeStep:
        return replace(self, **changes)


class StoaEnv:
    """``reset`` and ``step`` are pure. After the end of an episode, call ``reset``."""

    def __init__(self, env: Environment) -> None:
        self.env, self._inner = env, GymnaxEnv(env)

    @property
    def unwrapped(self) -> StoaEnv:
        return self

    @property
    def default_params(self) -> GymnaxParams:
        return self._inner.default_params

    def reset(
        self, rng_key: Any, env_params: GymnaxParams | None = None
    ) -> tuple[GymnaxState, TimeStep]:
        state, step = self._inner.begin(rng_key, self._or_default(env_params))
        return state, self._told(state, step, jnp.int8(FIRST))

    def step(
        self, state: GymnaxState, action: Any, env_params: GymnaxParams | None = None
    ) -> tuple[GymnaxState, TimeStep]:
        after, step = self._inner.advance(state, action, self._or_default(env_params))
        going_on = jnp.where(step.truncated, TRUNCATED, MID)
        kind = jnp.where(step.terminated, TERMINATED, going_on)
        return after, self._told(after, step, kind.astype(jnp.int8))

    def action_space(self, env_params: GymnaxParams | None = None) -> DiscreteSpace:
        return self._inner.action_space()

    def observation_space(self, env_params: GymnaxParams | None = None) -> TokenSpace:
        return self._inner.observation_space()

    def close(self) -> None:
        self.env.close()

    def _or_default(self, params: GymnaxParams | None) -> GymnaxParams:
        return self.default_params if params is None else params

    def _told(self, state: GymnaxState, step: Step, kind: Array) -> TimeStep:
        extras = {
            "score": jnp.asarray(step.score),
            "subtasks": step.subtasks,
            "admissible": jnp.asarray(step.admissible),
            "admissible_set": step.admissible_set,
        }
        if isinstance(self.env, StackedEnv):
            extras["game"] = state.game.game
        return TimeStep(
            kind,
            jnp.asarray(step.reward, jnp.float32),
            jnp.where(step.terminated, 0.0, 1.0),
            step.observation,
            extras,
        )


def stoa(env: Environment) -> StoaEnv:
    """The environment in Stoa's form."""
    return StoaEnv(env)
