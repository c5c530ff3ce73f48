"""Which sentence a command is, for all that can be in sight: tables in front of the rules.

Most commands are always the same sentence. Where a name shares words with others, a table over
where those things are tells the sentence: the command itself, one about another thing, or what the
parser answers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from grue.engine.compiler.model import (
    FIRST_PLACE,
    FLOOR,
    HIDDEN,
    SIGHTS,
    Model,
    Variable,
)
from grue.engine.compiler.parser import (
    NEVER,
    Asked,
    Fit,
    Parser,
    Question,
    Scope,
    Sentence,
    Spot,
    Understood,
    UnknownOrderError,
    Weighed,
)
from grue.errors import CannotCompileError

MOST_SITUATIONS = 8192
"""How large one command's table may be."""
MORE_IN_SIGHT = 64
"""How many times larger, where the command cannot be given up."""


Told = Sentence | Asked | str
Key = tuple[tuple[str, Spot], ...]
"""A scope, to look it up."""


@dataclass(frozen=True)
class Reading:
    """The sentences of one command: for the values of some variables, which of them it is."""

    variables: tuple[Variable, ...]
    sentences: tuple[Told, ...]


class _Draft(NamedTuple):
    """A command before the questions of all commands are known."""

    command: str
    own: tuple[str, ...]
    variables: tuple[Variable, ...]
    only_seen: bool
    found: list[Understood]
    doubts: frozenset[Key]
    """The situations in which several things fit."""


class _NotExactError(Exception):
    """Why a command cannot be followed where its things are out of sight."""


