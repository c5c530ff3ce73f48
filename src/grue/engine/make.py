"""Makes the environment of a game."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Literal, overload

from grue.engine.compiled import CompiledEnv
from grue.engine.environment import Environment, check_episode_steps
from grue.errors import CannotCompileError, GrueError, UsageError
from grue.games.game import Game, read_textworld_game
from grue.games.gamefile import SUFFIX, CompiledGame, compiled_path, load_compiled
from grue.games.playable import Playable
from grue.games.registry import check_whole, load

ENGINES = ("auto", "compiled", "hosted")


@overload
def make(
    game: str | Path | Playable, engine: Literal["compiled"], episode_steps: int | None = None
) -> CompiledEnv: ...
@overload
def make(
    game: str | Path | Playable,
    engine: str = "auto",
    episode_steps: int | None = None,
    story: str | Path | None = None,
    commands: str | Path | None = None,
) -> Environment: ...
def make(
    game: str | Path | Playable,
    engine: str = "auto",
    episode_steps: int | None = None,
    story: str | Path | None = None,
    commands: str | Path | None = None,
) -> Environment:
    """The environment of a game; see ``grue.engine.environment.Environment``.

    The compiled engine runs under jit and vmap. For games that cannot be compiled, "auto" uses the
    hosted engine: the real story in an emulator. A game that can only be compiled near
    (``env.near``) is, and a warning says so. ``game`` may also be the path of a compiled file,
    or the result of ``grue.load``. ``story`` and ``commands`` are as for ``grue.load``.
    """
    if engine not in ENGINES:
        raise UsageError(f"there is no engine {engine!r}; the engines are {', '.join(ENGINES)}")
    check_episode_steps(episode_steps, least=0)
    if str(game).endswith(SUFFIX):
        check_whole(game, story, commands)
        file = load_compiled(Path(str(game)))
        _warn_if_near(file)
        return CompiledEnv(file, episode_steps, _story_beside(Path(str(game)), file))
    found: Playable = load(game, story, commands)
    if engine != "hosted":
        try:
            return CompiledEnv(compiled(found), episode_steps, found.textworld())
        except CannotCompileError as error:
            if engine == "compiled":
                raise CannotCompileError(refusal(found, error)) from None
    from grue.engine.hosted_story import host

    return host(found, episode_steps)


def refusal(game: Playable, error: CannotCompileError) -> str:
    return f"{game.name} cannot be compiled ({error}): it plays hosted"


def compiled(game: Playable) -> CompiledGame:
    """A game's arrays, from the file beside its story or compiled now. Warns if they are near."""
    known = game.textworld()
    path = compiled_path(known)
    if path.exists():
        found = load_compiled(path, known)
    else:
        from grue.engine.compiler.build import compile_game

        found = compile_game(known)
    _warn_if_near(found)
    return found


def _warn_if_near(game: CompiledGame) -> None:
    if game.header.get("near"):
        warnings.warn(near_notice(game), stacklevel=3)


def near_notice(game: CompiledGame) -> str:
    near = game.header["near"]
    return (
        f"{game.name} is compiled near: {len(near)} of {len(game.commands)} commands, such as "
        f"{next(iter(near))!r}, are exact only while their things are in sight, and answer "
        '"You can\'t see any such thing." else; engine="hosted" is always exact'
    )


def _story_beside(path: Path, file: CompiledGame) -> Game | None:
    """The game that a file was compiled from, if it lies beside it."""
    story = path.with_name(path.name.removesuffix(SUFFIX) + ".z8")
    try:
        game = read_textworld_game(story)
    except GrueError:
        return None
    return game if game.digest == file.header["game_hash"] else None
