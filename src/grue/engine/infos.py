"""Everything that TextWorld's EnvInfos can return, as functions of a compiled state.

The names are TextWorld's. Nothing here spends a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from grue.engine.compiler.model import Model
from grue.engine.policy import Policy
from grue.errors import GrueError, UsageError
from grue.games.game import Fact, Game
from grue.games.gamefile import CompiledGame
from grue.games.logic import Facts, ground

if TYPE_CHECKING:
    from grue.engine.compiled import State

FIXED = (
    *("objective", "max_score", "entities", "typed_entities", "verbs", "command_templates"),
    *("possible_commands", "possible_admissible_commands"),
)
"""What TextWorld's own game object knows, the same in every state."""


class World:
    """A compiled game's states as facts."""

    def __init__(self, compiled: CompiledGame, game: Game | None) -> None:
        if game is None:
            raise UsageError(
                f"the facts of {compiled.name} need the game that it was compiled from: give "
                "grue.make the story, with its .json beside it"
            )
        self.game = game
        self.logic = ground(game)
        self.model = Model(game, self.logic)
        sizes = [len(known) for known in self.model.statuses.values()]
        starts = np.cumsum([0, *sizes])[:-1]
        if not np.array_equal(starts, compiled.arrays["status_start"]):
            raise GrueError(f"{compiled.name} was compiled by another grue; compile it again")

    def facts(self, state: State) -> Facts:
        """All facts that hold, with the identifiers of things."""
        if np.ndim(state.room):
            raise UsageError(
                "facts are of one state: take one of a batch, as in "
                "jax.tree.map(lambda leaf: leaf[0], state)"
            )
        model = self.model
        found: list[Fact] = [("at", "P", model.rooms[int(state.room)])]
        for thing, location in zip(model.movables, np.asarray(state.locations), strict=True):
            found += self._held(thing, int(location))
        for (entity, known), value in zip(
            model.statuses.items(), np.asarray(state.statuses), strict=False
        ):
            found += [(kind, entity) for kind in known[value]]
        found += self._ways(set(found))
        found += self._slots(sum(fact[2:] == ("I",) for fact in found))
        return self._fixed.union(found)

    def _held(self, thing: str, location: int) -> list[Fact]:
        model = self.model
        if location < model.inventory:
            return [("at", thing, model.rooms[location])]
        if location == model.inventory:
            return [("in", thing, "I")]
        if location == model.nowhere:
            return []
        place = model.places[location - model.inventory - 1]
        return [("in" if model.is_a(place, "c") else "on", thing, place)]

    def _ways(self, found: set[Fact]) -> Iterator[Fact]:
        for here, door, there in self._linked:
            if ("open", door) in found or ("open", door) in self._fixed:
                yield ("free", here, there)

    def _slots(self, carried: int) -> list[Fact]:
        """Slots are interchangeable: the first ones are reported as used."""
        if self.logic.capacity is not None:
            return []  # The facts about them never change.
        slots = sorted(self.model.slots, key=list(self.game.infos).index)
        return [("used" if i < carried else "free", slot) for i, slot in enumerate(slots)]

    @cached_property
    def _linked(self) -> list[tuple[str, ...]]:
        return [fact[1:] for fact in self.model.initial if fact[0] == "link"]

    @cached_property
    def _fixed(self) -> Facts:
        """The facts that no command changes."""
        model = self.model
        ways = {("free", here, there) for here, _, there in self._linked}
        moving = {"P", *model.movables}

        def changes(fact: Fact) -> bool:
            if len(fact) == 2:
                counted = fact[1] in model.slots and self.logic.capacity is None
                return fact[1] in model.statuses or counted
            return fact in ways or (fact[0] in ("at", "in", "on") and fact[1] in moving)

        return frozenset(fact for fact in model.initial if not changes(fact))

    def named(self, facts: Iterable[Fact]) -> list[Fact]:
        """Facts with names for identifiers, in order."""
        name = self.game.entity_name
        return sorted((kind, *map(name, things)) for kind, *things in facts)

    # TextWorld's own objects

    @cached_property
    def textworld(self) -> Any:
        from textworld.generator.game import Game as TextWorldGame

        return TextWorldGame.deserialize(self.game.data)

    @cached_property
    def _inform(self) -> Any:
        from textworld.generator.inform7 import Inform7Game

        return Inform7Game(self.textworld)

    def admissible(self, facts: Facts) -> list[str]:
        """The commands that TextWorld calls admissible: all that its rules allow."""
        from textworld.logic import Proposition, State, Variable

        kb = self.textworld.kb
        types = {entity: info["type"] for entity, info in self.game.infos.items()}
        state = State(
            kb.logic,
            [Proposition(kind, [Variable(e, types[e]) for e in things]) for kind, *things in facts],
        )
        actions = state.all_applicable_actions(kb.rules.values(), kb.types.constants_mapping)
        return sorted(set(self._inform.gen_commands_from_actions(list(actions))))

    @cached_property
    def policy(self) -> Policy:
        """By TextWorld's own winning policy, or by the walkthrough if it has none."""
        from textworld.generator.game import GameProgression

        actions = GameProgression(self.textworld).winning_policy
        plan = self._inform.gen_commands_from_actions(actions or ())
        policy = Policy(self.logic, plan, self.model.slots)
        if not policy.rests:
            policy = Policy(self.logic, self.game.walkthrough, self.model.slots)
        return policy


