"""Inform's parser: what a story understands by a command, given the things in sight.

TextWorld lets each word of a name stand for the thing: with the "red onion" out of sight and a
"red apple" in sight, the parser understands "red" and gives up at "onion". This follows NounDomain,
Adjudicate and the grammar loop of Inform's Parser.i6t, and TextWorld's rules for what the player
means.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from grue.engine.compiler.model import FLOOR, HELD, Model
from grue.errors import CannotCompileError

CANNOT_SEE = "You can't see any such thing."
NOT_UNDERSTOOD = "I didn't understand that sentence."
PREPOSITIONS = ("with", "on", "into", "from", "at")
CONNECTIVES = frozenset((*PREPOSITIONS, "in", "and", "then", "but", "except"))
NOT_FIRST = frozenset(
    (
        *("a", "an", "the", "all", "each", "every", "my", "this", "that", "other"),
        *("it", "them", "him", "her", "me", "self", "one", "two", "three", "four", "five", "six"),
        *("seven", "eight", "nine", "ten", "eleven", "twelve"),
    )
)
"""What the parser takes for itself where a name begins: articles, numbers, pronouns."""
DIRECTIONS = frozenset(
    (
        *("north", "south", "east", "west", "northeast", "northwest", "southeast", "southwest"),
        *("n", "s", "e", "w", "ne", "nw", "se", "sw", "up", "u", "down", "d"),
        *("inside", "out", "outside"),
    )
)
"""Words that stand for a direction, which is always in sight."""
GRAMMAR = {
    **dict.fromkeys(("examine", "drink", "close"), (("noun",),)),
    "open": (("noun",), ("noun", "with", "held")),
    **dict.fromkeys(("slice", "dice", "chop", "cook"), (("noun", "with", "noun"),)),
    **dict.fromkeys(("lock", "unlock"), (("noun", "with", "held"),)),
    "eat": (("held",),),
    "drop": (
        ("any held",),
        ("held", "at", "noun"),
        ("other", "into", "noun"),
        ("other", "on", "noun"),
    ),
    "take": (("noun",), ("inside", "from", "noun")),
    "put": (("other", "on", "noun"),),
    "insert": (("other", "into", "noun"),),
}
"""The lines of Inform's grammar that bear on a verb of the command set, in their order.

"held" prefers what is carried and looks there first, "any held" only prefers it, "other" is not
the second thing, "inside" is in or on it.
"""
DICTIONARY_LETTERS = 9
"""The story tells words apart by so many letters."""

# How far a line of the grammar came, as Inform's parser ranks its errors.
STUCK, UP_TO, UNSEEN = 1, 2, 3
# How likely it is that the player means a thing.
UNLIKELY, POSSIBLE, LIKELY, VERY_LIKELY = 0, 2, 3, 4


class Spot(NamedTuple):
    """Where a thing in sight is: HELD, FLOOR or more, and the place that holds it."""

    where: int
    place: str | None = None


Scope = Mapping[str, Spot]
"""The things in sight."""


@dataclass(frozen=True)
class Sentence:
    """A command as understood: a verb and the things it is about."""

    verb: str
    nouns: tuple[str, ...]
    command: str
    """The same in whole names."""
    said: str = ""
    """What the parser says first: "(the lamp)"."""


Weighed = tuple[str, ...] | None
"""The second things that the things in question were weighed with, or None if each was alone.

Inform chooses between the two at the first doubt and forgets it with the next command, but not
with one that is given in place of an answer.
"""
NEVER: Weighed = ("never",)
"""There has been no doubt yet."""


@dataclass(frozen=True)
class Question:
    """The parser asks "Which do you mean, …?"."""

    things: tuple[str, ...]
    carried_first: bool
    weighed: Weighed
    """What the parser has in mind when the next command comes."""


@dataclass(frozen=True)
class Asked:
    """A question in words, and the number of what the parser has in mind then."""

    text: str
    question: int


Understood = Sentence | Question | str
"""A sentence, a question, or the parser's refusal."""


class UnknownOrderError(Exception):
    """What is understood depends on the order of things that are carried about."""


class Fit(NamedTuple):
    """How the words of a command fit a thing."""

    wholly: bool
    """All words of a phrase do."""
    tied: bool
    """As many words fit another thing."""


