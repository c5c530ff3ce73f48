"""Compiled games as files: whole, harmless, and refused by name when they are not right."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import grue
from grue.engine.compiler.build import compile_game
from grue.errors import GrueError
from grue.games.game import Game
from grue.games.gamefile import FORMAT, CompiledGame, compiled_path, load_compiled


def same(one: CompiledGame, other: CompiledGame) -> bool:
    def told(game: CompiledGame) -> dict[str, tuple[Any, ...]]:
        return {k: (a.dtype, a.shape, a.tobytes()) for k, a in game.arrays.items()}

    return one.header == other.header and told(one) == told(other)


@pytest.fixture(scope="module")
def level_1() -> CompiledGame:
    return load_compiled(compiled_path(grue.load("saladworld-1")))


@pytest.fixture
def saved(level_1: CompiledGame, tmp_path: Path) -> Path:
    path = tmp_path / "game.grue.npz"
    level_1.save(path)
    return path


@pytest.fixture
def copied(tmp_path: Path) -> Game:
    """Level 1 with its compiled file, in a folder of its own."""
    story = grue.load("saladworld-1").story
    for suffix in (".z8", ".json", ".grue.npz"):
        shutil.copy(story.with_suffix(suffix), tmp_path)
    return grue.load(tmp_path / story.name)


def refused(path: Path, reason: str) -> None:
    with pytest.raises(grue.BrokenFileError, match=reason) as caught:
        load_compiled(path)
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith("compile the game again")


# Right files.


def test_round_trip(level_1: CompiledGame, saved: Path) -> None:
    assert same(load_compiled(saved), level_1)
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_save_over_an_old_file(level_1: CompiledGame, saved: Path) -> None:
    other = CompiledGame({**level_1.header, "name": "other"}, level_1.arrays)
    other.save(saved)
    assert load_compiled(saved).name == "other"


def test_header(level_1: CompiledGame) -> None:
    game = grue.load("saladworld-1")
    assert level_1.name == "saladworld-1"
    assert level_1.commands == game.commands
    header = level_1.header
    assert (header["format"], header["game_hash"]) == (FORMAT, game.digest)
    assert (header["max_score"], header["episode_steps"]) == (15, 100)
    assert header["subtasks"] == [[s.text, s.reward] for s in game.subtasks]
    assert level_1.vocabulary.words == tuple(header["words"])


def test_shipped_files_are_what_the_compiler_makes(level: int) -> None:
    game = grue.load(f"saladworld-{level}")
    shipped = load_compiled(compiled_path(game), game)
    fresh = compile_game(game)
    # By name, so that a difference is told.
    assert set(shipped.arrays) == set(fresh.arrays)
    assert [k for k, a in fresh.arrays.items() if not np.array_equal(a, shipped.arrays[k])] == []
    assert same(shipped, fresh)


def test_files_are_small_and_hold_numbers_only(level: int) -> None:
    path = compiled_path(grue.load(f"saladworld-{level}"))
    assert path.stat().st_size < 50_000
    assert all(array.dtype.kind in "biu" for array in load_compiled(path).arrays.values())


# Wrong files.


def test_missing(tmp_path: Path) -> None:
    path = tmp_path / "none.grue.npz"
    with pytest.raises(grue.UsageError, match=f"no compiled game {path}; compile the game first"):
        load_compiled(path)


def write_npz(path: Path, **arrays: Any) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)


def as_header(header: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(header).encode(), np.uint8)


def npy_file() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"You are in the kitchen.\n", b"PK\x03\x04", bytes(1000), npy_file()],
    ids=["empty", "blank", "text", "zip head", "zeros", "one array"],
)
def test_not_a_compiled_game(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.grue.npz"
    path.write_bytes(content)
    refused(path, "is not a compiled game or is damaged")


def test_folder_is_not_a_compiled_game(tmp_path: Path) -> None:
    refused(tmp_path, "is not a compiled game or is damaged")


@pytest.mark.parametrize(
    "header",
    [None, [], {}, "text", {"version": FORMAT}],
    ids=["none", "list", "empty", "string", "no format"],
)
def test_odd_headers(tmp_path: Path, header: Any) -> None:
    path = tmp_path / "odd.grue.npz"
    write_npz(path, header=as_header(header))
    refused(path, "is not a compiled game or is damaged")


def test_no_header(tmp_path: Path) -> None:
    path = tmp_path / "odd.grue.npz"
    write_npz(path, tokens=np.arange(3))
    refused(path, "header")


@pytest.mark.parametrize("version", [0, FORMAT + 1, "1", None])
def test_other_format(level_1: CompiledGame, tmp_path: Path, version: Any) -> None:
    path = tmp_path / "other.grue.npz"
    CompiledGame({**level_1.header, "format": version}, level_1.arrays).save(path)
    refused(path, f"has format {version}, this grue reads format {FORMAT}")


def test_lost_array(saved: Path) -> None:
    """An archive can be whole and still lack something."""
    less = saved.with_name("less.grue.npz")
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(less, "w") as new:
        for name in old.namelist():
            if name != "tokens.npy":
                new.writestr(name, old.read(name))
    refused(less, "arrays are missing")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_truncated(saved: Path, share: float) -> None:
    content = saved.read_bytes()
    saved.write_bytes(content[: int(share * len(content))])
    refused(saved, "is not a compiled game or is damaged")


def test_flipped_bytes_in_the_middle(saved: Path) -> None:
    content = bytearray(saved.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 40] = bytes(b ^ 0xFF for b in content[middle : middle + 40])
    saved.write_bytes(content)
    refused(saved, "is not a compiled game or is damaged")


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_one_bit_is_harmless_or_refused(
    level_1: CompiledGame, saved: Path, data: st.DataObject
) -> None:
    """Never another game, and never another kind of error; some bytes of an archive are unused."""
    whole = saved.with_suffix(".whole")
    if not whole.exists():
        shutil.copy(saved, whole)
    content = bytearray(whole.read_bytes())
    # The directory at the end says the most about the rest, so half of the flips go there.
    directory = bytes(content).index(b"PK\x01\x02")
    start = data.draw(st.sampled_from((0, directory)))
    content[data.draw(st.integers(start, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    saved.write_bytes(content)
    try:
        read = load_compiled(saved)
    except grue.BrokenFileError:
        refused(saved, "damaged|format")
    else:
        assert same(read, level_1)


class Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.mark,)


def test_nothing_in_a_file_is_run(level_1: CompiledGame, tmp_path: Path) -> None:
    path, mark = tmp_path / "trap.grue.npz", tmp_path / "mark"
    trap = np.array([Trap(mark)], dtype=object)
    write_npz(path, **{**level_1.arrays, "tokens": trap}, header=as_header({**level_1.header}))
    refused(path, "is not a compiled game or is damaged")
    assert not mark.exists()
    # The trap itself works.
    np.load(path, allow_pickle=True)["tokens"]
    assert mark.exists()


# Files of another game.


def test_file_of_its_game(copied: Game) -> None:
    assert load_compiled(compiled_path(copied), copied).name == "saladworld-1"


@pytest.mark.parametrize("suffix", [".json", ".z8"])
def test_stale(copied: Game, suffix: str) -> None:
    changed = copied.story.with_suffix(suffix)
    content = bytearray(changed.read_bytes())
    content[-1] ^= 1
    changed.write_bytes(content)
    path = compiled_path(copied)
    with pytest.raises(grue.BrokenFileError, match="is stale: it was compiled from other files"):
        load_compiled(path, copied)
    # On its own it is still a compiled game.
    assert load_compiled(path).name == "saladworld-1"


def test_stale_file_is_named_by_make(copied: Game) -> None:
    path = compiled_path(copied)
    shutil.copy(compiled_path(grue.load("saladworld-2")), path)
    for engine in ("auto", "compiled"):
        with pytest.raises(grue.BrokenFileError, match=f"{path.name} is stale"):
            grue.make(copied.story, engine=engine)


def test_damaged_file_is_named_by_make(copied: Game) -> None:
    compiled_path(copied).write_bytes(b"")
    with pytest.raises(grue.BrokenFileError, match=str(compiled_path(copied))):
        grue.make(copied.story)


# Saving is all or nothing.


def test_failed_save_leaves_the_old_file(
    level_1: CompiledGame, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved.read_bytes()

    def full(file: Any, *_: Any, **__: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("grue.games.gamefile.np.savez_compressed", full)
    with pytest.raises(GrueError, match=r"cannot write .*\.npz: No space left"):
        level_1.save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_objects_are_not_saved(level_1: CompiledGame, tmp_path: Path) -> None:
    path = tmp_path / "odd.grue.npz"
    odd = CompiledGame(level_1.header, {**level_1.arrays, "odd": np.array([{}], dtype=object)})
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        odd.save(path)
    assert list(tmp_path.iterdir()) == []
