"""Numbers the texts: frames as runs of guarded pieces over one flat array of tokens."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence

import numpy as np

from grue.engine.compiler.model import Model
from grue.engine.compiler.text import (
    Frame,
    Guard,
    Listing,
    Piece,
    Texts,
    Words,
)
from grue.errors import CannotCompileError
from grue.games.tokens import Vocabulary, tokenize

NO_HOLDER, FLOOR_HOLDER = -1, -2
GUARD_VARIABLES = 3
"""Most guards ask about no more."""
MOST_LENGTHS = 20_000
"""So many combinations of values are tried to find the longest text; beyond, a bound will do."""
SEPARATORS = ("", ", ", " and ")


class TextTable:
    def __init__(self, model: Model, texts: Texts) -> None:
        self.model = model
        self.descriptions = texts
        self.frames: dict[Frame, int] = {}
        self.guards: dict[Guard, int] = {}
        self.score_texts: list[str] = []
        self.endings: tuple[str, ...] = ()
        self.items = [
            [texts.phrase(movable, known) for known in model.combinations(movable)]
            for movable in model.movables
        ]

    def frame(self, frame: Frame) -> int:
        """The number of a frame."""
        merged = tuple(_merge(self._with_empty_lists(frame)))
        _check_boundaries(merged)
        self._check_lists(merged)
        for piece in merged:
            self.guards.setdefault(piece.guard, len(self.guards))
        return self.frames.setdefault(merged, len(self.frames))

    def plural_after(self, frame: Frame) -> int:
        """The number of the guard that tells what later lists of nothing are called by."""
        return self.guards.setdefault(self.descriptions.plural_after(frame), len(self.guards))

    def _with_empty_lists(self, frame: Frame) -> Iterable[Piece]:
        """Inform prints a list of no things as "nothing"."""
        for piece in frame:
            yield piece
            if isinstance(piece, Listing):
                empty = self.descriptions.count(piece.holder, lambda n: n == 0)
                yield Words("nothing", self.descriptions.both(piece.guard, empty))

    def _check_lists(self, frame: Frame) -> None:
        """The engine prints a thing once in a text."""
        lists = [piece for piece in frame if isinstance(piece, Listing)]
        for one, other in itertools.combinations(lists, 2):
            if one.holder == other.holder:
                some = self.descriptions.count(one.holder, lambda n: n > 0)
                both = self.descriptions.both(one.guard, other.guard)
                if self.descriptions.both(both, some).allowed:
                    known = one.holder in self.model.places
                    name = self.model.name(one.holder) if known else one.holder
                    raise CannotCompileError(f"a text lists the things of {name!r} twice")

    def add_endings(self, score_texts: list[str], endings: tuple[str, ...]) -> None:
        """What may follow a frame: points for 1, 2, 3 … and how the game ended."""
        self.score_texts, self.endings = score_texts, endings

    def texts(self) -> Iterable[str]:
        for frame in self.frames:
            yield from (piece.text for piece in frame if isinstance(piece, Words))
        yield from itertools.chain(*self.items, SEPARATORS, self.score_texts, self.endings)

    # Sizes

    def most_pieces(self) -> int:
        return max(map(len, self.frames))

    def longest(self, opening: int) -> int:
        """A bound on the tokens of any feedback; ``opening`` is the frame of the first one."""
        scores = max((len(tokenize(t)) for t in self.score_texts), default=0)
        ending = scores + max(len(tokenize(t)) for t in self.endings)
        everything = range(len(self.items))
        at_first = [
            i
            for i, movable in enumerate(self.model.movables)
            if self.model.initial_location(movable) != self.model.inventory
            and self.model.initial_room(movable) == self.model.start
        ]
        return max(
            self._longest_words(frame)
            + (self._longest_list(at_first if number == opening else everything, frame))
            + (0 if number == opening else ending)
            for frame, number in self.frames.items()
        )

    def _longest_list(self, movables: Iterable[int], frame: Frame) -> int:
        if not _has_list(frame):
            return 0
        longest = [max(len(tokenize(p)) for p in self.items[i]) for i in movables]
        return sum(longest) + max(len(longest) - 1, 0)

    def _longest_words(self, frame: Frame) -> int:
        """The most words that the pieces can print together: guards can exclude one another."""
        total = 0
        words = [piece for piece in frame if isinstance(piece, Words)]
        for group in _connected([set(piece.guard.variables) for piece in words]):
            pieces = [words[i] for i in group]
            variables = sorted({v for piece in pieces for v in piece.guard.variables})
            if math.prod(self.model.domain(v) for v in variables) > MOST_LENGTHS:
                total += sum(len(tokenize(piece.text)) for piece in pieces)
                continue
            total += max(
                sum(
                    len(tokenize(piece.text))
                    for piece in pieces
                    if tuple(values[variables.index(v)] for v in piece.guard.variables)
                    in piece.guard.allowed
                )
                for values in itertools.product(*(range(self.model.domain(v)) for v in variables))
            )
        return total

    # Arrays

    def arrays(self, vocabulary: Vocabulary) -> dict[str, np.ndarray]:
        flat = _FlatTokens(vocabulary)
        pieces = [piece for frame in self.frames for piece in frame]
        counts = [len(frame) for frame in self.frames]
        words = [flat.add(p.text if isinstance(p, Words) else "") for p in pieces]
        scores = [flat.add(text) for text in ("", *self.score_texts)]
        ends = [flat.add(text) for text in ("", *self.endings)]
        return {
            "frame_start": np.array([0, *itertools.accumulate(counts)][:-1], np.int32),
            "frame_count": np.array(counts, np.int32),
            "piece_start": np.array([start for start, _ in words], np.int32),
            "piece_length": np.array([length for _, length in words], np.int32),
            "piece_holder": np.array([self._holder(piece) for piece in pieces], np.int32),
            "piece_guard": np.array([self.guards[piece.guard] for piece in pieces], np.int32),
            "score_start": np.array([start for start, _ in scores], np.int32),
            "score_length": np.array([length for _, length in scores], np.int32),
            "end_start": np.array([start for start, _ in ends], np.int32),
            "end_length": np.array([length for _, length in ends], np.int32),
            **self._item_arrays(flat),
            **self._guard_arrays(),
            "tokens": flat.array(),
        }

    def _holder(self, piece: Piece) -> int:
        if not isinstance(piece, Listing):
            return NO_HOLDER
        return FLOOR_HOLDER if piece.holder == "floor" else self.model.location(piece.holder)

    def _item_arrays(self, flat: _FlatTokens) -> dict[str, np.ndarray]:
        widest = max((len(phrases) for phrases in self.items), default=1)
        starts = np.zeros((len(self.items), widest, len(SEPARATORS)), np.int32)
        lengths = np.zeros((len(self.items), widest), np.int32)
        for row, phrases in enumerate(self.items):
            for value, phrase in enumerate(phrases):
                lengths[row, value] = len(tokenize(phrase))
                for separator, text in enumerate(SEPARATORS):
                    starts[row, value, separator] = flat.add(text + phrase)[0]
        return {"item_start": starts, "item_length": lengths}

    def _guard_arrays(self) -> dict[str, np.ndarray]:
        order = {variable: i for i, variable in enumerate(self.model.variables)}
        widest = max(GUARD_VARIABLES, *(len(guard.variables) for guard in self.guards))
        which = np.zeros((len(self.guards), widest), np.int32)
        strides = np.zeros((len(self.guards), widest), np.int32)
        offsets, table = [], []
        for guard, row in self.guards.items():
            offsets.append(len(table))
            sizes = [self.model.domain(v) for v in guard.variables]
            for column, variable in enumerate(guard.variables):
                which[row, column] = order[variable]
                strides[row, column] = int(np.prod(sizes[column + 1 :], dtype=int))
            table += [v in guard.allowed for v in itertools.product(*map(range, sizes))]
        return {
            "guard_variables": which,
            "guard_strides": strides,
            "guard_offset": np.array(offsets, np.int32),
            "guard_table": np.array(table, bool),
        }


class _FlatTokens:
    """All texts end to end; the first number is padding."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.numbers = [0]
        self.known: dict[str, tuple[int, int]] = {}

    def add(self, text: str) -> tuple[int, int]:
        """Where a text starts and how many tokens it has."""
        if text not in self.known:
            encoded = self.vocabulary.encode(text)
            self.known[text] = (len(self.numbers), len(encoded))
            self.numbers += encoded
        return self.known[text]

    def array(self) -> np.ndarray:
        kind = np.int16 if len(self.vocabulary) < 2**15 else np.int32
        return np.array(self.numbers, kind)


