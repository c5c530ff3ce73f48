"""A TextWorld game: rooms, things, subtasks, commands and a walkthrough, read from its files.

A TextWorld game is a story file and a ``.json`` that states the world as facts. This module reads
both without TextWorld, which need not be installed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from grue.errors import BrokenFileError, UsageError
from grue.files import read_plain
from grue.games.playable import DEFAULT_EPISODE_STEPS, Knowledge, Playable, Subtask
from grue.games.tokens import StoryVocabulary
from grue.games.zmachine.header import read_story

Fact = tuple[str, ...]
"""A predicate and its entities: ``("at", "P", "r_0")``."""

VERSION = 1
"""Of TextWorld's game files."""
SUFFIX = ".grue.npz"
"""File name ending of compiled games."""
FITTINGS = ("stove", "oven", "toaster")


@dataclass(frozen=True)
class Exit:
    to: str
    door: str | None = None


@dataclass(frozen=True)
class Room:
    name: str
    exits: Mapping[str, Exit]


@dataclass(frozen=True)
class Thing:
    """``kind`` is portable, supporter, container, fitting or door."""

    name: str
    kind: str
    location: str
    """Its room, supporter or container; "" if it is carried or out of play."""
    state: str = ""
    """Initially: open, closed or locked."""


@dataclass(frozen=True)
class Game(Playable):
    """A TextWorld game: ``grue.load("saladworld-3")``."""

    name: str
    story: Path
    data: Mapping[str, Any] = field(repr=False)
    """The parsed ``.json``."""

    kind = "textworld"

    @property
    def knows(self) -> Knowledge:
        return Knowledge()

    def textworld(self) -> Game:
        return self

    @property
    def digest(self) -> str:
        """Of the current story and ``.json``."""
        digest = hashlib.sha256(read_plain(self.story))
        digest.update(read_plain(self.story.with_suffix(".json")))
        return digest.hexdigest()

    @cached_property
    def rooms(self) -> tuple[Room, ...]:
        exits: dict[str, dict[str, Exit]] = {e: {} for e in self.entities_of_type("r")}
        doors = {frozenset((f[1], f[3])): f[2] for f in self.facts if f[0] == "link"}
        for fact in self.facts:
            direction, _, rest = fact[0].partition("_of")
            if direction in ("north", "south", "east", "west") and rest == "" and len(fact) == 3:
                there, here = fact[1:]
                door = doors.get(frozenset((here, there)))
                name = self.entity_name(door) if door else None
                exits[here][direction] = Exit(self.entity_name(there), name)
        return tuple(
            Room(self.entity_name(room), dict(sorted(found.items())))
            for room, found in exits.items()
        )

    @cached_property
    def things(self) -> tuple[Thing, ...]:
        places = {f[1]: f[2] for f in self.facts if f[0] in ("at", "on", "in") and len(f) == 3}
        states = {f[1]: f[0] for f in self.facts if f[0] in ("open", "closed", "locked")}
        found = []
        for entity, info in self.infos.items():
            kind = self._kind(info["type"])
            place = places.get(entity)
            if kind is None or (place is None and kind != "door"):
                continue
            location = self.entity_name(place) if place and place != "I" else ""
            found.append(Thing(info["name"], kind, location, states.get(entity, "")))
        return tuple(found)

    @property
    def objects(self) -> tuple[Thing, ...]:
        """The things that the paper counts: portables, supporters and containers."""
        return tuple(t for t in self.things if t.kind in ("portable", "supporter", "container"))

    @cached_property
    def subtasks(self) -> tuple[Subtask, ...]:
        return tuple(
            Subtask(quest["desc"] or f"Quest {i}", quest["reward"])
            for i, quest in enumerate(self.data["quests"], 1)
            if quest["win_events"]
        )

    @property
    def max_score(self) -> int:
        return sum(subtask.reward for subtask in self.subtasks)

    @cached_property
    def commands(self) -> tuple[str, ...]:
        listed = self.metadata.get("commands")
        if listed is not None:
            return tuple(listed)
        from grue.games.logic import ground

        return ground(self).commands

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Every word that the game can print or read; needs the compiled game."""
        from grue.games.gamefile import compiled_path, load_compiled

        return load_compiled(compiled_path(self), self).vocabulary.words

    @cached_property
    def words(self) -> StoryVocabulary:
        from grue.games.zmachine.story_file import vocabulary_of

        return vocabulary_of(read_story(self.story), self.commands)

    @property
    def walkthrough(self) -> tuple[str, ...]:
        return tuple(self.metadata.get("walkthrough") or ())

    @property
    def episode_steps(self) -> int:
        return self.metadata.get("episode_steps", DEFAULT_EPISODE_STEPS)

    @property
    def objective(self) -> str:
        return self.data.get("objective") or ""

    @property
    def start(self) -> str:
        """The player's first room."""
        return next(self.entity_name(f[2]) for f in self.facts if f[:2] == ("at", "P"))

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.data.get("metadata") or {}

    @cached_property
    def facts(self) -> tuple[Fact, ...]:
        """The initial world."""
        return tuple(parse_fact(fact) for fact in self.data["world"])

    @cached_property
    def infos(self) -> Mapping[str, Mapping[str, Any]]:
        """Name, type and description of every entity, by identifier."""
        return dict(self.data["infos"])

    @cached_property
    def type_parents(self) -> Mapping[str, str | None]:
        """The parent of each type: a key (k) is an object (o)."""
        found = re.findall(
            r"^\s*type\s+(\w+)\s*(?::\s*(\w+))?\s*\{", self.data["KB"]["logic"], re.MULTILINE
        )
        return {name: parent or None for name, parent in found}

    def is_a(self, type_name: str, ancestor: str) -> bool:
        current: str | None = type_name
        while current is not None and current != ancestor:
            current = self.type_parents.get(current)
        return current == ancestor

    def entities_of_type(self, ancestor: str) -> list[str]:
        return [e for e, info in self.infos.items() if self.is_a(info["type"], ancestor)]

    def entity_name(self, entity: str) -> str:
        return self.infos[entity]["name"] or entity

    def _kind(self, type_name: str) -> str | None:
        if type_name in FITTINGS:
            return "fitting"
        kinds = {"o": "portable", "s": "supporter", "c": "container", "d": "door"}
        return next((kind for top, kind in kinds.items() if self.is_a(type_name, top)), None)


