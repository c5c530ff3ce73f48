"""All parts by name: importing this registers the built-in ones."""

from __future__ import annotations

from grue.agents import tabular, deep, aedqn  # isort: skip  # In this order they are listed.
from grue.agents.gating import GATES, Gate
from grue.agents.registry import AGENTS, AgentKind

__all__ = ["AGENTS", "GATES", "AgentKind", "Gate", "aedqn", "deep", "tabular"]
