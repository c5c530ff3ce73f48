"""Checkpoints: a tree of arrays in one file, written atomically.

The file is an uncompressed NumPy ``.npz`` without pickles. Every leaf is an array named by its path
in the tree. The entry ``header`` holds JSON.
"""

from __future__ import annotations

import json
import math
import os
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import jax
import jax.numpy as jnp
import numpy as np

from grue import __version__
from grue.agents.kernels import layout
from grue.errors import BrokenFileError
from grue.files import PARTIAL, open_plain, write_atomically
from grue.games.gamefile import DAMAGE, digest_of

FORMAT = 1
KEPT = 2
"""Checkpoints kept for each run."""
NAME = re.compile(r"step-(\d{9,})\.npz")
MORE = 2**24
"""A checkpoint may unpack to twice the expected bytes and this many more."""
LARGE = 2**16
"""Arrays of at least this many bytes are stored without the zeros at their end."""


# The files of a run


def path_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:09}.npz"


def saved_steps(folder: Path) -> list[int]:
    """The steps of all checkpoints, oldest first."""
    if not folder.is_dir():
        if os.path.lexists(folder):
            raise BrokenFileError(f"{folder} is not a folder of checkpoints; delete it to go on")
        return []
    found = (NAME.fullmatch(path.name) for path in folder.iterdir())
    return sorted(int(match[1]) for match in found if match)


def remove(folder: Path, steps: Iterable[int]) -> None:
    for step in steps:
        path_of(folder, step).unlink(missing_ok=True)


def remove_partial(folder: Path) -> None:
    """Deletes the unfinished files of a killed process."""
    for path in folder.glob(f".*{PARTIAL}"):
        path.unlink(missing_ok=True)


# Trees of arrays


def without_keys(tree: Any) -> Any:
    """Replaces random keys by their data."""
    return jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, tree)


def with_keys(tree: Any, template: Any) -> Any:
    """Restores random keys where the template has them."""
    return jax.tree.map(
        lambda leaf, like: jax.random.wrap_key_data(leaf) if _is_key(like) else leaf, tree, template
    )


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def save(folder: Path, step: int, tree: Any, notes: Mapping[str, Any]) -> Path:
    """Writes the checkpoint of a step. The tree must be ``without_keys``."""
    arrays, shapes = {}, {}
    for name, leaf in _named(tree).items():
        whole = layout.as_bits(np.asarray(leaf, order="C"))
        arrays[name] = _without_zeros(whole)
        shapes[name] = list(whole.shape)
    header = {**notes, "format": FORMAT, "grue": __version__, "step": step}
    header |= {"digest": digest_of(arrays), "shapes": shapes}
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    path = path_of(folder, step)
    write_atomically(path, lambda file: _write(file, {"header": text, **arrays}))
    return path


def load(path: Path, template: Any) -> Any:
    """Reads a checkpoint into the structure of the template, ``without_keys``.

    Shapes and types must be those of the template. Weights in the layout of another kind of device
    are converted.
    """
    header, arrays = _read(path)
    if (named := NAME.fullmatch(path.name)) and int(named[1]) != header["step"]:
        raise _damaged(path, f"its header says step {header['step']}")
    if digest_of(arrays) != header["digest"]:
        raise _damaged(path, "its digest is wrong")
    wanted = _named(jax.eval_shape(without_keys, template))
    try:
        whole = _whole(arrays, header["shapes"], MORE + 2 * sum(map(_bytes, wanted.values())))
    except DAMAGE as error:
        raise _damaged(path, _why(error)) from None
    arrays = layout.adapted(whole, wanted)
    if differing := sorted(wanted.keys() ^ arrays.keys()):
        name = differing[0]
        raise _damaged(path, f"{name} is {'missing' if name in wanted else 'one too many'}")
    for name, like in wanted.items():
        shape, dtype = arrays[name].shape, arrays[name].dtype
        if (shape, dtype) != (like.shape, like.dtype):
            raise _damaged(
                path, f"{name} is {dtype}{list(shape)}, not {like.dtype}{list(like.shape)}"
            )
    return jax.tree.unflatten(jax.tree.structure(template), [arrays[name] for name in wanted])


def read_header(path: Path) -> dict[str, Any]:
    """Step, versions and the notes given to ``save``."""
    return _read(path, only_header=True)[0]


def _named(tree: Any) -> dict[str, Any]:
    leaves, _ = jax.tree.flatten_with_path(tree)
    return {jax.tree_util.keystr(at, simple=True, separator="/"): leaf for at, leaf in leaves}


def _without_zeros(array: np.ndarray) -> np.ndarray:
    """A large array up to its last nonzero row. A new replay memory is all zeros."""
    if array.nbytes < LARGE or array.ndim == 0:
        return array
    # Compares bytes, to keep -0.0.
    used = np.asarray(array.reshape(len(array), -1).view(np.uint8).any(axis=1))
    return array[: len(used) - int(used[::-1].argmax()) if used.any() else 0]


def _bytes(like: Any) -> int:
    return math.prod(like.shape) * like.dtype.itemsize


def _whole(
    arrays: Mapping[str, np.ndarray], shapes: Mapping[str, Any], most: int
) -> dict[str, np.ndarray]:
    """The arrays with the zeros at their ends, if that is not more than ``most`` bytes."""
    size = sum(math.prod(shapes[name]) * array.dtype.itemsize for name, array in arrays.items())
    if size > most:
        raise ValueError(f"it unpacks to {size} bytes, and at most {most} are expected")
    return {name: _with_zeros(array, tuple(shapes[name])) for name, array in arrays.items()}


def _with_zeros(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if array.shape == shape:
        return array
    whole = np.zeros(shape, array.dtype)
    whole[: len(array)] = array
    return whole


def _write(file: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def _read(path: Path, only_header: bool = False) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        with open_plain(path) as file, np.load(file, allow_pickle=False) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.zip.infolist()):
                raise ValueError("it is compressed")
            header = json.loads(archive["header"].tobytes())
            names = [] if only_header else [name for name in archive.files if name != "header"]
            arrays = {name: archive[name] for name in names}
        version = header["format"]
        _ = header["digest"], header["shapes"], header["step"]
    except FileNotFoundError:
        raise BrokenFileError(f"there is no checkpoint {path}") from None
    except DAMAGE as error:
        raise _damaged(path, _why(error)) from None
    if version != FORMAT:
        raise _damaged(path, f"it has format {version}, this grue reads format {FORMAT}")
    return header, arrays


def _why(error: Exception) -> str:
    """An OSError also tells its number and the path, which the message has already."""
    return getattr(error, "strerror", None) or str(error)


def _damaged(path: Path, why: str) -> BrokenFileError:
    match = NAME.fullmatch(path.name)
    older = [at for at in saved_steps(path.parent) if match and at < int(match[1])]
    place = f"step {older[-1]}" if older else "the beginning"
    return BrokenFileError(
        f"the checkpoint {path} is damaged or of another kind ({why}); "
        f"delete it to go on from {place}"
    )
