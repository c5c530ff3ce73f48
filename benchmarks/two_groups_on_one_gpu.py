"""Checks that two groups of runs share one GPU: both train, and none takes the other's memory.

    python benchmarks/two_groups_on_one_gpu.py --out results/bench/two-groups-one-gpu.json

Two worker processes with half of a GPU each, as ``--gpus-per-group 0.5`` starts them, with Ray if
it is installed and without. While they train, nvidia-smi tells how much memory each process holds,
or where it does not see the processes (in a container), how much the GPU has given away in all.
The runs must end as they do with a whole GPU for each. Programs are compiled once and kept in a
folder of this command's own, so that the second half does not wait for the compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from env import commit

from grue.experiments.conductor import Conductor, Executor, StudyOutcome, TaskProgress
from grue.experiments.devices import GPU_SHARE, first_gpu, gpus
from grue.experiments.local_processes import LocalProcesses
from grue.experiments.tasks import PlannedRun, Task
from grue.training.config import TrainConfig
from grue.training.runs import run_name

SETTINGS = {"game": "saladworld-1", "agent": "sc", "gate": "masking", "steps": 20_000}


def tasks() -> list[Task]:
    """Two groups of two runs."""
    found = []
    for number in range(2):
        configs = [TrainConfig(seeds=(2 * number + i,), **SETTINGS) for i in range(2)]
        runs = tuple(PlannedRun(run_name(config), config.to_json()) for config in configs)
        found.append(Task(number, f"group {number}", runs, together=True))
    return found


class Watching:
    """Notes the memory of all processes on the GPU while both groups train."""

    def __init__(self) -> None:
        self.held: list[int] = []
        """Bytes of each process, as far as they are known."""
        self.used = 0
        """Bytes of all processes together, and of the driver."""
        self.at_once = 0
        self._asked = 0.0

    def say(self, line: str) -> None:
        print(line, flush=True)

    def show(self, tasks: Sequence[TaskProgress], outcome: StudyOutcome) -> None:
        training = sum(one.state == "running" and one.step > 0 for one in tasks)
        self.at_once = max(self.at_once, training)
        if training == 2 and time.monotonic() - self._asked > 2:
            self._asked = time.monotonic()
            self.held = max(self.held, _told("--query-compute-apps=used_memory"), key=sum)
            self.used = max(self.used, *_told("--query-gpu=memory.used"), 0)


def _told(query: str) -> list[int]:
    """Numbers of MiB that nvidia-smi tells, in bytes."""
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    told = subprocess.run(command, capture_output=True, text=True)
    return [int(line) * 2**20 for line in told.stdout.split() if line.isdigit()]


def conducted(executor: Executor) -> Watching:
    watch = Watching()
    outcome = Conductor(tasks(), executor, watch).run()
    if outcome.failures:
        sys.exit(f"{outcome.failures[0].run}: {outcome.failures[0].why}")
    return watch


def measure(folder: Path, at_commit: str | None) -> dict[str, Any]:
    def options(name: str) -> dict[str, Any]:
        return {"kind": "train", "out": str(folder / name), "checkpoint_seconds": 600.0}

    name, memory = first_gpu()
    # First alone: the others load its program. XLA chooses kernels by timing them, so a program
    # that is compiled twice may round otherwise.
    conducted(LocalProcesses(1, options("whole")))
    shared = conducted(LocalProcesses(2, options("shared"), gpu_share=0.5))
    checked = {"local": "shared"}
    if find_spec("ray") is not None:
        from grue.experiments import on_ray, ray_cluster

        ray_cluster.connect(ray_cluster.HERE)
        conducted(on_ray.OnRay(options("ray"), cores=1, gpus=0.5))
        checked["ray"] = "ray"
    same = {
        where: all(
            (path / "metrics.jsonl").read_bytes()
            == (folder / "whole" / path.name / "metrics.jsonl").read_bytes()
            for path in sorted((folder / part).iterdir())
        )
        for where, part in checked.items()
    }
    return {
        "command": " ".join(["python", *sys.argv]),
        "commit": at_commit or commit(),
        "device": name,
        "memory_bytes": memory,
        "groups_training_at_once": shared.at_once,
        "bytes_of_each_process": shared.held,
        "bytes_in_use": shared.used,
        "each_within_its_half": _within(shared, memory),
        "metrics_as_with_a_whole_gpu": same,
        "seeds": [0, 1, 2, 3],
    }


def _within(shared: Watching, memory: float) -> bool:
    """Two processes hold at most their halves; what the driver itself takes is some 2%."""
    if len(shared.held) >= 2:
        return max(shared.held) <= (GPU_SHARE * 0.5 + 0.02) * memory
    return 0 < shared.used <= (GPU_SHARE + 0.04) * memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", help="where there is no git to ask")
    given = parser.parse_args()
    if not gpus():
        sys.exit("there is no GPU here that JAX can use; run this where there is one")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as programs:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = programs
        found = measure(Path(folder), given.commit)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    good = found["groups_training_at_once"] == 2 and found["each_within_its_half"]
    sys.exit(0 if good and all(found["metrics_as_with_a_whole_gpu"].values()) else 1)


if __name__ == "__main__":
    main()
