"""Atomic writes of files, and paths with ~."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from grue.errors import UsageError

PARTIAL = ".partial"
"""File name ending of incomplete files."""


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a temporary file, flushes it to disk, and renames it to ``path``."""
    check_is_file(path)
    scratch = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        with scratch.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException as error:
        scratch.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        # The message names the user's file, not the temporary one.
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    sync_folder(path.parent)


def check_is_file(path: Path) -> None:
    """Refuses folders, and devices and pipes, which would be replaced by a plain file."""
    if path.is_dir() or not path.name:
        raise UsageError(f"{path} is a folder: give the name of a file to write")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a plain file and would be replaced: give another name")


def sync_folder(folder: Path) -> None:
    """Makes new names in a folder survive a power loss, if the file system supports it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def expanded(path: str | Path) -> Path:
    """A path with ~ replaced by the home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(f"there is no home folder for {path}; give the full path") from None
