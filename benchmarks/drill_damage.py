"""The drill's damaged files: copies of eight kinds of file that grue reads, changed at random.

The rule: one line, exit code 1 or 2, no byte of the folder changed, under 10 s by the clock and
under 1 GB. Where a command ends well instead, its result is compared with that of the undamaged
file: it is the same (the change is in what is not read), or the file is another valid one.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from drill_calls import Ended, Forks, call, contents, outcome

import grue
from grue.games.gamefile import compiled_path

MOST_SECONDS, MOST_BYTES = 10.0, 10**9
REAL_EVERY = 25
"""One file in so many of each kind goes through a real process as well."""
COMMON = ["--set", "metrics_every=200", "--set", "learning_starts=200", "--set", "target_every=200"]
RUN = "runs/saladworld-1-tabular-none-seed0"
TOML = """game = "saladworld-1"
agent = "tabular"
steps = 400
metrics_every = 200
learning_starts = 200
target_every = 200
"""


class Kind(NamedTuple):
    """A kind of file: where it lies in the folder, and the command that reads it."""

    path: str
    command: list[str]
    result: str = ""
    """The folder that the command writes; by default it only prints."""


def prepare(folder: Path) -> dict[str, Kind]:
    """A folder with a file of each kind."""
    level = grue.load("saladworld-1")
    shutil.copy(level.story, folder / "game.z8")
    shutil.copy(level.story.with_suffix(".json"), folder / "game.json")
    shutil.copy(compiled_path(level), folder / "one.grue.npz")
    (folder / "run.toml").write_text(TOML)
    record = next(Path("results/saladworld").rglob("*.json"))
    shutil.copy(record, folder / "record.json")
    train = ["train", "saladworld-1", "--agent", "tabular", *COMMON, "--steps"]
    ended = call([*train, "400", "--out", str(folder / "runs")])
    if ended.code:
        raise SystemExit(f"a training failed: {ended.lines}")
    resume = [*train, "600", "--resume", "--out", "runs"]
    # Whatever is cut off, it trains for a moment only.
    read = ["train", "--config", "run.toml", "--agent", "tabular", "--steps", "1000"]
    new = ["train", "one.grue.npz", "--agent", "tabular", *COMMON, "--steps", "400", "--out", "new"]
    return {
        "story": Kind("game.z8", ["walkthrough", "game.z8", "--run"]),
        "game file": Kind("game.json", ["walkthrough", "game.z8", "--run"]),
        "compiled game": Kind("one.grue.npz", new, "new"),
        "config.json": Kind(f"{RUN}/config.json", resume, RUN),
        "metrics.jsonl": Kind(f"{RUN}/metrics.jsonl", resume, RUN),
        "checkpoint": Kind(f"{RUN}/checkpoint/step-000000400.npz", resume, RUN),
        "record": Kind("record.json", ["report", "record.json", "-o", "new/report.html"], "new"),
        "config file": Kind("run.toml", [*read, "--out", "new"], "new"),
    }


def damage(data: bytes, chance: random.Random) -> bytes:
    """Another content: cut, flipped, overwritten, doubled, emptied or of another kind."""
    while (changed := _damaged(data, chance)) == data:
        pass
    return changed


def _damaged(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    how = chance.randrange(6)
    if how == 0:
        return data[:at]
    if how == 1:
        return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
    if how == 2:
        some = chance.randbytes(chance.randint(1, 64))
        return data[:at] + some + data[at + len(some) :]
    if how == 3:
        return data[:at] + data[at // 2 :]
    if how == 4:
        return chance.choice((b"", b"{}", b"[" * 100_000, b"null", b"\xff\xfe" * 99, b"PK\3\4"))
    return data[:at] + data[at + chance.randint(1, 64) :]


def is_refused(ended: Ended) -> bool:
    """Whether a call ended by the rule, but for the folder."""
    one_line = len(ended.lines) == 1 and ended.lines[0].startswith("grue: ")
    fits = ended.seconds < MOST_SECONDS and ended.bytes < MOST_BYTES
    return ended.code in (1, 2) and one_line and fits


def counted(found: dict[str, Any]) -> int:
    return sum(row["refused"] + row["wrong"] for row in found.get("kinds", {}).values())


class Damages:
    """Damages file after file; ``found`` is what came out so far, and goes on from there."""

    def __init__(self, folder: Path, forks: Forks, seed: int, found: dict[str, Any]) -> None:
        self.folder, self.forks, self.seed, self.found = folder, forks, seed, found
        self.kinds = prepare(folder)
        self.kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        self._good: dict[str, Any] = {}
        row = {"damaged": 0, "refused": 0, "same": 0, "valid": 0, "wrong": 0}
        for name in self.kinds:
            found.setdefault("kinds", {}).setdefault(name, dict(row))
        for name in ("slowest_s", "largest_bytes", "real", "real_alike"):
            found.setdefault(name, 0)
        for name in ("wrong", "valid"):
            found.setdefault(name, [])

    @property
    def done(self) -> int:
        return sum(row["damaged"] for row in self.found["kinds"].values())

    @property
    def counted(self) -> int:
        """Without those that the command could use: nothing was to be refused."""
        return counted(self.found)

    def one(self) -> None:
        """The next file: its kind and its damage depend on the seed and its number alone."""
        number = self.done
        name = list(self.kinds)[number % len(self.kinds)]
        kind = self.kinds[name]
        path = self.folder / kind.path
        data = damage(self.kept[path], random.Random(f"{self.seed} {number}"))
        path.write_bytes(data)
        before = contents(self.folder)
        ended = self._called(self.forks.call, kind)
        how = self._judged(name, ended, before)
        if ended.code:
            self.found["slowest_s"] = max(self.found["slowest_s"], round(ended.seconds, 2))
            self.found["largest_bytes"] = max(self.found["largest_bytes"], ended.bytes)
        if how in ("wrong", "valid"):
            told = {"kind": name, "number": number, **ended._asdict(), "lines": ended.lines[-3:]}
            told.pop("out")
            self.found[how].append(told)
        row = self.found["kinds"][name]
        row["damaged"] += 1
        row[how] += 1
        if how == "refused" and number // len(self.kinds) % REAL_EVERY == 0:
            self._real(kind, ended, before)
        self._restore()

    def _called(self, by: Callable[..., Ended], kind: Kind) -> Ended:
        here = os.getcwd()
        os.chdir(self.folder)
        try:
            return by(kind.command, 6 * MOST_SECONDS)
        finally:
            os.chdir(here)

    def _judged(self, name: str, ended: Ended, before: dict[str, bytes]) -> str:
        if is_refused(ended) and contents(self.folder) == before:
            return "refused"
        if ended.code:
            return "wrong"
        result = self._result(name, ended)
        return "same" if result == self._undamaged(name) else "valid"

    def _real(self, kind: Kind, forked: Ended, before: dict[str, bytes]) -> None:
        """The same by a real process must end alike."""
        real = self._called(call, kind)
        alike = is_refused(real) and (real.code, real.lines) == (forked.code, forked.lines)
        self.found["real"] += 1
        self.found["real_alike"] += alike and contents(self.folder) == before
        self.found["largest_bytes"] = max(self.found["largest_bytes"], real.bytes)
        self.found["slowest_s"] = max(self.found["slowest_s"], round(real.seconds, 2))

    def _result(self, name: str, ended: Ended) -> Any:
        """All that a command wrote, but for the file that was damaged; or what it printed."""
        kind = self.kinds[name]
        if not kind.result:
            return ended.out
        found = outcome(self.folder / kind.result)
        return {path: data for path, data in found.items() if not kind.path.endswith(path)}

    def _undamaged(self, name: str) -> Any:
        """What the same command writes with the file as it was."""
        if name not in self._good:
            self._restore()
            ended = self._called(self.forks.call, self.kinds[name])
            if ended.code:
                raise SystemExit(f"the undamaged {name} is refused: {ended.lines}")
            self._good[name] = self._result(name, ended)
        return self._good[name]

    def _restore(self) -> None:
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if path.is_file() and path not in self.kept:
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        for path, data in self.kept.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
