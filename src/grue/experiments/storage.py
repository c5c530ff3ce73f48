"""Run folders on remote storage: at any address that fsspec knows (s3://…).

Training needs a file system: folders are locked, appended to and renamed. So each machine trains in
a local copy, downloads a run before it continues it, and uploads it with every checkpoint.

Uploads are atomic. First the files of a run are uploaded, then ``sent.json``, which lists them with
their lengths. Files that are no longer listed are deleted last. A file is either never changed or
only grows, so a reader that reads the listed lengths is safe during the next upload. Nothing here
imports JAX.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grue.errors import GrueError, UsageError
from grue.files import PARTIAL, write_atomically

ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/+")
"""The beginning of an address. As a ``Path``, an address has lost one slash."""
MARK = ".address"
"""The file in a local copy that holds its address."""
STATUS = "status.json"
"""Uploaded only by the process that leads a study."""
SENT = "sent.json"
COPIES = "GRUE_COPIES"
"""The variable that names the folder of all copies."""
LOOK_SECONDS = 0.5
TRIES = 5
CHECKPOINT = "checkpoint"


def address_in(out: Path | str) -> str | None:
    """The address in an --out; None for a plain folder."""
    match = ADDRESS.match(str(out))
    if match is None:
        return None
    slashes = ":///" if match[1] in ("file", "local") else "://"
    return match[1] + slashes + str(out)[match.end() :].rstrip("/")


def copy_of(address: str) -> Path:
    """The folder of this machine's local copy; made if it does not exist."""
    home = os.environ.get(COPIES)
    copies = Path(home) if home else Path.home() / ".cache" / "grue" / "copies"
    name = re.sub(r"[^A-Za-z0-9]+", "-", address).strip("-")[-40:]
    folder = copies / f"{name}-{hashlib.sha256(address.encode()).hexdigest()[:12]}"
    if not (folder / MARK).exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / MARK, lambda file: file.write(address.encode()))
    return folder


def address_at(folder: Path) -> str | None:
    """The address of a folder inside a local copy; None for other folders."""
    place = place_of(folder)
    if "address" not in place:
        return None
    return "/".join([place["address"], place["below"]]).removesuffix("/.")


def place_of(folder: Path) -> dict[str, str]:
    """The name of a folder for other machines: its address if it is a local copy, or its path."""
    folder = folder.resolve()
    for parent in (folder, *folder.parents):
        mark = parent / MARK
        if mark.is_file():
            below = folder.relative_to(parent).as_posix()
            return {"out": str(folder), "address": mark.read_text(), "below": below}
    return {"out": str(folder)}


def folder_at(place: Mapping[str, Any]) -> Path:
    """The folder on this machine."""
    if place.get("address") is None:
        return Path(place["out"])
    return copy_of(place["address"]) / place["below"]


class Storage:
    """The files below an address."""

    def __init__(self, address: str) -> None:
        try:
            import fsspec
        except ImportError:
            raise UsageError(
                f"{address} needs the package fsspec; install it with pip install 'grue[ray]'"
            ) from None
        self.address = address
        try:
            self.files, self.root = fsspec.core.url_to_fs(address, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise UsageError(f"{address} cannot be used: {_line(error)}") from None

    def _at(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def _ask(self, call: Callable[[], Any]) -> Any:
        """A file's content; None if it does not exist. Each storage raises errors of its own."""
        try:
            return call()
        except FileNotFoundError:
            return None
        except Exception as error:
            raise GrueError(f"{self.address} does not answer: {_line(error)}") from None

    def exists(self, name: str) -> bool:
        return bool(self._ask(lambda: self.files.exists(self._at(name))))

    def read(self, name: str) -> bytes | None:
        return self._ask(lambda: self.files.cat_file(self._at(name)))

    def write(self, name: str, content: bytes) -> None:
        """Writes a file atomically: nobody can read a part of it."""

        def write() -> None:
            self.files.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)
            with self.files.transaction, self.files.open(self._at(name), "wb") as file:
                file.write(content)

        self._ask(write)

    def remove(self, name: str) -> None:
        self._ask(lambda: self.files.rm_file(self._at(name)))

    def names(self) -> list[str]:
        """The names of all files, relative to the address."""
        start = len(self.root.rstrip("/")) + 1
        found = self._ask(lambda: self.files.find(self.root)) or []
        return sorted(path[start:] for path in found)

    # Runs

    def runs(self) -> list[str]:
        """The names of the uploaded runs."""
        return [name.removesuffix(f"/{SENT}") for name in self.names() if name.endswith(f"/{SENT}")]

    def sent(self, run: str) -> dict[str, int]:
        """The files of a run and their lengths at the last upload."""
        told = self.read(f"{run}/{SENT}")
        return {} if told is None else json.loads(told)

    def send(self, run: str, folder: Path) -> None:
        """Uploads a run folder. Another process may write to it at the same time."""
        before = self.sent(run)
        for attempt in range(TRIES):
            try:
                lengths = self._send(run, folder, before)
                break
            except FileNotFoundError:  # An old checkpoint was deleted while it was being read.
                if attempt == TRIES - 1:
                    raise
        self.write(f"{run}/{SENT}", json.dumps(lengths, indent=1).encode())
        for name in before.keys() - lengths.keys():
            self.remove(f"{run}/{name}")

    def _send(self, run: str, folder: Path, before: dict[str, int]) -> dict[str, int]:
        lengths = {}
        # Checkpoints first: the metrics have a row for each step that is saved.
        for path in sorted(_plain(folder), key=lambda p: p.parent.name != CHECKPOINT):
            name = path.relative_to(folder).as_posix()
            whole = path.parent != folder  # Checkpoints are written once.
            if not whole or before.get(name) != path.stat().st_size:
                content = path.read_bytes()
                self.write(f"{run}/{name}", content)
                lengths[name] = len(content)
            else:
                lengths[name] = before[name]
        return lengths

    def fetch(self, run: str, folder: Path) -> None:
        """Downloads a run, unless the local copy is at the same step or further."""
        lengths = self.sent(run)
        if not lengths or _reached(_names(folder)) >= _reached(lengths):
            return
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
            new = Path(scratch) / "new"
            for name, length in lengths.items():
                content = self.read(f"{run}/{name}")
                if content is None or len(content) < length:
                    raise GrueError(f"{self.address}/{run} is being changed by another machine")
                path = new / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content[:length])
            if folder.exists():
                folder.rename(Path(scratch) / "old")
            new.rename(folder)


