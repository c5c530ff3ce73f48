"""A TextWorld game's rules, grounded: each command as guarded effects on facts.

TextWorld's own matcher finds, from the initial facts outwards, every instance of every rule that
could ever apply. Nothing here is particular to one game.
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from grue.errors import BrokenFileError, GrueError
from grue.games.game import Fact, Game, parse_fact

Facts = frozenset[Fact]
MOST_SHOWN = 120
"""Characters of another library's message."""

IDLE_EVENTS = re.compile(
    r"(looking|examining|taking inventory|searching|waiting|jumping|thinking|listening|smelling|"
    r"tasting|touching|sleeping|singing|swearing|saying|waving|displaying help|printing the|"
    r"requesting|reporting|tracing|turning (?:on|off) the \w+ \w+ (?:command )?option)\b"
)
"""Actions of every TextWorld story that change nothing, known to the rules or not."""


@dataclass(frozen=True)
class Action:
    """One instance of a rule: if ``needs`` hold, ``removes`` go and ``adds`` come."""

    rule: str
    event: str
    """What the running game calls the action: "taking the lettuce"."""
    nouns: tuple[str, ...]
    """The entities that the command names, in its order."""
    needs: Facts
    adds: Facts
    removes: Facts

    @property
    def changes_state(self) -> bool:
        return bool(self.adds or self.removes)

    def apply(self, facts: Facts) -> Facts:
        return (facts - self.removes) | self.adds


@dataclass(frozen=True)
class Quest:
    """A subtask as conditions: any set of ``wins`` finishes it, any set of ``fails`` is a loss."""

    reward: int
    wins: tuple[Facts, ...]
    fails: tuple[Facts, ...]
    optional: bool


