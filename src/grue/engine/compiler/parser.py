"""What the story answers when a thing that a command names is not in sight."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from functools import cache

from grue.engine.compiler.model import FIRST_PLACE, HIDDEN, Model, Variable
from grue.engine.compiler.text import MOST_GUARD_VARIABLES, Frame, Guard, Words
from grue.errors import CannotCompileError

CANNOT_SEE = "You can't see any such thing."
NOT_UNDERSTOOD = "I didn't understand that sentence."
PREPOSITIONS = ("with", "on", "into", "from")
CONNECTIVES = frozenset((*PREPOSITIONS, "in", "and", "then", "but", "except"))
NOT_FIRST = frozenset(
    (
        *("a", "an", "the", "all", "each", "every", "my", "this", "that", "other"),
        *("it", "them", "him", "her", "me", "self", "one", "two", "three", "four", "five", "six"),
        *("seven", "eight", "nine", "ten", "eleven", "twelve", "inside", "out", "outside"),
        *("north", "south", "east", "west", "northeast", "northwest", "southeast", "southwest"),
        *("n", "s", "e", "w", "ne", "nw", "se", "sw", "up", "u", "down", "d"),
    )
)
"""What the parser takes for itself where a name begins: articles, numbers, directions."""
GRAMMAR = {
    **dict.fromkeys(("examine", "drop", "eat", "drink", "open", "close"), (("noun",),)),
    **dict.fromkeys(
        ("lock", "unlock", "slice", "dice", "chop", "cook"), (("noun", "with", "noun"),)
    ),
    "take": (("noun",), ("inside", "from", "noun")),
    "put": (("noun", "on", "noun"),),
    "insert": (("noun", "into", "noun"),),
}
"""The lines of Inform's grammar that can come furthest with each verb of the command set."""
DICTIONARY_LETTERS = 9
"""The story tells words apart by so many letters."""

# How far a line of the grammar came, as Inform's parser ranks its errors.
STUCK, UP_TO, UNSEEN = 1, 2, 3
Seen = Mapping[str, str | None]
"""Things in sight, with the place that holds each."""


