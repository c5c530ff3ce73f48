"""What runs are trained with: which of them can share a program, and what is each one's own."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp

from grue.agents.agent import Agent, Condition
from grue.agents.gating import gate_number
from grue.agents.registry import make_agent
from grue.engine.compiled import CompiledEnv
from grue.engine.make import make
from grue.errors import CannotCompileError, UsageError
from grue.games.registry import game_names
from grue.training.algorithm import Program, make_program
from grue.training.config import TrainConfig

ONE_PROGRAM = ("drqn", "sc")
"""Agents that are the same program with other numbers of heads."""


class Built(NamedTuple):
    env: CompiledEnv
    agent: Agent
    program: Program


def resolved(config: TrainConfig) -> TrainConfig:
    """The config with the whole path of its game, so that it means the same from any folder."""
    if config.game in game_names():
        return config
    path = Path(config.game).expanduser()
    # A name that is no path stays one, for the error to name.
    if not path.exists() and path.parent == Path() and not path.suffix:
        return config
    return replace(config, game=str(path.resolve()))


def check_trainable(config: TrainConfig) -> None:
    """Refuses what the game cannot be trained with, before anything is built."""
    env = open_game(config.game, config.episode_steps)
    steps = env.episode_steps
    if "look" not in env.commands:
        raise UsageError(f"{config.game} has no command 'look', which agents need to begin")
    if config.learning_starts < steps:
        raise UsageError(
            f"learning_starts must be at least {steps}, the steps of an episode, "
            f"not {config.learning_starts}: before it no episode may have ended"
        )
    if config.replay_steps < 2 * (steps + 1):
        raise UsageError(
            f"replay_steps must be at least {2 * (steps + 1)}, two episodes, "
            f"not {config.replay_steps}"
        )


@lru_cache(maxsize=8)
def open_game(game: str, episode_steps: int | None) -> CompiledEnv:
    try:
        return make(game, "compiled", episode_steps)
    except CannotCompileError as error:
        raise UsageError(
            f"{game} only plays on the hosted engine, and training needs a compiled game ({error})"
        ) from None


def own_heads(config: TrainConfig) -> int:
    env = open_game(config.game, config.episode_steps)
    return make_agent(config.agent, env, config).heads


def shared_part(config: TrainConfig) -> TrainConfig:
    """The config without what may differ between the runs of one program."""
    shared = replace(config, gate="none", priority=True, look_every=0, seeds=(0,))
    if config.agent in ONE_PROGRAM:
        shared = replace(shared, agent=ONE_PROGRAM[-1], heads=None)
    return shared


def build(config: TrainConfig, heads: int, many: bool) -> Built:
    """The program of a run, or of many, for agents with so many heads.

    Programs are kept: further runs in the same process compile nothing.
    """
    shared = shared_part(config)
    every = config.metrics_every
    return _build(replace(shared, steps=every, average_over=every), heads, many)


@lru_cache(maxsize=4)
def _build(config: TrainConfig, heads: int, many: bool) -> Built:
    env = open_game(config.game, config.episode_steps)
    settings = replace(config, heads=heads) if config.agent in ONE_PROGRAM else config
    agent = make_agent(config.agent, env, settings)
    return Built(env, agent, make_program(env, agent, settings, many))


def condition_of(config: TrainConfig, heads: int) -> Condition:
    """What is a run's own in a program that it shares."""
    return Condition(
        gate=jnp.int32(gate_number(config.gate)),
        heads=jnp.int32(heads),
        positive_fraction=jnp.float32(config.positive_fraction if config.priority else 0.0),
        negative_fraction=jnp.float32(config.negative_fraction if config.priority else 0.0),
        look_every=jnp.int32(config.look_every),
    )
