"""Texts as token numbers. Only white space is lost.

A token is a word (letters and digits, with inner apostrophes and hyphens), one of TextWorld's
marks ``-=``, ``=-`` and ``***``, or any other single visible character. Case is kept. Number 0 is
padding. Decoded English reads as printed, except that line breaks become spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

TOKEN = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*|-=|=-|\*\*\*|\S")
PADDING = 0
UNKNOWN = 1
"""The number of unknown words, where there can be some."""
UNKNOWN_WORD = "<unknown>"
CLOSING = frozenset(".,;:!?)")


def tokenize(text: str) -> list[str]:
    """The words and marks of a text, in order."""
    return TOKEN.findall(text)


def squeeze(text: str) -> str:
    """The text without white space, which encoding keeps exactly."""
    return "".join(text.split())


def join(words: Iterable[str]) -> str:
    """A text from its tokens: no space before closing punctuation."""
    text = ""
    for word in words:
        text += word if not text or word in CLOSING else " " + word
    return text


@dataclass(frozen=True)
class Vocabulary:
    """The words that a game can print or read, numbered from 1."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Vocabulary:
        return cls(tuple(sorted({word for text in texts for word in tokenize(text)})))

    def __len__(self) -> int:
        """The number of tokens, with padding."""
        return len(self.words) + 1

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, 1)}

    def encode(self, text: str) -> list[int]:
        """The numbers of a text; an unknown word is an error."""
        try:
            return [self.numbers[word] for word in tokenize(text)]
        except KeyError as error:
            raise ValueError(f"the word {error.args[0]!r} is not in the vocabulary") from None

    def table(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of texts as rows of equal length, padded at the end."""
        rows = [self.encode(text) for text in texts]
        longest = max(map(len, rows), default=0)
        return [row + [PADDING] * (longest - len(row)) for row in rows]

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of some numbers, without padding."""
        return join(self.words[n - 1] for n in map(int, numbers) if n != PADDING)


@dataclass(frozen=True)
class StoryVocabulary(Vocabulary):
    """The words of a Z-machine story, in lower case; number 1 is for unknown words.

    Unknown are computed numbers, and the player's words that a story repeats.
    """

    @classmethod
    def of_words(cls, words: Iterable[str]) -> StoryVocabulary:
        return cls((UNKNOWN_WORD, *sorted(set(words))))

    def encode(self, text: str) -> list[int]:
        return [self.numbers.get(word, UNKNOWN) for word in tokenize(text.lower())]


@dataclass(frozen=True)
class SharedVocabulary(Vocabulary):
    """The words of many games, in the order in which they come; number 1 is for unknown words."""

    @classmethod
    def of_games(cls, games: Iterable[Iterable[str]]) -> SharedVocabulary:
        words = dict.fromkeys(word for words in games for word in words)
        words.pop(UNKNOWN_WORD, None)
        return cls((UNKNOWN_WORD, *words))

    def number(self, word: str) -> int:
        """As it is written, else in lower case, as hosted games have it."""
        return self.numbers.get(word) or self.numbers.get(word.lower(), UNKNOWN)

    def encode(self, text: str) -> list[int]:
        return [self.number(word) for word in tokenize(text)]
