"""Texts that depend on the state, as pieces: words or a list, each printed under a guard."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from grue.engine.compiler.model import (
    COOKINGS,
    CUTS,
    FIRST_PLACE,
    HIDDEN,
    Model,
    Variable,
)
from grue.errors import CannotCompileError

MOST_GUARD_VARIABLES = 3


@dataclass(frozen=True)
class Guard:
    """The combinations of values of some variables under which a piece is printed."""

    variables: tuple[Variable, ...] = ()
    allowed: frozenset[tuple[int, ...]] = frozenset({()})


ALWAYS = Guard()


@dataclass(frozen=True)
class Words:
    text: str
    guard: Guard = ALWAYS


@dataclass(frozen=True)
class Listing:
    """What a holder holds, as in "a knife, a tomato and a lettuce"."""

    holder: str
    """A place, "floor" or "I" for what the player carries."""
    guard: Guard = ALWAYS


Piece = Words | Listing
Frame = tuple[Piece, ...]
"""One feedback, before the score and the end are added."""


class Texts:
    """Reads the game's descriptions with their Inform markup."""

    def __init__(self, model: Model) -> None:
        self.model = model
        logic = model.game.data["KB"]["logic"]
        self.food_shows_its_state = "Before printing the name of a food" in logic

    # Guards

    def when(self, variable: Variable, test: Callable[[int], bool]) -> Guard:
        values = range(self.model.domain(variable))
        return Guard((variable,), frozenset((v,) for v in values if test(v)))

    def status(self, entity: str, test: Callable[[frozenset[str]], bool]) -> Guard:
        """A guard on the state of a thing; plain yes or no when its state never changes."""
        combinations = self.model.combinations(entity)
        if entity not in self.model.statuses:
            return ALWAYS if test(combinations[0]) else replace(ALWAYS, allowed=frozenset())
        return self.when(("status", entity), lambda value: test(combinations[value]))

    def count(self, holder: str, test: Callable[[int], bool]) -> Guard:
        """A guard on how many things a holder holds: 0, 1 or 2 for more."""
        return self.when(("count", holder), test)

    def both(self, first: Guard, second: Guard) -> Guard:
        return self._combine((first, second), all)

    def none_of(self, guards: Iterable[Guard]) -> Guard:
        return self._combine(tuple(guards), lambda truths: not any(truths))

    def _combine(self, guards: tuple[Guard, ...], join: Callable[..., bool]) -> Guard:
        variables = tuple(dict.fromkeys(v for guard in guards for v in guard.variables))
        if len(variables) > MOST_GUARD_VARIABLES:
            raise CannotCompileError(f"a text depends on too many things at once: {variables}")
        allowed = []
        for values in itertools.product(*(range(self.model.domain(v)) for v in variables)):
            known = dict(zip(variables, values, strict=True))
            truths = [tuple(known[v] for v in g.variables) in g.allowed for g in guards]
            if join(truths):
                allowed.append(values)
        return Guard(variables, frozenset(allowed))

    # Markup

    def parse(self, text: str, subject: str) -> Frame:
        """Pieces of a description; ``subject`` is the entity that it describes."""
        parts = [part for part in re.split(r"(\[[^\]]*\])", text) if part]
        pieces, rest = self._parse_parts(parts, subject, ALWAYS)
        if rest:
            raise CannotCompileError(f"unbalanced markup in {text!r}")
        return pieces

    def _parse_parts(self, parts: list[str], subject: str, guard: Guard) -> tuple[Frame, list[str]]:
        pieces: list[Piece] = []
        while parts:
            part, parts = parts[0], parts[1:]
            if not part.startswith("["):
                pieces.append(Words(inform_quotes(part), guard))
                continue
            tag = part[1:-1].strip()
            if tag.startswith("if "):
                chosen, parts = self._parse_choice([part, *parts], subject, guard)
                pieces += chosen
            elif tag in ("otherwise", "else", "end if") or tag.startswith("else if "):
                return tuple(pieces), [part, *parts]
            elif tag == "line break":
                pieces.append(Words("\n", guard))
            elif tag == "noun":
                pieces += self.named(subject, guard)
            else:
                pieces.append(self._listing(tag, guard))
        return tuple(pieces), []

    def _parse_choice(
        self, parts: list[str], subject: str, guard: Guard
    ) -> tuple[list[Piece], list[str]]:
        """An [if] … [else if] … [otherwise] … [end if]."""
        pieces: list[Piece] = []
        earlier: list[Guard] = []
        while parts:
            tag, parts = parts[0][1:-1].strip(), parts[1:]
            if tag == "end if":
                return pieces, parts
            own = self.none_of(earlier)
            if tag not in ("otherwise", "else"):
                condition = self._condition(tag.removeprefix("else ").removeprefix("if "), subject)
                own = self.both(own, condition)
                earlier.append(condition)
            body, parts = self._parse_parts(parts, subject, self.both(guard, own))
            pieces += body
        raise CannotCompileError(f"an [if] without [end if] in the description of {subject}")

    def _condition(self, text: str, subject: str) -> Guard:
        guard = ALWAYS
        for clause in text.split(" and "):
            guard = self.both(guard, self._clause(clause.strip(), subject))
        return guard

    def _clause(self, clause: str, subject: str) -> Guard:
        state = re.fullmatch(r"(?:(?:the )?(\S+) is )?(open|closed|locked)", clause)
        if state:
            entity = state[1] or subject
            if state[2] == "closed":  # To Inform what is locked is closed as well.
                return self.status(entity, lambda known: "open" not in known)
            return self.status(entity, lambda known: state[2] in known)
        some = re.fullmatch(r"there is (something|nothing) (?:on|in) (?:the )?(\S+)", clause)
        if some:
            return self.count(some[2], lambda n: (n > 0) == (some[1] == "something"))
        empty = re.fullmatch(r"(?:the )?(\S+) contains nothing", clause)
        if empty:
            return self.count(empty[1], lambda n: n == 0)
        raise CannotCompileError(f"the condition [if {clause}] of a description is not known")

    def _listing(self, tag: str, guard: Guard) -> Listing:
        found = re.fullmatch(r"a list of things (?:on|in) (?:the )?(\S+)", tag)
        if found is None or found[1] not in self.model.places:
            raise CannotCompileError(f"the text substitution [{tag}] of a description is not known")
        return Listing(found[1], guard)

    # Names and rooms

    def phrase(self, entity: str, known: frozenset[str]) -> str:
        """A thing's name in a list: "a sliced fried tomato"."""
        words = f"{self._state_words(entity, known)}{self.model.name(entity)}"
        article = self.model.game.infos[entity].get("indefinite")
        return f"{article or ('an' if words[0].lower() in 'aeiou' else 'a')} {words}"

    def _state_words(self, entity: str, known: frozenset[str]) -> str:
        if not (self.food_shows_its_state and self.model.is_a(entity, "f")):
            return ""
        cut = next((c for c in CUTS[1:] if c in known), "")
        cooking = next((c for c in COOKINGS[1:] if c in known), "")
        if "needs_cooking" in known:
            cooking = "raw"
        elif "burned" in known:
            cooking = "burned"
        return "".join(f"{word} " for word in (cut, cooking) if word)

    def named(self, entity: str, guard: Guard) -> Frame:
        """A thing's name while it is examined: its state is part of it."""
        states: dict[str, set[frozenset[str]]] = {}
        for known in self.model.combinations(entity):
            states.setdefault(self._state_words(entity, known), set()).add(known)
        return tuple(
            Words(
                words + self.model.name(entity),
                self.both(guard, self.status(entity, lambda known, found=found: known in found)),
            )
            for words, found in states.items()
        )

    def description(self, entity: str) -> Frame:
        return self.parse(self.model.game.infos[entity]["desc"] or "", entity)

    def room(self, room: str) -> Frame:
        """The text of looking around, and of coming in."""
        lying = self.count("floor", lambda n: n > 0)
        return (
            Words(f"-= {self.model.name(room).title()} =-\n"),
            *self.description(room),
            Words("\n\nThere is ", lying),
            Listing("floor", lying),
            Words(" on the floor.", lying),
        )


def objective(text: str) -> str:
    """The objective as printed: TextWorld hands each line to Inform in parts of 200 letters."""
    parts = re.findall(r"[^\n]{1,200}|\n", text)
    return "".join(inform_quotes(part) for part in parts)


def inform_quotes(text: str) -> str:
    """Inform prints a single quote at the edge of a word as a double one."""
    return re.sub(r"(?<![^\W_])'|'(?![^\W_])", '"', text)


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
    """What the story answers when a thing that a command names is not in sight.

    TextWorld lets each word of a name stand for the thing: with "red onion" out of sight and a
    "red apple" in sight, the parser understands "red" and gives up at "onion". This follows
    NounDomain and the grammar loop of Inform's Parser.i6t, where one thing fits at most.
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
