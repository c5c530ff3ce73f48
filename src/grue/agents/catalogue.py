"""All parts by name: importing this registers the built-in ones."""

from __future__ import annotations

from grue.agents import aedqn, deep, tabular
from grue.agents.exploring import EXPLORERS, ExplorerKind
from grue.agents.gating import GATES, Gate
from grue.agents.registry import AGENTS, AgentKind

__all__ = [
    "AGENTS",
    "EXPLORERS",
    "GATES",
    "AgentKind",
    "ExplorerKind",
    "Gate",
    "aedqn",
    "deep",
    "tabular",
]
