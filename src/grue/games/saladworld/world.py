"""The seven SaladWorld levels as data, read by the builder.

Counts, rewards and conditions are those of Table 1 and the subtask table of Jain et al. (2020).
docs/saladworld.md explains the choices that the paper leaves open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}


@dataclass(frozen=True)
class Passage:
    """A connection of two rooms, with an optional door."""

    room: str
    direction: str
    to: str
    door: str | None = None


@dataclass(frozen=True)
class Item:
    """An object and its starting place: a room, a supporter or a container.

    ``type`` is TextWorld's: o object, f food, k key, s supporter, c container, stove, oven.
    """

    name: str
    type: str
    location: str
    properties: tuple[str, ...] = ()
    opens: str | None = None
    """The door or container that this key fits."""
    article: str | None = None
    description: str | None = None


@dataclass(frozen=True)
class Goal:
    """Gives its reward once, when all conditions first hold together.

    A condition is (predicate, thing, place). ``errand`` solves the subtask: it starts and ends in
    the kitchen and works whatever was done before. ``spoilers`` are facts that make the subtask
    impossible and end the game; the level's commands never cause them.
    """

    text: str
    reward: int
    conditions: tuple[tuple[str, str, str], ...]
    errand: tuple[str, ...]
    spoilers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Level:
    number: int
    episode_steps: int
    rooms: tuple[str, ...]
    passages: tuple[Passage, ...]
    things: tuple[Item, ...]
    subtasks: tuple[Goal, ...]
    recipe: tuple[tuple[str, str], ...] = ()
    """Ingredients of the meal with the cut that each needs."""
    kitchen_commands: tuple[str, ...] = ()
    omitted_commands: tuple[str, ...] = ()
    explicit_places: bool = True
    """From level 4 on, commands name every supporter and container."""
    start: str = "kitchen"

    @property
    def name(self) -> str:
        return f"saladworld-{self.number}"


FRESH = ("edible", "cookable", "raw", "cuttable", "uncut")


def food(name: str, location: str, article: str | None = None) -> Item:
    return Item(name, "f", location, FRESH, article=article)


def commands_of(text: str) -> tuple[str, ...]:
    """Commands from a text with commas; a direction alone means "go"."""
    return tuple(f"go {part}" if part in OPPOSITE else part for part in text.split(", "))


def carry(thing: str, way: str) -> str:
    """Commands that fetch a thing along a way from the kitchen and bring it back."""
    back = ", ".join(OPPOSITE[direction] for direction in reversed(way.split(", ")))
    return f"{way}, take {thing}, {back}"


# The world. Kitchen, living room, open space and vegetable market are in every level.

HOUSE = (
    Passage("kitchen", "south", "living room"),
    Passage("living room", "east", "open space"),
    Passage("open space", "east", "vegetable market"),
)
GARDENS = (Passage("open space", "north", "garden"), Passage("kitchen", "west", "backyard"))
NEAR_SUPERMARKET = Passage("open space", "south", "supermarket", door="blue door")
FAR_SUPERMARKET = Passage("garden", "north", "supermarket", door="blue door")
SHOPS = (Passage("open space", "south", "cutlery shop"), Passage("living room", "south", "patio"))
FRUIT_AND_PLAY = (
    Passage("vegetable market", "south", "fruit shop"),
    Passage("living room", "west", "playroom"),
)
COOKHOUSE = Passage("playroom", "west", "cookhouse", door="red door")

COUNTER = Item("counter", "s", "kitchen")
FRIDGE = Item("fridge", "c", "kitchen", ("closed",))
TABLE = Item("table", "s", "living room")
LETTUCE = food("lettuce", "vegetable market")
BLUE_KEY = Item("blue key", "k", "open space", opens="blue door")
KNIFE = Item("knife", "o", "cutlery shop", ("sharp",))
PARSLEY = food("parsley", "backyard", article="some")

RECIPE_NOTE = (
    "A note on the fridge says: slice the carrot and chop the cucumber, "
    "bring both to the kitchen and prepare meal."
)


def subtask(
    text: str, reward: int, conditions: tuple[tuple[str, str, str], ...], errand: str, *foods: str
) -> Goal:
    """``foods`` must not be eaten before the subtask is done."""
    spoilers = tuple(("consumed", name) for name in foods)
    return Goal(text, reward, conditions, commands_of(errand), spoilers)


MARKET = subtask(
    "Enter the vegetable market.",
    10,
    (("at", "P", "vegetable market"),),
    "south, east, east, west, west, north",
)
LETTUCE_ON_COUNTER = subtask(
    "Put the lettuce on the counter.",
    5,
    (("on", "lettuce", "counter"),),
    f"{carry('lettuce', 'south, east, east')}, put lettuce on counter",
    "lettuce",
)


def tomato_on_counter(before_door: str, through: str, home: str) -> Goal:
    """The ways from the blue key to the blue door, through it, and back to the kitchen."""
    return subtask(
        "Put the tomato on the counter.",
        5,
        (("on", "tomato", "counter"),),
        f"south, east, take blue key, {before_door}unlock blue door with blue key, "
        f"open blue door, {through}, take tomato, {home}, put tomato on counter",
        "tomato",
    )


NEAR_TOMATO = tomato_on_counter("", "south", "north, west, north")
FAR_TOMATO = tomato_on_counter("north, ", "north", "south, south, west, north")
PARSLEY_AND_KNIFE = subtask(
    "Put the parsley into the fridge and the knife on the counter.",
    5,
    (("in", "parsley", "fridge"), ("on", "knife", "counter")),
    f"{carry('parsley', 'west')}, open fridge, insert parsley into fridge, "
    f"{carry('knife', 'south, east, south')}, put knife on counter",
    "parsley",
)
BANANA_IN_FRIDGE = subtask(
    "Put the banana into the fridge.",
    5,
    (("in", "banana", "fridge"),),
    "south, east, east, south, take chest key, unlock wooden chest with chest key, "
    "open wooden chest, take banana from wooden chest, north, west, west, north, "
    "open fridge, insert banana into fridge",
    "banana",
)
APPLE_IN_FRIDGE = subtask(
    "Put the apple into the fridge.",
    5,
    (("in", "apple", "fridge"),),
    "south, east, take blue key, north, unlock blue door with blue key, open blue door, north, "
    "take red key, south, south, west, west, unlock red door with red key, open red door, west, "
    "take apple, east, east, north, open fridge, insert apple into fridge",
    "apple",
)
MEAL = Goal(
    "Prepare the meal.",
    5,
    (("in", "meal", "I"),),
    commands_of(
        "south, east, south, take knife, north, north, take carrot, slice carrot with knife, "
        "south, east, take cucumber, chop cucumber with knife, west, west, north, "
        # The knife may be on the counter already, from the errand of level 4.
        "take knife, slice carrot with knife, chop cucumber with knife, prepare meal, "
        "put knife on counter"
    ),
    (
        *(("consumed", name) for name in ("carrot", "cucumber")),
        *((cut, "carrot") for cut in ("diced", "chopped", "fried", "roasted")),
        *((cut, "cucumber") for cut in ("diced", "sliced", "fried", "roasted")),
    ),
)


# What each level adds to the one before.

ROOMS_1 = ("kitchen", "living room", "open space", "vegetable market")
ROOMS_2 = (*ROOMS_1, "garden", "backyard", "supermarket")
ROOMS_4 = (*ROOMS_2, "cutlery shop", "patio")
ROOMS_5 = (*ROOMS_4, "fruit shop", "playroom")
ROOMS_6 = (*ROOMS_5, "cookhouse")

THINGS_1 = (COUNTER, LETTUCE)
THINGS_2 = (*THINGS_1, BLUE_KEY, food("tomato", "supermarket"))
THINGS_4 = (*THINGS_2, PARSLEY, KNIFE, TABLE, FRIDGE)
THINGS_5 = (
    *THINGS_4,
    Item("chest key", "k", "fruit shop", opens="wooden chest"),
    food("banana", "wooden chest"),
    Item("shelf", "s", "supermarket"),
    Item("showcase", "s", "cutlery shop"),
    Item("sofa", "s", "living room"),
    Item("patio chair", "s", "patio"),
    Item("wooden chest", "c", "fruit shop", ("locked",)),
)
THINGS_6 = (
    *THINGS_5,
    Item("red key", "k", "supermarket", opens="red door"),
    food("apple", "cookhouse"),
    food("carrot", "garden"),
    food("cucumber", "vegetable market"),
    Item("bench", "s", "open space"),
    Item("stove", "stove", "cookhouse"),
    Item("oven", "oven", "cookhouse", ("open",)),
)
THINGS_7 = tuple(replace(t, description=RECIPE_NOTE) if t is FRIDGE else t for t in THINGS_6)

PASSAGES_2 = (*HOUSE, *GARDENS, NEAR_SUPERMARKET)
PASSAGES_3 = (*HOUSE, *GARDENS, FAR_SUPERMARKET)
PASSAGES_4 = (*PASSAGES_3, *SHOPS)
PASSAGES_5 = (*PASSAGES_4, *FRUIT_AND_PLAY)
PASSAGES_6 = (*PASSAGES_5, COOKHOUSE)

SUBTASKS_1 = (MARKET, LETTUCE_ON_COUNTER)
SUBTASKS_2 = (*SUBTASKS_1, NEAR_TOMATO)
SUBTASKS_3 = (*SUBTASKS_1, FAR_TOMATO)
SUBTASKS_4 = (*SUBTASKS_3, PARSLEY_AND_KNIFE)
SUBTASKS_5 = (*SUBTASKS_4, BANANA_IN_FRIDGE)
SUBTASKS_6 = (*SUBTASKS_5, APPLE_IN_FRIDGE)

NO_LOCKING = ("lock blue door with blue key",)
RECIPE = (("carrot", "sliced"), ("cucumber", "chopped"))
COOKING = commands_of(
    "slice carrot with knife, chop cucumber with knife, slice lettuce with knife, "
    "slice tomato with knife, chop parsley with knife, dice apple with knife, "
    "cook tomato with stove, cook banana with stove, cook apple with oven, "
    "prepare meal, eat meal, examine fridge"
)

LEVELS = (
    Level(1, 100, ROOMS_1, HOUSE, THINGS_1, SUBTASKS_1, explicit_places=False),
    Level(2, 200, ROOMS_2, PASSAGES_2, THINGS_2, SUBTASKS_2, explicit_places=False),
    Level(3, 200, ROOMS_2, PASSAGES_3, THINGS_2, SUBTASKS_3, explicit_places=False),
    Level(4, 200, ROOMS_4, PASSAGES_4, THINGS_4, SUBTASKS_4, omitted_commands=NO_LOCKING),
    Level(5, 200, ROOMS_5, PASSAGES_5, THINGS_5, SUBTASKS_5),
    Level(6, 200, ROOMS_6, PASSAGES_6, THINGS_6, SUBTASKS_6),
    Level(7, 200, ROOMS_6, PASSAGES_6, THINGS_7, (*SUBTASKS_6, MEAL), RECIPE, COOKING),
)


def command_set(level: Level) -> tuple[str, ...]:
    """Every command of a level, in a fixed order. Their number is that of Table 1."""
    portables = [t.name for t in level.things if t.type in ("o", "f", "k")]
    supporters = [t.name for t in level.things if t.type in ("s", "stove")]
    containers = [t.name for t in level.things if t.type in ("c", "oven")]
    foods = [t.name for t in level.things if t.type == "f"]

    commands = [f"go {d}" for d in OPPOSITE] + ["look"]
    commands += [f"{verb} {x}" for verb in ("take", "drop") for x in portables]
    if level.explicit_places:
        commands += [f"put {x} on {s}" for x in portables for s in supporters]
        commands += [f"insert {x} into {c}" for x in portables for c in containers]
        commands += [f"take {x} from {p}" for x in portables for p in (*supporters, *containers)]
        commands += _opening_commands(level)
    else:
        commands += [f"put {x} on counter" for x in foods]
        for key in (t for t in level.things if t.opens):
            commands += [f"unlock {key.opens} with {key.name}", f"open {key.opens}"]
    commands += level.kitchen_commands
    return tuple(c for c in commands if c not in level.omitted_commands)


def _opening_commands(level: Level) -> list[str]:
    commands = []
    for key in (t for t in level.things if t.opens):
        lock, name = key.opens, key.name
        commands += [f"open {lock}", f"close {lock}"]
        commands += [f"unlock {lock} with {name}", f"lock {lock} with {name}"]
    locked = {t.opens for t in level.things}
    for thing in level.things:
        # The oven always stands open.
        if thing.type == "c" and thing.name not in locked:
            commands += [f"open {thing.name}", f"close {thing.name}"]
    return commands
