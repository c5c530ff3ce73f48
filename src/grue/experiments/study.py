"""Trains runs on this machine or on a Ray cluster: all, or as many as fit into a time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from grue.engine.bench import device_name
from grue.errors import GrueError, UsageError
from grue.experiments import on_ray, planner, ray_cluster, status, storage
from grue.experiments.conductor import (
    STOPPING,
    Conductor,
    Executor,
    Failure,
    StudyOutcome,
    TaskProgress,
    Watch,
)
from grue.experiments.devices import GPU_SHARE, first_gpu, free_cores, gpus
from grue.experiments.local_processes import LocalProcesses, ThisProcess, local_slots
from grue.experiments.planner import Setting
from grue.experiments.rates import keep_rates, read_rates
from grue.experiments.tasks import Task, spoken
from grue.training.config import TrainConfig
from grue.training.programs import resolved
from grue.training.progress import duration
from grue.training.runs import is_finished, run_name
from grue.training.stop import Stop
from grue.training.train import CHECKPOINT_SECONDS, Progress, check_all

RESERVE = 0.05
"""The fraction of the time reserved for the last checkpoints, the records and the figures."""
LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Where:
    """On which machines, and for how long."""

    jobs: int | None = None
    """Processes on this machine; by default one for each core or GPU."""
    ray: str | None = None
    """The address of a Ray cluster."""
    cores: int | None = None
    gpus: float | None = None
    """Cores and GPUs of a task."""
    minutes: float | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS


class PlannedStudy:
    """Runs, the folder they go to, and the machines that train them."""

    def __init__(
        self,
        configs: Sequence[TrainConfig],
        runs: Path,
        home: Path,
        where: Where,
        progress: Progress,
        one_program: bool = False,
        together: bool | None = None,
        stage: Callable[[TrainConfig], int] | None = None,
        resume: bool = True,
    ) -> None:
        """``home``: the folder of the study's state and rates. ``stage``: the declared order."""
        if where.minutes is not None and not where.minutes > 0:
            raise UsageError(f"--minutes must be more than 0, not {where.minutes:g}")
        self.configs = [resolved(config) for config in configs]
        self.runs, self.home, self.where, self.progress = runs, home, where, progress
        self.one_program, self.given, self.stage = one_program, together, stage
        self.resume = resume
        self.by_name = {run_name(run): run for run in map(_single, self._each())}
        self.options = {
            "kind": "train",
            **storage.place_of(runs),
            "checkpoint_seconds": where.checkpoint_seconds,
        }
        window = None if where.minutes is None else where.minutes * 60 * (1 - RESERVE)
        self.until = None if window is None else time.time() + window

    def _each(self) -> list[tuple[TrainConfig, int]]:
        return [(config, seed) for config in self.configs for seed in config.seeds]

    def carry_out(self) -> StudyOutcome:
        """Trains until all runs are done, failed or stopped, or the time is up."""
        check_all(self.configs, self.runs, True)
        machines = self._machines()
        total, left = machines.joined(), dict(self.by_name)
        storage.fetch_runs(self.runs)
        check_all(self.configs, self.runs, self.resume or bool(total.done))
        over = [name for name, run in left.items() if is_finished(self.runs / name, run.steps)]
        if over and not total.done:
            self.progress.say(f"{spoken(len(over))} of {len(left)} finished before")
        total = total.plus(StudyOutcome(done=over, stopped=total.stopped))
        while True:
            for name in (*total.done, *(failure.run for failure in total.failures)):
                left.pop(name, None)
            if not left or total.stopped:
                return total
            tasks = self._next(machines, list(left.values()), not total.done)
            if not tasks:
                return total
            planner.close_games(self.configs)
            found = machines.conduct(tasks)
            storage.fetch_runs(self.runs)
            for measured in found.measured:
                keep_rates(self.home, [self.by_name[name] for name in measured["names"]], measured)
            total = total.plus(found)
            if self.until is None:
                return total

    def _next(self, machines: Machines, runs: list[TrainConfig], first: bool) -> list[Task]:
        setting = machines.setting(self)
        if self.until is None:
            return planner.plan(runs, setting)
        seconds = self.until - time.time()
        tasks, _ = planner.plan_window(runs, setting, seconds)
        if not tasks and first:
            (task, *_) = planner.plan_first(runs, setting)
            self.progress.say(
                f"nothing fits into {duration(seconds)}: {task.label} takes about "
                f"{duration(task.seconds or 0)}; it begins now and goes on next time"
            )
            return [task]
        return tasks

    def _machines(self) -> Machines:
        if self.where.ray is not None:
            return RayMachines(self)
        return LocalMachines(self)

    def tasks(self) -> list[Task]:
        """The plan, without carrying it out."""
        return self._next(self._machines(), list(self.by_name.values()), True)


