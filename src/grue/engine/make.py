"""Gives the environment of a game."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, overload

from grue.engine.compiled import CompiledEnv
from grue.errors import CannotCompileError, UsageError
from grue.games.game import Game
from grue.games.gamefile import SUFFIX, CompiledGame, compiled_path, load_compiled
from grue.games.registry import load
from grue.games.zmachine.story import Story

ENGINES = ("auto", "compiled", "hosted")


@overload
def make(
    game: str | Path | Game | Story,
    engine: Literal["compiled"],
    episode_steps: int | None = None,
    story: str | Path | None = None,
    commands: str | Path | None = None,
) -> CompiledEnv: ...
@overload
def make(
    game: str | Path | Game | Story,
    engine: str = "auto",
    episode_steps: int | None = None,
    story: str | Path | None = None,
    commands: str | Path | None = None,
) -> Any: ...
def make(
    game: str | Path | Game | Story,
    engine: str = "auto",
    episode_steps: int | None = None,
    story: str | Path | None = None,
    commands: str | Path | None = None,
) -> Any:
    """An environment with pure functions.

    ``env.reset(key) -> state, step`` and ``env.step(state, action) -> state, step``. The compiled
    engine runs under jit and vmap; "auto" falls back on the hosted one, the real story in an
    emulator (``HostedEnv``, ``StoryEnv``), for games that cannot be compiled. ``game`` may also be
    the path of a compiled file, or what ``grue.load`` returned; ``story`` and ``commands`` are as
    for ``grue.load``.
    """
    if engine not in ENGINES:
        raise UsageError(f"there is no engine {engine!r}; the engines are {', '.join(ENGINES)}")
    if isinstance(game, Game | Story) or str(game).endswith(SUFFIX):
        _check_whole(game, story, commands)
    if isinstance(game, Game | Story):
        return _open(game, engine, episode_steps)
    if str(game).endswith(SUFFIX):
        return CompiledEnv(load_compiled(Path(game)), episode_steps)
    return _open(load(game, story, commands), engine, episode_steps)


def _check_whole(game: str | Path | Game | Story, story: object, commands: object) -> None:
    for name, given in (("story", story), ("commands", commands)):
        if given is not None:
            which = game.name if isinstance(game, Game | Story) else game
            raise UsageError(
                f"{which} has its story and commands; give {name} to grue.load or with a name"
            )


def _open(game: Game | Story, engine: str, episode_steps: int | None) -> Any:
    if engine != "hosted":
        try:
            return CompiledEnv(compiled(game), episode_steps)
        except CannotCompileError:
            if engine == "compiled":
                raise
    from grue.engine.hosted_story import host

    return host(game, episode_steps)


def compiled(game: Game | Story) -> CompiledGame:
    """A game's arrays: from the file beside its story, or compiled now."""
    if isinstance(game, Story):
        raise CannotCompileError(f"{game.name} is a Z-machine story, and only TextWorld's compile")
    path = compiled_path(game)
    if path.exists():
        return load_compiled(path, game)
    from grue.engine.compiler.build import compile_game

    return compile_game(game)
