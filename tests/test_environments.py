"""What docs/environments.md tells: its code runs as it stands, and its rules hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import grue
from grue.engine.compiled import CompiledEnv, State
from grue.engine.gym import MAX_LENGTH

PAGE = Path(__file__).parents[1] / "docs" / "environments.md"
PURE, HOSTED, ONE, MANY = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_the_pure_functions(capsys: pytest.CaptureFixture[str]) -> None:
    names = run(PURE)
    assert names["rewards"].shape == names["ends"].shape == (100, 1024)
    assert names["states"].room.shape == (1024,)
    # Admissible play on level 3 gets somewhere, and games that were won begin anew.
    assert names["rewards"].sum() > 1024
    assert names["ends"].any()
    text = capsys.readouterr().out.splitlines()[-1]
    assert text == names["env"].decode(names["steps"].observation[0])


def test_a_hosted_game(capsys: pytest.CaptureFixture[str]) -> None:
    run(HOSTED)
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("-= ")
    assert told[-2] == "you are carrying nothing."
    assert "'go west'" in told[-1]


def test_one_game() -> None:
    names = run(ONE)
    assert isinstance(names["text"], str)
    assert f"cut after {MAX_LENGTH:,} characters" in " ".join(PAGE.read_text().split())
    assert names["info"].keys() == {"score", "subtasks", "admissible", "admissible_set"}


def test_many_games() -> None:
    names = run(MANY)
    episodes = np.array(names["finished"])
    assert len(episodes) >= 1024
    assert 0 < episodes.mean() <= grue.load("saladworld-3").max_score
    assert episodes.max() == grue.load("saladworld-3").max_score
    assert 0 < names["learn_from"].sum() <= 1024


@pytest.fixture(scope="module")
def before_the_win() -> tuple[CompiledEnv, Any, State]:
    env = grue.make("saladworld-1", engine="compiled", episode_steps=5)
    step = jax.jit(env.step)
    state, _ = env.restart(jax.eval_shape(env.reset)[0])
    for command in grue.load("saladworld-1").walkthrough[:-1]:
        state, _ = step(state, env.commands.index(command))
    return env, step, state


def test_actions_out_of_range(before_the_win: tuple[CompiledEnv, Any, State]) -> None:
    env, step, state = before_the_win
    number = len(env.commands)
    winning = env.commands.index(grue.load("saladworld-1").walkthrough[-1])
    assert winning == number - 1
    for action in (number, 999, -1):
        assert step(state, action)[1].terminated
    for action in (0, winning - 1, -2, -number):
        assert not step(state, action)[1].terminated
        np.testing.assert_array_equal(
            step(state, action)[1].observation, step(state, action % number)[1].observation
        )


def test_ends(before_the_win: tuple[CompiledEnv, Any, State]) -> None:
    env, step, state = before_the_win
    won, last = step(state, len(env.commands) - 1)
    assert last.terminated
    assert not last.truncated
    after, nothing = step(won, 0)
    assert env.decode(nothing.observation) == ""
    assert nothing.terminated
    assert nothing.reward == 0
    jax.tree.map(np.testing.assert_array_equal, after, won)
    # Past its limit a game can be played on: this one was, and is won from there.
    assert state.steps >= env.episode_steps
    onward, later = step(state, env.commands.index("look"))
    assert later.truncated
    assert step(onward, len(env.commands) - 1)[1].terminated
