"""Zork I: known story files, where to find them, and the paper's settings.

The story does not come with grue. Jericho knows release 88. Release 119 is published under the MIT
licence but unknown to Jericho. The commands are the 131 of Jericho's table for release 88, and
"look".
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from grue.errors import UsageError
from grue.files import expanded
from grue.games.zmachine.story import Story, read_story_game

NAME = "zork1"
VARIABLE = "GRUE_ZORK1"
MAX_SCORE = 350
VICTORY = "Inside the Barrow"
"""The last room."""
RELEASES = {
    "0ae5ac229e79094ff368b6669356444af0f35e21d862a1baaa546989085c15fd": 88,
    "37084966477dff679282de42974b2077156b1bd68fad92a65d4ea94d8eb64d79": 119,
}
"""By the SHA-256 of the file."""
SETTINGS: Mapping[str, Any] = {"discount": 0.8, "steps": 2_000_000}
"""The paper's settings for Zork that differ from the defaults."""


def load_zork(story: Path | str | None = None, commands: Path | None = None) -> Story:
    """Zork I from a file, by default the one that ``find_story`` finds."""
    path = find_story() if story is None else expanded(story)
    found = read_story_game(path, NAME, commands)
    if hashlib.sha256(found.data).hexdigest() not in RELEASES:
        known = " and ".join(map(str, RELEASES.values()))
        raise UsageError(
            f"{path} is not a known release of Zork I: releases {known} are known; "
            "give any other story by its path instead of a name"
        )
    return replace(found, tables=_tables(found), full_score=MAX_SCORE, victory=VICTORY)


def _tables(story: Story) -> Mapping[str, Any]:
    """Jericho's tables for release 88; commands, walkthrough and seed also fit release 119."""
    if story.tables:
        return story.tables
    try:
        from jericho.defines import BINDINGS_DICT
    except ImportError:
        return {}
    return next(table for table in BINDINGS_DICT.values() if table["name"] == NAME)


def find_story() -> Path:
    """The story file in ``GRUE_ZORK1``, or else the one in the user's data folder."""
    named = os.environ.get(VARIABLE)
    if named:
        return expanded(named)
    folder = data_folder()
    found = sorted(path for path in folder.glob(f"{NAME}*.z[358]") if path.is_file())
    if found:
        return found[0]
    raise UsageError(
        f"Zork I does not come with grue: give its story file with --story PATH (in Python: "
        f"story=PATH), name it in {VARIABLE}, or put it in {folder} as {NAME}.z3 or {NAME}.z5; "
        "release 119 is published under the MIT licence at github.com/historicalsource/zork1, "
        "release 88 is among the games that Jericho's documentation links to"
    )


def is_there() -> bool:
    """Whether ``find_story`` finds a file."""
    try:
        find_story()
    except UsageError:
        return False
    return True


def data_folder() -> Path:
    home = os.environ.get("XDG_DATA_HOME")
    return (Path(home) if home else Path.home() / ".local" / "share") / "grue"
