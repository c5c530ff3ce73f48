"""Z-machine stories: the file, the agent's commands and other known facts.

A story file has no list of commands. They come from the user's file, or from Jericho's table if it
knows the story, or else they are proposed from the story's grammar.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grue.errors import CannotCompileError, UsageError
from grue.files import read_plain
from grue.games.playable import Knowledge, Playable, Subtask
from grue.games.tokens import StoryVocabulary
from grue.games.zmachine.header import read_story
from grue.games.zmachine.story_file import StoryFile, vocabulary_of

if TYPE_CHECKING:
    from grue.games.game import Game

LOOK = "look"
PROPOSED = 200
"""How many commands are proposed from a story's grammar."""


@dataclass(frozen=True)
class Story(Playable):
    """A Z-machine story that can be played: ``grue.load("zork1")`` or ``grue.load(path)``."""

    name: str
    story: Path
    data: bytes = field(repr=False)
    commands_file: Path | None = None
    tables: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Jericho's table: commands, a walkthrough and its seed."""
    full_score: int | None = None
    """None if it is unknown."""
    victory: str | None = None
    """A text that is printed only when the game is won."""

    kind = "zmachine"

    @property
    def max_score(self) -> int | None:
        return self.full_score

    def textworld(self) -> Game:
        raise CannotCompileError(f"{self.name} is a Z-machine story; only TextWorld games compile")

    @property
    def knows(self) -> Knowledge:
        """Jericho can read the score of stories in its tables."""
        refusal = None if self.tables else self.file.score_refusal()
        return Knowledge(admissible=False, subtasks=False, chance=True, score_refusal=refusal)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out what can be read again quickly."""
        return {name: value for name, value in vars(self).items() if name not in ("file", "words")}

    @cached_property
    def file(self) -> StoryFile:
        return StoryFile(self.data)

    @cached_property
    def commands(self) -> tuple[str, ...]:
        """The agent's commands, always with "look"."""
        if self.commands_file is not None:
            found = read_commands(self.commands_file)
        elif "minimal_actions" in self.tables:
            found = tuple(self.tables["minimal_actions"].split("/"))
        else:
            found = self.file.propose_commands(PROPOSED)
        return found if LOOK in found else (*found, LOOK)

    @cached_property
    def words(self) -> StoryVocabulary:
        return vocabulary_of(self.data, self.commands)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return self.words.words

    @property
    def walkthrough(self) -> tuple[str, ...]:
        """Jericho's walkthrough, if any; it needs ``walkthrough_seed``."""
        return tuple(filter(None, self.tables.get("walkthrough", "").split("/")))

    @property
    def walkthrough_seed(self) -> int:
        # Jericho counts from 1, ``reset`` from 0.
        return max(self.tables.get("seed", 0) - 1, 0)

    @cached_property
    def subtasks(self) -> tuple[Subtask, ...]:
        """One, because the parts of a story are unknown."""
        return (Subtask("Win the game.", 0),)

    @property
    def digest(self) -> str:
        """Of the story and its commands."""
        digest = hashlib.sha256(self.data)
        digest.update("\n".join(self.commands).encode())
        return digest.hexdigest()


def read_story_game(path: Path, name: str | None = None, commands: Path | None = None) -> Story:
    """A story from its file, checked first: a broken one would crash the emulator."""
    data = read_story(path)
    return Story(name or path.stem, path, data, commands, jericho_tables(data))


def jericho_tables(data: bytes) -> Mapping[str, Any]:
    """Jericho's table for a story; empty if it has none or is not installed."""
    try:
        from jericho.defines import BINDINGS_DICT
    except ImportError:
        return {}
    return BINDINGS_DICT.get(hashlib.md5(data, usedforsecurity=False).hexdigest(), {})


def read_commands(path: Path) -> tuple[str, ...]:
    """The commands of a file, one per line; empty lines and lines with # are skipped."""
    try:
        lines = read_plain(path).decode().splitlines()
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}; it should have one command per line") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the commands in {path}: {error}") from None
    found: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        command = " ".join(line.split())
        if not command or command.startswith("#"):
            continue
        if command in found:
            raise UsageError(
                f"{path}, line {number}: {command!r} is already in line {found[command]}; "
                "give each command once"
            )
        found[command] = number
    if not found:
        raise UsageError(f"{path} has no commands; it should have one per line")
    return tuple(found)
