"""Texts that depend on the state, as pieces: words or a list, each printed under a guard."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from grue.engine.compiler.model import (
    COOKINGS,
    CUTS,
    PLURAL,
    Model,
    Variable,
)
from grue.errors import CannotCompileError

MOST_SITUATIONS = 2**16
"""How large the table of a guard may be."""


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
    after_verb: bool = False
    """It follows "is" or "are", as many as there are things."""


Piece = Words | Listing
Frame = tuple[Piece, ...]
"""One feedback, before the score and the end are added."""


class Texts:
    """Reads the game's descriptions with their Inform markup."""

    def __init__(self, model: Model) -> None:
        self.model = model
        logic = model.game.data["KB"]["logic"]
        self.food_shows_its_state = "Before printing the name of a food" in logic
        self._listed: list[Listing] = []
        """The lists after "is" or "are" in the text that is being read."""

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
        count = math.prod(self.model.domain(v) for v in variables)
        if count > MOST_SITUATIONS:
            things = ", ".join(f"{kind} of {subject}" for kind, subject in variables)
            raise CannotCompileError(
                f"a text depends on too many things at once: {things}; its table would have "
                f"{count:,} entries, and may have {MOST_SITUATIONS:,}"
            )
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
        self._listed = []
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
            elif tag.startswith("is-are "):
                pieces += self._counted(self._listing(tag.removeprefix("is-are "), guard, subject))
            else:
                pieces.append(self._listing(tag, guard, subject))
        return tuple(pieces), []

    def _counted(self, listing: Listing) -> list[Piece]:
        """A list after "is" or "are"; before "nothing" it is what it was before the last list."""
        self.model.use(PLURAL)
        before = self.plural_after(self._listed)
        several, none = (self.count(listing.holder, t) for t in (lambda n: n > 1, lambda n: n == 0))
        plural = self._combine((several, none, before), lambda t: t[0] or (t[1] and t[2]))
        listing = replace(listing, after_verb=True)
        self._listed.append(listing)
        return [
            Words("is ", self.both(listing.guard, self.none_of([plural]))),
            Words("are ", self.both(listing.guard, plural)),
            listing,
        ]

    def plural_after(self, pieces: Iterable[Piece]) -> Guard:
        """Whether the last list after "is" or "are", now or earlier, was of several things."""
        plural = self.when(PLURAL, bool)
        for piece in pieces:
            if isinstance(piece, Listing) and piece.after_verb:
                some = self.both(piece.guard, self.count(piece.holder, lambda n: n > 0))
                several = self.both(piece.guard, self.count(piece.holder, lambda n: n > 1))
                plural = self._combine(
                    (plural, some, several), lambda t: t[2] or (t[0] and not t[1])
                )
        return plural

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
        return pieces, parts  # The theme "basic" leaves the last [end if] out.

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
        raise CannotCompileError(
            f"the condition [if {clause}] in the description of {self.model.name(subject)!r} is "
            "not known"
        )

    def _listing(self, tag: str, guard: Guard, subject: str) -> Listing:
        found = re.fullmatch(r"a list of things (?:on|in) (?:the )?(\S+)", tag)
        if found is None or found[1] not in self.model.places:
            raise CannotCompileError(
                f"the text substitution [{tag}] in the description of "
                f"{self.model.name(subject)!r} is not known"
            )
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
