"""The vector environments: against one game alone and the real game, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import grue
from grue.engine.gym_vector import SaladWorldVectorEnv, TextGameVectorEnv
from grue.engine.make import compiled
from grue.errors import BrokenFileError, CannotCompileError, UsageError
from grue.games.tokens import squeeze

INFOS = ("score", "subtasks", "admissible", "admissible_set")
LIMIT = 20
"""Longer than the walkthrough of level 2."""


def made(name: str = "grue/SaladWorld-v0", **options: Any) -> Any:
    return gymnasium.make_vec(name, vectorization_mode="vector_entry_point", **options)


@pytest.fixture(scope="module")
def env() -> Iterator[SaladWorldVectorEnv]:
    """Three games of level 2, whose program is built once."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = made(num_envs=3, level=2, episode_steps=LIMIT)
    yield env
    env.close()


def plays(env: SaladWorldVectorEnv, turns: int) -> np.ndarray:
    """Random actions, but the first game is won again and again."""
    solution = [env.commands.index(command) for command in grue.load("saladworld-2").walkthrough]
    assert len(solution) < LIMIT
    actions = np.random.default_rng(2).integers(len(env.commands), size=(turns, env.num_envs))
    # The step after the end takes no command.
    actions[:, 0] = np.resize([*solution, 14], turns)
    return actions


def test_batched_is_single(env: SaladWorldVectorEnv) -> None:
    """Each row is what one game gives by itself, over ends of both kinds and new beginnings."""
    alone = grue.make("saladworld-2", engine="compiled", episode_steps=LIMIT)
    step_alone = jax.jit(alone.step)
    rows = [jax.jit(alone.reset)()] * env.num_envs
    observations, infos = env.reset(seed=7)
    rewards = np.zeros(3)
    terminations = truncations = np.zeros(3, bool)
    won = cut = 0
    for actions in plays(env, 70):
        for i, (_, step) in enumerate(rows):
            np.testing.assert_array_equal(observations[i], step.observation)
            assert env.decode(observations[i]) == alone.decode(step.observation)
            assert rewards[i] == step.reward
            assert terminations[i] == step.terminated
            assert truncations[i] == step.truncated
            for key in INFOS:
                np.testing.assert_array_equal(infos[key][i], getattr(step, key))
                assert infos[f"_{key}"].tolist() == [True] * 3
        won, cut = won + terminations.sum(), cut + truncations.sum()
        ended = terminations | truncations
        rows = [
            alone.restart(state) if over else step_alone(state, action)
            for (state, _), over, action in zip(rows, ended, actions, strict=True)
        ]
        observations, rewards, terminations, truncations, infos = env.step(actions)
        assert not rewards[ended].any()
        assert not (terminations | truncations)[ended].any()
    assert (won, cut) == (3, 6)


def test_the_real_game_in_gymnasiums_own_vector_environment(env: SaladWorldVectorEnv) -> None:
    """Everything is as SyncVectorEnv has it, types too, but that texts are numbers."""
    options: dict[str, Any] = {"level": 2, "episode_steps": LIMIT, "admissible": True}
    name = "grue/SaladWorld-v0"
    real = gymnasium.make_vec(name, num_envs=3, vectorization_mode="sync", **options)
    texts, told = real.reset(seed=1)
    observations, infos = env.reset(seed=1)
    ends = 0
    try:
        assert real.metadata["autoreset_mode"] is env.metadata["autoreset_mode"]
        for actions in plays(env, LIMIT + 4):
            for row, text in zip(observations, texts, strict=True):
                assert squeeze(env.decode(row)) == squeeze(text)
            assert set(infos) == set(told)
            for key, value in told.items():
                np.testing.assert_array_equal(infos[key], value)
                assert infos[key].dtype == value.dtype
            texts, *theirs, told = real.step(actions)
            observations, *ours, infos = env.step(actions)
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(a, b)
                assert a.dtype == b.dtype
            ends += int((ours[1] | ours[2]).sum())
    finally:
        real.close()
    assert ends == 3


