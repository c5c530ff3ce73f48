"""Builds environments and compiled programs from configs; tells which runs can share one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp

from grue.agents.agent import Agent, RunParameters
from grue.agents.exploring import EXPLORERS, ChosenExplorer
from grue.agents.gating import GATES, GateSet, registered_gates
from grue.agents.registry import AGENTS, Metric, Setup
from grue.agents.settings import AgentSettings
from grue.engine.compiled import CompiledEnv
from grue.engine.environment import Environment
from grue.engine.make import compiled
from grue.engine.pooled import PooledEnv
from grue.engine.stacked import StackedEnv
from grue.errors import CannotCompileError, UsageError
from grue.files import expanded
from grue.games.gamefile import SUFFIX, CompiledGame, load_compiled
from grue.games.playable import Knowledge, Playable
from grue.games.registry import known_names, load
from grue.training.algorithm import Algorithm, Program
from grue.training.config import TrainConfig, multiple
from grue.training.metrics import check_columns
from grue.training.sets import (
    TEST,
    VALID,
    about_set,
    digest_of_sets,
    is_set,
    sets_of,
    training_set,
)


class Built(NamedTuple):
    env: Environment
    agent: Agent
    program: Program


def resolved(config: TrainConfig) -> TrainConfig:
    """The config with absolute paths."""
    names = ("story", "commands", "valid", "test")
    given = {name: getattr(config, name) for name in names}
    whole = {name: _whole(path) for name, path in given.items() if path is not None}
    path = expanded(config.game)
    # A misspelled name stays as it is, for the error message.
    is_path = path.exists() or path.parent != Path() or path.suffix
    if config.game not in known_names() and is_path:
        whole["game"] = _whole(config.game)
    return replace(config, **whole)


def _whole(path: str) -> str:
    return str(expanded(path).resolve())


def check_trainable(config: TrainConfig) -> None:
    """Checks that the config fits the game, before anything is built."""
    check_columns(config)
    env = game_of(config)
    steps = env.episode_steps
    _check_set(config, env)
    if not env.knows.admissible:
        for name, part in ((config.gate, config.gate_kind), (config.agent, config.kind)):
            if part.oracle:
                raise UsageError(
                    f"{config.game} does not tell which commands are admissible, which {name} "
                    "needs; choose another, or a TextWorld game"
                )
    if "look" not in env.commands:
        raise UsageError(f"{config.game} has no command 'look', which agents need to begin")
    if config.learning_starts < steps:
        raise UsageError(
            f"learning_starts must be at least {steps}, the steps of an episode, "
            f"not {config.learning_starts}: learning needs an episode that has ended"
        )
    held = getattr(config.settings, "replay_steps", None)
    if held is not None and held < 2 * (steps + 1):
        raise UsageError(
            f"replay_steps must be at least {2 * (steps + 1)}, two episodes, not {held}"
        )


def _check_set(config: TrainConfig, env: Environment) -> None:
    """Checks the settings of a folder of games, or that a single game has none of them."""
    if not isinstance(env, StackedEnv):
        for name in (VALID, TEST):
            if (folder := getattr(config, name)) is not None:
                raise UsageError(
                    f"--{name} {folder} is for training on a folder of games, and {config.game} "
                    "is one game; give a folder, or leave it out"
                )
        return
    if not config.kind.sets:
        able = [name for name, kind in AGENTS.items() if kind.sets]
        raise UsageError(
            f"{config.agent} trains on one game, and {config.game} is a folder of games; there "
            f"use {', '.join(able)}"
        )
    for name, unit in (("valid_every", "metrics_every"), ("steps", "valid_every")):
        multiple(config, name, unit)
    sets_of(config)


def game_of(config: TrainConfig) -> Environment:
    """The environment of a config; cached as long as the game's files do not change."""
    if is_set(config):
        return training_set(config)
    path = expanded(config.game)
    if path.parent != Path() and not path.suffix and not path.exists():
        raise UsageError(
            f"there is no file or folder {config.game}; give a story, or a folder of games"
        )
    if config.game.endswith(SUFFIX):
        arrays = load_compiled(expanded(config.game))
        return _environment(_Opened(arrays.header["game_hash"], config.episode_steps, found=arrays))
    found: Playable = load(config.game, config.story, config.commands)
    _check_score(config, found.knows)
    informed = config.kind.look_and_inventory
    chosen = config.episode_steps, config.game_seed, informed, found.commands
    env = _environment(_Opened(found.digest, *chosen, found=found))
    _check_score(config, env.knows)
    if env.knows.subtasks and not env.subtask_names:
        raise UsageError(
            f"{config.game} has no quest that can be won, so there is nothing to learn; give a "
            "game with a quest"
        )
    return env


@dataclass(frozen=True)
class _Opened:
    """The cache key of an environment: equal if the files and options are."""

    digest: str
    episode_steps: int | None
    game_seed: int | None = None
    informed: bool = False
    commands: tuple[str, ...] = ()
    found: Any = field(default=None, compare=False)


@lru_cache(maxsize=8)
def _environment(opened: _Opened) -> Environment:
    """Compiled if possible, else hosted."""
    if isinstance(opened.found, CompiledGame):
        return CompiledEnv(opened.found, opened.episode_steps)
    game: Playable = opened.found
    try:
        return CompiledEnv(compiled(game), opened.episode_steps)
    except CannotCompileError as error:
        why = str(error)
    return PooledEnv(game, opened.episode_steps, opened.game_seed, opened.informed, why=why)


