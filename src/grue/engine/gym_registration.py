"""Registers grue's environments with Gymnasium."""

from __future__ import annotations

ENVIRONMENTS = {
    "grue/SaladWorld-v0": (
        "grue.engine.gym:SaladWorldEnv",
        "grue.engine.gym_vector:SaladWorldVectorEnv",
    ),
    "grue/TextGame-v0": ("grue.engine.gym:TextGameEnv", "grue.engine.gym_vector:TextGameVectorEnv"),
}
"""For each name the environment of one game, and that of many."""


def register_environments() -> None:
    """Does nothing if Gymnasium is not installed, or if they are registered already."""
    try:
        import gymnasium
    except ImportError:
        return
    for name, (one, many) in ENVIRONMENTS.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, one, vector_entry_point=many)
