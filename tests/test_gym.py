"""The Gymnasium environments: the contract, the vector environments, what is refused."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import grue
import grue.engine.gym
from grue.engine.gym import CHARSET, MAX_LENGTH, SaladWorldEnv, TextGameEnv
from grue.engine.gym_registration import register_environments
from grue.errors import UsageError


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("grue/SaladWorld-v0", {"level": 1, "render_mode": "ansi"}),
        ("grue/SaladWorld-v0", {"level": 3, "admissible": True}),
        ("grue/TextGame-v0", {"game": "saladworld-2"}),
    ],
)
def test_gymnasium_finds_no_fault(name: str, arguments: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(name, **arguments)
        check_env(env.unwrapped)
        env.reset(seed=3)  # The wrappers check every step too.
        for _ in range(20):
            env.step(env.action_space.sample())
        env.close()


def test_a_level_is_won_by_its_walkthrough() -> None:
    env = SaladWorldEnv(level=4, admissible=True, render_mode="ansi")
    game = grue.load("saladworld-4")
    assert env.commands == game.commands
    text, info = env.reset(seed=0)
    assert text.startswith("You are making a salad.")
    assert env.render() == text
    assert info["score"] == 0
    assert not info["admissible"]
    assert info["subtasks"].tolist() == [False] * 4

    total, terminated, truncated = 0.0, False, False
    for command in game.walkthrough:
        assert not terminated
        action = np.int64(game.commands.index(command))
        assert info["admissible_set"][action] == 1
        text, reward, terminated, truncated, info = env.step(action)
        assert isinstance(reward, float)
        assert info["admissible"]
        total += reward
        assert total == info["score"]
        assert env.render() == f"> {command}\n\n{text}"
    assert terminated
    assert not truncated
    assert total == game.max_score == 25
    assert info["subtasks"].tolist() == [True] * 4
    assert info["admissible_set"].tolist() == [0] * 50
    with pytest.raises(UsageError, match="reset"):
        env.step(np.int64(0))
    assert env.reset()[1]["score"] == 0
    env.close()


def test_the_mask_leads_to_admissible_commands_only() -> None:
    env = SaladWorldEnv(level=2, admissible=True)
    env.action_space.seed(5)
    _, info = env.reset()
    for _ in range(30):
        mask = info["admissible_set"]
        assert mask.dtype == np.int8
        _, _, terminated, _, info = env.step(env.action_space.sample(mask))
        assert info["admissible"]
        if terminated:
            break
    env.close()
    assert "admissible_set" not in SaladWorldEnv().reset()[1]


def test_an_episode_is_truncated_at_its_limit() -> None:
    env = SaladWorldEnv(level=1, episode_steps=3)
    env.reset()
    look = np.int64(env.commands.index("look"))
    assert [env.step(look)[2:4] for _ in range(3)] == [
        (False, False),
        (False, False),
        (False, True),
    ]
    assert SaladWorldEnv(level=1)._env.episode_steps == 100
    assert SaladWorldEnv(level=2)._env.episode_steps == 200


def test_all_texts_of_the_largest_level_fit_the_space() -> None:
    env = SaladWorldEnv(level=7, admissible=True, episode_steps=10_000)
    env.action_space.seed(0)
    text, info = env.reset()
    longest = len(text)
    for _ in range(150):
        assert set(text) <= set(CHARSET)
        assert env.observation_space.contains(text)
        text, _, terminated, _, info = env.step(env.action_space.sample(info["admissible_set"]))
        longest = max(longest, len(text))
        if terminated:
            text, info = env.reset()
    assert 300 < longest < MAX_LENGTH / 2
    env.close()


def test_texts_that_do_not_fit_are_made_to() -> None:
    step = SaladWorldEnv()._env.reset()[1]
    fitted = grue.engine.gym.observation(step._replace(text="café \N{SNOWMAN}\n" + "x" * 5000))
    assert fitted.startswith("café ?\nxxx")
    assert len(fitted) == MAX_LENGTH
    assert grue.engine.gym.observation(step._replace(text=None)) == ""


@pytest.mark.parametrize("options", [{}, {"context": "spawn"}, {"shared_memory": False}])
def test_vector_environments_play_alike(options: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"num_envs": 2, "level": 2, "episode_steps": 6, "admissible": True}
    name = "grue.engine.gym:grue/SaladWorld-v0"
    sync = gymnasium.make_vec(name, vectorization_mode="sync", **arguments)
    other = gymnasium.make_vec(name, vectorization_mode="async", vector_kwargs=options, **arguments)
    try:
        sync.action_space.seed(1)
        assert sync.reset(seed=1)[0] == other.reset(seed=1)[0]
        texts = set()
        for _ in range(15):  # Past the end of two episodes.
            actions = sync.action_space.sample()
            here, there = sync.step(actions), other.step(actions)
            assert isinstance(there[0], tuple)
            assert here[0] == there[0]
            texts.update(here[0])
            for a, b in zip(here[1:4], there[1:4], strict=True):
                np.testing.assert_array_equal(a, b)
            assert here[4]["subtasks"].shape == (2, 3)
            assert here[4]["admissible_set"].shape == (2, 15)
            for key, value in here[4].items():
                np.testing.assert_array_equal(value, there[4][key])
        assert len(texts) > 3
    finally:
        sync.close()
        other.close()


def test_async_without_copies_reads_the_latest_texts() -> None:
    env = gymnasium.vector.AsyncVectorEnv([SaladWorldEnv] * 2, copy=False)
    try:
        texts, _ = env.reset()
        assert len(texts) == 2
        opening = tuple(texts)
        assert texts[0:2] == opening
        env.step(np.array([1, 4]))  # go south, look
        assert tuple(texts) != opening
        assert texts[0].startswith("-= Living Room =-")
        assert texts[1].startswith("-= Kitchen =-")
    finally:
        env.close()


def test_registering_twice_is_harmless() -> None:
    before = dict(gymnasium.registry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_environments()
    assert dict(gymnasium.registry) == before
    assert {"grue/SaladWorld-v0", "grue/TextGame-v0"} <= set(before)
    assert grue.engine.gym.SaladWorldEnv is type(gymnasium.make("grue/SaladWorld-v0").unwrapped)


@pytest.mark.parametrize("modules", ["grue, gymnasium", "gymnasium, grue"])
def test_either_order_of_imports_registers(modules: str) -> None:
    script = f"import {modules}; print(gymnasium.make('grue/SaladWorld-v0', level=2).reset()[1])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "'score': 0" in result.stdout


def test_importing_grue_registers_and_does_not_load_jax() -> None:
    script = (
        "import sys, grue; known = sys.modules['gymnasium'].registry;"
        "print('grue/SaladWorld-v0' in known, 'grue/TextGame-v0' in known, 'jax' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.stdout.split() == ["True", "True", "False"], result.stderr


def test_without_gymnasium_nothing_is_registered() -> None:
    script = "import sys; sys.modules['gymnasium'] = None; import grue; print(grue.game_names()[0])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (result.stdout.strip(), result.stderr) == ("saladworld-1", "")


@pytest.mark.parametrize("level", [0, 8, -1])
def test_a_level_out_of_range_is_refused(level: int) -> None:
    with pytest.raises(UsageError, match="1 to 7"):
        gymnasium.make("grue/SaladWorld-v0", level=level)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        SaladWorldEnv(episode_steps=0)
    with pytest.raises(UsageError, match="'ansi'"):
        SaladWorldEnv(render_mode="human")
    with pytest.raises(UsageError, match="no game 'salad'"):
        TextGameEnv(game="salad")
    env = SaladWorldEnv()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.int64(0))
    env.reset()
    for action in (-1, 8):
        with pytest.raises(UsageError, match="0 to 7"):
            env.step(np.int64(action))


def test_admissible_commands_of_a_story_are_not_made_up(
    zork_file: Callable[[int], Path],
) -> None:
    story = zork_file(88)
    with pytest.raises(UsageError, match=r"are unknown: make it without admissible=True"):
        gymnasium.make("grue/TextGame-v0", game=story, admissible=True)
    env = gymnasium.make("grue/TextGame-v0", game=story)
    assert "admissible_set" not in env.reset(seed=0)[1]
    env.close()
