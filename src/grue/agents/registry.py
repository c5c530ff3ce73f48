"""Registries of agents, gates and explorers by name (docs/extending.md)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from grue.agents.settings import AgentSettings
from grue.errors import NotRegisteredError, UsageError

if TYPE_CHECKING:
    from grue.agents.agent import Agent
    from grue.agents.exploring import ChosenExplorer
    from grue.agents.gating import GateSet
    from grue.engine.environment import Environment

Part = TypeVar("Part")
Span = Literal["step", "episode", "update", "count", "end"]


class Metric(NamedTuple):
    """A column of metrics.jsonl."""

    name: str
    description: str
    per: Span = "update"
    """``step``, ``episode``, ``update``: the mean over those of the row. ``count``: the sum.
    ``end``: the value at the end of the row."""
    parts: int = 0
    """The length of a column of lists; 0: the column holds numbers. Lists are per step."""


class Setup(NamedTuple):
    """The arguments of an agent."""

    env: Environment
    settings: Any
    """An instance of the agent's declared settings."""
    gates: GateSet
    heads: int
    """The largest number of heads of a run of the program."""
    explorers: Sequence[ChosenExplorer] = ()


@dataclass(frozen=True)
class AgentKind:
    """The declaration of an agent."""

    make: Callable[[Setup], Agent]
    """Agents with the same maker and settings share a program."""
    summary: str = ""
    """One line for ``grue agents``."""
    settings: type[AgentSettings] = AgentSettings
    metrics: tuple[Metric, ...] = ()
    """Its own columns, returned by ``observe`` and ``update``."""
    heads: int = 1
    updates: bool = True
    """False for an agent that learns in ``observe``: its ``update`` does nothing."""
    explores: bool = False
    """Whether it can use explorers."""
    classifier: bool = False
    """Whether it trains Φ_C, which learned gates need."""
    estimates: bool = False
    """Whether it estimates ξ̂. Adds the columns precision and recall."""
    look_and_inventory: bool = False
    """Whether it is told the output of look and inventory."""
    oracle: bool = False
    """Whether it needs the admissible commands from the game, with any gate."""
    sets: bool = False
    """Whether it can train on a set of games. It then tries only the commands of the game."""
    reads_commands: bool = False
    """Whether it knows commands by their words, so that it can play games with other commands."""
    score: bool = True
    """Whether it needs the score. Without one, all rewards of the game are 0."""


class Registry(dict[str, Part]):
    """Parts of one kind by name, in the order of registration."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._built_in: set[str] = set()

    def add(self, name: str, part: Part, built_in: bool = False) -> None:
        """Registers a part. It replaces an earlier one of that name, unless that is built in."""
        if name in self._built_in or (built_in and name in self):
            raise UsageError(
                f"{name!r} is a built-in {self.kind} and cannot be replaced; choose another name"
            )
        if not name or not all(c.isalnum() or c in "-_." for c in name):
            raise UsageError(
                f"{name!r} cannot name a {self.kind}: use letters, digits, '-', '_' and '.'"
            )
        self[name] = part
        if built_in:
            self._built_in.add(name)

    def remove(self, name: str) -> None:
        """Removes a part that is not built in."""
        if name not in self._built_in:
            self.pop(name, None)

    def find(self, name: str) -> Part:
        if name in self:
            return self[name]
        raise NotRegisteredError(
            f"there is no {self.kind} {name!r}; there are {', '.join(self)}; if it is your "
            "own, name the file that registers it in GRUE_IMPORT (in Python: import it first)"
        )

    def number(self, name: str) -> int:
        """The index of a part."""
        self.find(name)
        return list(self).index(name)


AGENTS: Registry[AgentKind] = Registry("agent")


def register(name: str, built_in: bool = False, **declared: Any) -> Callable[[Any], Any]:
    """Registers the decorated class or function; ``declared`` are fields of ``AgentKind``."""

    def add(make: Any) -> Any:
        AGENTS.add(name, AgentKind(make, **declared), built_in)
        return make

    return add


def nearest(name: str, known: list[str]) -> str:
    return difflib.get_close_matches(name, known, 1, 0.0)[0]