def _check_score(config: TrainConfig, knows: Knowledge) -> None:
    if config.kind.score and knows.score_refusal is not None:
        raise UsageError(
            f"{config.game} can be played but not trained, because its score cannot be read: "
            f"{knows.score_refusal}; a TextWorld game needs its .json beside it"
        )


def about_games(config: TrainConfig) -> list[str]:
    """Messages for the user, if there is not just one compiled game."""
    if is_set(config):
        return [about_set(name, env) for name, env in sets_of(config).items()]
    env = game_of(config)
    if env.why is None:
        return []
    number = "1 process" if env.processes == 1 else f"up to {env.processes} processes"
    seed = "a new one" if config.game_seed is None else config.game_seed
    chance = f", seed of each episode: {seed}" if env.knows.chance else ""
    return [
        f"{config.game} cannot be compiled ({env.why}): it plays hosted, in {number} of emulators; "
        f"{len(env.commands)} commands, {len(env.vocabulary)} words{chance}"
    ]


def about_game(config: TrainConfig) -> dict[str, Any]:
    """Hash and provenance of the game, for config.json."""
    env = game_of(config)
    learned_on = {"train_hash": env.digest} if is_set(config) else {}
    return {"game_hash": games_digest(config), **learned_on, **env.about}


def games_digest(config: TrainConfig) -> str:
    """Changes when a file of the game, or of any game of a split, changes."""
    return digest_of_sets(config) if is_set(config) else game_of(config).digest


class ProgramKey(NamedTuple):
    """What a program is built from. Runs with equal keys can share one."""

    env: Environment
    make: Callable[[Setup], Agent]
    settings: AgentSettings
    metrics: tuple[Metric, ...]
    gates: GateSet
    rows: tuple[int, ...] = ()
    """steps, metrics_every and average_over."""
    splits: tuple[Any, ...] = ()
    """valid, test and valid_every."""


def program_key(config: TrainConfig) -> ProgramKey:
    """The key of a config: without the settings that may differ between runs of a program."""
    settings: Any = replace(config.settings, look_every=0)
    if hasattr(settings, "heads"):
        settings = replace(settings, heads=None)
    own = config.gate_settings
    if hasattr(own, "softness"):
        own = replace(own, softness=type(own)().softness)
    return ProgramKey(
        game_of(config),
        config.kind.make,
        settings,
        config.kind.metrics,
        registered_gates({config.gate: own}),
        (config.steps, config.metrics_every, config.average_over),
        (config.valid, config.test, config.valid_every),
    )


Explorers = tuple[ChosenExplorer, ...]


def explorers_of(configs: Iterable[TrainConfig]) -> Explorers:
    """The distinct explorers of some runs."""
    return tuple(dict.fromkeys(config.explorer for config in configs))


def explorer_notes(explorers: Explorers) -> list[Any]:
    """Explorers as JSON, for the header of a checkpoint."""
    names = {kind: name for name, kind in EXPLORERS.items()}
    return [[names[one.kind], asdict(one.settings)] for one in explorers]


def noted_explorers(notes: Mapping[str, Any]) -> Explorers:
    """The explorers named in the header of a checkpoint."""
    found = [(EXPLORERS.find(name), settings) for name, settings in notes["explorers"]]
    return tuple(ChosenExplorer(kind, kind.settings(**settings)) for kind, settings in found)


def build(config: TrainConfig, heads: int, many: bool, explorers: Explorers | None = None) -> Built:
    """The program for a run, or for many. Programs are cached in the process."""
    key = program_key(config)._replace(rows=(), splits=())
    return _build(key, heads, many, explorers_of([config]) if explorers is None else explorers)


def agent_for(env: Environment, config: TrainConfig, heads: int, explorers: Explorers) -> Agent:
    """The agent of a config, for other games. It is made once for the same games."""
    key = program_key(config)._replace(env=env, rows=(), splits=())
    return _agent(key, heads, explorers)


@lru_cache(maxsize=16)
def _agent(key: ProgramKey, heads: int, explorers: Explorers) -> Agent:
    return key.make(Setup(key.env, key.settings, key.gates, heads, explorers))


@lru_cache(maxsize=4)
def _build(key: ProgramKey, heads: int, many: bool, explorers: Explorers) -> Built:
    agent = _agent(key, heads, explorers)
    theirs = dict.fromkeys(metric for explorer in explorers for metric in explorer.kind.metrics)
    algorithm = Algorithm(key.env, agent, key.settings, (*key.metrics, *theirs), many)
    return Built(key.env, agent, algorithm.program())


def parameters_of(config: TrainConfig, explorers: Explorers | None = None) -> RunParameters:
    """What may differ between the runs of a program."""
    positive, negative = (
        getattr(config.settings, f"{sign}_fraction", 0.0) if config.priority else 0.0
        for sign in ("positive", "negative")
    )
    return RunParameters(
        gate=jnp.int32(GATES.number(config.gate)),
        heads=jnp.int32(config.heads_in_use),
        positive_fraction=jnp.float32(positive),
        negative_fraction=jnp.float32(negative),
        look_every=jnp.int32(config.settings.look_every),
        softness=jnp.float32(getattr(config.gate_settings, "softness", 0.0)),
        explorer=jnp.int32(0 if explorers is None else explorers.index(config.explorer)),
    )
