"""Imports the modules in ``GRUE_IMPORT``, so that commands know your own agents and gates."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from grue.errors import UsageError
from grue.files import expanded

VARIABLE = "GRUE_IMPORT"


def import_own() -> None:
    """Imports modules and ``.py`` files from a list with commas, each once."""
    for name in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        try:
            _import(name)
        except KeyboardInterrupt:
            raise
        # The user's code may raise anything; a script may also call sys.exit.
        except BaseException as error:
            raise UsageError(
                f"{VARIABLE} names {name}, which cannot be imported ({_reason(error)}); give "
                "modules that Python finds from here or paths of .py files, with commas between"
            ) from error


def _import(name: str) -> None:
    is_file = name.endswith(".py")
    path = expanded(name).resolve()
    folder = str(path.parent if is_file else Path.cwd())
    # As for a script: it can import the modules beside it, also later.
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if is_file:
        _import_file(path)
    else:
        import_module(name)


def _import_file(path: Path) -> None:
    there = sys.modules.get(path.stem)
    if there is not None and getattr(there, "__file__", None) == str(path):
        return
    if not path.is_file():
        raise FileNotFoundError("there is no such file")
    if there is not None:
        raise ImportError(f"there is another module {path.stem}, give the file another name")
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[path.stem] = module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise


def _reason(error: BaseException) -> str:
    """The error, and the line of the user's code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.name == "<module>"]
    place = f" at {own[0].filename}:{own[0].lineno}" if own else ""
    try:
        told = str(error)
    except Exception:  # Its class is the user's, too.
        told = "it has no text"
    return f"{type(error).__name__}: {told}{place}"
