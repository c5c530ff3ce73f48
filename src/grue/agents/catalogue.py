"""Registers all built-in agents, gates and explorers by importing their modules."""

from __future__ import annotations

from importlib import import_module

from grue.agents.exploring import EXPLORERS, ExplorerKind
from grue.agents.gating import GATES, Gate
from grue.agents.registry import AGENTS, AgentKind

__all__ = ["AGENTS", "EXPLORERS", "GATES", "AgentKind", "ExplorerKind", "Gate"]

# Agents are listed in this order.
for _module in ("explorers", "text_explorers", "tabular", "deep", "drrn", "aedqn"):
    import_module(f"grue.agents.{_module}")
