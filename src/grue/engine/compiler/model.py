"""The game's things as numbers: rooms, places, movable things, and the state each can be in.

Facts about where a thing is become one number, its location. The other changing facts about a
thing (open, sliced, cooked) become one number too, its status: an index into the combinations that
the game's actions can bring about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from grue.errors import CannotCompileError
from grue.games.game import Fact, Game
from grue.games.logic import Action, Logic, without

DIRECTIONS = ("north", "south", "east", "west")
LOCATING = ("at", "in", "on")
HERE = -1
"""As the goal of a move: the room of the player."""

# How a movable thing relates to the player; places follow from FIRST_PLACE on.
HIDDEN, HELD, FLOOR, FIRST_PLACE = 0, 1, 2, 3
# What an exit is.
NO_EXIT, BLOCKED, FREE = 0, 1, 2
# How far an ingredient of the recipe has come.
MISSING, WRONG_COOKING, WRONG_CUT, READY = 0, 1, 2, 3

COOKINGS = ("raw", "fried", "roasted", "grilled")
CUTS = ("uncut", "sliced", "diced", "chopped")

# What a sight tells apart besides places: hidden, held, floor, elsewhere, or hidden and in sight.
SIGHTS = {"spot": 4, "seen": 2}

Variable = tuple[str, str]
"""What a guard can ask about: a kind (room, reach, here, exit, status, count) and its subject."""
FULL: Variable = ("full", "I")
"""Whether the player carries as much as can be carried."""
PLURAL: Variable = ("plural", "list")
"""Whether the last list after "is" or "are" was of several things."""
EXTRAS = ("full", "spot", "seen", "before", "asked", "plural")
"""Kinds that few games have, in the order of their variables.

