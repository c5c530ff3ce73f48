"""Checks that a file is a complete Z-machine story. A broken one would crash the emulator.

The header is described in the Z-Machine Standards Document 1.1, section 11.
"""

from __future__ import annotations

from pathlib import Path

from grue.errors import BrokenFileError, UsageError
from grue.files import read_plain

HEADER_BYTES = 64
MOST_BYTES = 2**24
"""The largest story of any version has less than a megabyte."""
LENGTH_UNIT = {1: 2, 2: 2, 3: 2, 4: 4, 5: 4, 6: 8, 7: 8, 8: 8}


def read_story(path: Path) -> bytes:
    """The bytes of a valid story file."""
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder, not a story file; give the path of a .z3 to .z8 file"
        )
    try:
        data = read_plain(path, MOST_BYTES)
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}; give the path of an existing story") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None

    length = stated_length(data, str(path))
    if length == 0:
        return data  # Early stories state no length.
    if len(data) < length:
        raise BrokenFileError(
            f"{path} is cut short: its header states {length} bytes, but it has {len(data)}; "
            "get the file again"
        )
    checksum = int.from_bytes(data[0x1C:0x1E], "big")
    if length < HEADER_BYTES or sum(data[HEADER_BYTES:length]) & 0xFFFF != checksum:
        raise BrokenFileError(
            f"{path} is damaged or not a Z-machine story: its checksum does not match its header; "
            "get the file again"
        )
    return data


def stated_length(data: bytes, name: str) -> int:
    """The length in the header; 0 if it has none."""
    if len(data) < HEADER_BYTES or data[0] not in LENGTH_UNIT:
        raise BrokenFileError(
            f"{name} is not a Z-machine story: it does not begin with a version from 1 to 8"
        )
    return int.from_bytes(data[0x1A:0x1C], "big") * LENGTH_UNIT[data[0]]
