"""Many emulators in processes of their own: as many processes as cores.

Emulators crash and hang, and random play finds the ways to make them. A process that is gone, or
has not answered in time, is ended and replaced; what it was asked is answered with ``failed``.
Processes are started afresh, not forked: a fork of a program with threads may hang by itself.
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
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from grue.engine.emulator_process import (
    AWAKE_SECONDS,
    OPENING,
    Answer,
    Facts,
    Ready,
    Spec,
    failed_turns,
    question_type,
    turn_type,
)
from grue.errors import GrueError, UsageError

STEP_SECONDS = 10.0
"""A process has so long for each game that it is asked about; a step takes a ten-thousandth."""
START_SECONDS = 120.0
MOST_FAILURES = 20
"""In a row, without a single answer between them: then it is not chance."""
VARIABLE = "GRUE_WORKERS"
PROGRAM = (
    "import sys; sys.path[:] = {path!r}; "
    "from grue.engine.emulator_process import main; main({handle}, {awake})"
)
OTHER_CORES = 2
"""For the training program itself: processes beyond the rest have no core of their own."""


class WorkerError(GrueError):
    """A process of emulators is gone or does not answer."""


@dataclass
class Spent:
    """Seconds since the pool was made, for finding out where the time goes."""

    asking: float = 0.0
    """From a question to its answer."""
    playing: float = 0.0
    """Of that, in the emulators: of the slowest process for each question."""


class Worker:
    """One process, and the pipe to it."""

    def __init__(self, spec: Spec, awake: bool = False) -> None:
        """``awake``: it has a core of its own, and need not sleep between two steps."""
        self.connection, other = Pipe()
        self._ready = Ready(self.connection)
        self._awake = AWAKE_SECONDS if awake else 0.0
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        program = PROGRAM.format(path=sys.path, handle=other.fileno(), awake=awake)
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            pass_fds=(other.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            # Ctrl-C is for us: we end the processes ourselves.
            start_new_session=True,
        )
        other.close()
        with suppress(OSError):
            self.connection.send(spec)

    def wait(self) -> Facts:
        """What it knows of the game, once it is there."""
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
            if not self._ready.wait(seconds, self._awake):
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
        end_process(self.process, self.connection)
        self._errors.close()


def end_process(process: subprocess.Popen[bytes], connection: Connection) -> None:
    connection.close()
    process.kill()
    process.wait()


class Pool:
    """Answers questions about games, whatever becomes of its processes."""

    def __init__(
        self, spec: Spec, workers: int | None = None, seconds: float | None = None
    ) -> None:
        self.spec = spec
        self.question, self.turn = question_type(spec), turn_type(spec)
        """Of questions and answers: records, of which ``ask`` takes and gives arrays."""
        self.size = worker_count() if workers is None else workers
        self.seconds = STEP_SECONDS if seconds is None else seconds
        self.spent = Spent()
        self.failures = 0
        """Processes that were replaced, and games that failed in one that goes on."""
        self.error: GrueError | None = None
        """What made it give up."""
        self._in_a_row = 0
        self._notes: list[str] = []
        self._workers: dict[int, Worker] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, end_all, self._workers)

    @property
    def processes(self) -> list[int]:
        """Their ids."""
        return [worker.process.pid for _, worker in sorted(self._workers.items())]

    def facts(self) -> Facts:
        with self._lock:
            self._start([0])
            if self.error is not None:
                raise self.error
            return self._facts

    def opening(self, seed: int) -> np.ndarray:
        """The first text of a game and what goes with it."""
        asked = np.zeros(1, self.question)
        asked["seed"], asked["action"] = seed, OPENING
        turns = self.ask(asked)
        if self.error is not None:
            raise self.error
        if turns["failed"][0]:
            raise GrueError(f"{self.spec.game.name} does not begin: {self.notes()[-1]}")
        return turns

    def ask(self, asked: np.ndarray) -> np.ndarray:
        """The answers to all rows; those that could not be had are marked as failed.

        Once the pool has given up, that is all of them.
        """
        with self._lock:
            try:
                return self._ask(asked)
            except BaseException:
                # Answers may be left in the pipes.
                end_all(self._workers)
                raise

    def notes(self) -> list[str]:
        """What went wrong since this was last called, in lines."""
        notes, self._notes = self._notes, []
        return notes

    def close(self) -> None:
        """Ends all processes; the next question starts them again, also after giving up."""
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
        """All at once, and then waits for all."""
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
                own = f"a process for {self.spec.game.name} {error} at its start"
                self.error = GrueError(own) if isinstance(error, WorkerError) else error
                end_all(self._workers)
                return

    def _replace(self, number: int, games: int, error: WorkerError) -> None:
        """Ends a process; the next question to it starts another."""
        self._workers.pop(number).end()
        what = "its episode ends" if games == 1 else f"its {games} episodes end"
        self._fail(f"an emulator's process {error}: {what} here, and another process goes on")

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
    """As many as there are cores, or as ``GRUE_WORKERS`` says."""
    given = os.environ.get(VARIABLE)
    if given is None:
        return core_count()
    if not given.isdigit() or int(given) < 1:
        raise UsageError(f"{VARIABLE} is a number of processes from 1 on, not {given!r}")
    return int(given)


def core_count() -> int:
    return len(os.sched_getaffinity(0))