class Machines:
    """The machines of a study."""

    slots: int
    together: bool
    device: str
    memory: float = math.inf
    """Bytes of the device for a task."""
    own: bool = True
    """Whether each task has its own process."""

    def __init__(self, study: PlannedStudy) -> None:
        self.study = study

    def setting(self, study: PlannedStudy) -> Setting:
        ordered = study.stage is not None and (self.slots == 1 or study.until is not None)
        return Setting(
            rates=read_rates(self.device, study.home),
            slots=self.slots,
            together=self.together if study.given is None else study.given,
            one_program=study.one_program,
            memory=self.memory,
            out=study.runs,
            stage=study.stage if ordered and study.stage is not None else lambda config: 0,
        )

    def joined(self) -> StudyOutcome:
        """Joins a study that was already running, and returns its outcome."""
        return StudyOutcome()

    def conduct(self, tasks: Sequence[Task]) -> StudyOutcome:
        watch = Reporter(self.study.progress, self.study.home, self.name, self.own)
        with Stop(in_jax=False) as stop:
            conductor = Conductor(
                tasks, self.executor(), watch, self.study.until, lambda: stop.asked
            )
            outcome = conductor.run()
        watch.end(outcome)
        return outcome

    name: str

    def executor(self) -> Executor:
        raise NotImplementedError


