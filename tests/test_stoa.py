"""Stoa's interface: every step is a TimeStep, which says how the episode goes on."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import grue
from grue.engine.stoa import FIRST, MID, TERMINATED, TRUNCATED, StoaEnv, TimeStep


def play(env: StoaEnv, commands: list[str] | tuple[str, ...]) -> tuple[Any, list[TimeStep]]:
    state, first = jax.jit(env.reset)(jax.random.key(0))
    step, seen = jax.jit(env.step), [first]
    for name in commands:
        state, timestep = step(state, env.env.commands.index(name))
        seen.append(timestep)
    return state, seen


def test_a_won_episode_step_by_step() -> None:
    env = grue.stoa(grue.make("saladworld-1"))
    game = grue.load("saladworld-1")
    state, seen = play(env, game.walkthrough)
    last = seen[-1]
    kinds = [int(one.step_type) for one in seen]
    assert kinds == [FIRST, *[MID] * (len(seen) - 2), TERMINATED]
    assert [float(one.reward) for one in seen].count(0.0) == len(seen) - 2
    assert sum(float(one.reward) for one in seen) == 15
    assert [float(one.discount) for one in seen] == [1.0] * (len(seen) - 1) + [0.0]
    assert [bool(asked()) for asked in (last.done, last.last, last.terminated)] == [True] * 3
    assert [bool(asked()) for asked in (last.first, last.mid, last.truncated)] == [False] * 3
    assert bool(seen[0].first())
    assert bool(seen[1].mid())
    assert int(last.extras["score"]) == 15
    assert bool(last.extras["subtasks"].all())
    assert env.env.decode(last.observation).endswith("*** The End ***")
    assert int(state.time) == len(game.walkthrough)


def test_it_is_the_environment_itself_and_scans() -> None:
    env = grue.make("saladworld-2")
    adapted = grue.stoa(env)
    actions = jax.random.randint(jax.random.key(3), (40,), 0, len(env.commands))
    state, _ = adapted.reset(jax.random.key(0))
    _, told = jax.jit(lambda state: jax.lax.scan(adapted.step, state, actions))(state)
    start, _ = env.reset(jax.random.key(0))
    _, steps = jax.jit(lambda state: jax.lax.scan(env.step, state, actions))(start)
    np.testing.assert_array_equal(told.observation, steps.observation)
    np.testing.assert_array_equal(told.reward, steps.reward)
    for name in ("score", "subtasks", "admissible", "admissible_set"):
        np.testing.assert_array_equal(told.extras[name], getattr(steps, name))


def test_a_limit_truncates_and_the_target_bootstraps() -> None:
    _, seen = play(grue.stoa(grue.make("saladworld-1", episode_steps=2)), ["look", "look"])
    assert [int(one.step_type) for one in seen] == [FIRST, MID, TRUNCATED]
    assert [float(one.discount) for one in seen] == [1.0] * 3
    assert bool(seen[-1].truncated())
    assert bool(seen[-1].done())
    env = grue.stoa(grue.make("saladworld-1"))
    params = env.default_params._replace(max_steps_in_episode=1)
    state, _ = env.reset(jax.random.key(0), params)
    assert int(env.step(state, 0, params)[1].step_type) == TRUNCATED


def test_a_set_says_which_game_it_plays() -> None:
    env = grue.stoa(grue.make_many(["saladworld-1", "saladworld-2"]))
    keys = jax.random.split(jax.random.key(1), 32)
    states, first = jax.jit(jax.vmap(env.reset))(keys)
    assert set(np.asarray(first.extras["game"])) == {0, 1}
    _, then = jax.jit(jax.vmap(env.step))(states, jnp.zeros(32, int))
    np.testing.assert_array_equal(then.extras["game"], first.extras["game"])
    assert jax.tree.structure(first) == jax.tree.structure(then)
    _, only = env.reset(keys[0], env.default_params._replace(game=1))
    assert int(only.extras["game"]) == 1


def test_a_timestep_can_be_changed_in_a_program() -> None:
    env = grue.stoa(grue.make("saladworld-1"))
    _, first = env.reset(jax.random.key(0))
    changed = jax.jit(lambda one: one.replace(reward=one.reward + 2))(first)
    assert (float(first.reward), float(changed.reward)) == (0.0, 2.0)
    assert env.unwrapped is env
    assert env.action_space().n == 8
    assert env.observation_space().shape == first.observation.shape


@pytest.mark.usefixtures("untyped")
def test_what_cannot_be_adapted() -> None:
    with pytest.raises(grue.UsageError, match="'saladworld-1' is no environment"):
        grue.stoa("saladworld-1")  # pyright: ignore[reportArgumentType]
    env = grue.make("saladworld-1", engine="hosted")
    with pytest.raises(grue.UsageError, match="this one is hosted"):
        grue.stoa(env)
    env.close()