class Parser:
    """Inform's parser, where one thing fits at most.

    TextWorld lets each word of a name stand for the thing: with "red onion" out of sight and a
    "red apple" in sight, the parser understands "red" and gives up at "onion". This follows
    NounDomain and the grammar loop of Inform's Parser.i6t.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.names = {
            entity: _dictionary_words(model.name(entity))
            for entity in (*model.movables, *model.places, *model.doors)
        }
        self.by_word = not model.game.metadata.get("whole_names_only")
        self._refuse_unclear_names()

    def _refuse_unclear_names(self) -> None:
        for entity, words in self.names.items():
            reserved = CONNECTIVES.intersection(words) | NOT_FIRST.intersection(words[:1])
            if reserved:
                name = self.model.name(entity)
                raise CannotCompileError(f"the parser reads {min(reserved)!r} in {name!r} apart")
            for other in self.names:
                if other != entity and self._match(other, words, 0) == len(words):
                    raise CannotCompileError(
                        f"the parser may take {self.model.name(entity)!r} for "
                        f"{self.model.name(other)!r}"
                    )

    def _match(self, entity: str, words: tuple[str, ...], at: int) -> int:
        """How many words from a position on can stand for a thing."""
        name = self.names[entity]
        if words[at : at + len(name)] == name:
            return len(name)
        single = set(name) - {"the", "of"} if self.by_word and len(name) > 1 else ()
        return sum(1 for _ in itertools.takewhile(lambda word: word in single, words[at:]))

    def unseen(self, command: str, known: Mapping[Variable, int]) -> Frame:
        """The answer, given the variables of the command; other things decide by guards."""
        asked = self._asked(command)
        return self._unseen(command, tuple((v, known[v]) for v in asked if v in known))

    @cache  # noqa: B019 - lives as long as one compilation
    def _unseen(self, command: str, known: tuple[tuple[Variable, int], ...]) -> Frame:
        words, asked = _dictionary_words(command), self._asked(command)
        if not asked:
            return (Words(CANNOT_SEE),)
        others = tuple(variable for variable in asked if variable not in dict(known))
        if len(others) > MOST_GUARD_VARIABLES:
            names = ", ".join(repr(self.model.name(entity)) for _, entity in others)
            raise CannotCompileError(f"{command!r} shares words with too many things: {names}")
        answers: dict[tuple[tuple[str, str | None], ...], str] = {}
        allowed: dict[str, list[tuple[int, ...]]] = {}
        for values in itertools.product(*(range(self.model.domain(v)) for v in others)):
            seen = self._seen((*known, *zip(others, values, strict=True)), "from" in words)
            key = tuple(seen.items())
            if key not in answers:
                answers[key] = self._answer(words, seen)
            allowed.setdefault(answers[key], []).append(values)
        return tuple(
            Words(text, Guard(others, frozenset(found))) for text, found in allowed.items()
        )

    @cache  # noqa: B019
    def _asked(self, command: str) -> tuple[Variable, ...]:
        """Where the things are that a command may mean, if those are more than it names."""
        words = _dictionary_words(command)
        starts = (1, *(i + 1 for i, word in enumerate(words) if word in PREPOSITIONS))
        meant = [(e, at) for at in starts for e in self.names if self._match(e, words, at)]
        if all(self.names[entity] == _phrase(words, at) for entity, at in meant):
            return ()
        things = dict.fromkeys(entity for entity, _ in meant)
        return tuple(("reach" if e in self.model.movables else "here", e) for e in things)

    def _seen(self, values: Iterable[tuple[Variable, int]], with_places: bool) -> Seen:
        seen: dict[str, str | None] = {}
        for (kind, entity), value in values:
            if value != HIDDEN:
                inside = with_places and kind == "reach" and value >= FIRST_PLACE
                seen[entity] = self.model.places[value - FIRST_PLACE] if inside else None
        return seen

    def _together(self, things: Iterable[str]) -> bool:
        """Whether things can be in sight at once: those that are fixed are where they are."""
        rooms = [self.model.rooms_of(e) for e in things if e not in self.model.movables]
        return not rooms or bool(set.intersection(*map(set, rooms)))

    def _answer(self, words: tuple[str, ...], seen: Seen) -> str:
        if words[0] not in GRAMMAR:
            raise CannotCompileError(f"the grammar of {words[0]!r} is not known")
        return max(self._try(line, words, seen) for line in GRAMMAR[words[0]])[1]

    def _try(self, line: tuple[str, ...], words: tuple[str, ...], seen: Seen) -> tuple[int, str]:
        """How far one line of the grammar comes, and the answer if none comes further."""
        at, said = 1, words[0]
        for token in line:
            if token in PREPOSITIONS:
                if words[at : at + 1] != (token,):
                    return STUCK, NOT_UNDERSTOOD
                at, said = at + 1, f"{said} {token}"
                continue
            scope = self._inside(words, seen) if token == "inside" else seen
            thing = self._best(words, at, scope)
            if thing is None:
                return UNSEEN, CANNOT_SEE
            at, said = at + self._match(thing, words, at), f"{said} the {self.model.name(thing)}"
        if at == len(words):
            return UNSEEN, CANNOT_SEE  # Understood, but the rules know of no such action.
        return UP_TO, f"I only understood you as far as wanting to {said}."

    def _inside(self, words: tuple[str, ...], seen: Seen) -> Seen:
        """Taking from a place looks there only, if the place is understood."""
        if "from" not in words:
            return seen
        place = self._best(words, words.index("from") + 1, seen)
        return seen if place is None else {e: p for e, p in seen.items() if p == place}

    def _best(self, words: tuple[str, ...], at: int, scope: Iterable[str]) -> str | None:
        """The thing that fits most words."""
        lengths = {entity: self._match(entity, words, at) for entity in scope}
        longest = max(lengths.values(), default=0)
        found = [entity for entity, length in lengths.items() if length == longest > 0]
        if len(found) > 1 and self._together(found):
            names = " or ".join(repr(self.model.name(entity)) for entity in found)
            raise CannotCompileError(
                f"the parser may ask which is meant, {names}, by {' '.join(words)!r}"
            )
        return found[0] if found else None


def _dictionary_words(text: str) -> tuple[str, ...]:
    return tuple(word[:DICTIONARY_LETTERS] for word in text.lower().split())


def _phrase(words: tuple[str, ...], at: int) -> tuple[str, ...]:
    """What a command names: the words up to the next preposition."""
    return tuple(itertools.takewhile(lambda word: word not in PREPOSITIONS, words[at:]))
