"""Broken story files are named before an emulator sees them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import grue
from grue.games.zmachine.header import read_story


@pytest.fixture(scope="module")
def whole() -> bytes:
    """A story without the zeros that pad its file."""
    data = grue.load("saladworld-1").story.read_bytes()
    length = 8 * int.from_bytes(data[0x1A:0x1C], "big")
    assert not any(data[length:])
    return data[:length]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "story.z8"


def refused(path: Path, data: bytes, message: str) -> None:
    path.write_bytes(data)
    with pytest.raises(grue.BrokenFileError, match=message) as caught:
        read_story(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 1


def test_whole_story_is_returned_as_it_is(path: Path, whole: bytes) -> None:
    path.write_bytes(whole)
    assert read_story(path) == whole


def test_padding_after_the_story_is_allowed(path: Path, whole: bytes) -> None:
    path.write_bytes(whole + bytes(512))
    assert read_story(path) == whole + bytes(512)


@pytest.mark.parametrize("data", [b"", b"\x08", b"PK\x03\x04" + bytes(100), bytes(64)])
def test_not_a_story(path: Path, data: bytes) -> None:
    refused(path, data, "is not a Z-machine story: it does not begin with a version from 1 to 8")


@pytest.mark.parametrize("kept", [64, 1000, -1])
def test_cut_short(path: Path, whole: bytes, kept: int) -> None:
    part = whole[:kept]
    promise = f"is cut short: its header states {len(whole)} bytes, but it has {len(part)}"
    refused(path, part, promise)


@pytest.mark.parametrize("position", [64, 30_000, -1])
def test_one_wrong_byte(path: Path, whole: bytes, position: int) -> None:
    data = bytearray(whole)
    data[position] ^= 1
    refused(path, bytes(data), "is damaged or not a Z-machine story: its checksum")


def test_length_shorter_than_the_header(path: Path) -> None:
    data = bytearray(80)
    data[0], data[0x1B] = 8, 1  # 1 unit of 8 bytes
    refused(path, bytes(data), "its checksum does not match its header")


@pytest.mark.parametrize(("version", "unit"), [(1, 2), (3, 2), (4, 4), (5, 4), (6, 8), (8, 8)])
def test_length_is_counted_in_the_unit_of_its_version(path: Path, version: int, unit: int) -> None:
    data = bytearray(96)
    data[0], data[0x1B], data[70] = version, 96 // unit, 7
    data[0x1D] = 7
    path.write_bytes(data)
    assert read_story(path) == data


def test_story_without_a_length_is_taken_as_it_is(path: Path) -> None:
    data = bytes([3]) + bytes(99)
    path.write_bytes(data)
    assert read_story(path) == data


def test_missing_file(path: Path) -> None:
    with pytest.raises(grue.UsageError, match=re.escape(f"there is no file {path};")) as caught:
        read_story(path)
    assert caught.value.exit_code == 2


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(grue.UsageError, match="is a folder, not a story file"):
        read_story(tmp_path)


def test_file_in_place_of_a_folder(path: Path) -> None:
    path.write_bytes(b"x")
    with pytest.raises(grue.UsageError, match="cannot read"):
        read_story(path / "story.z8")