@dataclass(frozen=True)
class Logic:
    initial: Facts
    actions: Mapping[str, tuple[Action, ...]]
    """Every command that can ever change or show something, with its possible actions."""
    events: Mapping[str, tuple[Action, ...]]
    quests: tuple[Quest, ...]
    capacity: int | None = None
    """How many things the player can carry, where the facts about slots are wrong."""

    @property
    def commands(self) -> tuple[str, ...]:
        return tuple(sorted(self.actions))

    def admissible(self, facts: Facts, command: str) -> bool:
        """Whether the command would change the state: the paper's definition."""
        if command.startswith("take ") and self._is_full(facts):
            return False
        return any(needs <= facts for needs in self._changes.get(command, ()))

    def _is_full(self, facts: Facts) -> bool:
        """Only where the facts about slots do not tell."""
        if self.capacity is None:
            return False
        return sum(f[0] == "in" and f[2:] == ("I",) for f in facts) >= self.capacity

    @cached_property
    def _changes(self) -> dict[str, list[Facts]]:
        """For each command what must hold for it to change the state: any of these."""
        return {
            command: [action.needs for action in actions if action.changes_state]
            for command, actions in self.actions.items()
        }

    def after(self, facts: Facts, events: Iterable[str]) -> Facts:
        """The facts after the events that the running game reports."""
        for event in events:
            happened = self.happened(facts, event)
            if happened is not None:
                facts = happened.apply(facts)
            elif not (IDLE_EVENTS.match(event.lower()) or self._burns_again(facts, event)):
                warnings.warn(
                    f"the story reports {event!r}, and no rule of the game allows that now: facts, "
                    "admissible commands and subtasks may be wrong from here on",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return facts

    def _burns_again(self, facts: Facts, event: str) -> bool:
        """Whether burned food is cooked: the story reports it, and nothing changes."""
        cooked = [a for a in self.events.get(event.lower(), ()) if a.rule.startswith("cook/")]
        return any(("burned", action.nouns[0]) in facts for action in cooked)

    def happened(self, facts: Facts, event: str) -> Action | None:
        """The action behind an event that the running game reports."""
        candidates = self.events.get(event.lower(), ())
        return next((a for a in candidates if a.needs <= facts), None)


def ground(game: Game) -> Logic:
    """The grounded logic of a game; computed once for each game."""
    try:
        return _ground(_Identity(game))
    except (GrueError, ImportError):
        raise
    except Exception as error:  # TextWorld's parser has many of its own.
        why = " ".join(f"{type(error).__name__}: {error}".split())[:MOST_SHOWN]
        raise BrokenFileError(
            f"the rules in {game.story.with_suffix('.json')} cannot be read ({why}); "
            "make the game again"
        ) from error


@dataclass(frozen=True)
class _Identity:
    """Lets the cache tell games apart without hashing their data."""

    game: Game

    def __hash__(self) -> int:
        return id(self.game.data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.game.data is self.game.data


@cache
def _ground(identity: _Identity) -> Logic:
    from textworld.generator.game import Game as TextWorldGame

    game = identity.game
    textworld_game = TextWorldGame.deserialize(game.data)
    found = _reachable_actions(textworld_game)
    names = {key: info["name"] or "" for key, info in game.infos.items()}
    knowledge = textworld_game.kb

    slots = {e for e, info in game.infos.items() if info["type"] == "slot"}
    carried = sum(f[0] == "in" and f[2] == "I" for f in game.facts)
    used = sum(f[0] == "used" and f[1] in slots for f in game.facts)
    # tw-cooking may give the player more than there are slots: the story counts things.
    capacity = len(slots) if carried > used and slots else None
    by_command: dict[str, list[Action]] = defaultdict(list)
    by_event: dict[str, list[Action]] = defaultdict(list)
    for instance in found:
        placeholders = knowledge.rules[instance.name].match(instance)
        spelled = {p.name: names[v.name] for p, v in placeholders.items()}
        event = _event(game, knowledge.inform7_events[instance.name].format(**spelled).lower())
        template = knowledge.inform7_commands[instance.name]
        command = template.format(**spelled)
        entities = {p.name: v.name for p, v in placeholders.items()}
        nouns = tuple(entities[p] for p in re.findall(r"{(.*?)}", template))
        action = _correct_recipe(game, _action(instance, event, nouns))
        if action is None:
            continue
        if capacity is not None:
            action = without(action, slots)
        by_event[event].append(action)
        by_command[command].append(action)
        if instance.name in ("take/c", "take/s"):
            # The game also understands "take X" without the place.
            by_command[command.split(" from ")[0]].append(action)

    def freeze(table: Mapping[str, list[Action]]) -> dict[str, tuple[Action, ...]]:
        # The most specific rule first, as TextWorld does.
        return {
            k: tuple(sorted(dict.fromkeys(v), key=lambda a: -len(a.needs)))
            for k, v in table.items()
        }

    return Logic(
        frozenset(game.facts),
        freeze(by_command),
        freeze(by_event),
        tuple(_quest(quest) for quest in game.data["quests"]),
        capacity,
    )


def without(action: Action, entities: set[str]) -> Action:
    """An action without the facts about some entities."""

    def rest(facts: Facts) -> Facts:
        return frozenset(f for f in facts if not entities.intersection(f[1:]))

    return replace(
        action, needs=rest(action.needs), adds=rest(action.adds), removes=rest(action.removes)
    )


def _event(game: Game, event: str) -> str:
    """An event as the story reports it: tw-cooking's own drinking goes by another name."""
    if "Drinking carried thing is an action" in game.data["KB"]["logic"]:
        return event.replace("drinking the ", "drinking carried thing the ", 1)
    return event


def _reachable_actions(game: Any) -> list[Any]:
    """Every rule instance whose conditions can each come true (facts are never taken back)."""
    from textworld.logic import State

    rules = [game.kb.rules[name] for name in game.kb.inform7_commands if name in game.kb.rules]
    constants = game.kb.types.constants_mapping
    state = State(game.kb.logic, game.world.facts)
    found = dict.fromkeys(state.all_applicable_actions(rules, constants))
    fresh = list(found)
    while fresh:
        new = {p: None for a in fresh for p in a.postconditions if not state.is_fact(p)}
        state.add_facts(new)
        # What becomes possible needs a new fact: only matches with one are looked for.
        fresh = [
            action
            for rule in rules
            for binding in _bindings(rule, new, constants, game.kb.types)
            for action in state.all_instantiations(rule, binding)
            if action not in found
        ]
        found.update(dict.fromkeys(fresh))
    return list(found)


def _bindings(
    rule: Any, facts: Iterable[Any], constants: Mapping[Any, Any], types: Any
) -> Iterator[dict[Any, Any]]:
    """The ways in which a fact can be one of a rule's conditions."""
    for fact, condition in itertools.product(facts, rule.preconditions):
        if (fact.name, len(fact.arguments)) != (condition.name, len(condition.parameters)):
            continue
        binding = dict(constants)
        for placeholder, variable in zip(condition.parameters, fact.arguments, strict=True):
            known = binding.get(placeholder)
            if known is None and variable not in binding.values():
                binding[placeholder] = variable
            elif known != variable:
                break
            if not types.is_descendant_of(variable.type, placeholder.type):
                break
        else:
            yield binding


def _action(instance: Any, event: str, nouns: tuple[str, ...]) -> Action:
    before = _facts(instance.preconditions)
    after = _facts(instance.postconditions)
    return Action(instance.name, event, nouns, before, after - before, before - after)


def _correct_recipe(game: Game, action: Action) -> Action | None:
    """TextWorld's rules for preparing a meal ignore how the ingredients are cooked and cut.

    They also let a recipe be made of fewer ingredients than it has. The story does neither.
    """
    if not action.rule.startswith("make/recipe/"):
        return action
    initial = set(game.facts)
    bases = {f[2]: f[1] for f in game.facts if f[0] == "base"}
    listed = [f[1] for f in game.facts if f[0] == "in" and f[2] == "RECIPE"]
    if action.rule != f"make/recipe/{len(listed)}":
        return None
    needs = set(action.needs)
    for ingredient in listed:
        food = bases[ingredient]
        for state in (f[0] for f in game.facts if f[1:] == (ingredient,)):
            # What has no such fact to begin with can never change it.
            if state not in ("raw", "uncut") or (state, food) in initial:
                needs.add((state, food))
    return replace(action, needs=frozenset(needs))


def _facts(propositions: Iterable[Any]) -> Facts:
    return frozenset((p.name, *(argument.name for argument in p.arguments)) for p in propositions)


def _quest(quest: Mapping[str, Any]) -> Quest:
    def conditions(events: Iterable[Mapping[str, Any]]) -> tuple[Facts, ...]:
        return tuple(
            frozenset(parse_fact(fact) for fact in event["condition"]["preconditions"])
            for event in events
        )

    return Quest(
        quest["reward"],
        conditions(quest["win_events"]),
        conditions(quest["fail_events"]),
        quest.get("optional", False),
    )