class Sentences:
    def __init__(self, model: Model, near: bool) -> None:
        self.model = model
        self.parser = Parser(model)
        self.near: dict[str, dict[str, Any]] = {}
        """Commands that are exact only while their things are in sight: the things, and why."""
        self.allow_near = near

    def readings(self, commands: Iterable[str]) -> list[Reading | None]:
        """How each command is understood; None if it is itself wherever its things are."""
        drafts = [self._draft(command) for command in commands]
        while True:
            asked = {
                understood.weighed: None
                for draft in drafts
                if draft is not None
                for understood in draft.found
                if isinstance(understood, Question)
            }
            self.model.questions = list(asked)
            weighed = [None if draft is None else self._weighed(draft) for draft in drafts]
            replaced = {
                number: self._in_sight(draft.command, draft.own, why)
                for number, (draft, why) in enumerate(zip(drafts, weighed, strict=True))
                if draft is not None and isinstance(why, str)
            }
            if not replaced:
                return [
                    None if one is None or isinstance(one, str) else self._reading(*one)
                    for one in weighed
                ]
            # With other drafts there are other questions.
            drafts = [replaced.get(number, draft) for number, draft in enumerate(drafts)]

    def _draft(self, command: str) -> _Draft | None:
        actions = self.model.actions[command]
        if not actions or not actions[0].nouns:
            return None
        meant = self.parser.meant(command)
        own = self._own(command)
        if any(map(self.parser.begins_with_direction, own)):
            return self._in_sight(command, own, f"{command!r} may be about a direction")
        if not meant:
            return None
        try:
            return self._table(command, own, meant)
        except _NotExactError as error:
            return self._in_sight(command, own, str(error))

    def _in_sight(self, command: str, own: tuple[str, ...], why: str) -> _Draft:
        """A command that is only followed while its things are in sight."""
        if not self.allow_near:
            raise CannotCompileError(why) from None
        self.near[command] = {"things": list(own), "why": why}
        meant = self.parser.meant(command)
        rivals = {e: fit for e, fit in meant.items() if fit.wholly or e in own}
        try:
            return self._table(command, own, rivals, only_seen=True)
        except _NotExactError as error:
            raise CannotCompileError(str(error)) from None

    def _weighed(self, draft: _Draft) -> tuple[tuple[Variable, ...], list[Understood]] | str:
        """What a reading depends on and what it is, questions included; or why it is not exact."""
        found, asked = draft.found, ()
        try:
            if draft.doubts:
                # The story's parser remembers, after a question, what it weighed last.
                variable = self._asked(draft.command)
                others = self.model.in_mind(variable)[1:]
                later = [self._again(draft, weighed) for weighed in others]
                if any(other != found for other in later):
                    asked = (variable,)
                    found = [*found, *itertools.chain(*later)]
            variables = (*asked, *draft.variables, *self._orders(found))
            limit = MOST_SITUATIONS * (MORE_IN_SIGHT if draft.only_seen else 1)
            self._check_size(draft.command, variables, limit)
        except _NotExactError as error:
            if draft.only_seen:
                raise CannotCompileError(str(error)) from None
            return str(error)
        return variables, found

    def _reading(self, variables: tuple[Variable, ...], found: list[Understood]) -> Reading:
        for variable in variables:
            self.model.use(variable)
        orders = self._orders(found)
        told = (s for one in found for s in self._in_order(one, orders))
        return Reading(variables, tuple(told))

    def _own(self, command: str) -> tuple[str, ...]:
        """The things that a command names."""
        for action in self.model.actions[command]:
            spelled = [self.model.name(noun) for noun in action.nouns]
            if len(spelled) == 2 and " from " not in command and action.rule.startswith("take/"):
                spelled.pop()
            if all(name in command for name in spelled):
                return action.nouns[: len(spelled)]
        raise CannotCompileError(f"it is not clear what {command!r} names")

    def _table(
        self, command: str, own: tuple[str, ...], meant: Mapping[str, Fit], only_seen: bool = False
    ) -> _Draft:
        places = [e for e in meant if e in self.model.places] if " from " in command else []
        variables = tuple(self._variable(e, fit, places) for e, fit in meant.items())
        limit = MOST_SITUATIONS * (MORE_IN_SIGHT if only_seen else 1)
        self._check_size(command, variables, limit)
        itself = self.itself(command)
        known: dict[Key, Understood] = {}
        found, doubts = [], set()
        for scope in self._scopes(variables):
            key = tuple(scope.items())
            if key not in known:
                unseen = only_seen and not all(e in scope for e in own)
                if unseen or not self._together(scope):
                    known[key] = itself
                else:
                    known[key], doubted = self._understood(command, scope)
                    doubts |= {key} if doubted else set()
            found.append(known[key])
        return _Draft(command, own, variables, only_seen, found, frozenset(doubts))

    def _again(self, draft: _Draft, weighed: Weighed) -> list[Understood]:
        """What a command is in every situation, right after a question."""
        known: dict[Key, Understood] = {}
        found = []
        for scope, before in zip(self._scopes(draft.variables), draft.found, strict=True):
            key = tuple(scope.items())
            if key in draft.doubts and key not in known:
                known[key], _ = self._understood(draft.command, scope, weighed)
            found.append(known.get(key, before))
        return found

    def _asked(self, command: str) -> Variable:
        """What was asked just now, as far as it bears on a command."""
        weighed = {e for question in self.model.questions for e in question or ()}
        named = sorted(e for e in weighed if self.model.name(e) in command.lower())
        return ("asked", " ".join(named))

    def _check_size(self, command: str, variables: tuple[Variable, ...], limit: int) -> None:
        count = math.prod(self.model.domain(v) for v in variables)
        if count > limit:
            things = [e.split()[0] for kind, e in variables if kind not in ("before", "asked")]
            names = [repr(self.model.name(e)) for e in things]
            raise _NotExactError(
                f"{command!r} shares words with too many things: {', '.join(names)}; its table "
                f"would have {count:,} entries, and may have {limit:,}"
            )

    def _orders(self, understood: Iterable[Understood]) -> tuple[Variable, ...]:
        """The pairs of things whose order the questions need."""
        found: dict[Variable, None] = {}
        for asked in understood:
            if isinstance(asked, Question):
                for pair in itertools.combinations(sorted(asked.things), 2):
                    if set(pair) & set(self.model.movables):
                        found[_before(asked, *pair)] = None
        return tuple(found)

    def _in_order(self, understood: Understood, orders: tuple[Variable, ...]) -> Iterator[Told]:
        """What is understood for each order of things; only questions depend on it."""
        for values in itertools.product((0, 1), repeat=len(orders)):
            if not isinstance(understood, Question):
                yield understood
                continue
            ahead = dict.fromkeys(understood.things, 0)
            for first, second in itertools.combinations(sorted(understood.things), 2):
                pair = _before(understood, first, second)
                is_before = values[orders.index(pair)] if pair in orders else self._first(pair)
                ahead[second if is_before else first] += 1
            names = [self.model.the(e) for e in sorted(ahead, key=lambda e: ahead[e])]
            text = f"Which do you mean, {', '.join(names[:-1])} or {names[-1]}?"
            yield Asked(text, 1 + self.model.questions.index(understood.weighed))

    def _first(self, pair: Variable) -> bool:
        """Whether the first of two things that are never moved comes first; doors do."""
        first, second, _ = pair[1].split()
        places, declared = self.model.places, self.model.declared
        return first not in places or (
            second in places and declared.index(first) < declared.index(second)
        )

    def itself(self, command: str) -> Sentence:
        """A command that is taken at its word."""
        if not self.model.gives(command):
            raise CannotCompileError(f"no rule of the game gives the command {command!r}")
        return Sentence(command.split()[0], self._own(command), command)

    def _understood(
        self, command: str, scope: Scope, weighed: Weighed = NEVER
    ) -> tuple[Understood, bool]:
        """What is understood, and whether several things fitted."""
        try:
            understood, doubted = self.parser.parse(command, scope, weighed)
        except UnknownOrderError:
            raise _NotExactError(f"{command!r} may be about one of several places") from None
        if isinstance(understood, Question) and not self._ordered(understood.things):
            names = " or ".join(repr(self.model.name(e)) for e in understood.things)
            raise _NotExactError(f"the parser may ask which is meant, {names}, by {command!r}")
        if isinstance(understood, Sentence) and not self._known(understood):
            raise _NotExactError(
                f"the parser may take {command!r} for {understood.command!r}, and no rule of the "
                "game gives that command"
            )
        return understood, doubted

    def _ordered(self, things: Iterable[str]) -> bool:
        """Whether it is known which thing comes first; doors are moved about by the story."""
        doors = [e for e in things if e in self.model.doors]
        return not doors or (len(doors) == 1 and not set(things) & set(self.model.movables))

    def _known(self, sentence: Sentence) -> bool:
        """Whether the rule book has an answer: a wrong key is one that no rule names."""
        wrong_key = sentence.verb in ("lock", "unlock") and self.model.opens(sentence.nouns[0])
        return wrong_key or self.model.gives(sentence.command)

    def _variable(self, thing: str, fit: Fit, places: Iterable[str]) -> Variable:
        if thing not in self.model.movables:
            return ("here", thing)
        return ("spot" if fit.tied else "seen", " ".join((thing, *places)))

    def _scopes(self, variables: tuple[Variable, ...]) -> Iterator[Scope]:
        options = [
            [self._spot(v, value) for value in range(self.model.domain(v))] for v in variables
        ]
        things = [subject.split()[0] for _, subject in variables]
        for spots in itertools.product(*options):
            yield {e: spot for e, spot in zip(things, spots, strict=True) if spot is not None}

    def _spot(self, variable: Variable, value: int) -> Spot | None:
        kind, subject = variable
        if value == HIDDEN:
            return None
        if kind == "here":
            return Spot(FLOOR)
        places = subject.split()[1:]
        if value >= SIGHTS[kind]:
            return Spot(FIRST_PLACE, places[value - SIGHTS[kind]])
        # Where an untied thing is does not matter.
        return Spot(value if kind == "spot" else FLOOR)

    def _together(self, scope: Scope) -> bool:
        """Whether things can be in sight at once: those that are fixed are where they are."""
        fixed = [e for e in scope if e not in self.model.movables]
        fixed += [spot.place for spot in scope.values() if spot.place is not None]
        return _meet(set(self.model.rooms_of(e)) for e in fixed)


def _before(question: Question, first: str, second: str) -> Variable:
    return ("before", f"{first} {second} {'carried' if question.carried_first else 'here'}")


def _meet(sets: Iterable[set[int]]) -> bool:
    found = list(sets)
    return not found or bool(set.intersection(*found))
