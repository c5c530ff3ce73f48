"""grue trains, studies and ships deep reinforcement-learning agents for text games.

Names are looked up when they are first used, so that ``import grue`` needs nothing but Python. If
Gymnasium is installed, it then knows grue's environments.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from grue.engine.gym_registration import register_environments

__version__ = "0.1.0"

if TYPE_CHECKING:
    from grue.engine.make import make
    from grue.errors import BrokenFileError, GrueError, UsageError
    from grue.games.game import Game
    from grue.games.registry import game_names, load
    from grue.training.config import TrainConfig
    from grue.training.evaluate import Evaluation, evaluate
    from grue.training.player import Player, load_agent
    from grue.training.train import train

_HOMES = {
    "BrokenFileError": "grue.errors",
    "Evaluation": "grue.training.evaluate",
    "Game": "grue.games.game",
    "GrueError": "grue.errors",
    "Player": "grue.training.player",
    "TrainConfig": "grue.training.config",
    "UsageError": "grue.errors",
    "evaluate": "grue.training.evaluate",
    "game_names": "grue.games.registry",
    "load": "grue.games.registry",
    "load_agent": "grue.training.player",
    "make": "grue.engine.make",
    "train": "grue.training.train",
}
__all__ = [
    "BrokenFileError",
    "Evaluation",
    "Game",
    "GrueError",
    "Player",
    "TrainConfig",
    "UsageError",
    "__version__",
    "evaluate",
    "game_names",
    "load",
    "load_agent",
    "make",
    "train",
]


register_environments()


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'grue' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