def test_spaces_hold_what_is_returned(env: SaladWorldVectorEnv) -> None:
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert env.spec is not None
    assert env.single_action_space == gymnasium.spaces.Discrete(15)
    observations, infos = env.reset()
    env.action_space.seed(0)
    for _ in range(2 * LIMIT):
        assert env.observation_space.contains(observations)
        assert env.single_observation_space.contains(observations[0])
        assert observations.shape == (3, env.engine.observation_length)
        mask = tuple(infos["admissible_set"])
        observations, rewards, terminations, truncations, infos = env.step(
            env.action_space.sample(mask)
        )
        assert rewards.shape == terminations.shape == truncations.shape == (3,)
        # One may write into them.
        observations[:] = rewards[:] = terminations[:] = truncations[:] = 0
        infos["subtasks"][:] = infos["admissible"][:] = False
    assert env.observation_space.contains(env.reset()[0])


def test_numbers_are_words(env: SaladWorldVectorEnv) -> None:
    observations, _ = env.reset()
    words = [env.vocabulary.words[number - 1] for number in observations[0] if number]
    assert words[:5] == ["You", "are", "making", "a", "salad"]
    assert env.decode(observations[0]).startswith("You are making a salad.")
    assert (np.diff((observations[0] == 0).astype(int)) >= 0).all()  # padding is at the end


@pytest.mark.parametrize("seed", [None, 0, np.int64(3), [1, 2, 3], [None, 5, None]])
def test_every_seed_plays_alike(env: SaladWorldVectorEnv, seed: Any) -> None:
    opening, _ = env.reset(seed=seed)
    after = env.step(np.array([1, 1, 1]))[0]
    assert (opening == opening[0]).all()
    assert (after == after[0]).all()
    assert not np.array_equal(opening, after)


def test_statistics_of_episodes(env: SaladWorldVectorEnv) -> None:
    counting = RecordEpisodeStatistics(env)
    counting.reset()
    look = np.full(3, env.commands.index("look"))
    ends = [counting.step(look)[4].get("episode") for _ in range(2 * LIMIT + 1)]
    found = [(turn, end["l"].tolist()) for turn, end in enumerate(ends) if end is not None]
    assert found == [(LIMIT - 1, [LIMIT] * 3), (2 * LIMIT, [LIMIT] * 3)]


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0, 0, 15], "environment 2 got the action 15: use 0 to 14"),
        ([0, -1, 99], "environment 1 got the action -1: use 0 to 14"),
        ([0, 0], r"shape \(2,\).*give 3 whole numbers"),
        (0, r"shape \(\)"),
        ([[0, 0, 0]], r"shape \(1, 3\)"),
        ([0.0, 1.0, 2.0], "type float64"),
        ([True, True, False], "type bool"),
        (np.array([2**63, 0, 0], np.uint64), "got the action 9223372036854775808"),
    ],
)
def test_bad_actions_are_refused(env: SaladWorldVectorEnv, actions: Any, message: str) -> None:
    env.reset()
    with pytest.raises(UsageError, match=message):
        env.step(np.asarray(actions))


def test_bad_arguments_are_refused(env: SaladWorldVectorEnv, tmp_path: Path) -> None:
    for number in (0, -3):
        with pytest.raises(UsageError, match=f"num_envs is {number}; use a whole number"):
            made(num_envs=number)
    with pytest.raises(UsageError, match="episode_steps is 0; give a whole number, at least 1"):
        made(num_envs=2, episode_steps=0)
    with pytest.raises(UsageError, match="1 to 7"):
        made(num_envs=2, level=8)
    with pytest.raises(UsageError, match="no game 'salad'"):
        made("grue/TextGame-v0", num_envs=2, game="salad")
    with pytest.raises(UsageError, match="no compiled game"):
        made("grue/TextGame-v0", num_envs=2, game=tmp_path / "no.grue.npz")
    (tmp_path / "broken.grue.npz").write_bytes(b"PK")
    with pytest.raises(BrokenFileError, match="damaged"):
        made("grue/TextGame-v0", num_envs=2, game=tmp_path / "broken.grue.npz")
    with pytest.raises(UsageError, match="2 seeds for 3 environments"):
        env.reset(seed=[1, 2])
    with pytest.raises(UsageError, match="reset_mask"):
        env.reset(options={"reset_mask": np.ones(3, bool)})


