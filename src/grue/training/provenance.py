"""Provenance of a result: commit, versions and device."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import grue
from grue.engine.bench import device_name

VARIABLE = "GRUE_COMMIT"
LIBRARIES = ("jax", "jaxlib", "equinox")


def about() -> dict[str, Any]:
    commit, changed = commit_of(Path(grue.__file__).parents[2])
    return {
        "commit": commit,
        "changed_tree": changed,
        "grue": grue.__version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in LIBRARIES},
        "device": device_name(),
    }


def commit_of(checkout: Path) -> tuple[str | None, bool | None]:
    """The commit and whether the tree has changes, from git.

    The variable ``GRUE_COMMIT`` has priority: a copy of a tree on another machine may have no git
    repository, or an older one. Whether the tree has changes is then unknown.
    """
    if given := os.environ.get(VARIABLE):
        return given, None
    commit = changes = None
    # An installed copy may lie inside another repository.
    if (checkout / "src" / "grue").is_dir() and (checkout / ".git").exists():
        commit = _git(checkout, "rev-parse", "HEAD")
        changes = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    if commit is None or changes is None:
        return installed_commit(), None
    return commit, bool(changes)


def installed_commit() -> str | None:
    """The commit of an installation from a repository's URL, as recorded by pip."""
    try:
        told = json.loads(metadata.distribution("grue").read_text("direct_url.json") or "{}")
        return told.get("vcs_info", {}).get("commit_id")
    except (metadata.PackageNotFoundError, ValueError):
        return None


def _git(checkout: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(checkout), *arguments]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.strip()
