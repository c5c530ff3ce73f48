"""Trains runs in parallel subprocesses, one per core: on a CPU that is faster than threads.

A process takes the runs of one program at a time, the longest first. So each program is compiled
once, and the processes finish at about the same time.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple

from grue.errors import GrueError
from grue.processes import stop_with_parent
from grue.training.config import TrainConfig
from grue.training.metrics import MetricsRow
from grue.training.programs import game_of, program_key
from grue.training.train import Progress, train_all

WAIT = 0.5


class Said(NamedTuple):
    """A message of a subprocess. Kinds: line, run (one has ended), over, stopped, failed."""

    kind: str
    text: str = ""
    code: int = 0


def free_cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def share_out(configs: Sequence[TrainConfig], one_program: bool) -> list[list[TrainConfig]]:
    """Groups the runs by program, the group that takes longest first."""
    groups: dict[tuple, list[TrainConfig]] = {}
    for config in configs:
        heads = None if one_program else config.heads_in_use
        groups.setdefault((program_key(config), heads), []).append(config)

    def cost(share: list[TrainConfig]) -> tuple:
        commands = len(game_of(share[0]).commands)
        runs = sum(len(config.seeds) for config in share)
        return max(map(_heads, share)), runs, commands

    return sorted(groups.values(), key=cost, reverse=True)


def _heads(config: TrainConfig) -> int:
    """Heads cost time. An agent without the setting counts as none."""
    return config.heads_in_use if hasattr(config.settings, "heads") else 0


def train_side_by_side(
    configs: Sequence[TrainConfig],
    out: Path,
    jobs: int,
    progress: Progress,
    checkpoint_seconds: float,
    one_program: bool,
) -> None:
    """Trains in ``jobs`` subprocesses. A signal stops them all, after a checkpoint of each."""
    context = get_context("spawn")
    shares = share_out(configs, one_program)
    for config in configs:
        game_of(config).close()  # Each subprocess opens its own emulators.
    said, taken = context.Queue(), context.Value("i", 0)
    cores, options = free_cores(), (checkpoint_seconds, one_program)
    processes = [
        context.Process(
            target=_work,
            args=(shares, taken, said, out, cores[number % len(cores)], options),
            daemon=True,
        )
        for number in range(min(jobs, len(shares)))
    ]
    runs = sum(len(config.seeds) for config in configs)
    with _Terminated():
        try:
            _start(processes)
            _listen(processes, said, runs, progress)
        except KeyboardInterrupt:
            progress.say("stopping: the current runs write a checkpoint")
            raise
        finally:
            _end(processes)


def _start(processes: Sequence[SpawnProcess]) -> None:
    """Starts subprocesses that ignore Ctrl-C, which a terminal sends to every process."""
    before = signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    try:
        if in_main:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        for process in processes:
            process.start()
    finally:
        if in_main:
            signal.signal(signal.SIGINT, before)


def _listen(processes: Sequence[SpawnProcess], said: Any, runs: int, progress: Progress) -> None:
    """Forwards the messages of the subprocesses until all of them are over."""
    done, over = 0, 0
    while over < len(processes):
        try:
            told: Said = said.get(timeout=WAIT)
        except queue.Empty:
            dead = [p for p in processes if p.exitcode not in (None, 0)]
            if dead:
                raise GrueError(
                    f"a training process ended with code {dead[0].exitcode}, perhaps out of "
                    "memory; the same command goes on, with --jobs 1 one run at a time"
                ) from None
            continue
        over += told.kind == "over"
        if told.kind == "stopped":
            raise KeyboardInterrupt
        if told.kind == "failed":
            raise _FailedError(told.text, told.code)
        if told.kind == "run":
            done += 1
            progress.say(f"{told.text} ({done} of {runs})")
        elif told.kind == "line":
            progress.say(told.text)


class _FailedError(GrueError):
    """An error of a subprocess, with its exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.exit_code = code


def _end(processes: Sequence[SpawnProcess]) -> None:
    """Asks the subprocesses to stop, and waits for their checkpoints."""
    for process in processes:
        if process.is_alive():
            process.terminate()
    for process in processes:
        if process.pid is not None:
            process.join()


class _Terminated:
    """Handles SIGTERM like Ctrl-C, so that the subprocesses are stopped too."""

    def __enter__(self) -> None:
        self.active = threading.current_thread() is threading.main_thread()
        if self.active:
            self.before = signal.signal(signal.SIGTERM, signal.default_int_handler)

    def __exit__(self, *error: object) -> None:
        if self.active:
            signal.signal(signal.SIGTERM, self.before)


# In the subprocesses


def _work(
    shares: Sequence[Sequence[TrainConfig]],
    taken: Any,
    said: Any,
    out: Path,
    core: int,
    options: tuple[float, bool],
) -> None:
    """Trains one share after the other until none is left."""
    os.setpgrp()  # Ctrl-C goes to the parent only, which asks this process to stop.
    stop_with_parent()  # After a checkpoint.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})  # Before JAX starts, so that it uses one thread.
    try:
        while True:
            with taken.get_lock():
                number, taken.value = taken.value, taken.value + 1
            if number >= len(shares):
                break
            train_all(shares[number], out, True, False, _Teller(said), *options)
        said.put(Said("over"))
    except KeyboardInterrupt:
        said.put(Said("stopped"))
    except GrueError as error:
        said.put(Said("failed", str(error), error.exit_code))


class _Teller:
    """Sends progress to the parent process."""

    def __init__(self, said: Any) -> None:
        self.said = said
        self.name, self.steps = "", 0

    def begin(self, names: Sequence[str], step: int, steps: int) -> None:
        self.name, self.steps = names[0], steps

    def update(self, step: int, rows: Sequence[MetricsRow]) -> None:
        if step == self.steps:
            score, fraction = (rows[0][f"{name}_average"] for name in ("score", "fraction"))
            reached = "" if score is None else f", score {score:.1f}, fraction {fraction:.2f}"
            self.said.put(Said("run", f"{self.name}: {step} steps{reached}"))

    def say(self, line: str) -> None:
        self.said.put(Said("line", line))
