"""Reads plain files only, walks folders to an end, writes atomically; paths with ~."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from grue.errors import UsageError

PARTIAL = ".partial"
"""File name ending of incomplete files."""
MOST_BYTES = 2**30
MOST_ENTRIES, DEEPEST = 50_000, 40
"""How far folders are searched for runs."""


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


def open_plain(path: Path, most: int | None = None) -> BinaryIO:
    """Opens a file for reading. Pipes and devices may never end: they are an OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a plain file", str(path))
        if most is not None and found.st_size > most:
            why = f"it has {found.st_size} bytes, and at most {most} are read"
            raise OSError(errno.EFBIG, why, str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_plain(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a plain file."""
    with open_plain(path, most) as file:
        return file.read()


class Walk:
    """Goes through folders: each once, whatever links there are, and to a limit."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self._been: set[tuple[int, int]] = set()
        self._count = 0

    def inside(self, folder: Path) -> list[Path]:
        """What a folder holds, in order, without hidden and unfinished files."""
        if not folder.is_dir():
            return []
        here = folder.stat()
        if (here.st_dev, here.st_ino) in self._been:
            return []
        self._been.add((here.st_dev, here.st_ino))
        names = []
        for name in os.listdir(folder):
            self._count += 1
            if self._count > MOST_ENTRIES or len(folder.parts) - len(self.top.parts) > DEEPEST:
                raise UsageError(
                    f"{self.top} holds more than {MOST_ENTRIES} files, or folders more than "
                    f"{DEEPEST} deep; give the folder that holds the runs"
                )
            if not (name.startswith(".") or name.endswith(PARTIAL)):
                names.append(name)
        return [folder / name for name in sorted(names)]


def check_is_file(path: Path) -> None:
    """Refuses folders, and devices and pipes, which would be replaced by a plain file."""
    if path.is_dir() or not path.name:
        raise UsageError(f"{path} is a folder: give the name of a file to write")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a plain file and would be replaced: give another name")


def check_out(folder: Path) -> None:
    """Refuses an ``--out`` that is a file, or is below one."""
    there = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    if there.exists() and not there.is_dir():
        raise UsageError(f"{there} is no folder; give another --out")


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
        str(path).encode()
        return Path(path).expanduser()
    except UnicodeEncodeError:
        raise UsageError(f"{path} has a name that is not UTF-8; rename the file") from None
    except RuntimeError:
        raise UsageError(f"there is no home folder for {path}; give the full path") from None
