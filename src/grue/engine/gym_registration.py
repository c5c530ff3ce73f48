"""Registers grue's environments with Gymnasium."""

from __future__ import annotations


def register_environments() -> None:
    """Does nothing if Gymnasium is not installed, or if they are already registered."""
    try:
        import gymnasium
    except ImportError:
        return
    for kind in ("SaladWorld", "TextGame"):
        if (name := f"grue/{kind}-v0") not in gymnasium.registry:
            many = f"grue.engine.gym_vector:{kind}VectorEnv"
            gymnasium.register(name, f"grue.engine.gym:{kind}Env", vector_entry_point=many)
