"""Folders of games to train on, to validate and to test on. Each is opened once in a process."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from grue.agents.registry import AGENTS
from grue.engine.sets import STORIES, games_of, make_many
from grue.engine.stacked import StackedEnv, joined_digest
from grue.errors import GrueError, UsageError
from grue.files import expanded, read_plain
from grue.games.gamefile import SUFFIX
from grue.games.makers import SPLITS
from grue.games.registry import known_names
from grue.games.tokens import Vocabulary
from grue.training.config import TrainConfig

TRAIN, VALID, TEST = SPLITS


class KnownWords(NamedTuple):
    """The words of a trained agent, and the commands that it knows by their number."""

    vocabulary: Vocabulary
    commands: tuple[str, ...] = ()


def is_set(config: TrainConfig) -> bool:
    """Whether the game is a folder of games. Names of games come first, as elsewhere."""
    return config.game not in known_names() and expanded(config.game).is_dir()


def training_set(config: TrainConfig) -> StackedEnv:
    for option, given in (("story", config.story), ("commands", config.commands)):
        if given is not None:
            raise UsageError(
                f"--{option} is for one Z-machine story, and {config.game} is a folder of games; "
                f"leave --{option} out"
            )
    return open_set(config.game, config)


def open_set(folder: str, config: TrainConfig, words: KnownWords | None = None) -> StackedEnv:
    """All games of a folder; cached as long as its files do not change."""
    path = expanded(folder)
    names = sorted({_stem(game) for game in map(Path, map(str, games_of(path)))})
    endings = (*STORIES, ".json", SUFFIX)
    files = [path / f"{name}{ending}" for name in names for ending in endings]
    read = tuple((file.name, _digest(file)) for file in files if file.is_file())
    return _opened(_Folder(folder, read, config.episode_steps, config.leave_out, words))


def _stem(game: Path) -> str:
    return game.name.removesuffix(SUFFIX) if game.name.endswith(SUFFIX) else game.stem


def _digest(file: Path) -> str:
    return hashlib.sha256(read_plain(file)).hexdigest()


@dataclass(frozen=True)
class _Folder:
    """The cache key of a set: equal if the files and options are."""

    path: str
    files: tuple[tuple[str, str], ...]
    """Names and digests."""
    episode_steps: int | None
    leave_out: bool
    words: KnownWords | None


@lru_cache(maxsize=16)
def _opened(folder: _Folder) -> StackedEnv:
    words = folder.words
    with warnings.catch_warnings():
        # ``about_set`` says once what there is to say.
        warnings.simplefilter("ignore")
        env = make_many(
            folder.path,
            "compiled",
            vocabulary=None if words is None else words.vocabulary,
            commands=() if words is None else words.commands,
            hosted="leave out",
            damaged="leave out",
            episode_steps=folder.episode_steps,
        )
    if env.left_out and not folder.leave_out:
        name, why = env.left_out[0]
        total = len(env.left_out) + len(env.names)
        raise GrueError(
            f"{len(env.left_out)} of {total} games of {folder.path} cannot be used, first "
            f"{Path(name).name} ({why}); mend or remove it, or leave it out (grue train --set "
            "leave_out=yes, grue eval --leave-out)"
        )
    look = [command == "look" for command in env.commands]
    looks = [bool(own[look].any()) for own in np.asarray(env.command_sets)]
    for name in (name for name, has in zip(env.names, looks, strict=True) if not has):
        raise UsageError(
            f"{name} of {folder.path} has no command 'look', which agents need to begin; remove it"
        )
    return env


def about_set(name: str, env: StackedEnv) -> str:
    """One line about a set: its size, and what was left out or is not exact."""
    many = "games" if len(env.names) > 1 else "game"
    told = f"{name}: {len(env.names)} {many}, {len(env.commands)} commands"
    told += f", {len(env.vocabulary)} words" if name == TRAIN else ""
    if env.left_out:
        first, why = env.left_out[0]
        told += f"; left out {len(env.left_out)}, first {Path(first).name} ({why})"
    if env.near:
        told += f"; {len(env.near)} are compiled near, first {env.near[0]} (docs/engine.md)"
    return told


def sets_of(config: TrainConfig) -> dict[str, StackedEnv]:
    """The games of each split of a config that trains on a folder; ``train`` is the first."""
    train = training_set(config)
    found, given = {TRAIN: train}, {VALID: config.valid, TEST: config.test}
    for split, folder in given.items():
        if folder is not None:
            found[split] = unseen(folder, config, train)
    for one, other in combinations(found, 2):
        _check_apart(one, found[one], other, found[other])
    return found


def unseen(folder: str, config: TrainConfig, train: StackedEnv) -> StackedEnv:
    """Other games in the words of the training set, for the agent of a config."""
    numbered = not config.kind.reads_commands
    known = KnownWords(train.vocabulary, train.commands if numbered else ())
    env = open_set(folder, config, known)
    if numbered and len(env.commands) > len(train.commands):
        new = env.commands[len(train.commands)]
        raise UsageError(
            f"{config.agent} knows commands by their number, and {folder} has commands, such as "
            f"{new!r}, that {config.game} does not have; use an agent that reads commands: "
            f"{', '.join(name for name, kind in AGENTS.items() if kind.reads_commands)}"
        )
    return env


def _check_apart(one: str, first: StackedEnv, other: str, second: StackedEnv) -> None:
    """Refuses a game that is in two splits: a training game is not unseen."""
    names = dict(zip(first.digests, first.names, strict=True))
    for digest, name in zip(second.digests, second.names, strict=True):
        if digest in names:
            raise UsageError(
                f"{name} of the {other} games is also {names[digest]} of the {one} games; "
                "remove it from one of the folders"
            )


def digest_of_sets(config: TrainConfig) -> str:
    """Changes when a file of any split changes."""
    return joined_digest([env.digest for env in sets_of(config).values()])
