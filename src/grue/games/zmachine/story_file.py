"""Reads a Z-machine story without running it: header, dictionary, objects, code and grammar.

So the vocabulary and the commands are fixed before play. The format is that of the Z-Machine
Standards Document 1.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from grue.errors import BrokenFileError, UsageError
from grue.games.tokens import StoryVocabulary, tokenize
from grue.games.zmachine.code import Code, CodeReader, signed
from grue.games.zmachine.header import read_story, stated_length
from grue.games.zmachine.text import TextDecoder

GLOBALS_BYTES = 480
"""240 words."""
SCORE = 1
"""The global of the score in versions 1 to 3."""
TIME_FLAG = 0x02
"""In the first flags: the status line shows the time instead of the score."""

TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
ONES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Entry(NamedTuple):
    """A word of the dictionary."""

    word: str
    address: int
    data: bytes
    """The parser's data for the word."""


class StoryObject(NamedTuple):
    number: int
    name: str
    parent: int
    attributes: int
    """Bits, the first attribute highest."""
    properties: dict[int, bytes]


class StoryFile:
    """``StoryFile(data)`` or ``StoryFile.read(path)``."""

    def __init__(self, data: bytes) -> None:
        length = stated_length(data, "this")
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
        """A story from its file, checked."""
        return cls(read_story(path))

    # Dictionary and commands

    def dictionary(self) -> tuple[str, ...]:
        """The parser's words, cut to 6 letters, or to 9 from version 4 on."""
        return tuple(entry.word for entry in self.entries)

    def propose_commands(self, limit: int = 200) -> tuple[str, ...]:
        """Commands from the grammar and the names of objects, likeliest first."""
        from grue.games.zmachine.propose import propose

        return propose(self, limit)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        table = self._word(0x08)
        try:
            start = table + 1 + self.memory[table]
            size = self.memory[start]
            count = abs(signed(self._word(start + 1)))
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

    # Texts

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Every token (see ``tokens.tokenize``) that it can print, in lower case and sorted.

        They come from the texts, the names of objects and the dictionary. Missing are numbers that
        are computed in play, and echoes of what the player types.
        """
        texts = (*self.printed, *self.dictionary())
        found = {word for text in texts for word in tokenize(text.lower())}
        # Spelled-out numbers are composed in play.
        tens, ones = found.intersection(TENS), found.intersection(ONES)
        numbers = {f"{ten}-{one}" for ten in tens for one in ones} if len(tens) == len(TENS) else ()
        return tuple(sorted(found.union(numbers, "0123456789")))

    @cached_property
    def printed(self) -> tuple[str, ...]:
        """Every text in the file: in instructions, after the code, and names of objects."""
        try:
            behind = [text for _, text in self.code.strings(self.walked.end)]
        except (IndexError, ValueError) as error:
            raise BrokenFileError(f"the story's code cannot be read: {error}") from None
        names = [thing.name for thing in self.objects]
        return (*self.walked.texts, *behind, *names)

    @cached_property
    def walked(self) -> Code:
        return self.code.walk()

    # Objects

    @cached_property
    def objects(self) -> tuple[StoryObject, ...]:
        """The objects at the start. Their table ends where the first properties begin."""
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

    # Score

    def score_refusal(self) -> str | None:
        """Why the score cannot be read from the story's memory; None if it can."""
        if self.version > 3:
            return f"only versions 1 to 3 have a fixed place for it, not version {self.version}"
        if self.version == 3 and self.memory[0x01] & TIME_FLAG:
            return "the story's status line shows the time of day instead"
        return None

    def score(self, given: bytes) -> int:
        """The score, from the memory in play or from its 480 bytes of globals."""
        refusal = self.score_refusal()
        if refusal is not None:
            raise UsageError(f"the score cannot be read: {refusal}")
        start = 0 if len(given) <= GLOBALS_BYTES else self._word(0x0C)
        at = start + 2 * SCORE
        if at + 2 > len(given):
            raise UsageError(
                f"{len(given)} bytes are too few for the score; give the story's memory, or the "
                f"480 bytes of its globals from {self._word(0x0C)} on"
            )
        return signed(int.from_bytes(given[at : at + 2], "big"))

    def _word(self, address: int) -> int:
        return self.text.word(address)


def vocabulary_of(data: bytes, commands: Iterable[str]) -> StoryVocabulary:
    """Every word that a story can print, and the words of some commands."""
    spoken = {word for command in commands for word in tokenize(command.lower())}
    return StoryVocabulary.of_words({*_words_of(data), *spoken})


@lru_cache(maxsize=16)
def _words_of(data: bytes) -> tuple[str, ...]:
    """Reading all texts of a large story takes a second."""
    return StoryFile(data).words