class LocalMachines(Machines):
    name = "local"

    def __init__(self, study: PlannedStudy) -> None:
        super().__init__(study)
        where = study.where
        self.cores, self.share = where.cores or 1, where.gpus or 1.0
        if self.share > 1:
            raise UsageError(
                f"a group of runs is one program on one GPU: --gpus-per-group is at most 1, "
                f"not {self.share:g}"
            )
        self.slots = local_slots(where.jobs, self.cores, self.share)
        found = gpus()
        if found and (self.slots > 1 or self.share < 1):
            jax.config.update("jax_platforms", "cpu")  # The GPUs are for the workers.
        self.own = self.slots > 1 or bool(found and self.share < 1)
        if found and where.cores is None:
            self.cores = max(len(free_cores()) // self.slots, 1)
        self.together = bool(found) if self.own else jax.default_backend() != "cpu"
        if self.own and found:
            self.device, memory = first_gpu()
            self.memory = GPU_SHARE * self.share * memory
        else:
            self.device = device_name()
            stats = jax.devices()[0].memory_stats() if self.together else None
            self.memory = (stats or {}).get("bytes_limit", math.inf)

    def executor(self) -> Executor:
        study = self.study
        if not self.own:
            return ThisProcess(study.progress, study.options, study.until)
        return LocalProcesses(self.slots, study.options, self.cores, self.share)


class RayMachines(Machines):
    name = "ray"

    def __init__(self, study: PlannedStudy) -> None:
        super().__init__(study)
        where = study.where
        assert where.ray is not None
        ray_cluster.connect(where.ray, len(free_cores()))
        if self.detached:  # Otherwise the only node is this machine.
            named = (p for c in study.configs for p in (c.story, c.commands, c.valid, c.test))
            files = [path for path in named if path is not None]
            files += [c.game for c in study.configs if Path(c.game).is_absolute()]
            ray_cluster.check_nodes(study.runs, sorted(set(files)))
        cores, share, self.device = ray_cluster.shares(where.cores, where.gpus)
        self.together = share > 0
        self.nodes: dict[str, Any] = {
            "options": study.options,
            "cores": cores,
            "gpus": share,
            "variables": on_ray.forwarded(),
        }
        self._executor = on_ray.OnRay(**self.nodes)
        self._executor.check_room()

    @property
    def slots(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._executor.slots

    def executor(self) -> Executor:
        return self._executor

    @property
    def detached(self) -> bool:
        return self.study.where.ray != ray_cluster.HERE

    def joined(self) -> StudyOutcome:
        if not self.detached or (lead := on_ray.find_lead(self.study.home)) is None:
            return StudyOutcome()
        self.study.progress.say("a study is running in this folder: joined it")
        return follow(self.study.home, lead, self.study.progress)

    def conduct(self, tasks: Sequence[Task]) -> StudyOutcome:
        if not self.detached:
            return super().conduct(tasks)
        lead = on_ray.start_lead(self.study.home, tasks, self.nodes, self.study.until)
        return follow(self.study.home, lead, self.study.progress)


def follow(home: Path, lead: Any, progress: Progress) -> StudyOutcome:
    """Shows a study on a cluster until it is over. Ctrl-C stops the study."""
    said, told, seen = 0, False, time.monotonic()
    with Stop(in_jax=False) as stop:
        while True:
            if stop.asked:
                if not told:
                    progress.say(STOPPING)
                told = True
                on_ray.ask_to_stop(lead)
            values = status.read_status(home)
            if values is not None:
                said = _tell(values, said, progress)
                if values["state"] != "running":
                    return status.outcome_of(values)
            if time.monotonic() - seen > status.SILENT_SECONDS:
                seen = time.monotonic()
                if values is None or not status.is_led(values):
                    raise GrueError("the cluster has lost the study; the same command continues it")
            time.sleep(LOOK_SECONDS)


def _tell(values: Mapping[str, Any], said: int, progress: Progress) -> int:
    """Passes on the new lines and the table."""
    new = values["said"] - said
    for line in values["lines"][-new:] if new > 0 else ():
        progress.say(line)
    show(progress, values)
    return values["said"]


def show(progress: Progress, values: Mapping[str, Any]) -> None:
    table = getattr(progress, "show_groups", None)
    if table is not None:
        table(status.COLUMNS, status.rows(values), status.summary(values))


class Reporter(Watch):
    """Shows the state of a study, and writes it to its folder."""

    def __init__(self, progress: Progress, home: Path, name: str, table: bool) -> None:
        self.progress, self.table = progress, table
        self.file = status.StatusFile(home, name)
        self.tasks: Sequence[TaskProgress] = ()

    def say(self, line: str) -> None:
        self.file.lines.append(line)
        self.progress.say(line)

    def show(self, tasks: Sequence[TaskProgress], outcome: StudyOutcome) -> None:
        self.tasks = tasks
        values = self.file.write(tasks, outcome)
        if values is not None and self.table:
            show(self.progress, values)

    def end(self, outcome: StudyOutcome) -> None:
        self.file.write(self.tasks, outcome, outcome.state)


def _single(pair: tuple[TrainConfig, int]) -> TrainConfig:
    return pair[0].of_seed(pair[1])


def tell_failures(failures: Sequence[Failure], progress: Progress) -> None:
    """A table of what failed and why."""
    width = max(len(failure.run) for failure in failures)
    progress.say(f"{len(failures)} failed:")
    for failure in failures:
        place = f" (on {failure.place})" if failure.place else ""
        progress.say(f"  {failure.run:{width}}  {failure.why}{place}")
