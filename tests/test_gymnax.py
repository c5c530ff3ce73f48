"""gymnax's interface: its loop runs, in both forms, with one game and with many."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import grue
from grue.engine.gymnax import GymnaxParams


def walk(env: Any, legacy: bool) -> list[Any]:
    """The walkthrough of level 1 as gymnax's users write it."""
    key, params = jax.random.key(0), env.default_params
    _, state = jax.jit(env.reset)(key, params)
    step = jax.jit(env.step)
    seen = []
    for name in grue.load("saladworld-1").walkthrough:
        seen.append(step(key, state, env.env.commands.index(name), params))
        state = seen[-1][1]
    assert {len(values) for values in seen} == {5 if legacy else 6}
    return seen


@pytest.mark.parametrize("legacy", [False, True])
def test_an_episode_and_what_follows(legacy: bool) -> None:
    env = grue.gymnax(grue.make("saladworld-1"), legacy=legacy)
    first, _ = jax.jit(env.reset)(jax.random.key(0), env.default_params)
    seen = walk(env, legacy)
    assert sum(float(values[2]) for values in seen) == 15
    assert [bool(values[3]) for values in seen] == [False] * (len(seen) - 1) + [True]
    observation, state, *_, info = seen[-1]
    assert np.array_equal(observation, first)  # The next episode has begun,
    assert int(state.time) == 0
    assert int(state.game.steps) == 0
    assert env.env.decode(info["observation"]).endswith("*** The End ***")  # this one had ended.
    assert (float(info["discount"]), int(info["score"])) == (0.0, 15)
    if not legacy:
        assert not any(values[4] for values in seen)
    assert not bool(env.is_terminal(state))


@pytest.mark.parametrize("legacy", [False, True])
def test_a_limit_truncates(legacy: bool) -> None:
    env = grue.gymnax(grue.make("saladworld-1", episode_steps=2), legacy=legacy)
    key = jax.random.key(0)
    _, state = env.reset(key)
    for _ in range(2):
        _, state, reward, *ends, info = jax.jit(env.step)(key, state, 0)
    assert [bool(end) for end in ends] == ([True] if legacy else [False, True])
    assert float(info["discount"]) == 1.0  # It bootstraps.
    assert reward.dtype == jnp.float32


def test_each_game_of_a_set_has_its_own_limit() -> None:
    env = grue.gymnax(grue.make_many(["saladworld-1", "saladworld-2"]))
    key, look = jax.random.key(0), env.env.commands.index("look")
    for game, limit in ((0, 100), (1, 200)):
        params = env.default_params._replace(game=game)
        _, state = env.reset(key, params)
        late = state._replace(game=state.game._replace(world=state.game.world._replace(steps=98)))
        step = jax.jit(env.step_env)
        _, late, *_ = step(key, late, look, params)
        assert not bool(env.is_terminal(late, params))
        _, late, _, terminated, truncated, _ = step(key, late, look, params)
        assert [bool(terminated), bool(truncated)] == [False, limit == 100]
        assert bool(env.is_terminal(late, params)) == (limit == 100)


@pytest.mark.parametrize("legacy", [False, True])
def test_params_end_an_episode_earlier(legacy: bool) -> None:
    env = grue.gymnax(grue.make("saladworld-1"), legacy=legacy)
    key, params = jax.random.key(0), env.default_params._replace(max_steps_in_episode=2)
    _, state = env.reset(key, params)
    for step in (1, 2):
        assert not bool(env.is_terminal(state, params))
        assert int(state.time) == step - 1
        _, after, *_ = env.step_env(key, state, 0, params)
        assert bool(env.is_terminal(after, params)) == (step == 2)
        _, state, _, *ends, info = jax.jit(env.step)(key, state, 0, params)
    assert [bool(end) for end in ends] == ([True] if legacy else [False, True])
    assert bool(info["truncated"])
    assert int(state.time) == 0


@pytest.mark.usefixtures("untyped")
def test_games_that_are_not_there() -> None:
    env = grue.gymnax(grue.make_many(["saladworld-1", "saladworld-2"]))
    for number in (-2, 2):
        with pytest.raises(grue.UsageError, match=f"there is no game {number}; use 0 to 1"):
            env.reset(jax.random.key(0), GymnaxParams(game=number))
    with pytest.raises(grue.UsageError, match="'saladworld-1' is no environment"):
        grue.gymnax("saladworld-1")  # pyright: ignore[reportArgumentType]


def test_params_hold_which_game() -> None:
    env = grue.gymnax(grue.make_many(["saladworld-1", "saladworld-2"]))
    keys = jax.random.split(jax.random.key(1), 32)
    reset = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))
    _, states = reset(keys, env.default_params)
    assert set(np.asarray(states.game.game)) == {0, 1}
    _, states = reset(keys, GymnaxParams(game=1))
    assert set(np.asarray(states.game.game)) == {1}
    step = jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, None)))
    *_, info = step(keys, states, jnp.zeros(32, int), GymnaxParams(game=1))
    assert set(np.asarray(info["game"])) == {1}
    # Each of many games at once.
    both = GymnaxParams(game=jnp.arange(2))
    axes = GymnaxParams(game=0, max_steps_in_episode=None)
    _, states = jax.vmap(env.reset, in_axes=(None, axes))(keys[0], both)
    assert states.game.game.tolist() == [0, 1]
    assert (env.name, env.num_actions) == ("2 games", len(env.env.commands))


def test_spaces() -> None:
    env = grue.gymnax(grue.make("saladworld-1"))
    key = jax.random.key(0)
    observation, state = env.reset(key)
    seen, action = env.observation_space(env.default_params), env.action_space(env.default_params)
    assert (action.n, action.shape, env.num_actions) == (8, (), 8)
    assert seen.shape == observation.shape
    assert bool(seen.contains(observation))
    assert not bool(seen.contains(observation + 1000))
    assert bool(seen.contains(seen.sample(key)))
    assert [bool(action.contains(n)) for n in (-1, 0, 7, 8)] == [False, True, True, False]
    assert 0 <= int(action.sample(key)) < 8
    assert state.admissible_set.shape == (8,)
    assert env.name == "saladworld-1"
    assert int(env.default_params.max_steps_in_episode) == 100


def test_hosted_games_are_refused() -> None:
    env = grue.make("saladworld-1", engine="hosted")
    with pytest.raises(grue.UsageError, match="this one is hosted"):
        grue.gymnax(env)
    env.close()
