"""Which engine plays a game, and what it needs to be installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import grue
from grue.engine import make as make_module
from grue.engine.compiled import CompiledEnv
from grue.engine.hosted_textworld import HostedEnv
from grue.errors import CannotCompileError
from grue.games.gamefile import compiled_path, load_compiled

pytestmark = pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning")


REASON = (
    "lamps cannot be compiled (the text substitution [the time of day] in the description of "
    "'stand' is not known): it plays hosted"
)


def test_engines() -> None:
    assert isinstance(grue.make("saladworld-1"), CompiledEnv)
    assert isinstance(grue.make("saladworld-1", engine="auto"), CompiledEnv)
    assert isinstance(grue.make("saladworld-1", engine="compiled"), CompiledEnv)
    hosted = grue.make("saladworld-1", engine="hosted")
    assert isinstance(hosted, HostedEnv)
    hosted.close()


def test_a_game_that_is_loaded() -> None:
    game = grue.load("saladworld-2")
    env = grue.make(game, episode_steps=5)
    assert isinstance(env, CompiledEnv)
    assert (env.commands, env.episode_steps) == (game.commands, 5)
    hosted = grue.make(game, engine="hosted")
    assert isinstance(hosted, HostedEnv)
    hosted.close()
    for given in (game, compiled_path(game)):
        with pytest.raises(
            grue.UsageError, match="already has its story and commands; give commands"
        ):
            grue.make(given, commands="commands.txt")
    with pytest.raises(grue.UsageError, match=r"--story \(in Python: story\) is for zork1"):
        grue.make("saladworld-1", story="zork1.z5")


@pytest.mark.parametrize("engine", ["steam", "", "Compiled", "jax"])
def test_unknown_engine(engine: str) -> None:
    expected = f"there is no engine '{engine}'; the engines are auto, compiled, hosted"
    with pytest.raises(grue.UsageError, match=expected):
        grue.make("saladworld-1", engine=engine)


def test_limit_reaches_either_engine() -> None:
    assert grue.make("saladworld-1", episode_steps=5).episode_steps == 5
    hosted = grue.make("saladworld-1", engine="hosted", episode_steps=5)
    assert hosted.episode_steps == 5
    hosted.close()
    assert grue.make("saladworld-2").episode_steps == 200


def test_what_cannot_be_compiled_is_hosted(two_lamps: Path) -> None:
    with pytest.raises(CannotCompileError, match=re.escape(REASON)):
        grue.make(two_lamps, engine="compiled")
    env = grue.make(two_lamps, episode_steps=7)
    assert isinstance(env, HostedEnv)
    assert env.episode_steps == 7
    state, step = env.reset()
    for command in ("take green lamp", "put green lamp on stand"):
        state, step = env.step(state, command)
    assert (step.score, step.terminated) == (1, True)
    env.close()


def test_refusal_is_an_error_that_the_command_line_tells(
    two_lamps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from grue.cli import entry

    assert entry.main(["compile", str(two_lamps)]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"grue: {REASON}\n")
    assert not two_lamps.with_suffix(".grue.npz").exists()


def test_without_a_file_a_game_is_compiled_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = grue.load("saladworld-1").story
    for suffix in (".z8", ".json"):
        shutil.copy(story.with_suffix(suffix), tmp_path)
    env = grue.make(tmp_path / story.name)
    assert isinstance(env, CompiledEnv)
    assert env.commands == grue.load("saladworld-1").commands
    # Nothing is left beside the story.
    assert not (tmp_path / story.name).with_suffix(".grue.npz").exists()

    def refuse(_: Any) -> Any:
        raise CannotCompileError("the rule 'juggle' is not known")

    monkeypatch.setattr("grue.engine.compiler.build.compile_game", refuse)
    with pytest.raises(CannotCompileError, match="the rule 'juggle' is not known"):
        grue.make(tmp_path / story.name, engine="compiled")
    hosted = grue.make(tmp_path / story.name)
    assert isinstance(hosted, HostedEnv)
    hosted.close()
    # The shipped games have their files and do not ask the compiler.
    assert isinstance(grue.make("saladworld-1"), CompiledEnv)


def test_compile_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from grue.cli import entry

    path = tmp_path / "one.grue.npz"
    assert entry.main(["compile", "saladworld-1", "-o", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    made, shipped = load_compiled(path), load_compiled(compiled_path(grue.load("saladworld-1")))
    assert made.header == shipped.header
    assert all(np.array_equal(array, made.arrays[name]) for name, array in shipped.arrays.items())


def test_file_alone_is_enough(tmp_path: Path) -> None:
    """A compiled file plays without the story that it was made from."""
    path = tmp_path / "alone.grue.npz"
    shutil.copy(compiled_path(grue.load("saladworld-1")), path)
    env = grue.make(path)
    assert isinstance(env, CompiledEnv)
    text = env.decode(jax.jit(env.reset)()[1].observation)
    assert text.startswith("You are making a salad.")


def test_engines_that_are_told_are_those_that_are() -> None:
    assert make_module.ENGINES == ("auto", "compiled", "hosted")


BARE = """
import sys

BLOCKED = {
    "beartype", "equinox", "gymnasium", "jaxtyping", "jericho", "matplotlib", "optax", "rich",
    "textworld", "typer",
}


class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked")


sys.meta_path.insert(0, Block())
for name in sorted(BLOCKED):
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise SystemExit(f"{name} can be imported")

import grue
import jax

game = grue.load("saladworld-7")
env = grue.make("saladworld-7")
reset, step = jax.jit(env.reset), jax.jit(env.step)
state, told = reset(jax.random.key(0))
print(env.decode(told.observation)[:33])
for command in game.walkthrough[:3]:
    state, told = step(state, env.commands.index(command))
print(env.decode(told.observation).split(" =-")[0], int(told.score))
assert not BLOCKED & set(sys.modules), BLOCKED & set(sys.modules)
"""


def test_shipped_level_needs_jax_and_numpy_only() -> None:
    done = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert first == grue.load("saladworld-7").objective[:33]
    assert last == "-= Vegetable Market 10"
