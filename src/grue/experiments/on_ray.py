"""Carries out tasks on a Ray cluster.

A task is an actor on some node. It starts the same worker process that is used on a single machine,
so that JAX is imported in a process that sees only its own devices. All results are in the run
folders, which all nodes see; nothing that Ray stores is needed later. Nothing here imports JAX.
"""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from grue.errors import UsageError
from grue.experiments.conductor import WAIT, Conductor, Failure, StudyOutcome, TaskProgress
from grue.experiments.devices import Cores, environment
from grue.experiments.ray_cluster import NAMESPACE, imported
from grue.experiments.status import StatusFile, read_status
from grue.experiments.storage import address_at, folder_at, place_of
from grue.experiments.tasks import ENDINGS, Event, Task
from grue.experiments.worker_process import WorkerProcess, order_of

FORWARDED = ("GRUE_", "JAX_", "XLA_")
"""Prefixes of the environment variables that are passed on to the workers."""
HEAD = "node:__internal_head__"
"""Ray's name for the resource that only the head node has."""
POLL_SECONDS = 2.0
NAME_SECONDS = 10.0
SILENT_SECONDS = 120.0
"""A node that does not answer for this long is given up, even if the cluster thinks it lives."""


class Runner:
    """The actor on a node: starts a worker and passes on its events."""

    def __init__(self, order: Mapping[str, Any], needs: Mapping[str, Any]) -> None:
        os.environ.update(needs["variables"])
        self._cores = Cores(needs["cores"])
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES") if needs["gpus"] else None
        narrow = environment(gpu, needs["gpus"] or 1.0)
        self._worker = WorkerProcess({**order, "cores": self._cores.numbers}, narrow)
        cores = ", ".join(map(str, self._cores.numbers))
        place = f"{socket.gethostname()}, {f'GPU {gpu}' if gpu else f'core {cores}'}"
        self._said: list[tuple[str, Mapping[str, Any]]] = [("place", {"name": place})]
        self._heard = 0
        self._one_by_one = threading.Lock()

    def poll(self, seconds: float, heard: int) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """The events after the first ``heard``; waits at most this long for one.

        An answer may be lost on its way. So events are kept until a later call confirms that they
        were received.
        """
        with self._one_by_one:
            del self._said[: heard - self._heard]
            self._heard = heard
            if not self._said:
                self._said += [(one.kind, one.value) for one in self._worker.events(seconds)]
            return list(self._said)

    def stop(self) -> None:
        self._worker.stop()


