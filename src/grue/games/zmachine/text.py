"""Decodes the texts of a Z-machine story: packed letters, abbreviations and custom characters.

See sections 3 and 13 of the Z-Machine Standards Document 1.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    " \n0123456789.,!?_#'\"/\\-:()",
)
# Version 1 has "<" instead of the line break in the third alphabet.
FIRST_PUNCTUATION = " 0123456789.,!?_#'\"/\\<-:()"
# Characters 155 to 223 of a story without its own table.
EXTRA_CHARACTERS = "äöüÄÖÜß»«ëïÿËÏáéíóúýÁÉÍÓÚÝàèìòùÀÈÌÒÙâêîôûÂÊÎÔÛåÅøØãñõÃÑÕæÆçÇþðÞÐ£œŒ¡¿"
NEW_LINE, ESCAPE, FIRST_EXTRA = 13, 6, 155


class TextDecoder:
    """Decodes the texts of one story's memory."""

    def __init__(self, memory: bytes) -> None:
        self.memory = memory
        self.version = memory[0]
        self._abbreviation_banks = 0 if self.version == 1 else 1 if self.version == 2 else 3
        self._abbreviations: dict[int, str] = {}

    def word(self, address: int) -> int:
        return int.from_bytes(self.memory[address : address + 2], "big")

    def text(self, address: int) -> tuple[str, int]:
        """The text at an address, and its end."""
        characters, after = self.characters(address)
        return self.decode(characters), after

    def characters(self, address: int) -> tuple[list[int], int]:
        """The 5-bit characters of the text at an address, and its end."""
        memory = self.memory
        characters: list[int] = []
        while address + 2 <= len(memory):
            word = memory[address] << 8 | memory[address + 1]
            address += 2
            characters += (word >> 10 & 31, word >> 5 & 31, word & 31)
            if word & 0x8000:
                return characters, address
        raise ValueError("a text runs past the end of the story")

    def decode(self, characters: list[int], abbreviated: bool = False) -> str:
        """A text from its 5-bit characters."""
        return "".join(self._pieces(characters, abbreviated))

    def _pieces(self, characters: list[int], abbreviated: bool) -> Iterator[str]:
        stream = iter(characters)
        locked = shifted = 0
        for character in stream:
            alphabet, shifted = shifted, locked
            if character >= 6 and not (alphabet == 2 and character == ESCAPE):
                yield self.alphabets[alphabet][character - 6]
            elif character == ESCAPE:
                high, low = next(stream, None), next(stream, None)
                if high is not None and low is not None:
                    yield self.character(high << 5 | low)
            elif character == 0:
                yield " "
            elif character <= self._abbreviation_banks:
                number = next(stream, None)
                # Incomplete and nested abbreviations print nothing.
                if number is not None and not abbreviated:
                    yield self.abbreviation(32 * (character - 1) + number)
            elif self.version <= 2 and character == 1:
                yield "\n"
            else:
                # 4 and 5, and in early versions 2 and 3, shift by one or two alphabets.
                shifted = (locked + (1 if character in (2, 4) else 2)) % 3
                if self.version <= 2 and character >= 4:
                    locked = shifted

    def character(self, code: int) -> str:
        """A character by its ZSCII code; empty if it is not printable."""
        if 32 <= code <= 126:
            return chr(code)
        if code == NEW_LINE:
            return "\n"
        if FIRST_EXTRA <= code < FIRST_EXTRA + len(self._extra):
            return self._extra[code - FIRST_EXTRA]
        return ""

    def abbreviation(self, number: int) -> str:
        if number not in self._abbreviations:
            address = 2 * self.word(self.word(0x18) + 2 * number)
            characters, _ = self.characters(address)
            self._abbreviations[number] = self.decode(characters, abbreviated=True)
        return self._abbreviations[number]

    @cached_property
    def alphabets(self) -> tuple[str, str, str]:
        own = self.word(0x34) if self.version >= 5 else 0
        if own:
            letters = [self.character(code) for code in self.memory[own : own + 78]]
            # Unprintable characters keep their place.
            rows = ["".join(c or "\0" for c in letters[i : i + 26]) for i in (0, 26, 52)]
            return rows[0], rows[1], " \n" + rows[2][2:]
        return (*ALPHABETS[:2], FIRST_PUNCTUATION if self.version == 1 else ALPHABETS[2])

    @cached_property
    def _extra(self) -> str:
        extension = self.word(0x36) if self.version >= 5 else 0
        table = self.word(extension + 6) if extension and self.word(extension) >= 3 else 0
        if not table:
            return EXTRA_CHARACTERS
        count = self.memory[table]
        return "".join(chr(self.word(table + 1 + 2 * i)) for i in range(count))
