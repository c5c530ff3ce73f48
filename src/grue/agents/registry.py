"""The agents by name. An agent of your own joins them with ``register`` (docs/extending.md)."""

from __future__ import annotations

from collections.abc import Callable

from grue.agents.agent import Agent
from grue.agents.settings import Settings
from grue.engine.environment import Environment
from grue.errors import UsageError

Maker = Callable[[Environment, Settings], Agent]
AGENTS: dict[str, Maker] = {}


def register(name: str) -> Callable[[Maker], Maker]:
    """Makes a maker of agents known under a name."""

    def add(maker: Maker) -> Maker:
        AGENTS[name] = maker
        return maker

    return add


def make_agent(name: str, env: Environment, settings: Settings) -> Agent:
    if name not in AGENTS:
        raise UsageError(f"there is no agent {name!r}; there are {', '.join(AGENTS)}")
    return AGENTS[name](env, settings)


@register("tabular")
def _tabular(env: Environment, settings: Settings) -> Agent:
    from grue.agents.tabular import TabularAgent

    return TabularAgent(env, settings)


@register("li-tabular")
def _li_tabular(env: Environment, settings: Settings) -> Agent:
    from grue.agents.tabular import TabularAgent

    return TabularAgent(env, settings, look_and_inventory=True)


@register("drqn")
def _drqn(env: Environment, settings: Settings) -> Agent:
    """The baseline: one head whatever the score."""
    return _deep(env, settings, 1)


@register("sc")
def _sc(env: Environment, settings: Settings) -> Agent:
    """Score contextualisation."""
    return _deep(env, settings, 5)


@register("ae-dqn")
def _ae_dqn(env: Environment, settings: Settings) -> Agent:
    """Action elimination."""
    from grue.agents.aedqn import EliminationAgent

    return EliminationAgent(env, settings)


def _deep(env: Environment, settings: Settings, heads: int) -> Agent:
    from grue.agents.deep import DeepAgent

    return DeepAgent(env, settings, heads if settings.heads is None else settings.heads)