class OnRay:
    """The nodes of a cluster. Each task has some cores and GPUs, or a share of a GPU."""

    def __init__(
        self,
        options: Mapping[str, Any],
        cores: int = 1,
        gpus: float = 0.0,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.ray = imported()
        self.options, self.cores, self.gpus = options, cores, gpus
        self.variables = forwarded() if variables is None else variables
        self._runners: dict[int, Any] = {}
        self._asked: dict[Any, int] = {}
        self._heard: dict[int, int] = {}
        """Events of each task."""
        self._silent: dict[int, float] = {}
        """For each task, since when its node has not answered."""
        self._slots, self._counted = 0, 0.0

    @property
    def slots(self) -> int:
        if time.monotonic() - self._counted > POLL_SECONDS:
            self._counted = time.monotonic()
            self._slots = sum(self._room(node) for node in self.ray.nodes() if node["Alive"])
        return max(self._slots, 1)

    def _room(self, node: Mapping[str, Any]) -> int:
        held = node["Resources"]
        room = int(held.get("CPU", 0) // self.cores)
        return min(room, int(held.get("GPU", 0) / self.gpus)) if self.gpus else room

    def check_room(self) -> None:
        if sum(self._room(node) for node in self.ray.nodes() if node["Alive"]) == 0:
            gpus = f" and {self.gpus:g} GPUs" if self.gpus else ""
            raise UsageError(
                f"no node has {self.cores} cores{gpus} for a group; "
                "give less with --cores-per-group and --gpus-per-group"
            )

    def start(self, task: Task, again: bool) -> str:
        needs = {"cores": self.cores, "gpus": self.gpus, "variables": self.variables}
        # Ray does not restart a lost actor: the conductor decides what is retried.
        actor = self.ray.remote(
            num_cpus=self.cores,
            num_gpus=self.gpus,
            max_restarts=0,
            # So that ``stop`` works while a call whose caller is gone is still being answered.
            max_concurrency=3,
            scheduling_strategy="SPREAD",
        )(Runner).remote(order_of(task, True, self.options), needs)
        self._runners[task.number], self._heard[task.number] = actor, 0
        self._ask(task.number)
        return ""

    def _ask(self, number: int) -> None:
        asked = self._runners[number].poll.remote(POLL_SECONDS, self._heard[number])
        self._asked[asked] = number

    def poll(self, seconds: float) -> list[Event]:
        if not self._asked:
            time.sleep(seconds)
            return []
        ready, _ = self.ray.wait(list(self._asked), num_returns=1, timeout=seconds)
        found: list[Event] = []
        for answer in ready:
            number = self._asked.pop(answer)
            events = self._events(number, answer)
            found += events
            self._heard[number] += len(events)
            if any(event.kind in ENDINGS for event in events):
                self._end(number)
            else:
                self._ask(number)
        return found

    def _events(self, number: int, answer: Any) -> list[Event]:
        try:
            said = self.ray.get(answer)
        except self.ray.exceptions.OutOfMemoryError:
            return [Event(number, "memory", {"why": "its node ran out of memory"})]
        except self.ray.exceptions.ActorUnavailableError:
            return self._unanswered(number)
        except self.ray.exceptions.RayActorError as error:
            return [Event(number, "lost", {"why": _why(str(error))})]
        except self.ray.exceptions.RayError as error:
            why = str(error).strip().splitlines()[-1]
            return [Event(number, "failed", {"why": why})]
        self._silent.pop(number, None)
        return [Event(number, kind, value) for kind, value in said]

    def _unanswered(self, number: int) -> list[Event]:
        """Waits. The task is lost if Ray says that its node is dead, or after ``SILENT_SECONDS``.

        Until then it may still be training. Where storage has no locks, another worker must wait.
        """
        since = self._silent.setdefault(number, time.monotonic())
        if time.monotonic() - since > SILENT_SECONDS:
            return [Event(number, "lost", {"why": "its node no longer answers"})]
        time.sleep(WAIT)
        return []

    def _end(self, number: int) -> None:
        self._silent.pop(number, None)
        with suppress(Exception):
            self.ray.kill(self._runners.pop(number))

    def stop(self) -> None:
        for actor in self._runners.values():
            with suppress(self.ray.exceptions.RayError):
                actor.stop.remote()

    def close(self) -> None:
        for number in list(self._runners):
            self._end(number)
        self._asked.clear()


def _why(text: str) -> str:
    if "its node has died" in text:
        return "its node was lost"
    return "its worker was killed"


# A study that continues if the command that started it ends


class Lead:
    """Conducts a study inside the cluster, as a detached actor.

    It starts the study by itself, so that the study continues if Ray has to restart the actor, even
    without the command. It does so in a thread, not by a call to itself: while Ray restarts an
    actor, it may refuse calls to it, even the actor's own.
    """

    def __init__(self, *study: Any) -> None:
        self._asked = False
        here = imported().get_runtime_context()
        given = (*study, here.was_current_actor_reconstructed, here.current_actor)
        threading.Thread(target=self._lead, args=given, daemon=True).start()

    def _lead(
        self,
        tasks: Sequence[Mapping[str, Any]],
        nodes: Mapping[str, Any],
        place: Mapping[str, str],
        until: float | None,
        again: bool,
        me: Any,
    ) -> None:
        """``nodes``: the arguments of ``OnRay``. ``place``: the study's folder."""
        try:
            watch = RayLog(folder_at(place), again)
            found = [Task.from_json(task) for task in tasks]
            try:
                conductor = Conductor(found, OnRay(**nodes), watch, until, lambda: self._asked)
                watch.end(conductor.run())
            except Exception as error:
                watch.fail(f"{type(error).__name__}: {error}")
        finally:
            imported().kill(me)  # Always, so that nobody joins a study that has no leader.

    def stop(self) -> None:
        self._asked = True

    def ready(self) -> bool:
        return True


class RayLog:
    """Writes what happens to the study's folder, for commands that look at it."""

    def __init__(self, out: Path, again: bool) -> None:
        self.file = StatusFile(out, "ray")
        self.tasks: Sequence[TaskProgress] = ()
        self.outcome = StudyOutcome()
        before = read_status(out) if again else None
        if before is not None:
            self.file.lines = [""] * (before["said"] - len(before["lines"])) + before["lines"]
            self.say("the process that led the study was lost; another one goes on")

    def say(self, line: str) -> None:
        self.file.lines.append(line)

    def show(self, tasks: Sequence[TaskProgress], outcome: StudyOutcome) -> None:
        self.tasks, self.outcome = tasks, outcome
        self.file.write(tasks, outcome)

    def end(self, outcome: StudyOutcome) -> None:
        self.file.write(self.tasks, outcome, outcome.state)

    def fail(self, why: str) -> None:
        self.outcome.failures.append(Failure("the study", why, ""))
        self.end(self.outcome)


def lead_name(out: Path) -> str:
    place = address_at(out) or str(out.resolve())
    return "grue-" + hashlib.sha256(place.encode()).hexdigest()[:16]


def find_lead(out: Path) -> Any | None:
    """The actor that conducts the study of a folder now; None if there is none."""
    try:
        return imported().get_actor(lead_name(out), NAMESPACE)
    except ValueError:
        return None


def start_lead(
    out: Path, tasks: Sequence[Task], nodes: Mapping[str, Any], until: float | None
) -> Any:
    """Starts a study on the head node: if that is lost, so is the cluster."""
    ray = imported()
    until_free = time.monotonic() + NAME_SECONDS
    while find_lead(out) is not None and time.monotonic() < until_free:
        time.sleep(0.1)  # The previous actor is just ending.
    StatusFile(out, "ray").write([], StudyOutcome())
    actor = ray.remote(
        num_cpus=0,
        resources={HEAD: 0.001},
        max_concurrency=3,
        max_restarts=-1,
        max_task_retries=-1,  # A call waits while the lead is being restarted.
    )(Lead)
    lead = actor.options(name=lead_name(out), namespace=NAMESPACE, lifetime="detached").remote(
        [task.to_json() for task in tasks], nodes, place_of(out), until
    )
    try:
        ray.get(lead.ready.remote())
    except ray.exceptions.RayActorError:
        if (read_status(out) or {"state": "running"})["state"] == "running":
            raise  # Otherwise the study was over before it could answer.
    return lead


def ask_to_stop(lead: Any) -> None:
    """Asks the study to stop. Repeat it until the study is over: a restarted lead forgets it."""
    with suppress(Exception):
        lead.stop.remote()


def forwarded() -> dict[str, str]:
    """The environment variables that are passed on to workers on other machines."""
    found = {k: v for k, v in os.environ.items() if k.startswith(FORWARDED)}
    found.pop("JAX_PLATFORMS", None)  # Chosen for each worker by its devices.
    return found
