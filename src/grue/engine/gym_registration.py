"""Tells gymnasium about grue's environments, whichever of the two is imported first.

Gymnasium 1.0 dropped its plugins. Importing it here would make every user of grue pay for it, so
the environments are registered at once where it runs already, and else when it is first imported.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

ENVIRONMENTS = {
    "grue/SaladWorld-v0": (
        "grue.engine.gym:SaladWorldEnv",
        "grue.engine.gym_vector:SaladWorldVectorEnv",
    ),
    "grue/TextGame-v0": ("grue.engine.gym:TextGameEnv", "grue.engine.gym_vector:TextGameVectorEnv"),
}
"""For each name the environment of one game, and that of many."""


def register(gymnasium: Any) -> None:
    """Registers the environments; again is harmless."""
    for name, (one, many) in ENVIRONMENTS.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, one, vector_entry_point=many)


class _WhenImported(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def then_register(module: ModuleType) -> None:
            execute(module)
            register(module)

        spec.loader.exec_module = then_register  # pyright: ignore[reportAttributeAccessIssue]
        return spec


def register_soon() -> None:
    """Registers now if gymnasium is there, else as soon as it is imported."""
    if "gymnasium" in sys.modules:
        register(sys.modules["gymnasium"])
    elif not any(isinstance(finder, _WhenImported) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WhenImported())