def parse_fact(fact: Mapping[str, Any]) -> Fact:
    return (fact["name"], *(argument["name"] for argument in fact["arguments"]))


def read_textworld_game(story: Path, name: str | None = None) -> Game:
    """A TextWorld game from its story file and the ``.json`` beside it."""
    read_story(story)
    path = story.with_suffix(".json")
    try:
        data = json.loads(read_plain(path).decode())
    except FileNotFoundError:
        raise UsageError(
            f"{story} has no {path.name} beside it; copy the .json that TextWorld wrote next to it"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BrokenFileError(f"{path} is not a TextWorld game file: {error}") from None
    if isinstance(data, dict) and data.get("version", VERSION) != VERSION:
        raise BrokenFileError(
            f"{path} is not a TextWorld game file of version {VERSION}, but {data['version']!r}"
        )
    for key in ("world", "quests", "infos", "KB"):
        if not isinstance(data, dict) or key not in data:
            raise BrokenFileError(f"{path} is not a TextWorld game file: it has no {key!r}")
    game = Game(name or story.stem, story, data)
    try:
        # Report a broken file now, not in the middle of a game.
        _check_infos(game)
        _ = game.rooms, game.things, game.max_score, game.start
        _check_quests(game)
        for name in ("commands", "walkthrough"):
            listed = game.metadata.get(name) or []
            if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
                raise ValueError(f"{name} is not a list of texts")
    except (AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
        raise BrokenFileError(f"{path} is not a TextWorld game file: {error!r}") from None
    return game


def _check_infos(game: Game) -> None:
    """Names and descriptions are texts or null, and types are those of the rules."""
    for entity, info in game.infos.items():
        for key in ("name", "desc"):
            if not isinstance(info[key], str | None):
                raise ValueError(f"the {key} of {entity} is {info[key]!r}")
        if info["type"] not in game.type_parents:
            raise ValueError(f"there is no type {info['type']!r}, which {entity} has")


def _check_quests(game: Game) -> None:
    """The facts of quests are about things that there are."""
    for quest in game.data["quests"]:
        for event in (*quest["win_events"], *quest["fail_events"]):
            for name, *things in map(parse_fact, event["condition"]["preconditions"]):
                if not things or not game.infos.keys() >= set(things):
                    raise ValueError(f"a quest is about {name}({', '.join(map(str, things))})")
