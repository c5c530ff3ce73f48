"""A compiled game as one file: numbers and a header, nothing that could run.

The file is NumPy's ``.npz``. The entry ``header`` holds JSON: the format's version, the hash of the
story and game file that it was compiled from, and everything that is not an array.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from grue.errors import BrokenFileError, GrueError, UsageError
from grue.files import open_plain, write_atomically
from grue.games.compiled_tables import check
from grue.games.game import SUFFIX, Game
from grue.games.tokens import Vocabulary

FORMAT = 1
MOST_UNPACKED = 2**28
"""Bytes of a compiled game, many times those of the largest level."""
DAMAGE = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, struct.error),
    *(AttributeError, LookupError, TypeError, ValueError),
    *(RuntimeError, MemoryError),  # "encrypted", "compression method not supported"; a wild shape
)
"""What reading a file that is not a compiled game can raise."""


@dataclass(frozen=True)
class CompiledGame:
    """The arrays of a game; ``docs/engine.md`` says what each one holds."""

    header: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]

    @property
    def name(self) -> str:
        return self.header["name"]

    @property
    def commands(self) -> tuple[str, ...]:
        return tuple(self.header["commands"])

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(tuple(self.header["words"]))

    def save(self, path: Path) -> None:
        """Writes the file whole or not at all."""
        told = {**self.header, "arrays": sorted(self.arrays)}
        told["digest"] = _digest(told, self.arrays)
        header = np.frombuffer(json.dumps(told).encode(), np.uint8)
        arrays = {"header": header, **self.arrays}
        try:
            write_atomically(
                path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays)
            )
        except OSError as error:
            raise GrueError(f"cannot write {path}: {error.strerror}") from None


def compiled_path(game: Game) -> Path:
    return game.story.with_suffix(SUFFIX)


def load_compiled(path: Path, game: Game | None = None) -> CompiledGame:
    """Reads a compiled game; with ``game``, refuses one that was made from other files."""
    try:
        with open_plain(path, MOST_UNPACKED) as file, np.load(file, allow_pickle=False) as archive:
            _check_size(archive)
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop("header").tobytes())
        version = header["format"]
        if version == FORMAT:
            # A damaged directory of the archive can lose entries without a word.
            if sorted(arrays) != header.get("arrays", sorted(arrays)):
                raise ValueError("arrays are missing")
            digest = header.pop("digest", None)
            if digest is not None and digest != _digest(header, arrays):
                raise ValueError("its digest is wrong")
            header.pop("arrays", None)
            check(header, arrays)
    except FileNotFoundError:
        raise UsageError(f"there is no compiled game {path}; compile the game first") from None
    except DAMAGE as error:
        raise BrokenFileError(
            f"{path} is not a compiled game or is damaged ({error}); compile the game again"
        ) from None
    if version != FORMAT:
        raise BrokenFileError(
            f"{path} has format {version}, this grue reads format {FORMAT}; compile the game again"
        )
    if game is not None and header["game_hash"] != game.digest:
        raise BrokenFileError(
            f"{path} is stale: it was compiled from other files than {game.story.name} and its "
            ".json; compile the game again"
        )
    return CompiledGame(header, arrays)


def _check_size(archive: Any) -> None:
    """A small file may unpack to a very large one."""
    size = sum(entry.file_size for entry in archive.zip.infolist())
    if size > MOST_UNPACKED:
        raise ValueError(f"it unpacks to {size} bytes, and at most {MOST_UNPACKED} are read")


def _digest(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    text = json.dumps(header, sort_keys=True).encode()
    return digest_of({**arrays, "header": np.frombuffer(text, np.uint8)})


def digest_of(arrays: Mapping[str, np.ndarray]) -> str:
    """Of the names, types, shapes and numbers of some arrays."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        if array.dtype.hasobject:
            raise ValueError(f"{name}: Object arrays cannot be saved")
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
