"""A TextWorld game's world as data for the page's map: the plan, and where things are now."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from grue.engine.hosted import HostedState
from grue.games.game import Game
from grue.games.logic import Facts, Logic, ground
from grue.reports.game_map import door_colour
from grue.reports.layout import is_straight, lay_out, ways

SHOWN = (
    *("open", "closed", "locked", "sliced", "diced", "chopped"),
    *("fried", "roasted", "grilled", "cooked", "burned", "eaten"),
)
"""Facts about one thing that are worth a word on the map."""


@dataclass(frozen=True)
class WatchedWorld:
    game: Game

    @cached_property
    def logic(self) -> Logic:
        return ground(self.game)

    @property
    def initial(self) -> Facts:
        return self.logic.initial

    @cached_property
    def rooms(self) -> list[str]:
        return self.game.entities_of_type("r")

    @cached_property
    def things(self) -> list[tuple[str, str]]:
        """The identifier and the kind of everything that can be somewhere."""
        kinds = {thing.name: thing.kind for thing in self.game.things}
        named = [(entity, info["name"]) for entity, info in self.game.infos.items()]
        return [(entity, kinds[name]) for entity, name in named if name in kinds]

    def plan(self) -> dict[str, Any]:
        """What does not change: rooms on a grid, the ways between them, and the things."""
        game = self.game
        places = lay_out(game.rooms, game.start)
        return {
            "rooms": [
                {"name": name, "column": places[name][0], "row": places[name][1]}
                for name in map(game.entity_name, self.rooms)
            ],
            "ways": [
                {
                    "here": way.here,
                    "there": way.there,
                    "direction": way.direction,
                    "door": way.door,
                    "oneWay": way.one_way,
                    "straight": is_straight(way, places),
                }
                for way in ways(game.rooms)
            ],
            "things": [
                {"name": game.entity_name(entity), "kind": kind}
                | ({"colour": door_colour(game.entity_name(entity))} if kind == "door" else {})
                for entity, kind in self.things
            ],
            "start": game.start,
        }

    def after(self, before: Facts, command: str, state: Any, changed: bool) -> Facts:
        """The facts after a command. A hosted state knows them; else they follow from the rules."""
        if isinstance(state, HostedState):
            return state.facts
        actions = self.logic.actions.get(command, ()) if changed else ()
        done = next((a for a in actions if a.changes_state and a.needs <= before), None)
        return before if done is None else done.apply(before)

    def told(self, facts: Facts) -> dict[str, Any]:
        """The room of the player, and the holder and the states of every thing of the plan.

        A holder is "r" or "t" with the number of a room or a thing, "I" for the inventory, or
        empty.
        """
        holders = {f[1]: f[2] for f in facts if f[0] in ("at", "in", "on") and len(f) == 3}
        states: dict[str, list[str]] = {}
        for fact in sorted(facts):
            if len(fact) == 2 and fact[0] in SHOWN:
                states.setdefault(fact[1], []).append(fact[0])
        numbers = {entity: f"t{number}" for number, (entity, _) in enumerate(self.things)}
        numbers |= {entity: f"r{number}" for number, entity in enumerate(self.rooms)} | {"I": "I"}
        return {
            "room": self.rooms.index(holders["P"]),
            "things": [
                [numbers.get(holders.get(entity, ""), ""), ", ".join(states.get(entity, ()))]
                for entity, _ in self.things
            ],
        }
