"""grue trains, studies and ships deep reinforcement-learning agents for text games.

Names are imported on first use, so ``import grue`` is fast. It registers grue's environments with
Gymnasium, if that is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from grue.engine.gym_registration import register_environments

__version__ = "0.1.0"

if TYPE_CHECKING:
    from grue.engine.gymnax import gymnax
    from grue.engine.make import make
    from grue.engine.sets import make_many
    from grue.engine.stoa import stoa
    from grue.engine.text_games import TextGames
    from grue.errors import BrokenFileError, GrueError, UsageError
    from grue.games.game import Game
    from grue.games.registry import game_names, load
    from grue.training.config import TrainConfig
    from grue.training.evaluate import Evaluation, evaluate
    from grue.training.player import Player, load_agent
    from grue.training.train import train

_MODULES = {
    "grue.engine.gymnax": ("gymnax",),
    "grue.engine.make": ("make",),
    "grue.engine.sets": ("make_many",),
    "grue.engine.stoa": ("stoa",),
    "grue.engine.text_games": ("TextGames",),
    "grue.errors": ("BrokenFileError", "GrueError", "UsageError"),
    "grue.games.game": ("Game",),
    "grue.games.registry": ("game_names", "load"),
    "grue.training.config": ("TrainConfig",),
    "grue.training.evaluate": ("Evaluation", "evaluate"),
    "grue.training.player": ("Player", "load_agent"),
    "grue.training.train": ("train",),
}
__all__ = ["BrokenFileError", "Evaluation", "Game", "GrueError", "Player", "TrainConfig"]
__all__ += ["UsageError", "__version__", "evaluate", "game_names", "load", "load_agent", "make"]
__all__ += ["TextGames", "gymnax", "make_many", "stoa", "train"]

register_environments()


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'grue' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
