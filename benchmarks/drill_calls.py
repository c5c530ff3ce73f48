"""Calls of grue for the drill: real processes, and forks of one that has imported everything.

A fork runs the entry point of the command line as a process of its own: with its own exit code,
output, memory and end. It only spares the seconds that Python needs to import JAX.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple

import grue


class Ended(NamedTuple):
    code: int
    lines: list[str]
    """Of standard error."""
    seconds: float
    """By the clock on the wall."""
    bytes: int
    """The most memory that it had."""
    out: str = ""
    """Standard output, of a fork."""


def surroundings() -> dict[str, str]:
    """Whatever the folder of a call, it uses the same grue."""
    return {**os.environ, "PYTHONPATH": str(Path(grue.__file__).resolve().parents[1])}


def words(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "grue.cli", *arguments]


def start(arguments: Sequence[str], **more: Any) -> Any:
    """A ``Popen`` of grue that says nothing."""
    silent: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    return subprocess.Popen(words(arguments), env=surroundings(), **{**silent, **more})


def call(arguments: Sequence[str], timeout: float = 600.0) -> Ended:
    """A real process, up to its end."""
    with tempfile.TemporaryFile() as told:
        begun = time.perf_counter()
        process = start(arguments, stderr=told)
        code, most, hangs = watch(process.pid, timeout)
        # The process has been waited for already.
        process.returncode = code
        seconds = time.perf_counter() - begun
        lines = _text(told).splitlines()
    return Ended(code, lines + ["hangs"] * hangs, seconds, most)


def watch(pid: int, timeout: float) -> tuple[int, int, bool]:
    """Waits for a child: its exit code, the most memory that it had, whether it was ended."""
    until, hangs, most = time.monotonic() + timeout, False, 0
    while not (ended := os.wait4(pid, os.WNOHANG))[0]:
        if time.monotonic() > until and not hangs:
            os.kill(pid, signal.SIGKILL)
            hangs = True
        most = max(most, most_memory(pid))
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(ended[1]), most, hangs


def most_memory(pid: int) -> int:
    """In bytes so far. wait4 would count the memory of the process that started it too."""
    return 1024 * _status(pid, "VmHWM:")


def family_memory(pid: int) -> int:
    """The bytes that a process and all its children hold now; shared pages count once each."""
    return 1024 * sum(_status(one, "VmRSS:") for one in (pid, *children(pid)))


def children(pid: int) -> list[int]:
    with suppress(OSError):
        found = [(task / "children").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
        return [int(one) for line in found for one in line.split()]
    return []


def _status(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(name))


# Forks


class Forks:
    """A process that has imported everything, and forks for every call."""

    def __enter__(self) -> Forks:
        begun = time.perf_counter()
        self._server: Any = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=surroundings(),
        )
        assert self._server.stdout.readline() == b"ready\n"
        self.importing = time.perf_counter() - begun
        """Seconds that every call is spared."""
        return self

    def __exit__(self, *error: object) -> None:
        self._server.stdin.close()
        self._server.wait()

    def call(self, arguments: Sequence[str], timeout: float = 600.0) -> Ended:
        """The seconds of the imports are added, as if the call had made them."""
        asked = {"arguments": list(arguments), "folder": os.getcwd(), "timeout": timeout}
        self._server.stdin.write(json.dumps(asked).encode() + b"\n")
        self._server.stdin.flush()
        code, lines, seconds, most, out = json.loads(self._server.stdout.readline())
        return Ended(code, lines, seconds + self.importing, most, out)


def serve() -> None:
    import grue.cli.app
    import grue.cli.watch
    import grue.reports.report
    import grue.training.train  # noqa: F401
    from grue.cli import entry

    gc.freeze()  # What is shared stays shared.
    print("ready", flush=True)
    for line in iter(sys.stdin.buffer.readline, b""):
        asked = json.loads(line)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as told:
            begun = time.perf_counter()
            pid = os.fork()
            if pid == 0:
                os.chdir(asked["folder"])
                null = os.open(os.devnull, os.O_RDWR)
                for number, handle in enumerate((null, out.fileno(), told.fileno())):
                    os.dup2(handle, number)
                sys.stdin = open(0, closefd=False)  # noqa: SIM115  The pipe is the server's.
                sys.argv = ["grue", *asked["arguments"]]
                sys.exit(entry.main())
            code, most, hangs = watch(pid, asked["timeout"])
            seconds = time.perf_counter() - begun
            lines = _text(told).splitlines() + ["hangs"] * hangs
            print(json.dumps([code, lines, seconds, most, _text(out)]), flush=True)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


# What a training leaves


def contents(folder: Path) -> dict[str, bytes]:
    """Every file, byte by byte."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def outcome(folder: Path) -> dict[str, Any]:
    """What a training must end with, however often it was killed.

    Of TensorBoard's events all but the times; of the two checkpoints the last. At which step the
    other one was written depends on the time.
    """
    found: dict[str, Any] = {}
    last: dict[Path, Path] = {}
    for name, data in contents(folder).items():
        path = Path(name)
        if path.name.startswith("events."):
            found[str(path.with_name("events"))] = list(events(data))
        elif path.parent.name == "checkpoint":
            last[path.parent] = max(path, last.get(path.parent, path))
        else:
            found[name] = data
    return found | {str(path): (folder / path).read_bytes() for path in last.values()}


def events(data: bytes) -> Iterator[tuple[int, list[tuple[str, float]]]]:
    """Steps and values of a file of events: a length and a check, the event, another check."""
    event_of = import_module("tensorboardX.proto.event_pb2").Event
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        event = event_of.FromString(data[at + 12 : at + 12 + length])
        yield event.step, [(value.tag, value.simple_value) for value in event.summary.value]
        at += 16 + length


if __name__ == "__main__":
    serve()
