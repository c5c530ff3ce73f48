"""What runs are trained with: which of them can share a program, and what is each one's own."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp

from grue.agents.agent import Agent, Condition
from grue.agents.gating import gate_number
from grue.agents.registry import make_agent
from grue.engine.compiled import CompiledEnv
from grue.engine.environment import Environment
from grue.engine.make import compiled, make
from grue.engine.pooled import PooledEnv
from grue.errors import CannotCompileError, UsageError
from grue.files import expanded
from grue.games.gamefile import SUFFIX
from grue.games.playable import Playable
from grue.games.registry import known_names, load
from grue.training.algorithm import Program, make_program
from grue.training.config import TrainConfig

ONE_PROGRAM = ("drqn", "sc")
"""Agents that are the same program with other numbers of heads."""


INFORMED = ("li-tabular", "ae-dqn")
"""Agents that are told what look and inventory would print."""


class Built(NamedTuple):
    env: Environment
    agent: Agent
    program: Program


def resolved(config: TrainConfig) -> TrainConfig:
    """The config with the whole paths of its files, so that it means the same from any folder."""
    given = {"story": config.story, "commands": config.commands}
    whole = {name: _whole(path) for name, path in given.items() if path is not None}
    path = expanded(config.game)
    # A name that is no path stays one, for the error to name.
    is_path = path.exists() or path.parent != Path() or path.suffix
    if config.game not in known_names() and is_path:
        whole["game"] = _whole(config.game)
    return replace(config, **whole)


def _whole(path: str) -> str:
    return str(expanded(path).resolve())


def check_trainable(config: TrainConfig) -> None:
    """Refuses what the game cannot be trained with, before anything is built."""
    env = game_of(config)
    steps = env.episode_steps
    if config.gate == "oracle" and not env.knows.admissible:
        raise UsageError(
            f"nobody knows which commands are admissible in {config.game}: "
            "the gate oracle is for games that compile and for TextWorld's, take another"
        )
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


def game_of(config: TrainConfig) -> Environment:
    """The game of a config: always the same one, so that its programs are compiled once."""
    return open_game(
        config.game,
        config.episode_steps,
        config.story,
        config.commands,
        config.game_seed,
        config.agent in INFORMED,
    )


@lru_cache(maxsize=8)
def open_game(
    game: str,
    episode_steps: int | None = None,
    story: str | None = None,
    commands: str | None = None,
    game_seed: int | None = None,
    informed: bool = False,
) -> Environment:
    """A game to train on: compiled if it can be, else hosted."""
    if game.endswith(SUFFIX):
        return make(game, "compiled", episode_steps)
    found: Playable = load(game, story, commands)
    try:
        return CompiledEnv(compiled(found), episode_steps)
    except CannotCompileError as error:
        why = str(error)
    _check_score(game, found.knows.score_refusal)
    env = PooledEnv(found, episode_steps, game_seed, informed, why=why)
    _check_score(game, env.knows.score_refusal)
    return env


def _check_score(game: str, refusal: str | None) -> None:
    if refusal is not None:
        raise UsageError(
            f"{game} can be played and not trained, its score cannot be read: {refusal}; "
            "a TextWorld game needs its .json beside it"
        )


def hosting(config: TrainConfig) -> str | None:
    """What there is to know of a game that is not compiled."""
    env = game_of(config)
    if not isinstance(env, PooledEnv):
        return None
    number = "1 process" if env.pool.size == 1 else f"up to {env.pool.size} processes"
    chance = "a new one" if config.game_seed is None else config.game_seed
    return (
        f"{config.game} is hosted, in {number} of emulators, and not compiled: {env.why}; "
        f"{len(env.commands)} commands, {len(env.vocabulary)} words, seed of each episode: {chance}"
    )


def about_game(config: TrainConfig) -> dict[str, Any]:
    """Which game it was, for a run's record."""
    env = game_of(config)
    own = env.about if isinstance(env, PooledEnv) else {}
    return {"game_hash": env.digest, **own}


def own_heads(config: TrainConfig) -> int:
    return make_agent(config.agent, game_of(config), config).heads


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
    env = game_of(config)
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