class Parser:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.names = {
            entity: dictionary_words(model.name(entity))
            for entity in (*model.movables, *model.places, *model.doors)
        }
        self.by_word = not model.game.metadata.get("whole_names_only")
        self._refuse_unclear_names()

    def _refuse_unclear_names(self) -> None:
        known: dict[tuple[str, ...], str] = {}
        for entity, words in self.names.items():
            name = self.model.name(entity)
            reserved = CONNECTIVES.intersection(words) | NOT_FIRST.intersection(words[:1])
            if reserved:
                raise CannotCompileError(f"the parser reads {min(reserved)!r} in {name!r} apart")
            if words[0] in DIRECTIONS and len(words) == 1:
                raise CannotCompileError(f"the parser takes {name!r} for a direction")
            if words in known:
                raise CannotCompileError(f"the parser takes {name!r} for {known[words]!r}")
            known[words] = name

    def begins_with_direction(self, entity: str) -> bool:
        return self.names[entity][0] in DIRECTIONS

    def match(self, entity: str, words: tuple[str, ...], at: int) -> int:
        """How many words from a position on can stand for a thing."""
        name = self.names[entity]
        if words[at : at + len(name)] == name:
            return len(name)
        single = set(name) - {"the", "of"} if self.by_word and len(name) > 1 else ()
        return sum(1 for _ in itertools.takewhile(lambda word: word in single, words[at:]))

    @cache  # noqa: B019 - lives as long as one compilation
    def lengths(self, command: str) -> list[dict[str, int]]:
        """For each position, the things that words from there on can stand for, and how many."""
        words = dictionary_words(command)
        every = [{e: self.match(e, words, at) for e in self.names} for at in range(len(words))]
        return [{e: length for e, length in found.items() if length} for found in every]

    def meant(self, command: str) -> dict[str, Fit]:
        """The things that a command may mean, if those are more than it names."""
        words = dictionary_words(command)
        found: dict[str, list[tuple[int, int, bool]]] = {}
        clear = True
        for at in (1, *(i + 1 for i, word in enumerate(words) if word in PREPOSITIONS)):
            phrase = tuple(itertools.takewhile(lambda w: w not in PREPOSITIONS, words[at:]))
            for entity, length in self.lengths(command)[at].items():
                found.setdefault(entity, []).append((at, length, length == len(phrase)))
                clear = clear and self.names[entity] == phrase
        fits = [(at, length) for places in found.values() for at, length, _ in places]
        return (
            {}
            if clear
            else {
                entity: Fit(
                    any(whole for _, _, whole in places),
                    any(fits.count((at, length)) > 1 for at, length, _ in places),
                )
                for entity, places in found.items()
            }
        )

    def parse(
        self, command: str, scope: Scope, weighed: Weighed = NEVER
    ) -> tuple[Understood, bool]:
        """What the story makes of a command, and whether it was ever in doubt.

        ``weighed`` is of a question just before the command.
        """
        reading = _Reading(self, command, scope, weighed)
        return reading.understood(), reading.doubted