def _plain(folder: Path) -> list[Path]:
    """The files of a run, without hidden and unfinished ones."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return [p for p in found if not p.name.startswith(".") and not p.name.endswith(PARTIAL)]


def _names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in _plain(folder)]


def _reached(names: Sequence[str] | dict[str, int]) -> tuple[str, bool]:
    """The progress of a run: the name of its last checkpoint, and whether it has any files."""
    saved = [name for name in names if name.startswith(f"{CHECKPOINT}/")]
    return max(saved, default=""), bool(names)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


# Copies


def fetch_runs(folder: Path, names: Sequence[str] | None = None) -> None:
    """Downloads newer runs into a local copy, by default all. Does nothing for a plain folder."""
    address = address_at(folder)
    if address is None:
        return
    storage = Storage(address)
    for name in storage.runs() if names is None else names:
        storage.fetch(name, folder / name)


def fetch_file(path: Path) -> None:
    """Downloads a file into a local copy. Does nothing for a plain folder."""
    address = address_at(path.parent)
    if address is not None and (content := Storage(address).read(path.name)) is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: file.write(content))


def send_file(path: Path) -> None:
    """Uploads a file of a local copy. Does nothing for a plain folder."""
    address = address_at(path.parent)
    if address is not None:
        Storage(address).write(path.name, path.read_bytes())


@contextmanager
def placed(out: Path) -> Iterator[Path]:
    """The folder to work in: ``out``, or this machine's copy of an address.

    At the end, the files beside the runs (records, figures, rates) are uploaded.
    """
    address = address_in(out)
    if address is None:
        yield out
        return
    storage = Storage(address)
    storage.write(
        probe := f".seen-{os.getpid()}", b""
    )  # An unusable address is an error now, not after hours.
    storage.remove(probe)
    folder = fetched(out)
    try:
        yield folder
    finally:
        runs = [path.parent.relative_to(folder).as_posix() for path in folder.rglob("config.json")]
        for name in _names(folder):
            if name != STATUS and not _in_run(name, runs):
                storage.write(name, (folder / name).read_bytes())


def fetched(out: Path) -> Path:
    """The folder to read: ``out``, or this machine's copy of an address, brought up to date."""
    address = address_in(out)
    if address is None:
        return out
    storage, folder = Storage(address), copy_of(address)
    runs = storage.runs()
    for name in storage.names():
        if not _in_run(name, runs):
            fetch_file(folder / name)
    fetch_runs(folder)
    return folder


def _in_run(name: str, runs: Sequence[str]) -> bool:
    return any(name.startswith(f"{run}/") for run in runs)


@contextmanager
def sending(folder: Path, names: Sequence[str]) -> Iterator[None]:
    """Downloads runs into a local copy; uploads each with every new checkpoint and at the end."""
    address = address_at(folder)
    if address is None:
        yield
        return
    fetch_runs(folder, names)
    sender = _Sender(Storage(address), folder, names)
    sender.start()
    try:
        yield
    finally:
        sender.close()


class _Sender(threading.Thread):
    """Looks for new checkpoints and uploads them. Errors are raised at the end."""

    def __init__(self, storage: Storage, folder: Path, names: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.storage, self.folder, self.names = storage, folder, names
        self.error: Exception | None = None
        self._over = threading.Event()
        self._seen: dict[str, Any] = {}

    def run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                self._look()
                self.error = None
            except Exception as error:  # Retried later: storage is sometimes unreachable.
                self.error = error

    def _look(self) -> None:
        for name in self.names:
            folder = self.folder / name
            now = _reached(_names(folder))
            if now[0] and now != self._seen.get(name):
                self.storage.send(name, folder)
                self._seen[name] = now

    def close(self) -> None:
        self._over.set()
        self.join()
        try:
            for name in self.names:
                if (self.folder / name).is_dir():
                    self.storage.send(name, self.folder / name)
        except Exception as error:
            why = f"cannot send {name} to {self.storage.address}: {_line(error)}"
            raise GrueError(f"{why}; what is missing there is in {self.folder}") from None