def test_games_that_do_not_compile_are_refused(two_lamps: Path) -> None:
    reason = r"lamps cannot be compiled \(.*time of day.*vectorization_mode=\"async\""
    with pytest.raises(CannotCompileError, match=reason):
        made("grue/TextGame-v0", num_envs=2, game=two_lamps)


def test_stories_are_refused(zork_file: Callable[[int], Path]) -> None:
    with pytest.raises(CannotCompileError, match=r"Z-machine story.*vectorization_mode=\"async\""):
        made("grue/TextGame-v0", num_envs=2, game=zork_file(88))


def test_all_ways_to_name_a_game(tmp_path: Path) -> None:
    game = grue.load("saladworld-1")
    file = tmp_path / "one.grue.npz"
    compiled(game).save(file)
    openings = []
    for given in ("saladworld-1", game.story, game, file):
        env = made("grue/TextGame-v0", num_envs=2, game=given, admissible=False)
        assert isinstance(env, TextGameVectorEnv)
        assert env.commands == game.commands
        assert env.episode_steps == 100
        openings.append(env.single_observation_space)
    assert openings == [openings[0]] * 4
    observations, infos = env.reset()
    assert env.decode(observations[1]).startswith("You are making a salad.")
    assert set(infos) == {"score", "subtasks", "admissible"} | {
        "_score",
        "_subtasks",
        "_admissible",
    }


def test_a_name_is_the_game_beside_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "saladworld-1").mkdir()
    monkeypatch.chdir(tmp_path)
    env = made("grue/TextGame-v0", num_envs=2, game="saladworld-1", admissible=False)
    assert env.commands == grue.load("saladworld-1").commands


def test_sets_of_games() -> None:
    names = ["saladworld-1", "saladworld-2"]
    env = made("grue/TextGame-v0", num_envs=6, game=names, episode_steps=3, draw="in order")
    observations, infos = env.reset(seed=[5, 6, 7, 8, 9, 10])
    games = infos["game"]
    assert set(games) == {0, 1}
    assert np.array_equal(env.reset(seed=[5, 6, 7, 8, 9, 10])[1]["game"], games)
    for row, game in enumerate(games):
        alone = grue.make(names[game])
        start = jax.jit(alone.reset)()[1].observation
        assert env.decode(observations[row]) == alone.decode(start)
        exists = [c for c, yes in zip(env.commands, infos["exists"][row], strict=True) if yes]
        assert exists == [c for c in env.commands if c in alone.commands]
    for _ in range(3):
        *_, truncated, infos = env.step(np.full(6, env.commands.index("look")))
    assert truncated.all()
    *_, infos = env.step(np.zeros(6, int))  # It restarts, each with the next game.
    assert np.array_equal(infos["game"], 1 - games)
    with pytest.raises(UsageError, match="draw: only for a folder or a list of games"):
        made("grue/TextGame-v0", num_envs=2, game="saladworld-1", draw="in order")


def test_before_the_reset_and_after_the_close() -> None:
    env = made(num_envs=2)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(2, int))
    env.close()
    env.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="make another"):
        env.reset()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        env.step(np.zeros(2, int))


@pytest.mark.parametrize("modules", ["grue, gymnasium", "gymnasium, grue"])
def test_either_order_of_imports_registers(modules: str) -> None:
    script = f"import {modules}; print(gymnasium.make_vec('grue/SaladWorld-v0', num_envs=5))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "SaladWorldVectorEnv" in result.stdout
    assert "num_envs=5" in result.stdout