A spot is a reach that tells few places apart: hidden, held, on the floor, elsewhere in sight, then
the places that follow the thing in its subject. Seen tells hidden, in sight, and those places.
"""


@dataclass(frozen=True)
class Effect:
    """What a successful command does."""

    room: int | None = None
    moves: tuple[tuple[int, int], ...] = ()
    """Movable things and the locations they go to."""
    statuses: tuple[tuple[str, frozenset[str], frozenset[str]], ...] = ()
    """Entities with the facts that are added and removed."""


class Model:
    def __init__(self, game: Game, logic: Logic) -> None:
        self.game = game
        self.logic = logic
        self._extra: dict[Variable, None] = {}
        self.questions: list[tuple[str, ...] | None] = []
        """What the parser remembers when it asks a question."""
        self.actions = {c: logic.actions.get(c, ()) for c in game.commands}
        self.rooms = game.entities_of_type("r")
        self.places = self._placed("s") + self._placed("c")
        self.doors = self._placed("d")
        self.movables = self._ordered("o")
        self.initial = frozenset(game.facts)
        self.slots = {e for e, info in game.infos.items() if info["type"] == "slot"}
        if self.slots:  # Slots are interchangeable: only the number of carried things matters.
            self.actions = {
                command: tuple(dict.fromkeys(without(action, self.slots) for action in actions))
                for command, actions in self.actions.items()
            }
            self.use(FULL)

    def name(self, entity: str) -> str:
        return self.game.infos[entity]["name"] or ""

    def is_a(self, entity: str, ancestor: str) -> bool:
        return self.game.is_a(self.game.infos[entity]["type"], ancestor)

    def the(self, entity: str) -> str:
        """The name in an answer; TextWorld leaves its doors without an article."""
        bare = self.is_a(entity, "d") and not self.doors_have_articles
        return self.name(entity) if bare else f"the {self.name(entity)}"

    @property
    def doors_have_articles(self) -> bool:
        return '"opening the {d}"' in self.game.data["KB"]["logic"]

    def _ordered(self, ancestor: str) -> list[str]:
        """Entities in the order in which TextWorld's Inform source declares them: type by type."""
        found = self.game.entities_of_type(ancestor)
        types = sorted(self.game.type_parents)
        infos = self.game.infos
        return sorted(found, key=lambda e: types.index(infos[e]["type"]))

    @cached_property
    def declared(self) -> list[str]:
        """Movable things and places in that order, which is the order in a room at first."""
        infos = list(self.game.infos)
        types = sorted(self.game.type_parents)
        return sorted(
            [*self.movables, *self.places],
            key=lambda e: (types.index(self.game.infos[e]["type"]), infos.index(e)),
        )

    def _placed(self, ancestor: str) -> list[str]:
        known = {f[1] for f in self.game.facts if f[0] == "at"}
        known |= {f[2] for f in self.game.facts if f[0] == "link"}
        return [e for e in self.game.entities_of_type(ancestor) if e in known]

    # Locations

    @property
    def inventory(self) -> int:
        return len(self.rooms)

    @property
    def nowhere(self) -> int:
        return len(self.rooms) + 1 + len(self.places)

    @property
    def location_count(self) -> int:
        return self.nowhere + 1

    def location(self, holder: str) -> int:
        if holder == "I":
            return self.inventory
        if holder in self.rooms:
            return self.rooms.index(holder)
        if holder not in self.places:
            raise CannotCompileError(f"a thing is in {holder}, which has no place itself")
        return len(self.rooms) + 1 + self.places.index(holder)

    def initial_location(self, movable: str) -> int:
        for fact in self.initial:
            if fact[0] in LOCATING and len(fact) == 3 and fact[1] == movable:
                return self.location(fact[2])
        return self.nowhere

    def initial_room(self, movable: str) -> int:
        """The room in which a thing is at the start, in or on whatever it is."""
        location = self.initial_location(movable)
        first_place = self.inventory + 1
        if first_place <= location < self.nowhere:
            return self.room_of(self.places[location - first_place])
        return location

    def room_of(self, place: str) -> int:
        return next(self.rooms.index(f[2]) for f in self.initial if f[:2] == ("at", place))

    @cache  # noqa: B019 - lives as long as one compilation
    def rooms_of(self, fixed: str) -> tuple[int, ...]:
        """The rooms from which a place or a door is seen."""
        if fixed in self.places:
            return (self.room_of(fixed),)
        return tuple(room for (room, _), (_, door) in self.exits.items() if door == fixed)

    @property
    def start(self) -> int:
        return next(self.rooms.index(f[2]) for f in self.initial if f[:2] == ("at", "P"))

    @cached_property
    def exits(self) -> dict[tuple[int, str], tuple[int, str | None]]:
        """For each room and direction that leads somewhere: the room there and the door."""
        doors = {(f[1], f[3]): f[2] for f in self.initial if f[0] == "link"}
        found = {}
        for fact in self.initial:
            direction = fact[0].removesuffix("_of")
            if direction in DIRECTIONS and len(fact) == 3:
                there, here = fact[1:]
                door = doors.get((here, there))
                found[self.rooms.index(here), direction] = (self.rooms.index(there), door)
        return found

    # Statuses

    @cached_property
    def statuses(self) -> dict[str, tuple[frozenset[str], ...]]:
        """For each entity with changing properties: its possible combinations, initial first."""
        changes: dict[str, set[tuple[frozenset[str], ...]]] = {}
        for action in self._all_actions():
            for entity in sorted({f[1] for f in action.adds | action.removes if len(f) == 2}):
                change = tuple(
                    _properties(facts, entity)
                    for facts in (action.needs, action.adds, action.removes)
                )
                changes.setdefault(entity, set()).add(change)
        return {entity: self._combinations(entity, found) for entity, found in changes.items()}

    def _combinations(
        self, entity: str, changes: set[tuple[frozenset[str], ...]]
    ) -> tuple[frozenset[str], ...]:
        found = [_properties(self.initial, entity)]
        for combination in found:  # The list grows while it is iterated over.
            for needs, adds, removes in sorted(changes, key=lambda c: [sorted(s) for s in c]):
                after = (combination - removes) | adds
                if needs <= combination and after not in found:
                    found.append(after)
        return tuple(found)

    def combinations(self, entity: str) -> tuple[frozenset[str], ...]:
        return self.statuses.get(entity) or (_properties(self.initial, entity),)

    def gives(self, command: str) -> bool:
        """Whether a rule of the game gives a command of the set."""
        return bool(self.actions.get(command))

    def _all_actions(self) -> Iterable[Action]:
        return (action for actions in self.actions.values() for action in actions)

    # Keys and recipes

    def opens(self, entity: str) -> bool:
        return entity in self.doors or (entity in self.places and self.is_a(entity, "c"))

    def key_of(self, lock: str) -> str | None:
        return next((f[1] for f in self.initial if f[0] == "match" and f[2] == lock), None)

    @cached_property
    def recipe(self) -> tuple[tuple[str, str, str], ...]:
        """The ingredients in the order in which the story adds them: food, cooking, cut."""
        bases = {f[2]: f[1] for f in self.game.facts if f[0] == "base"}
        listed = [f[1] for f in self.game.facts if f[0] == "in" and f[2] == "RECIPE"]
        found = []
        for ingredient in sorted(listed, key=list(self.game.infos).index):
            known = _properties(self.initial, ingredient)
            cooking = next((c for c in COOKINGS if c in known), "raw")
            cut = next((c for c in CUTS if c in known), "uncut")
            found.append((bases[ingredient], cooking, cut))
        return tuple(found)

    @property
    def cooking_location(self) -> str | None:
        return next((f[1] for f in self.initial if f[0] == "cooking_location"), None)

    # Variables of guards

    def domain(self, variable: Variable) -> int:
        """How many values a variable has."""
        kind, subject = variable
        sizes: Mapping[str, int] = {
            "room": len(self.rooms),
            "reach": FIRST_PLACE + len(self.places),
            "here": 2,
            "exit": 3,
            "count": 3,
            "ingredient": 4,
            "before": 2,
            "full": 2,
            "plural": 2,
        }
        if kind == "asked":
            return len(self.in_mind(variable))
        if kind in SIGHTS:
            return SIGHTS[kind] + len(subject.split()) - 1
        return len(self.combinations(subject)) if kind == "status" else sizes[kind]

    @cached_property
    def variables(self) -> tuple[Variable, ...]:
        """Every variable, in the order in which the device computes them."""
        return (
            ("room", "P"),
            *(("reach", x) for x in self.movables),
            *(("here", x) for x in (*self.places, *self.doors)),
            *(("exit", d) for d in DIRECTIONS),
            *(("status", x) for x in self.statuses),
            *(("count", x) for x in (*self.places, "floor", "I")),
            *(("ingredient", food) for food, _, _ in self.recipe),
            *sorted(self._extra, key=lambda v: EXTRAS.index(v[0])),
        )

    def use(self, variable: Variable) -> None:
        """Adds a variable of a kind that only few games need."""
        if variable[0] in EXTRAS:
            self._extra.setdefault(variable)

    def extra(self, *kinds: str) -> list[Variable]:
        """The variables of some kinds."""
        return [variable for variable in self.variables if variable[0] in kinds]

    def in_mind(self, variable: Variable) -> list[tuple[str, ...] | None]:
        """What the parser can have in mind about the things of a variable; at first, nothing."""
        return [("nothing",), *dict.fromkeys(self._bearing(variable))]

    def asked(self, variable: Variable) -> list[int]:
        """The value of such a variable after no question, and after each."""
        in_mind = self.in_mind(variable)
        return [0, *(in_mind.index(about) for about in self._bearing(variable))]

    def _bearing(self, variable: Variable) -> list[tuple[str, ...] | None]:
        """For each question what of it bears on some things: others weigh alike."""
        things = variable[1].split()
        return [q if q is None else tuple(e for e in things if e in q) for q in self.questions]

    def sight(self, variable: Variable) -> list[int]:
        """The value of a spot or a seen for each reach of its thing."""
        kind, subject = variable
        _, *places = subject.split()
        base = SIGHTS[kind]
        values = [min(reach, base - 1) for reach in range(self.domain(("reach", subject)))]
        for number, place in enumerate(places):
            values[FIRST_PLACE + self.places.index(place)] = base + number
        return values

    # Effects

    def effect(self, rule: str, command: str) -> Effect:
        """What a rule does for a command, wherever the player is."""
        found = {self._effect(a) for a in self.actions[command] if a.rule == rule}
        if len(found) != 1:
            raise CannotCompileError(f"the rule {rule!r} has no single effect for {command!r}")
        return found.pop()

    def _effect(self, action: Action) -> Effect:
        room: int | None = None
        moves: dict[int, int] = {}
        statuses: dict[str, list[set[str]]] = {}
        here = {f[2] for f in action.needs if f[:2] == ("at", "P")}
        changed = [(f, False) for f in action.removes] + [(f, True) for f in action.adds]
        for fact, comes in changed:
            kind, subject = fact[0], fact[1]
            if kind in LOCATING and len(fact) == 3 and subject == "P":
                room = self.rooms.index(fact[2]) if comes else room
            elif kind in LOCATING and len(fact) == 3 and subject in self.movables:
                goal = HERE if fact[2] in here else self.location(fact[2])
                moves[self.movables.index(subject)] = goal if comes else self.nowhere
            elif len(fact) == 2:
                statuses.setdefault(subject, [set(), set()])[0 if comes else 1].add(kind)
            elif kind != "free":  # Implied by the state of the door.
                raise CannotCompileError(f"the rule {action.rule!r} changes the fact {_say(fact)}")
        return Effect(
            room,
            tuple(sorted(moves.items())),
            tuple(
                (entity, frozenset(adds), frozenset(removes))
                for entity, (adds, removes) in sorted(statuses.items())
            ),
        )


def _properties(facts: Iterable[Fact], entity: str) -> frozenset[str]:
    return frozenset(f[0] for f in facts if len(f) == 2 and f[1] == entity)


def _say(fact: Fact) -> str:
    return f"{fact[0]}({', '.join(fact[1:])})"
