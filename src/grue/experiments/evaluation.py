"""Plays trained runs on the nodes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grue.errors import GrueError
from grue.experiments import ray_cluster
from grue.experiments.conductor import Conductor, StudyOutcome, TaskProgress, Watch, told_failures
from grue.experiments.devices import free_cores
from grue.experiments.on_ray import OnRay
from grue.experiments.study import Terminated
from grue.experiments.tasks import PlannedRun, Task
from grue.training.runs import read_runs
from grue.training.train import Progress


def evaluate(
    folder: Path, address: str, cores: int | None, asked: Mapping[str, Any], progress: Progress
) -> list[Mapping[str, Any]]:
    """Plays the runs of a folder on a cluster. ``asked``: episodes, seed, greedy, transcript."""
    runs = read_runs([folder])
    inside = [run.folder for run in runs if run.folder != folder]
    names = [str(path.relative_to(folder)) for path in inside] or [runs[0].folder.name]
    ray_cluster.connect(address, len(free_cores()))
    if address != ray_cluster.HERE:
        ray_cluster.check_nodes(folder, [str(run.folder.resolve()) for run in runs])
    options = {"kind": "evaluate", **asked}
    nodes = OnRay(options, cores or 1)
    nodes.check_room()
    each = [
        PlannedRun(name, {"steps": 1, "folder": str(run.folder.resolve())})
        for name, run in zip(names, runs, strict=True)
    ]
    shares = [each[start :: nodes.slots] for start in range(min(nodes.slots, len(each)))]
    tasks = [Task(n, f"evaluation {n + 1}", tuple(s), False) for n, s in enumerate(shares)]
    with Terminated():
        outcome = Conductor(tasks, nodes, _Said(progress)).run()
    if outcome.stopped:
        raise KeyboardInterrupt
    if outcome.failures:
        raise GrueError(told_failures(outcome, len(each)))
    found = {result["json"]["run"]: result for result in outcome.results}
    return [found[run.name] for run in each]


class _Said(Watch):
    def __init__(self, progress: Progress) -> None:
        self.say = progress.say

    def show(self, tasks: Sequence[TaskProgress], outcome: StudyOutcome) -> None:
        pass
