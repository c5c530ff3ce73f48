"""Files with a JSON object on each line, to which rows are added while a run is trained."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from grue.errors import BrokenFileError
from grue.files import read_plain, write_atomically

Row = dict[str, Any]
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""Exceptions from reading a file with unexpected content."""


class RowFile:
    """A file of JSON rows, open for appending."""

    def __init__(self, path: Path, rows: Iterable[Row]) -> None:
        """Replaces the content of the file by the rows so far."""
        lines = b"".join(map(_line, rows))
        write_atomically(path, lambda file: file.write(lines))
        self._file = path.open("ab")

    def add(self, row: Row) -> None:
        self._file.write(_line(row))
        self._file.flush()

    def sync(self) -> None:
        """Writes the rows to disk, so that they survive a power loss."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()


def read_lines(path: Path, fault: Callable[[Any, int], str], until: int | None = None) -> list[Row]:
    """The rows, up to a step; none if there is no file. An unfinished last line is left out.

    ``fault`` describes what is wrong with a row, given its number from 1 on.
    """
    try:
        lines = read_plain(path).split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    rows: list[Row] = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            wrong = fault(row, number)
        except UNREADABLE:
            row, wrong = {}, "it is no row"
        if wrong:
            raise BrokenFileError(
                f"{path}, line {number} is damaged ({wrong}); train into another folder"
            )
        if until is not None and row["step"] > until:
            break
        rows.append(row)
    return rows


def _line(row: Row) -> bytes:
    return json.dumps(row, allow_nan=False).encode() + b"\n"
