"""Checkpoints: every bit comes back, or the file is refused by name."""

from __future__ import annotations

import errno
import json
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import grue
from grue.agents.kernels import layout
from grue.files import PARTIAL
from grue.training import checkpoint
from grue.training.checkpoint import load, path_of, read_header, save, saved_steps


class Pair(NamedTuple):
    first: Any
    second: Any


def tree() -> dict[str, Any]:
    memory = np.zeros((3000, 50), np.uint8)
    memory[:40] = 7
    return {
        "weights": Pair(
            np.array([[1.5, -0.0], [np.nan, np.inf]], np.float32), np.arange(3, dtype=np.int16)
        ),
        "memory": memory,
        "count": np.array(3, np.int32),
        "flags": (np.array([True, False]), np.zeros(0, bool)),
    }


def bits(tree: Any) -> list[tuple[Any, ...]]:
    return [(leaf.dtype, leaf.shape, leaf.tobytes()) for leaf in jax.tree.leaves(tree)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save(tmp_path, 4000, tree(), {"heads": 5})


def refused(path: Path, reason: str, template: Any = None) -> None:
    with pytest.raises(grue.BrokenFileError) as caught:
        load(path, tree() if template is None else template)
    assert str(path) in str(caught.value)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("delete it to go on from the beginning")


def test_every_bit_comes_back(path: Path) -> None:
    assert path.name == "step-000004000.npz"
    loaded = load(path, jax.eval_shape(tree))
    assert bits(loaded) == bits(tree())
    assert jax.tree.structure(loaded) == jax.tree.structure(tree())


def test_the_file_is_plain(path: Path) -> None:
    names = ["count", "flags/0", "flags/1", "memory", "weights/first", "weights/second"]
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    assert [entry.filename for entry in entries] == [f"{name}.npy" for name in ["header", *names]]
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}
    with np.load(path, allow_pickle=False) as archive:
        assert archive["memory"].shape == (40, 50)
        assert archive["weights/first"].shape == (2, 2)
        header = json.loads(archive["header"].tobytes())
    assert header == read_header(path)
    assert (header["step"], header["format"], header["heads"]) == (4000, 1, 5)
    assert header["grue"] == grue.__version__
    assert header["shapes"]["memory"] == [3000, 50]
    assert len(header["digest"]) == 64


def test_the_same_tree_is_the_same_file(tmp_path: Path, path: Path) -> None:
    (tmp_path / "again").mkdir()
    assert save(tmp_path / "again", 4000, tree(), {"heads": 5}).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("last", [-0.0, 1e-45])
def test_a_row_of_almost_zeros_is_kept(last: float, tmp_path: Path) -> None:
    values = np.zeros((20_000, 2), np.float32)
    values[15_000, 1] = last
    path = save(tmp_path, 0, values, {})
    assert bits(load(path, values)) == bits(values)
    empty = save(tmp_path, 1, np.zeros_like(values), {})
    assert bits(load(empty, values)) == bits(np.zeros_like(values))
    assert empty.stat().st_size < 2000


def test_random_keys_are_saved_as_their_numbers(tmp_path: Path) -> None:
    keyed = {"key": jax.random.key(3), "keys": jax.random.split(jax.random.key(4), 2)}
    path = save(tmp_path, 0, jax.device_get(checkpoint.without_keys(keyed)), {})
    loaded = checkpoint.with_keys(jax.tree.map(jnp.array, load(path, keyed)), keyed)
    for name, key in keyed.items():
        assert loaded[name].dtype == key.dtype
        draws = [jax.random.bits(one) for one in (loaded[name].reshape(-1)[0], key.reshape(-1)[0])]
        assert draws[0] == draws[1]
    template = jax.eval_shape(lambda: keyed)
    assert bits(load(path, template)) == bits(load(path, keyed))


