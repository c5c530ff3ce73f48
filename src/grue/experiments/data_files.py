"""Reads the TOML files that come with grue: the paper's figures and its claims."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from grue.agents.registry import nearest
from grue.errors import GrueError, UsageError
from grue.files import read_plain

Entry = TypeVar("Entry")


def shipped(name: str) -> Path:
    """A file of ``docs/`` or ``results/bench/``. The wheel has a copy beside this module."""
    here, checkout = Path(__file__), Path(__file__).parents[3]
    for path in (
        here.with_name(name),
        checkout / "docs" / name,
        checkout / "results" / "bench" / name,
    ):
        if path.is_file():
            return path
    raise GrueError(f"{name} is missing from this installation; install grue again")


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_plain(path).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read as TOML ({error}); give another file") from None


def read_entries(
    path: Path,
    values: Mapping[str, Any],
    kind: str,
    key: str,
    read: Callable[[Mapping[str, Any]], Entry],
) -> dict[str, Entry]:
    """The tables ``[[kind]]`` of a file by their key. An error names the file and the table."""
    tables = values.get(kind)
    if not isinstance(tables, list):
        raise UsageError(f"{path} has no {kind}; a {kind} begins with the line [[{kind}]]")
    found: dict[str, Entry] = {}
    for number, table in enumerate(tables, 1):
        try:
            entry = read(table)
            if table[key] in found:
                raise UsageError(f"there are two {kind}s {table[key]}; give each its own {key}")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{path}, {kind} {number}: {error}") from None
        found[table[key]] = entry
    return found


def check_known(name: str, known: Iterable[str], what: str) -> None:
    """Refuses an unknown name; the error names the nearest known one."""
    names = list(known)
    if name not in names:
        close = f": did you mean {nearest(str(name), names)}?" if names else ""
        raise UsageError(f"there is no {what} {name!r}{close} there are {', '.join(names)}")


def check_texts(table: Mapping[str, Any], texts: Iterable[str], more: Iterable[str]) -> None:
    """Refuses a table with an unknown name, or without one of the texts that it needs."""
    for name in table:
        check_known(name, (*texts, *more), "entry")
    for name in texts:
        if not isinstance(table.get(name), str):
            raise UsageError(f'{name} is missing or no text; give {name} = "..."')
