"""Checks the annotations of modules without arrays, at a fraction of what jaxtyping costs.

Its wrapper keeps the sizes of named axes for every call. Where no array is annotated, beartype
alone checks as much. Many of these modules are loops of plain Python: the wrapper takes more time
than what it wraps.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any

PACKAGES = ("games", "engine", "experiments", "reports", "watch", "cli")
THEMSELVES = tuple(
    f"engine.{name}" for name in ("drawing", "environment", "gymnax", "sets", "stoa", "text_games")
)
"""Public functions that refuse wrong types in a line of their own, which tests look at."""
CHECK = "import beartype as _beartype"


class Checked(importlib.machinery.SourceFileLoader):
    """Decorates every function and dataclass, as jaxtyping's hook does."""

    def get_code(self, fullname: str) -> CodeType:
        """Always from the source: what Python has cached is not decorated."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def source_to_code(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, data: bytes, path: str, **options: Any
    ) -> CodeType:
        tree = ast.parse(data, path)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                node.decorator_list.append(_check())  # Below property and the like.
            elif isinstance(node, ast.ClassDef) and node.decorator_list:
                node.decorator_list.insert(0, _check())  # With the __init__ of a dataclass.
        head = sum(isinstance(node, ast.Expr | ast.ImportFrom) for node in tree.body[:2])
        tree.body[head:head] = ast.parse(CHECK).body
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def _check() -> ast.expr:
    return ast.parse("_beartype.beartype", mode="eval").body


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        root, _, below = fullname.partition(".")
        if root != "grue" or below.split(".")[0] not in PACKAGES or below in THEMSELVES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return None
        if b"TYPE_CHECKING" in spec.loader.get_data(spec.loader.path):
            return None  # Names that are not there at run time: jaxtyping passes over them.
        spec.loader = Checked(spec.loader.name, spec.loader.path)
        return spec


# Before the first import of grue, and before the hook of jaxtyping.
sys.meta_path.insert(0, Finder())
