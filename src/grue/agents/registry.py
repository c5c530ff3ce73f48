"""Agents, gates and explorers by name: one registration carries all that others need to know.

``register`` adds an agent (docs/extending.md); gates join with ``gating.register``. The built-in
parts are registered when ``grue.agents.catalogue`` is imported.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

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
    """What its mean is over: the steps, the ended episodes or the updates of a row. ``count``: a
    sum over the row. ``end``: the value at the end of the row."""


class Setup(NamedTuple):
    """What an agent is made from."""

    env: Environment
    settings: Any
    """An instance of the agent's declared settings."""
    gates: GateSet
    heads: int
    """The most heads that a run of the program has."""
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
    """Its own columns: what ``observe`` and ``update`` return under these names."""
    heads: int = 1
    updates: bool = True
    """False for an agent that learns in ``observe``: its ``update`` does nothing."""
    explores: bool = False
    """Whether it learns from an explorer's bonus."""
    classifier: bool = False
    """Whether it trains Φ_C, which learned gates need."""
    estimates: bool = False
    """Whether it estimates ξ̂: then precision and recall are columns too."""
    look_and_inventory: bool = False
    """Whether it is told what look and inventory would print."""


class Registry(Mapping[str, Part], Generic[Part]):
    """Parts of one kind by name, in the order in which they were registered."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, Part] = {}
        self._built_in: set[str] = set()

    def add(self, name: str, part: Part, built_in: bool = False) -> None:
        """Registers a part. One of your own may be replaced by a newer one, a built-in may not."""
        if name in self._built_in or (built_in and name in self._parts):
            raise UsageError(
                f"{name!r} is a built-in {self.kind} and cannot be replaced; choose another name"
            )
        if not name or not all(c.isalnum() or c in "-_." for c in name):
            raise UsageError(
                f"{name!r} cannot name a {self.kind}: use letters, digits, '-', '_' and '.'"
            )
        self._parts[name] = part
        if built_in:
            self._built_in.add(name)

    def remove(self, name: str) -> None:
        """Forgets a part of one's own."""
        if name not in self._built_in:
            self._parts.pop(name, None)

    def find(self, name: str) -> Part:
        if name in self._parts:
            return self._parts[name]
        raise NotRegisteredError(
            f"there is no {self.kind} {name!r}; there are {', '.join(self._parts)}; if it is your "
            "own, name the file that registers it in GRUE_IMPORT (in Python: import it first)"
        )

    def number(self, name: str) -> int:
        """Its place, for sorting."""
        self.find(name)
        return list(self._parts).index(name)

    def __getitem__(self, name: str) -> Part:
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


AGENTS: Registry[AgentKind] = Registry("agent")


def register(name: str, built_in: bool = False, **declared: Any) -> Callable[[Any], Any]:
    """Registers what it decorates as the maker of an agent; the rest is ``AgentKind``'s fields."""

    def add(make: Any) -> Any:
        AGENTS.add(name, AgentKind(make, **declared), built_in)
        return make

    return add


def nearest(name: str, known: list[str]) -> str:
    return difflib.get_close_matches(name, known, 1, 0.0)[0]