def _merge(frame: Iterable[Piece]) -> list[Piece]:
    """Neighbouring words under the same guard become one piece."""
    merged: list[Piece] = []
    for piece in frame:
        last = merged[-1] if merged else None
        if isinstance(piece, Words) and isinstance(last, Words) and piece.guard == last.guard:
            merged[-1] = Words(last.text + piece.text, piece.guard)
        elif not (isinstance(piece, Words) and not piece.text) and piece.guard.allowed:
            merged.append(piece)
    return merged


def _check_boundaries(frame: Sequence[Piece]) -> None:
    """Pieces are tokenized apart, so a word must not run from one into the next."""
    for number, (piece, following) in enumerate(itertools.pairwise(frame)):
        if isinstance(piece, Listing) and _is_nothing(following):
            # One of the two is printed; what comes next follows either.
            following = frame[number + 2] if number + 2 < len(frame) else Words("")
        ends = piece.text if isinstance(piece, Words) else "x"
        begins = following.text if isinstance(following, Words) else "x"
        runs_on = re.search(r"[\w'-]$", ends) and re.match(r"[\w'-]", begins)
        if runs_on and not _exclude_each_other(piece.guard, following.guard):
            raise CannotCompileError(f"a word runs on from {ends[-20:]!r} to {begins[:20]!r}")


def _is_nothing(piece: Piece) -> bool:
    """Where a list is empty, this is printed in its place."""
    return isinstance(piece, Words) and piece.text == "nothing"


def _exclude_each_other(one: Guard, other: Guard) -> bool:
    return one.variables == other.variables and not (one.allowed & other.allowed)


def _has_list(frame: Frame) -> bool:
    return any(isinstance(piece, Listing) for piece in frame)


def _connected(sets: list[set]) -> list[list[int]]:
    """Groups of indices whose sets overlap, directly or through others."""
    groups: list[tuple[set, list[int]]] = []
    for index, members in enumerate(sets):
        touching = [group for group in groups if group[0] & members]
        rest = [group for group in groups if not (group[0] & members)]
        union = set(members).union(*(group[0] for group in touching))
        indices = sorted([index, *(i for group in touching for i in group[1])])
        groups = [*rest, (union, indices)]
    return [indices for _, indices in groups]