# Writing


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(handle: int) -> None:
        done.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")
        fsync(handle)

    def note_replace(self: Path, target: Path) -> Path:
        done.append("name")
        assert self.parent == target.parent
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    save(tmp_path, 1, tree(), {})
    assert done == ["file", "name", "folder"]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, path: Path, monkeypatch) -> None:
    before = path.read_bytes()
    fsync = os.fsync

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    for step in (4000, 8000):
        with pytest.raises(OSError, match="No space left"):
            save(tmp_path, step, tree(), {"heads": 5})
        assert [child.name for child in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before
    monkeypatch.setattr(os, "fsync", fsync)
    assert bits(load(path, tree())) == bits(tree())


def test_a_device_that_is_full_from_the_first_byte(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    # The scratch file's name leads to the full device.
    scratch = f".step-000000001.npz.{os.getpid()}{PARTIAL}"
    (tmp_path / scratch).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path, 1, tree(), {})
    assert list(tmp_path.iterdir()) == []


def test_steps_of_a_folder(tmp_path: Path) -> None:
    assert saved_steps(tmp_path / "none") == []
    for step in (12_000, 400, 8_000, 1_234_567_890):
        save(tmp_path, step, np.zeros(2), {})
    (tmp_path / "notes.txt").touch()
    (tmp_path / ".step-000000500.npz.partial").touch()
    assert saved_steps(tmp_path) == [400, 8_000, 12_000, 1_234_567_890]
    checkpoint.remove(tmp_path, [400, 12_000, 9])
    checkpoint.remove_partial(tmp_path)
    assert saved_steps(tmp_path) == [8_000, 1_234_567_890]
    assert {child.name for child in tmp_path.iterdir()} == {
        *("notes.txt", path_of(tmp_path, 8_000).name, path_of(tmp_path, 1_234_567_890).name)
    }


# Files that are not right


def test_a_truncated_file(path: Path, rng: random.Random) -> None:
    whole = path.read_bytes()
    for length in [0, 1, 100, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(30))]:
        path.write_bytes(whole[:length])
        refused(path, "is damaged")


def test_a_flipped_bit_is_found_or_changes_nothing(path: Path, rng: random.Random) -> None:
    whole = path.read_bytes()
    found = 0
    for _ in range(300):
        place = rng.randrange(len(whole))
        path.write_bytes(
            whole[:place] + bytes([whole[place] ^ 1 << rng.randrange(8)]) + whole[place + 1 :]
        )
        try:
            loaded = load(path, tree())
        except grue.BrokenFileError:
            found += 1
        else:
            assert bits(loaded) == bits(tree())
    # The rest are dates and attributes of the archive's entries.
    assert found > 200


def test_a_flipped_bit_of_an_array(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    place = bytes(whole).index(b"\7" * 50)
    whole[place] = 8
    path.write_bytes(whole)
    refused(path, "Bad CRC-32 for file 'memory.npy'")


def rewrite(path: Path, **changes: Any) -> None:
    """The same archive with other entries, each with a right checksum."""
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays |= changes
    kept = {name: array for name, array in arrays.items() if array is not None}
    with path.open("wb") as file:
        np.savez(file, **kept)


def test_another_content_with_right_checksums(path: Path) -> None:
    rewrite(path, count=np.array(4, np.int32))
    refused(path, "its digest is wrong")


def test_objects_are_never_loaded(path: Path) -> None:
    rewrite(path, count=np.array([{"a": print}], object))
    refused(path, "Object arrays cannot be loaded when allow_pickle=False")


def test_another_format(path: Path) -> None:
    header = read_header(path) | {"format": 2}
    rewrite(path, header=np.frombuffer(json.dumps(header).encode(), np.uint8))
    refused(path, "it has format 2, this grue reads format 1")
    rewrite(path, header=np.frombuffer(b"[]", np.uint8))
    refused(path, "is damaged")
    rewrite(path, header=None)
    refused(path, "is damaged")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"more": np.zeros(2)}, "more is missing"),
        ({"count": None}, "count is one too many"),
        ({"count": np.zeros(1, np.int32)}, "count is int32[], not int32[1]"),
        ({"count": np.float32(0)}, "count is int32[], not float32[]"),
        ({"memory": np.zeros((40, 50), np.uint8)}, "memory is uint8[3000, 50], not uint8[40, 50]"),
    ],
)
def test_a_checkpoint_of_something_else(path: Path, change: dict[str, Any], reason: str) -> None:
    template = {name: leaf for name, leaf in (tree() | change).items() if leaf is not None}
    refused(path, reason, template)


def test_no_archive_and_no_file(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"no archive at all")
    refused(path, "is damaged")
    with pytest.raises(grue.BrokenFileError, match="there is no checkpoint"):
        load(path_of(tmp_path, 5), tree())


