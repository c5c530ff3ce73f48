"""Carries out tasks on this machine: in processes with a core or a GPU each, or in this one."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from grue.errors import UsageError
from grue.experiments.devices import Cores, environment, free_cores, gpus
from grue.experiments.tasks import ENDINGS, Event, Task
from grue.experiments.worker import Tell, Teller, train
from grue.experiments.worker_process import WorkerProcess, order_of
from grue.training.metrics import MetricsRow
from grue.training.train import Progress


class LocalProcesses:
    """Processes on this machine, each with some cores, or with a GPU or a share of one."""

    def __init__(
        self, jobs: int, options: Mapping[str, Any], cores: int = 1, gpu_share: float = 1.0
    ) -> None:
        self.options = options
        self.gpus, self.share, self.cores = gpus(), gpu_share, cores
        self._free = list(range(jobs))
        self._running: dict[int, tuple[WorkerProcess, int, Cores]] = {}
        self.slots = jobs

    def start(self, task: Task, again: bool) -> str:
        place = self._free.pop(0)
        gpu = self.gpus[place % len(self.gpus)] if self.gpus else None
        cores = Cores(self.cores, place * self.cores)
        order = {**order_of(task, again, self.options), "cores": cores.numbers}
        worker = WorkerProcess(order, environment(gpu, self.share))
        self._running[task.number] = worker, place, cores
        return f"core {', '.join(map(str, cores.numbers))}" if gpu is None else f"GPU {gpu}"

    def poll(self, seconds: float) -> list[Event]:
        until = time.monotonic() + seconds
        while not (found := [e for w, _, _ in self._running.values() for e in w.events()]):
            if time.monotonic() >= until:
                break
            time.sleep(0.02)
        for event in found:
            if event.kind in ENDINGS:
                worker, place, cores = self._running.pop(event.task)
                worker.process.wait()
                worker.close()
                cores.close()
                self._free.insert(0, place)
        return found

    def stop(self) -> None:
        for worker, _, _ in self._running.values():
            worker.stop()

    def close(self) -> None:
        for worker, _, cores in self._running.values():
            worker.close()
            cores.close()
        self._running.clear()


class ThisProcess:
    """Carries out one task at a time in this process."""

    slots = 1

    def __init__(
        self, progress: Progress, options: Mapping[str, Any], until: float | None = None
    ) -> None:
        self.progress, self.options, self.until = progress, options, until
        self._task: tuple[Task, bool] | None = None
        self.live: Callable[[Event], None] = lambda event: None

    def start(self, task: Task, again: bool) -> str:
        self._task = task, again
        return ""

    def poll(self, seconds: float) -> list[Event]:
        assert self._task is not None
        task, again = self._task

        def tell(kind: str, value: Mapping[str, Any]) -> None:
            self.live(Event(task.number, kind, value))

        watcher = _Watcher(self.progress, tell, self.until)
        try:
            kind, value = train(order_of(task, again, self.options), watcher)
        except KeyboardInterrupt:
            kind, value = "stopped", {}
        here = {"here": True} if kind == "stopped" and not watcher.late else {}
        return [Event(task.number, kind, {**value, **here})]

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Watcher(Teller):
    """Shows the progress of training in this process, and stops it when the time is up."""

    def __init__(self, progress: Progress, tell: Tell, until: float | None) -> None:
        super().__init__(tell)
        self.progress, self.until, self.late = progress, until, False

    def begin(self, names: Sequence[str], step: int, steps: int) -> None:
        super().begin(names, step, steps)
        self.progress.begin(names, step, steps)

    def update(self, step: int, rows: Sequence[MetricsRow]) -> None:
        super().update(step, rows)
        self.progress.update(step, rows)
        if self.until is not None and time.time() >= self.until and not self.late:
            self.late = True
            signal.raise_signal(signal.SIGTERM)  # Training writes a checkpoint and ends.

    def say(self, line: str) -> None:
        self.progress.say(line)

    def ended(self, name: str, row: MetricsRow) -> str:
        return ""  # The progress display has already shown it.


def local_slots(jobs: int | None, cores: int, gpu_share: float) -> int:
    """Processes that train at the same time. 1 means this process itself.

    By default one for each core; on a machine with GPUs, one for each GPU or share of a GPU.
    """
    if found := gpus():
        most = max(int(len(found) / gpu_share), 1)
        what = f"{len(found)} GPU{'s' * (len(found) > 1)} and --gpus-per-group {gpu_share:g}"
    elif jax.default_backend() == "cpu":
        return max(len(free_cores()) // cores, 1) if jobs is None else jobs
    else:
        most, what = 1, "this accelerator"
    if jobs is not None and jobs > most:
        raise UsageError(
            f"there is room for {most} on {what}: --jobs is at most {most}, not {jobs}"
        )
    return most if jobs is None else jobs
