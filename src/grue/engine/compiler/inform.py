"""The rule book: what a TextWorld story answers to each command, in every situation.

Each method follows one action of Inform's Standard Rules as TextWorld's source changes them: the
checks in their order, the first that stops the action, and the report when none does. The answers
are Inform's and TextWorld's own; everything about the world comes from the game.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from grue.engine.compiler.model import (
    BLOCKED,
    FIRST_PLACE,
    FLOOR,
    FREE,
    FULL,
    HELD,
    HIDDEN,
    Effect,
    Model,
    Variable,
)
from grue.engine.compiler.parser import CANNOT_SEE, Asked, Sentence
from grue.engine.compiler.text import ALWAYS, Frame, Listing, Texts, Words
from grue.errors import CannotCompileError

TOO_MANY = "You're carrying too many things already."
WRONG_KEY = "That doesn't seem to fit the lock."


class Reply(NamedTuple):
    frame: Frame
    effect: Effect | None = None
    question: int = 0
    """The number of the parser's question, if it is one."""


Replies = tuple[tuple[Variable, ...], Callable[..., Reply]]
"""The variables that decide, and the reply for their values."""


def say(text: str, effect: Effect | None = None) -> Reply:
    return Reply((Words(text),), effect)


class RuleBook:
    def __init__(self, model: Model, texts: Texts) -> None:
        self.model = model
        self.texts = texts
        self.rooms = [texts.room(room) for room in model.rooms]

    def replies(self, said: Sentence | Asked | str) -> tuple[tuple[Variable, ...], Iterator[Reply]]:
        """A sentence's variables and its replies, in the order of their values."""
        if isinstance(said, str):  # Not understood.
            return (), iter([say(said)])
        if isinstance(said, Asked):
            return (), iter([say(said.text)._replace(question=said.question)])
        actions = self.model.actions.get(said.command, ())
        verb, nouns = said.verb, said.nouns
        if actions:
            verb, nouns = actions[0].rule.split("/")[0], actions[0].nouns
        answer = getattr(self, verb, None) if verb.isalpha() and verb != "replies" else None
        if answer is None:
            raise CannotCompileError(
                f"the rule {actions[0].rule!r} of {said.command!r} is not known"
            )
        variables, reply = answer(said.command, *nouns)

        def told(values: tuple[int, ...]) -> Reply:
            given = reply(*values)
            return Reply((Words(said.said), *given.frame), given.effect) if said.said else given

        domains = (range(self.model.domain(v)) for v in variables)
        return variables, map(told, itertools.product(*domains))

    def the(self, entity: str) -> str:
        return self.model.the(entity)

    def effect(self, rule: str, command: str) -> Effect:
        return self.model.effect(rule, command)

    # Going and looking

    def go(self, command: str) -> Replies:
        direction = command.split()[-1]

        def reply(room: int, exit_state: int) -> Reply:
            there, door = self.model.exits.get((room, direction), (room, None))
            if exit_state == BLOCKED and door is not None:
                return say(f"You have to open the {self.model.name(door)} first.")
            if exit_state == FREE:
                return Reply(self.rooms[there], Effect(room=there))
            return say("You can't go that way.")

        return (("room", "P"), ("exit", direction)), reply

    def look(self, command: str) -> Replies:
        return (("room", "P"),), lambda room: Reply(self.rooms[room])

    def inventory(self, command: str) -> Replies:
        return (), lambda: Reply(self.carried())

    def carried(self) -> Frame:
        some = self.texts.count("I", lambda n: n > 0)
        return (
            Words("You are carrying nothing.", self.texts.count("I", lambda n: n == 0)),
            Words("You are carrying: ", some),
            Listing("I", some),
            Words(".", some),
        )

    def examine(self, command: str, thing: str) -> Replies:
        movable = thing in self.model.movables
        seen = self._examined(thing)

        def reply(where: int) -> Reply:
            return Reply(seen) if where != HIDDEN else say(CANNOT_SEE)

        return (("reach" if movable else "here", thing),), reply

    def _examined(self, thing: str) -> Frame:
        frame = self.texts.description(thing)
        if thing not in self.model.places:
            return frame or self._nothing_special(thing)
        open_to_view = self.texts.count(thing, lambda n: n > 0)
        if self.model.is_a(thing, "c"):
            is_open = self.texts.status(thing, lambda known: "open" in known)
            open_to_view = self.texts.both(open_to_view, is_open)
        one = self.texts.both(open_to_view, self.texts.count(thing, lambda n: n == 1))
        more = self.texts.both(open_to_view, self.texts.count(thing, lambda n: n > 1))
        where = "In" if self.model.is_a(thing, "c") else "On"
        if not frame:
            nothing = self.texts.none_of([open_to_view])
            frame = (Words(f"You see nothing special about {self.the(thing)}.", nothing),)
        return (
            *frame,
            Words(f"\n\n{where} {self.the(thing)} is ", one),
            Words(f"\n\n{where} {self.the(thing)} are ", more),
            Listing(thing, open_to_view, after_verb=True),
            Words(".", open_to_view),
        )

    def _nothing_special(self, thing: str) -> Frame:
        said = "You see nothing special about "
        names = self.texts.named(thing, ALWAYS)
        if len(names) == 1:
            return (Words(f"{said}{self.the(thing)}."),)
        return (Words(f"{said}the "), *names, Words("."))

    # Taking and putting

    def take(self, command: str, thing: str, *_: str) -> Replies:
        name = self.model.name(thing)
        place = self._named_place(command, thing)

        def reply(reach: int, is_full: int = False) -> Reply:
            if reach >= FIRST_PLACE:
                holder = self.model.places[reach - FIRST_PLACE]
                rule = "take/c" if self.model.is_a(holder, "c") else "take/s"
                if place in (None, holder) and self._has_rule(rule, command):
                    if is_full:
                        return say(TOO_MANY)
                    text = f"You take the {name} from {self.the(holder)}."
                    return say(text, self.effect(rule, command))
            if place is not None or reach == HIDDEN:
                return say(CANNOT_SEE)
            if reach == HELD:
                return say("You already have that.")
            if reach == FLOOR and is_full:
                return say(TOO_MANY)
            if reach == FLOOR:
                return say(f"You pick up the {name} from the ground.", self.effect("take", command))
            return say(CANNOT_SEE)  # A place where the thing can never be.

        return (("reach", thing), *((FULL,) if self.model.slots else ())), reply

    def _named_place(self, command: str, thing: str) -> str | None:
        """The holder of "take X from Y"."""
        named = {
            action.nouns[1]
            for action in self.model.actions[command]
            if len(action.nouns) == 2
            and command == f"take {self.model.name(thing)} from {self.model.name(action.nouns[1])}"
        }
        return named.pop() if named else None

    def _has_rule(self, rule: str, command: str) -> bool:
        return any(action.rule == rule for action in self.model.actions[command])

    def drop(self, command: str, thing: str) -> Replies:
        name = self.model.name(thing)

        def reply(reach: int) -> Reply:
            if reach == HIDDEN:
                return say(CANNOT_SEE)
            if reach == HELD:
                return say(f"You drop the {name} on the ground.", self.effect("drop", command))
            if reach == FLOOR:
                return say(f"The {name} is already here.")
            return say("You haven't got that.")

        return (("reach", thing),), reply

    def put(self, command: str, thing: str, place: str) -> Replies:
        name = self.model.name(thing)

        def reply(reach: int, here: int) -> Reply:
            if reach == HIDDEN or not here:
                return say(CANNOT_SEE)
            if reach != HELD:
                return self._take_first(thing)
            text = f"You put the {name} on {self.the(place)}."
            return say(text, self.effect("put", command))

        return (("reach", thing), ("here", place)), reply

    def insert(self, command: str, thing: str, place: str) -> Replies:
        name = self.model.name(thing)
        known = self.model.combinations(place)

        def reply(reach: int, here: int, status: int = 0) -> Reply:
            if reach == HIDDEN or not here:
                return say(CANNOT_SEE)
            if reach != HELD:
                return self._take_first(thing)
            if "open" not in known[status]:
                return say(f"The {self.model.name(place)} is closed.")
            text = f"You put the {name} into {self.the(place)}."
            return say(text, self.effect("insert", command))

        return (("reach", thing), ("here", place), *self._status(place)), reply

    def _take_first(self, thing: str) -> Reply:
        return say(f"You need to take the {self.model.name(thing)} first.")

    def _status(self, entity: str) -> tuple[Variable, ...]:
        return (("status", entity),) if entity in self.model.statuses else ()

    # Opening and locking

    def open(self, command: str, thing: str) -> Replies:
        known = self.model.combinations(thing)
        rule = "open/d" if thing in self.model.doors else "open/c"

        def reply(here: int, status: int = 0) -> Reply:
            if not here:
                return say(CANNOT_SEE)
            if "open" in known[status]:
                return say("That's already open.")
            if "locked" in known[status]:
                return self._locked(thing)
            return Reply(self._opened(thing), self.effect(rule, command))

        return (("here", thing), *self._status(thing)), reply

    def _locked(self, thing: str) -> Reply:
        key, name = self.model.key_of(thing), self.model.name(thing)
        if key is None:
            return say(f"The {name} is welded shut.")
        return say(f"You have to unlock the {name} with the {self.model.name(key)} first.")

    def _opened(self, thing: str) -> Frame:
        if thing in self.model.doors:
            return (Words(f"You open {self.the(thing)}."),)
        some = self.texts.count(thing, lambda n: n > 0)
        return (
            Words(f"You open {self.the(thing)}"),
            Words(", revealing ", some),
            Listing(thing, some),
            Words("."),
        )

    def close(self, command: str, thing: str) -> Replies:
        known = self.model.combinations(thing)
        rule = "close/d" if thing in self.model.doors else "close/c"

        def reply(here: int, status: int = 0) -> Reply:
            if not here:
                return say(CANNOT_SEE)
            if "open" not in known[status]:
                return say("That's already closed.")
            return say(f"You close {self.the(thing)}.", self.effect(rule, command))

        return (("here", thing), *self._status(thing)), reply

    def lock(self, command: str, thing: str, key: str) -> Replies:
        known = self.model.combinations(thing)
        rule = "lock/d" if thing in self.model.doors else "lock/c"

        def reply(here: int, reach: int, status: int = 0) -> Reply:
            if not here or reach == HIDDEN:
                return say(CANNOT_SEE)
            if reach != HELD:
                return self._take_first(key)
            if "locked" in known[status]:
                return say("That's locked at the moment.")
            if "open" in known[status]:
                return say(f"First you would have to close {self.the(thing)}.")
            if key != self.model.key_of(thing):
                return say(WRONG_KEY)
            return say(f"You lock {self.the(thing)}.", self.effect(rule, command))

        return (("here", thing), ("reach", key), *self._status(thing)), reply

    def unlock(self, command: str, thing: str, key: str) -> Replies:
        known = self.model.combinations(thing)
        rule = "unlock/d" if thing in self.model.doors else "unlock/c"

        def reply(here: int, reach: int, status: int = 0) -> Reply:
            if not here or reach == HIDDEN:
                return say(CANNOT_SEE)
            if reach != HELD:
                return self._take_first(key)
            if "locked" not in known[status]:
                return say("That's unlocked at the moment.")
            if key != self.model.key_of(thing):
                return say(WRONG_KEY)
            return say(f"You unlock {self.the(thing)}.", self.effect(rule, command))

        return (("here", thing), ("reach", key), *self._status(thing)), reply
