"""Where a result comes from: the commit, the versions, the device."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

import grue
from grue.engine.bench import device_name

LIBRARIES = ("jax", "jaxlib", "equinox")


def about() -> dict[str, str | None]:
    return {
        "commit": commit_of(Path(grue.__file__).parents[2]),
        "grue": grue.__version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in LIBRARIES},
        "device": device_name(),
    }


def commit_of(checkout: Path) -> str | None:
    """The commit that is checked out; None where grue does not run from a checkout of its own.

    Read from git's files: git itself need not be installed.
    """
    if not (checkout / "src" / "grue").is_dir():
        return None
    try:
        folder = _git_folder(checkout)
        head = (folder / "HEAD").read_text().strip()
        return _resolve(folder, head.removeprefix("ref: ")) if head.startswith("ref: ") else head
    except (OSError, UnicodeDecodeError):
        return None


def _git_folder(checkout: Path) -> Path:
    place = checkout / ".git"
    if place.is_dir():
        return place
    return checkout / place.read_text().strip().removeprefix("gitdir: ")


def _resolve(folder: Path, ref: str) -> str | None:
    """A branch's commit, from its own file or from the list of packed ones."""
    common = folder / "commondir"  # Of a further worktree.
    home = folder / common.read_text().strip() if common.exists() else folder
    if (home / ref).exists():
        return (home / ref).read_text().strip()
    for line in (home / "packed-refs").read_text().splitlines():
        commit, _, name = line.partition(" ")
        if name == ref:
            return commit
    return None
