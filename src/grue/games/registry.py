"""Finds a game by its name or by the path of its story file."""

from __future__ import annotations

import difflib
from functools import cache
from importlib.resources import files
from pathlib import Path

from grue.errors import UsageError
from grue.games.game import Game, read_textworld_game

LEVELS = range(1, 8)


def game_names() -> tuple[str, ...]:
    """The games that come with grue."""
    return tuple(f"saladworld-{level}" for level in LEVELS)


@cache
def _shipped(name: str) -> Game:
    story = Path(str(files("grue.games.saladworld") / "data" / f"{name}.z8"))
    return read_textworld_game(story, name)


def load(name: str | Path) -> Game:
    """A game from its name ("saladworld-3") or the path of a TextWorld ``.z8``."""
    text = str(name)
    if text in game_names():
        return _shipped(text)
    path = Path(text).expanduser()
    if path.suffix.startswith(".z") or path.exists() or path.parent != Path():
        return read_textworld_game(path)
    near = difflib.get_close_matches(text, game_names(), n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"there is no game {text!r}: {hint}the games are {game_names()[0]} to {game_names()[-1]}, "
        "or the path of a story file"
    )
