"""A Z-machine story as data: what it calls itself, what it can print, what it understands.

Nothing is run: header, dictionary, objects, code and grammar are read from the file, so that a
vocabulary and a set of commands are fixed before the first command is played. The format is that
of the Z-Machine Standards Document 1.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from grue.errors import BrokenFileError, UsageError
from grue.games.tokens import StoryVocabulary, tokenize
from grue.games.zmachine.code import Code, CodeReader
from grue.games.zmachine.header import LENGTH_UNIT, read_story
from grue.games.zmachine.text import TextDecoder

GLOBALS_BYTES = 480
"""240 words."""
SCORE, MOVES = 1, 2
"""Globals of the status line, in versions 1 to 3."""
TIME_FLAG = 0x02
"""Of the first flags: the status line shows the time of day, not the score."""

TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
ONES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Entry(NamedTuple):
    """A word of the dictionary."""

    word: str
    address: int
    data: bytes
    """What the story's parser keeps beside it."""


class StoryObject(NamedTuple):
    number: int
    name: str
    parent: int
    attributes: int
    """As bits, the first attribute highest."""
    properties: dict[int, bytes]


class StoryFile:
    """``StoryFile(data)`` or ``StoryFile.read(path)``."""

    def __init__(self, data: bytes) -> None:
        if len(data) < 64 or data[0] not in LENGTH_UNIT:
            raise BrokenFileError(
                "not a Z-machine story: it does not begin with a version from 1 to 8"
            )
        length = int.from_bytes(data[0x1A:0x1C], "big") * LENGTH_UNIT[data[0]]
        # Files are often padded.
        self.memory = data[:length] if 64 <= length <= len(data) else data
        self.version = data[0]
        self.text = TextDecoder(self.memory)
        self.code = CodeReader(self.memory, self.text)
        self.release = self._word(0x02)
        self.serial = data[0x12:0x18].decode("ascii", "replace")
        self.checksum = self._word(0x1C)

    @classmethod
    def read(cls, path: Path) -> StoryFile:
        """A story from its file, checked as a whole."""
        return cls(read_story(path))

    # What it understands

    def dictionary(self) -> tuple[str, ...]:
        """The words that its parser knows, as it keeps them: 6 letters, from version 4 on 9."""
        return tuple(entry.word for entry in self.entries)

    def propose_commands(self, limit: int = 200) -> tuple[str, ...]:
        """Commands made from the grammar and the objects' names, the likeliest first."""
        from grue.games.zmachine.propose import propose

        return propose(self, limit)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        table = self._word(0x08)
        try:
            start = table + 1 + self.memory[table]
            size = self.memory[start]
            count = abs(_signed(self._word(start + 1)))
            coded = 6 if self.version >= 4 else 4
            found = []
            for address in range(start + 3, start + 3 + count * size, size):
                data = self.memory[address + coded : address + size]
                if size < coded or len(data) != size - coded:
                    raise ValueError("an entry runs past the end of the story")
                characters = [
                    self._word(address + i) >> shift & 31
                    for i in range(0, coded, 2)
                    for shift in (10, 5, 0)
                ]
                found.append(Entry(self.text.decode(characters), address, data))
        except (IndexError, ValueError) as error:
            raise BrokenFileError(f"the story's dictionary cannot be read: {error}") from None
        return tuple(found)

    # What it can print

    def words(self) -> tuple[str, ...]:
        """Every word that it can print, in lower case and sorted.

        Words as ``tokens.tokenize`` sees them, marks included. They come from the texts in its
        code and behind it, the names of its objects and its dictionary. Numbers are computed in
        play, so only digits and those in the texts are there; what the player types may be
        printed too.
        """
        return self._words

    @cached_property
    def _words(self) -> tuple[str, ...]:
        texts = (*self.printed, *self.dictionary())
        found = {word for text in texts for word in tokenize(text.lower())}
        # Numbers in words are put together in play.
        tens, ones = found.intersection(TENS), found.intersection(ONES)
        numbers = {f"{ten}-{one}" for ten in tens for one in ones} if len(tens) == len(TENS) else ()
        return tuple(sorted(found.union(numbers, "0123456789")))

    @cached_property
    def printed(self) -> tuple[str, ...]:
        """Every text in the file: in instructions, behind the code, names of objects."""
        try:
            behind = [text for _, text in self.code.strings(self.walked.end)]
        except (IndexError, ValueError) as error:
            raise BrokenFileError(f"the story's code cannot be read: {error}") from None
        names = [thing.name for thing in self.objects]
        return (*self.walked.texts, *behind, *names)

    @cached_property
    def walked(self) -> Code:
        """What a walk over its code finds."""
        return self.code.walk()

    # Its world

    @cached_property
    def objects(self) -> tuple[StoryObject, ...]:
        """The objects as the game begins: as many as fit before their properties."""
        early = self.version <= 3
        size, links, width = (9, 4, 1) if early else (14, 6, 2)
        at = self._word(0x0A) + 2 * (31 if early else 63)
        end = len(self.memory)
        found = []
        try:
            while at + size <= end:
                properties = self._word(at + size - 2)
                end = min(end, properties)
                if at + size > end or properties < 64:
                    break
                name, listed = self._properties(properties)
                parent = int.from_bytes(self.memory[at + links : at + links + width], "big")
                attributes = int.from_bytes(self.memory[at : at + links], "big")
                found.append(StoryObject(len(found) + 1, name, parent, attributes, listed))
                at += size
        except (IndexError, ValueError) as error:
            raise BrokenFileError(f"the story's objects cannot be read: {error}") from None
        return tuple(found)

    def _properties(self, at: int) -> tuple[str, dict[int, bytes]]:
        """An object's name and its properties by number."""
        words = self.memory[at]
        name = self.text.text(at + 1)[0] if words else ""
        at += 1 + 2 * words
        found = {}
        while self.memory[at]:
            first = self.memory[at]
            if self.version <= 3:
                number, size = first & 31, (first >> 5) + 1
            elif first & 0x80:
                at += 1
                # 0 stands for 64.
                number, size = first & 63, (self.memory[at] - 1 & 63) + 1
            else:
                number, size = first & 63, 2 if first & 0x40 else 1
            found[number] = self.memory[at + 1 : at + 1 + size]
            at += 1 + size
        return name, found

    # What it keeps count of

    def score_refusal(self) -> str | None:
        """Why the score cannot be read from the story's memory; None when it can."""
        if self.version > 3:
            return (
                f"a story of version {self.version} keeps its score where it likes: "
                "only versions 1 to 3 have a place for it"
            )
        if self.version == 3 and self.memory[0x01] & TIME_FLAG:
            return "the story shows the time of day in its status line, and has no score there"
        return None

    def score(self, globals_or_memory: bytes) -> int:
        """The score, from a story's memory in play or from its 480 bytes of globals."""
        return self._status(globals_or_memory, SCORE)

    def moves(self, globals_or_memory: bytes) -> int:
        """The number of moves in the status line."""
        return self._status(globals_or_memory, MOVES)

    def _status(self, given: bytes, number: int) -> int:
        refusal = self.score_refusal()
        if refusal is not None:
            raise UsageError(f"the score cannot be read: {refusal}")
        start = 0 if len(given) <= GLOBALS_BYTES else self._word(0x0C)
        at = start + 2 * number
        if at + 2 > len(given):
            raise UsageError(
                f"the score is in the story's globals, 480 bytes from {self._word(0x0C)} on, "
                f"and {len(given)} bytes were given"
            )
        return _signed(int.from_bytes(given[at : at + 2], "big"))

    def _word(self, address: int) -> int:
        return self.text.word(address)


def _signed(value: int) -> int:
    return value - 0x10000 if value & 0x8000 else value


def vocabulary_of(data: bytes, commands: Iterable[str]) -> StoryVocabulary:
    """Every word that a story can print, and those of some commands, by number."""
    spoken = {word for command in commands for word in tokenize(command.lower())}
    return StoryVocabulary.of_words({*_words_of(data), *spoken})


@lru_cache(maxsize=16)
def _words_of(data: bytes) -> tuple[str, ...]:
    """Reading all texts of a large story takes a second."""
    return StoryFile(data).words()
