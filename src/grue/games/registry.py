"""Finds games by name or by the path of a story file."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from grue.errors import CannotCompileError, UsageError
from grue.files import expanded
from grue.games.game import SUFFIX, Game, read_textworld_game
from grue.games.playable import Playable
from grue.games.zmachine import zork
from grue.games.zmachine.story import read_story_game

LEVELS = range(1, 8)


def game_names() -> tuple[str, ...]:
    """The games that come with grue."""
    return tuple(f"saladworld-{level}" for level in LEVELS)


def known_names() -> tuple[str, ...]:
    """All names, with Zork I, which does not come with grue."""
    return (*game_names(), zork.NAME)


def game_settings(name: str) -> Mapping[str, Any]:
    """Training settings in which a game differs from the others."""
    return zork.SETTINGS if name == zork.NAME else {}


@cache
def _shipped(name: str) -> Game:
    story = Path(str(files("grue.games.saladworld") / "data" / f"{name}.z8"))
    return read_textworld_game(story, name)


def load(
    name: str | Path | Playable, story: str | Path | None = None, commands: str | Path | None = None
) -> Any:
    """A Game or a Story from its name ("saladworld-3", "zork1") or the path of its story.

    ``story`` is the story file of zork1, ``commands`` a file with the commands of a Z-machine
    story. A story with a ``.json`` beside it is a TextWorld game. A loaded game is returned as is.
    """
    if isinstance(name, Playable):
        check_whole(name.name, story, commands)
        return name
    text = str(name)
    listed = None if commands is None else expanded(commands)
    if story is not None and text != zork.NAME:
        raise UsageError(f"--story (in Python: story) is for {zork.NAME}; leave it out for {text}")
    if text == zork.NAME:
        return zork.load_zork(story, listed)
    if text in game_names():
        return _without_commands(_shipped(text), listed)
    path = expanded(text)
    if path.name.endswith(SUFFIX):
        raise UsageError(
            f"{path} is a compiled game, for grue train and grue.make only; give the story that it "
            "was compiled from"
        )
    if not (path.suffix.startswith(".z") or path.exists() or path.parent != Path()):
        raise _unknown(text)
    if path.is_file() and not path.with_suffix(".json").exists():
        return read_story_game(path, commands=listed)
    return _without_commands(read_textworld_game(path), listed)


def load_textworld(name: str | Path) -> Game:
    """A SaladWorld level, or a TextWorld ``.z8`` with its ``.json``."""
    try:
        # Zork I is refused even if its file is missing.
        if str(name) != zork.NAME:
            return load(name).textworld()
    except CannotCompileError:
        pass
    raise UsageError(
        f"{name} is a Z-machine story, and its world is unknown; give a SaladWorld level or a "
        "TextWorld game with its .json"
    )


def check_whole(name: object, story: object, commands: object) -> None:
    """A loaded or compiled game takes no other story or commands."""
    for option, given in (("story", story), ("commands", commands)):
        if given is not None:
            raise UsageError(
                f"{name} already has its story and commands; give {option} to grue.load, or with a "
                "game's name"
            )


def _without_commands(game: Game, commands: Path | None) -> Game:
    if commands is not None:
        raise UsageError(
            f"{game.name} has its own commands; --commands (in Python: commands) is for Z-machine "
            "stories"
        )
    return game


def _unknown(name: str) -> UsageError:
    # Another level is no spelling of this one.
    is_level = name.rstrip("0123456789") in ("saladworld-", "saladworld")
    near = [] if is_level else difflib.get_close_matches(name, known_names(), n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    levels = game_names()
    return UsageError(
        f"there is no game {name!r}: {hint}the games are {levels[0]} to {levels[-1]}, {zork.NAME}, "
        "or the path of a story file"
    )