def test_the_older_checkpoint_is_named(path: Path, tmp_path: Path) -> None:
    newer = save(tmp_path, 8000, tree(), {})
    newer.write_bytes(newer.read_bytes()[:-9])
    with pytest.raises(grue.BrokenFileError) as caught:
        load(newer, tree())
    assert str(caught.value).endswith("delete it to go on from step 4000")
    assert bits(load(path, tree())) == bits(tree())


# Weights that devices keep in different forms

WEIGHTS = np.arange(12, dtype=np.float32).reshape(2, 3, 2) / 7


def on_gpu() -> dict:
    half = WEIGHTS.astype(jnp.bfloat16)
    return {
        "learned": {
            "network": {"context": {"weights": WEIGHTS}},
            "working": {"weights": half},
            "target": {"context": {"weights": half + half}},
        }
    }


def on_cpu() -> dict:
    """As above, but for what bfloat16 has lost of the target."""
    doubled = on_gpu()["learned"]["target"]["context"]["weights"].astype(np.float32)
    return {
        "learned": {
            "network": {"context": {"weights": tuple(WEIGHTS)}},
            "working": {"weights": None},
            "target": {"context": {"weights": tuple(doubled)}},
        }
    }


@pytest.mark.parametrize("wanted", [on_gpu, on_cpu])
@pytest.mark.parametrize("stored", [on_gpu, on_cpu])
def test_weights_go_from_device_to_device(
    tmp_path: Path, stored: Callable[[], dict], wanted: Callable[[], dict]
) -> None:
    path = save(tmp_path, 5, stored(), {})
    found = load(path, wanted())
    assert jax.tree.structure(found) == jax.tree.structure(wanted())
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(wanted()), strict=True):
        assert one.dtype == two.dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(two))


HEADS = 12
"""More than ten: as names they would be sorted otherwise."""


def laid_out(prefix: str, on_gpu: bool) -> dict[str, np.ndarray]:
    """The arrays of a learner as a checkpoint holds them, bfloat16 as its bits."""
    chance = np.random.default_rng(0)
    theta, moment = (chance.normal(size=(HEADS, 3, 2)).astype(np.float32) for _ in range(2))
    # What bfloat16 can hold: both devices have the same θ⁻ then.
    target = theta.astype(jnp.bfloat16).astype(np.float32)
    places = {"network/context": theta, "target/context": target, "optimiser/first/context": moment}
    arrays: dict[str, Any] = {f"{prefix}kept/count": np.arange(3)}
    for place, whole in places.items():
        name = f"{prefix}learned/{place}/weights"
        if on_gpu:
            half = "target" in place
            arrays[name] = whole.astype(jnp.bfloat16).view(np.uint16) if half else whole
        else:
            arrays |= {f"{name}/{k}": head for k, head in enumerate(whole)}
        arrays[name.replace("weights", "bias")] = np.arange(HEADS, dtype=np.float32)
    if on_gpu:
        working = theta.astype(jnp.bfloat16).view(np.uint16)
        arrays[f"{prefix}learned/working/weights"] = working
    return arrays


def in_memory(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """With bfloat16 in place of its bits: what a device asks for."""
    return {
        name: array.view(jnp.bfloat16) if array.dtype == np.uint16 else array
        for name, array in arrays.items()
    }


@pytest.mark.parametrize("prefix", ["", "agent/"])
@pytest.mark.parametrize("to_gpu", [False, True])
@pytest.mark.parametrize("from_gpu", [False, True])
def test_layouts_of_both_devices(from_gpu: bool, to_gpu: bool, prefix: str) -> None:
    stored, wanted = laid_out(prefix, from_gpu), in_memory(laid_out(prefix, to_gpu))
    shapes = {name: jax.ShapeDtypeStruct(a.shape, a.dtype) for name, a in wanted.items()}
    names = list(stored)
    found = layout.adapted(stored, shapes)
    assert list(stored) == names
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        np.testing.assert_array_equal(
            found[name].astype(np.float32), array.astype(np.float32), err_msg=name
        )


def test_what_another_layout_lacks_stays_missing() -> None:
    """It is for the checkpoint to refuse."""
    stored, wanted = laid_out("", False), in_memory(laid_out("", True))
    lacking = {name: a for name, a in stored.items() if "network/context/weights" not in name}
    found = layout.adapted(lacking, wanted)
    assert wanted.keys() - found.keys() == {
        "learned/network/context/weights",
        "learned/working/weights",
    }
