"""Files that are written whole or not at all, and paths as people type them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from grue.errors import UsageError

PARTIAL = ".partial"
"""The end of the name of what is still being written."""


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file whole or not at all: beside its place, to the disk, then into its place."""
    check_is_file(path)
    scratch = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        with scratch.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        # Nobody knows the scratch file's name.
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def check_is_file(path: Path) -> None:
    """Refuses names that no file can be written to; a device or a pipe would be replaced by one."""
    if path.is_dir() or not path.name:
        raise UsageError(f"{path} is a folder: give the name of a file to write")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no plain file and would be replaced by one: give another name")


def sync_folder(folder: Path) -> None:
    """Makes names in a folder survive a loss of power, where the file system can."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def expanded(path: str | Path) -> Path:
    """A path with a ~ at its start replaced by the home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(f"there is no home folder for {path}; write the path out") from None
