"""Runs emulators in subprocesses, by default one for each core.

Random play can make emulators crash or hang. A subprocess that ends or does not answer in time is
replaced, and its requests are answered with ``failed``. Subprocesses are not forked, because a fork
of a program with threads may hang.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from typing import Any

import numpy as np

from grue.engine.emulator_process import OPENING, Answer, Facts, Ready, Spec, failed_turns
from grue.errors import GrueError, UsageError

STEP_SECONDS = 10.0
"""Time limit for each step, far above what a step needs."""
START_SECONDS = 120.0
MOST_FAILURES = 20
"""The pool gives up after this many failures in a row."""
VARIABLE = "GRUE_WORKERS"
PROGRAM = (
    "import sys; sys.path[:] = {path!r}; "
    "from grue.engine.emulator_process import main; main({handle}, {awake})"
)
OTHER_CORES = 2
"""Cores for the training program; only the others may be used for busy waiting."""


class WorkerError(GrueError):
    """A subprocess has ended or does not answer."""


@dataclass
class Spent:
    """Seconds since the pool was made, for profiling."""

    asking: float = 0.0
    """Time between requests and answers."""
    playing: float = 0.0
    """The part of it that the emulators of the slowest subprocess needed."""


class Worker:
    """A subprocess and the pipe to it."""

    def __init__(self, spec: Spec, awake: bool = False) -> None:
        """``awake``: it has its own core, and may wait for questions in a busy loop."""
        self.connection, other = Pipe()
        self._ready = Ready(self.connection, awake)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        program = PROGRAM.format(path=sys.path, handle=other.fileno(), awake=awake)
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            pass_fds=(other.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            # Ctrl-C goes to the parent only, which ends the subprocess.
            start_new_session=True,
        )
        other.close()
        with suppress(OSError):
            self.connection.send(spec)

    def wait(self) -> Facts:
        """Waits for the start, and returns facts about the game."""
        facts = self._receive(START_SECONDS, self.connection.recv)
        if isinstance(facts, GrueError):
            raise facts
        return facts

    def send(self, asked: np.ndarray) -> None:
        try:
            self.connection.send_bytes(asked.tobytes())
        except OSError:
            raise self._gone() from None

    def receive(self, seconds: float) -> bytes:
        return self._receive(seconds, self.connection.recv_bytes)

    def _receive(self, seconds: float, receive: Callable[[], Any]) -> Any:
        try:
            if not self._ready.wait(seconds):
                raise WorkerError("did not answer in time")
            return receive()
        except (EOFError, OSError):
            raise self._gone() from None

    def _gone(self) -> WorkerError:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        code = self.process.returncode
        if code is None:
            return WorkerError("closed its pipe")
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return WorkerError(f"{how}: {said[-1]}" if said else how)

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()
        self._errors.close()


class EmulatorPool:
    """Answers questions about games, and replaces failed subprocesses."""

    def __init__(
        self, spec: Spec, workers: int | None = None, seconds: float | None = None
    ) -> None:
        self.spec = spec
        self.question, self.turn = spec.question_type(), spec.turn_type()
        """Record types of the arrays that ``ask`` takes and returns."""
        self.size = worker_count() if workers is None else workers
        self.seconds = STEP_SECONDS if seconds is None else seconds
        self.spent = Spent()
        self.failures = 0
        """Subprocesses that were replaced, and games that failed."""
        self.error: GrueError | None = None
        """Why the pool gave up, if it did."""
        self._in_a_row = 0
        self._notes: list[str] = []
        self._workers: dict[int, Worker] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, end_all, self._workers)

    @property
    def processes(self) -> list[int]:
        """The process ids."""
        return [worker.process.pid for _, worker in sorted(self._workers.items())]

    def facts(self) -> Facts:
        with self._lock:
            self._start([0])
            if self.error is not None:
                raise self.error
            return self._facts

    def opening(self, seed: int) -> np.ndarray:
        """The first turn of a game."""
        asked = np.zeros(1, self.question)
        asked["seed"], asked["action"] = seed, OPENING
        turns = self.ask(asked)
        if self.error is not None:
            raise self.error
        if turns["failed"][0]:
            raise GrueError(f"{self.spec.game.name} does not start: {self.notes()[-1]}")
        return turns

    def ask(self, asked: np.ndarray) -> np.ndarray:
        """Answers all rows. Failed ones are marked, which is all once the pool has given up."""
        with self._lock:
            try:
                return self._ask(asked)
            except BaseException:
                # The pipes may still hold answers.
                end_all(self._workers)
                raise

    def notes(self) -> list[str]:
        """Failures since the last call, one line each."""
        notes, self._notes = self._notes, []
        return notes

    def close(self) -> None:
        """Ends all subprocesses. The next question starts them again."""
        with self._lock:
            end_all(self._workers)
            self.error, self._in_a_row = None, 0

    def _ask(self, asked: np.ndarray) -> np.ndarray:
        owner = asked["place"] % self.size
        shares = {number: np.flatnonzero(owner == number) for number in np.unique(owner).tolist()}
        self._start(shares)
        turns = failed_turns(self.turn, len(asked))
        if self.error is not None:
            return turns
        begun = time.perf_counter()
        slowest = 0.0
        waiting: dict[int, np.ndarray] = {}
        for number, rows in shares.items():
            try:
                self._workers[number].send(asked[rows])
                waiting[number] = rows
            except WorkerError as error:
                self._replace(number, len(rows), error)
        for number, rows in waiting.items():
            limit = begun + self.seconds * len(rows)
            try:
                message = self._workers[number].receive(limit - time.perf_counter())
            except WorkerError as error:
                self._replace(number, len(rows), error)
                continue
            answer = Answer.unpack(message, self.turn, len(rows))
            turns[rows] = answer.turns
            self._note_errors(answer)
            slowest = max(slowest, answer.seconds)
        self.spent.asking += time.perf_counter() - begun
        self.spent.playing += slowest
        return turns

    def _start(self, numbers: Iterable[int]) -> None:
        """Starts missing subprocesses in parallel."""
        if self.error is not None:
            return
        new = [number for number in numbers if number not in self._workers]
        spare = core_count() - OTHER_CORES
        for number in new:
            self._workers[number] = Worker(self.spec, awake=number < spare)
        for number in new:
            try:
                self._facts = self._workers[number].wait()
            except GrueError as error:
                own = f"a subprocess for {self.spec.game.name} {error} at its start"
                self.error = GrueError(own) if isinstance(error, WorkerError) else error
                end_all(self._workers)
                return

    def _replace(self, number: int, games: int, error: WorkerError) -> None:
        """Ends a subprocess. The next question to it starts another."""
        self._workers.pop(number).end()
        what = "its episode ends" if games == 1 else f"its {games} episodes end"
        self._fail(f"an emulator's subprocess {error}: {what} here, and a new one is started")

    def _note_errors(self, answer: Answer) -> None:
        for error in answer.errors:
            self._fail(f"an emulator failed ({error}): its episode ends here")
        if not answer.turns["failed"].all():
            self._in_a_row = 0

    def _fail(self, note: str) -> None:
        self.failures += 1
        self._in_a_row += 1
        self._notes.append(note)
        if self._in_a_row >= MOST_FAILURES:
            self.error = GrueError(
                f"{self.spec.game.name} failed {MOST_FAILURES} times in a row; the last time {note}"
            )


def end_all(workers: dict[int, Worker]) -> None:
    while workers:
        workers.popitem()[1].end()


def worker_count() -> int:
    """The number in ``GRUE_WORKERS``, or else the number of cores."""
    given = os.environ.get(VARIABLE)
    if given is None:
        return core_count()
    if not given.isdigit() or int(given) < 1:
        raise UsageError(f"{VARIABLE} is {given!r}; give a number of subprocesses, at least 1")
    return int(given)


def core_count() -> int:
    return len(os.sched_getaffinity(0))
