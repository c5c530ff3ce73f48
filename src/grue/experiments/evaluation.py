"""Plays trained runs on the nodes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grue.experiments import ray_cluster
from grue.experiments.conductor import Conductor, StudyOutcome, TaskProgress, Watch
from grue.experiments.devices import free_cores
from grue.experiments.on_ray import OnRay
from grue.experiments.tasks import PlannedRun, Task
from grue.training.runs import some_run_folders
from grue.training.stop import Stop
from grue.training.train import Progress


def evaluate(
    folder: Path, address: str, cores: int | None, asked: Mapping[str, Any], progress: Progress
) -> list[Mapping[str, Any]]:
    """Plays the runs of a folder on a cluster; a result for each, in order.

    ``asked``: episodes, seed, greedy, best, games, transcript. The result of a run that cannot be
    played has the reason in ``why``.
    """
    runs = some_run_folders(folder)
    names = [path.name if path == folder else str(path.relative_to(folder)) for path in runs]
    ray_cluster.connect(address, len(free_cores()))
    if address != ray_cluster.HERE:
        games = [] if asked["games"] is None else [asked["games"]]
        ray_cluster.check_nodes(folder, [*(str(path.resolve()) for path in runs), *games])
    options = {"kind": "evaluate", **asked}
    nodes = OnRay(options, cores or 1)
    nodes.check_room()
    each = [
        PlannedRun(name, {"steps": 1, "folder": str(path.resolve())})
        for name, path in zip(names, runs, strict=True)
    ]
    shares = [each[start :: nodes.slots] for start in range(min(nodes.slots, len(each)))]
    tasks = [Task(n, f"evaluation {n + 1}", tuple(s), False) for n, s in enumerate(shares)]
    with Stop(in_jax=False) as stop:
        outcome = Conductor(tasks, nodes, _Said(progress), asked=lambda: stop.asked).run()
    if outcome.stopped:
        raise KeyboardInterrupt
    found: dict[str, Mapping[str, Any]] = {
        lost.run: {"run": lost.run, "why": lost.why, "code": 1, "has_only_begun": False}
        for lost in outcome.failures
    }
    found |= {result["run"]: result for result in outcome.results}
    return [found[run.name] for run in each]


class _Said(Watch):
    def __init__(self, progress: Progress) -> None:
        self.say = progress.say

    def show(self, tasks: Sequence[TaskProgress], outcome: StudyOutcome) -> None:
        pass
