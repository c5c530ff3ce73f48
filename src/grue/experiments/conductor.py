"""Carries out tasks on some machines, and retries them after failures.

A task that is retried resumes from the checkpoints of its runs. The state of a run is in its
folder; this module only knows which worker has which task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from grue.experiments.tasks import ENDINGS, Event, Task, spoken

MOST_LOSSES = 3
"""A task that is lost this often in a row without progress is not retried."""
WAIT = 0.5
STOPPING = "stopping: the current runs write a checkpoint"


@runtime_checkable
class Executor(Protocol):
    """The machines that carry out tasks: local processes, a Ray cluster, or this process."""

    @property
    def slots(self) -> int:
        """The number of tasks that can run at the same time; may change."""
        ...

    def start(self, task: Task, again: bool) -> str:
        """Starts a task and returns the place. ``again``: its last process may still be ending."""
        ...

    def poll(self, seconds: float) -> list[Event]:
        """The events since the last call; waits at most this long for the first."""
        ...

    def stop(self) -> None:
        """Asks all tasks to write a checkpoint and stop."""
        ...

    def close(self) -> None:
        """Ends everything at once."""
        ...


@dataclass
class TaskProgress:
    """A task and its progress."""

    task: Task
    state: str = "waiting"
    """waiting, running, done, failed, stopped or split."""
    place: str = ""
    names: list[str] = field(default_factory=list)
    """The runs that are being trained now."""
    step: int = 0
    """Steps of the runs in ``names``."""
    done: int = 0
    """Runs that have ended."""
    steps_per_s: float = 0.0
    tries: int = 0
    losses: int = 0
    """How often it was lost in a row without progress."""
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        task = self.task
        own = {name: value for name, value in vars(self).items() if name != "task"}
        told = {"number": task.number, "label": task.label, "runs": task.names}
        return {**told, "steps": task.steps, "seconds": task.seconds, **own}


@dataclass
class Failure:
    run: str
    why: str
    place: str


@dataclass
class StudyOutcome:
    failures: list[Failure] = field(default_factory=list)
    stopped: bool = False
    """Stopped by a signal or at the end of the time; the rest continues next time."""
    at: tuple[int, int] | None = None
    """Of a run that was stopped in this process: the step it has reached, and all its steps."""
    done: list[str] = field(default_factory=list)
    """The runs that have been trained to the end."""
    measured: list[dict[str, Any]] = field(default_factory=list)
    """The speed of each task, with its ``names``."""
    results: list[dict[str, Any]] = field(default_factory=list)

    @property
    def state(self) -> str:
        return "stopped" if self.stopped else "failed" if self.failures else "done"

    def plus(self, other: StudyOutcome) -> StudyOutcome:
        """The second outcome after this one."""
        return StudyOutcome(
            failures=self.failures + other.failures,
            stopped=other.stopped,
            at=other.at,
            done=self.done + other.done,
            measured=self.measured + other.measured,
            results=self.results + other.results,
        )


@runtime_checkable
class Watch(Protocol):
    """Receives everything that happens, to show it."""

    def say(self, line: str) -> None: ...

    def show(self, tasks: Sequence[TaskProgress], outcome: StudyOutcome) -> None: ...


class Conductor:
    def __init__(
        self,
        tasks: Iterable[Task],
        executor: Executor,
        watch: Watch,
        until: float | None = None,
        asked: Callable[[], bool] = lambda: False,
    ) -> None:
        """``until``: the ``time.time()`` to stop at. ``asked``: whether to stop before that.

        Ctrl-C is only recorded (``training.stop.Stop``) and checked here. As an exception it could
        interrupt the handling of an event: the event would be lost, and its task never end.
        """
        self.all = [TaskProgress(task) for task in tasks]
        self.executor, self.watch = executor, watch
        self.until, self.asked = until, asked
        self.outcome = StudyOutcome()
        self.runs = sum(len(one.task.runs) for one in self.all)
        self.ended = 0
        self._stopping = False
        if hasattr(executor, "live"):
            executor.live = self._live  # pyright: ignore[reportAttributeAccessIssue]

    def run(self) -> StudyOutcome:
        try:
            while self._turn():
                pass
        finally:
            self.executor.close()
        self.outcome.stopped |= self.asked()  # Ctrl-C may also have come after the last event.
        self.watch.show(self.all, self.outcome)
        return self.outcome

    def _turn(self) -> bool:
        """Whether any task is running."""
        if not self._stopping and (self._of("running") or self._of("waiting")):
            self._stop_if_asked()
        if not self._stopping:
            free = max(self.executor.slots - len(self._of("running")), 0)
            for one in self._of("waiting")[:free]:
                one.tries += 1
                one.place = self.executor.start(one.task, one.tries > 1 or one.task.number < 0)
                one.state = "running"
        if not self._of("running"):
            return False
        for event in self.executor.poll(WAIT):
            self._heed(event)
        self.watch.show(self.all, self.outcome)
        return True

    def _live(self, event: Event) -> None:
        """An event from an executor that trains in this process, sent during ``poll``."""
        self._heed(event)
        self.watch.show(self.all, self.outcome)

    def _of(self, state: str) -> list[TaskProgress]:
        return [one for one in self.all if one.state == state]

    def _stop_if_asked(self) -> None:
        late = self.until is not None and time.time() >= self.until
        if not late and not self.asked():
            return
        if not late:
            self.watch.say(STOPPING)
        self._stopping = self.outcome.stopped = True
        self.executor.stop()

    def _heed(self, event: Event) -> None:
        one = next(p for p in self.all if p.task.number == event.task)
        value = event.value
        if event.kind in ENDINGS:
            self._end(one, event)
        elif event.kind == "place":
            one.place = value["name"]
        elif event.kind == "begin":
            one.names, one.step = list(value["names"]), value["step"]
        elif event.kind == "row":
            if value["step"] > one.step:
                one.losses = 0
            one.step, one.steps_per_s = value["step"], value["steps_per_s"]
        elif event.kind == "run":
            one.done += 1
            self.ended += 1
            if value["text"]:
                self.watch.say(f"{value['text']} ({self.ended} of {self.runs})")
        elif event.kind == "line":
            self.watch.say(value["text"])
        elif event.kind == "measured":
            self.outcome.measured.append({**value, "names": one.task.names})
        elif event.kind == "result":
            self.outcome.results.append({**value, "task": event.task})

    def _end(self, one: TaskProgress, event: Event) -> None:
        why, task = event.value.get("why", ""), one.task
        if event.kind == "done":
            one.state, one.why = "done", ""
            self.outcome.done += task.names
        elif event.value.get("here"):
            one.state, self._stopping, self.outcome.stopped = "stopped", True, True
            if "step" in event.value:
                self.outcome.at = event.value["step"], event.value["steps"]
        elif self._stopping:
            one.state = "stopped"
        elif event.kind == "memory" and len(task.runs) > 1:
            self.watch.say(f"{task.label}: {why}; tried again in halves")
            half = len(task.runs) // 2
            self._split(one, [task.runs[:half], task.runs[half:]], why)
        elif event.kind in ("memory", "failed"):
            self._fail(one, list(event.value.get("runs", ())) or task.names, why)
        else:
            self._lost(one, why or "its process was stopped")

    def _lost(self, one: TaskProgress, why: str) -> None:
        one.losses += 1
        task, again = one.task, one.losses < MOST_LOSSES
        self.watch.say(f"{task.label}: {why}{'; goes on from its checkpoints' if again else ''}")
        one.why = why
        if again:
            one.state = "waiting"
        elif task.together and len(task.runs) > 1:
            half = len(task.runs) // 2
            self._split(one, [task.runs[:half], task.runs[half:]], why)
        else:
            self._fail(one, one.names or task.names[:1], f"{why}, {MOST_LOSSES} times in a row")

    def _fail(self, one: TaskProgress, names: list[str], why: str) -> None:
        """Gives up some runs of a task; the others continue in a new task."""
        self.outcome.failures += [Failure(name, why, one.place) for name in names]
        self.watch.say(f"{', '.join(names)}: {why}")
        rest = [run for run in one.task.runs if run.name not in names]
        if rest:
            self._split(one, [rest], why)
        else:
            one.state, one.why = "failed", why

    def _split(self, one: TaskProgress, parts: Sequence[Sequence[Any]], why: str) -> None:
        one.state, one.why = "split", why
        number = max(p.task.number for p in self.all)
        for at, runs in enumerate(parts, 1):
            new = TaskProgress(one.task.of(runs, number + at), tries=1)
            self.all.append(new)


def told_failures(outcome: StudyOutcome, runs: int) -> str:
    """The failures in one line."""
    first = outcome.failures[0]
    return f"{len(outcome.failures)} of {spoken(runs)} failed; the first, {first.run}: {first.why}"
