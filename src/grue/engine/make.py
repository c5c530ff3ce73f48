"""Gives the environment of a game."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from grue.engine.compiled import CompiledEnv
from grue.errors import CannotCompileError, UsageError
from grue.games.game import Game
from grue.games.gamefile import SUFFIX, CompiledGame, compiled_path, load_compiled
from grue.games.registry import load

if TYPE_CHECKING:
    from grue.engine.hosted import HostedEnv

ENGINES = ("auto", "compiled", "hosted")


@overload
def make(
    game: str | Path, engine: Literal["compiled"], episode_steps: int | None = None
) -> CompiledEnv: ...
@overload
def make(
    game: str | Path, engine: Literal["hosted"], episode_steps: int | None = None
) -> HostedEnv: ...
@overload
def make(
    game: str | Path, engine: str = "auto", episode_steps: int | None = None
) -> CompiledEnv | HostedEnv: ...
def make(
    game: str | Path, engine: str = "auto", episode_steps: int | None = None
) -> CompiledEnv | HostedEnv:
    """An environment with pure functions.

    ``env.reset(key) -> state, step`` and ``env.step(state, action) -> state, step``. The compiled
    engine runs under jit and vmap; "auto" falls back on the hosted one, the real story in an
    emulator, for games that cannot be compiled. ``game`` may also be the path of a compiled file.
    """
    if engine not in ENGINES:
        raise UsageError(f"there is no engine {engine!r}; the engines are {', '.join(ENGINES)}")
    if str(game).endswith(SUFFIX):
        return CompiledEnv(load_compiled(Path(game)), episode_steps)
    loaded = load(game)
    if engine != "hosted":
        try:
            return CompiledEnv(compiled(loaded), episode_steps)
        except CannotCompileError:
            if engine == "compiled":
                raise
    from grue.engine.hosted import HostedEnv

    return HostedEnv(loaded, episode_steps)


def compiled(game: Game) -> CompiledGame:
    """A game's arrays: from the file beside its story, or compiled now."""
    path = compiled_path(game)
    if path.exists():
        return load_compiled(path, game)
    from grue.engine.compiler.build import compile_game

    return compile_game(game)
