"""A compiled game as one file: numbers and a header, nothing that could run.

The file is NumPy's ``.npz``. The entry ``header`` holds JSON: the format's version, the hash of the
story and game file that it was compiled from, and everything that is not an array.
"""

from __future__ import annotations

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
from grue.files import write_atomically
from grue.games.game import SUFFIX, Game
from grue.games.tokens import Vocabulary

FORMAT = 1
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
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop("header").tobytes())
        version = header["format"]
        # A damaged directory of the archive can lose entries without a word.
        if sorted(arrays) != header.pop("arrays", sorted(arrays)):
            raise ValueError("arrays are missing")
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
