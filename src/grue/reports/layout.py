"""The layout of a map: a grid cell for each room, and the ways between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grue.games.game import Room

Place = tuple[int, int]
"""A column, counted to the east, and a row, counted to the north."""

STEPS: Mapping[str, Place] = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}


@dataclass(frozen=True)
class Way:
    here: str
    there: str
    direction: str
    door: str | None
    one_way: bool


def lay_out(rooms: Sequence[Room], start: str) -> dict[str, Place]:
    """A grid cell for every room: where the compass points, or the nearest free one."""
    by_name = {room.name: room for room in rooms}
    places: dict[str, Place] = {}
    for root in (start, *by_name):  # Unreachable rooms come last.
        if root in places:
            continue
        east_end = max((column for column, _ in places.values()), default=-2)
        places[root] = (east_end + 2, 0)
        queue = deque([root])
        while queue:
            here = queue.popleft()
            for direction, exit_ in by_name[here].exits.items():
                if exit_.to not in places:
                    column, row = places[here]
                    east, north = STEPS[direction]
                    wanted = (column + east, row + north)
                    places[exit_.to] = _nearest_free(wanted, set(places.values()))
                    queue.append(exit_.to)
    return places


def _nearest_free(wanted: Place, taken: set[Place]) -> Place:
    reach = range(-len(taken), len(taken) + 1)
    offsets = sorted(((x, y) for x in reach for y in reach), key=lambda o: o[0] ** 2 + o[1] ** 2)
    around = ((wanted[0] + x, wanted[1] + y) for x, y in offsets)
    return next(place for place in around if place not in taken)


def ways(rooms: Sequence[Room]) -> tuple[Way, ...]:
    """Every way once; two exits by opposite directions are one way."""
    exits = {room.name: room.exits for room in rooms}
    found: dict[tuple[str, str], Way] = {}
    for here, leading in exits.items():
        for direction, exit_ in leading.items():
            back = exits[exit_.to].get(OPPOSITE[direction])
            returns = back is not None and back.to == here
            if not (returns and (exit_.to, OPPOSITE[direction]) in found):
                way = Way(here, exit_.to, direction, exit_.door, not returns)
                found[here, direction] = way
    return tuple(found.values())


def is_straight(way: Way, places: Mapping[str, Place]) -> bool:
    """Whether the rooms lie in the way's direction with no room between them."""
    east, north = STEPS[way.direction]
    (column, row), there = places[way.here], places[way.there]
    distance = (there[0] - column) * east + (there[1] - row) * north
    line = [(column + east * i, row + north * i) for i in range(1, distance + 1)]
    return bool(line) and line[-1] == there and not set(line[:-1]) & set(places.values())