class _Reading:
    """One command, read in one scope."""

    def __init__(self, parser: Parser, command: str, scope: Scope, weighed: Weighed) -> None:
        self.lengths = parser.lengths(command)
        self.model = parser.model
        self.command = command.lower()
        self.words = dictionary_words(command)
        self.verb = self.words[0]
        self.scope = scope
        self.weighed = weighed
        self.doubted = False

    def understood(self) -> Understood:
        if self.verb not in GRAMMAR:
            raise CannotCompileError(f"the grammar of {self.verb!r} is not known")
        best: tuple[int, str] = (0, "")
        for line in GRAMMAR[self.verb]:
            read = self._read(line)
            if not isinstance(read, tuple):
                return read
            # Of lines that came as far, the last one's pattern is told.
            best = read if read[0] >= best[0] else best
        return best[1]

    def _read(self, line: tuple[str, ...]) -> Sentence | Question | tuple[int, str]:
        """One line of the grammar: understood, asked, or how far it came and the refusal."""
        at, inferred, nouns = 1, len(line), []
        pattern: list[str] = []
        ahead = self._look_ahead(line)
        for number, token in enumerate(line):
            if token in PREPOSITIONS:
                if self.words[at : at + 1] != (token,):
                    return STUCK, NOT_UNDERSTOOD
                at += 1
                pattern.append(token)
                continue
            found = self._noun(token, at, nouns, ahead, number == len(line) - 1)
            if found is None:
                return UNSEEN, CANNOT_SEE
            if isinstance(found, Question):
                return found
            thing, length, guessed = found
            if guessed:
                inferred = min(inferred, number)
            at += length
            nouns.append(thing)
            pattern.append(self.model.the(thing))
        if at < len(self.words):
            said = " ".join([self.verb, *pattern])
            return UP_TO, f"I only understood you as far as wanting to {said}."
        said = f"({' '.join(pattern[inferred:])})\n" if inferred < len(line) else ""
        names = [t if t in PREPOSITIONS else "" for t in line]
        things = iter(nouns)
        whole = [self.verb, *(name or self.model.name(next(things)) for name in names)]
        return Sentence(self.verb, tuple(nouns), " ".join(whole), said)

    def _look_ahead(self, line: tuple[str, ...]) -> str | None:
        """The second thing, where it bears on the first."""
        if line[0] not in ("other", "inside"):
            return None
        at = next((i for i, word in enumerate(self.words) if word in PREPOSITIONS), None)
        if at is None or self.words[at] != line[1]:
            return None
        found = self._noun("noun", at + 1, [None], None, False)
        if not isinstance(found, Question):
            return None if found is None else found[0]
        # Inform takes the first, and asks later. Doors come first: they are moved to each room.
        if line[0] == "inside" and set(found.things) & set(self.model.movables):
            raise UnknownOrderError
        declared = self.model.declared
        return min(found.things, key=lambda e: declared.index(e) if e in declared else -1)

    def _noun(
        self, token: str, at: int, nouns: list, ahead: str | None, is_last: bool
    ) -> tuple[str, int, bool] | Question | None:
        """The thing that fits most words, how many those are, and whether it was guessed."""
        found, length = self._fitting(at, ahead if token == "inside" else None)
        if not found:
            return None
        if len(found) == 1:
            return found[0], length, False
        if is_last and at + length < len(self.words):
            return None
        chosen = self._adjudicate(token, found, at + length, nouns, ahead)
        asked = Question(tuple(found), token == "held", self.weighed)
        return asked if chosen is None else (chosen, length, True)

    def _fitting(self, at: int, inside: str | None = None) -> tuple[list[str], int]:
        lengths = {
            entity: length
            for entity, length in self.lengths[at].items()
            if entity in self.scope and (inside is None or self.scope[entity].place == inside)
        }
        longest = max(lengths.values(), default=0)
        return [e for e, length in lengths.items() if length == longest > 0], longest

    def _adjudicate(
        self, token: str, found: list[str], end: int, nouns: list, ahead: str | None
    ) -> str | None:
        """The one thing that is most likely meant, if one is."""
        good = {e for e in found if self._is_obvious(token, e, ahead)}
        if len(good) == 1:
            return good.pop()
        scores = {
            e: 1000 * (e in good) + self._nearness(e) + 1000 * self._chance(e, end, nouns, ahead)
            for e in found
        }
        best = max(scores.values())
        winners = [e for e, score in scores.items() if score == best]
        return winners[0] if len(winners) == 1 else None

    def _is_obvious(self, token: str, entity: str, ahead: str | None) -> bool:
        if token in ("held", "any held"):
            return self.scope[entity].where == HELD
        if token == "inside":
            return ahead is not None or self.scope[entity].where != HELD
        return token == "other" and entity != ahead

    def _nearness(self, entity: str) -> int:
        where = self.scope[entity].where
        if where not in (HELD, FLOOR):
            return 20
        return 60 if (where == HELD) != (self.verb == "take") else 40

    def _chance(self, entity: str, end: int, nouns: list, ahead: str | None) -> int:
        """How likely a thing is meant, alone or with the things that may go with it."""
        self.doubted = True
        if self.weighed == NEVER:
            self.weighed = None
            if not nouns and end < len(self.words) and len(GRAMMAR[self.verb][-1]) > 1:
                skipped = itertools.dropwhile(
                    lambda i: self.words[i] in PREPOSITIONS, range(end, len(self.words))
                )
                following = next(skipped, None)
                self.weighed = () if following is None else tuple(self._fitting(following)[0])
        if nouns:
            return self._likely(nouns[0], entity)
        if self.weighed is not None:
            return max((self._likely(entity, other) for other in self.weighed), default=0)
        return self._likely(entity, ahead)

    def _likely(self, first: str | None, second: str | None) -> int:
        """TextWorld's rules: "does the player mean …"."""
        carried = second is not None and second in self.scope and self.scope[second].where == HELD
        if first is not None and carried:
            if self.verb == "cook":
                return UNLIKELY
            blunt = ("sharp", second) not in self.model.initial
            if self.verb in ("slice", "dice", "chop") and blunt:
                return UNLIKELY
        named = [e for e in (first, second) if e is not None]
        if not all(self.model.name(e) in self.command for e in named):
            return POSSIBLE
        return VERY_LIKELY if len(named) == 2 else LIKELY


def dictionary_words(text: str) -> tuple[str, ...]:
    return tuple(word[:DICTIONARY_LETTERS] for word in text.lower().split())