class Infos(Mapping[str, Any]):
    """The infos of one state. Each is computed on access, as in ``infos["facts"]``."""

    def __init__(self, world: World, env: Any, state: State) -> None:
        self._world, self._env, self._state = world, env, state

    def __getitem__(self, name: str) -> Any:
        game = self._world.game
        if name in FIXED:
            return getattr(self._world.textworld, FROM_GAME.get(name, name))
        if name.startswith("extra.") and name.removeprefix("extra.") in game.metadata:
            return game.metadata[name.removeprefix("extra.")]
        if name not in TOLD:
            raise KeyError(f"there is no info {name!r}; there are {', '.join(self)}")
        return TOLD[name](self)

    def __iter__(self) -> Iterator[str]:
        yield from (*TOLD, *FIXED, *(f"extra.{name}" for name in self._world.game.metadata))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _ids(self) -> Facts:
        return self._world.facts(self._state)

    def _facts(self) -> list[Fact]:
        return self._world.named(self._ids())

    def _conditions(self, which: str) -> list[list[tuple[Fact, ...]]]:
        quests = self._world.logic.quests
        return [[tuple(self._world.named(c)) for c in getattr(q, which)] for q in quests]

    def _location(self) -> str:
        room = self._world.model.rooms[int(self._state.room)]
        return self._world.game.entity_name(room)

    def _won(self) -> bool:
        needed = self._env.game.arrays["quest_needed"]
        done = np.asarray(self._state.quests)[np.flatnonzero(needed)]
        return bool(self._state.over) and bool(done.all())

    def _policy(self) -> list[str]:
        if self._state.over:
            return []
        done = frozenset(np.flatnonzero(self._state.quests).tolist())
        return list(self._world.policy.commands(self._ids(), done))

    def _description(self) -> str:
        return self._env.decode(self._env.look(self._state))

    def _inventory(self) -> str:
        return self._env.decode(self._env.inventory(self._state))


FROM_GAME = {"entities": "entity_names", "typed_entities": "objects_names_and_types"}
"""The names of TextWorld's game for some of them."""
TOLD = {
    "description": Infos._description,
    "inventory": Infos._inventory,
    "location": Infos._location,
    "facts": Infos._facts,
    "win_facts": lambda self: self._conditions("wins"),
    "fail_facts": lambda self: self._conditions("fails"),
    "won": Infos._won,
    "lost": lambda self: bool(self._state.over) and not self._won(),
    "score": lambda self: int(self._state.score),
    "moves": lambda self: int(self._state.steps),
    "admissible_commands": lambda self: self._world.admissible(self._ids()),
    "policy_commands": Infos._policy,
}
"""What depends on the state."""
