"""What Ray costs on one machine: the same small runs with --ray and with --jobs.

    python benchmarks/ray_overhead.py --out results/bench/ray-overhead.json

Both commands train twelve small runs from the start of the process to its end: imports, the start
of the cluster, compilation, training, checkpoints. They take turns in two folders of their own, and
neither finds compiled programs of the other.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from env import commit

import grue
from grue.experiments.devices import free_cores
from grue.training.runs import read_runs

RUNS = ("reproduce", "oracle", "--levels", "1,2", "--seeds", "0-2", "--no-draw")
CONDITIONS = ("--conditions", "tabular+oracle,li-tabular+oracle")


def timed(where: list[str], steps: int, folder: Path) -> float:
    given = [f"steps={steps}", f"learning_starts={steps}"]
    sizes = [word for text in given for word in ("--set", text)]
    command = [*RUNS, *CONDITIONS, *sizes, "--out", str(folder), *where]
    hidden = ("JAX_COMPILATION_CACHE_DIR",)
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-m", "grue.cli", *command], check=True, env=variables)
    return time.perf_counter() - begun


def measure(steps: int, at_commit: str | None) -> dict[str, Any]:
    jobs = len(free_cores())
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, where in (("jobs", ["--jobs", str(jobs)]), ("ray", ["--ray"])):
            out = Path(folder) / name
            found[name] = timed(where, steps, out)
            runs = read_runs([out / "runs"])
            assert len(runs) == 12
            assert all(run.metrics["step"][-1] == steps for run in runs)
    import jax
    import ray

    return {
        "command": " ".join(["python", *sys.argv]),
        "commit": at_commit or commit(),
        "device": f"CPU, {jobs} cores",
        "processor": platform.processor() or platform.machine(),
        "seeds": [0, 1, 2],
        "runs": 12,
        "steps": steps,
        "jobs_seconds": round(found["jobs"], 1),
        "ray_seconds": round(found["ray"], 1),
        "ratio": round(found["ray"] / found["jobs"], 3),
        "versions": {"grue": grue.__version__, "jax": jax.__version__, "ray": ray.__version__},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--commit", help="where there is no git to ask")
    given = parser.parse_args()
    found = measure(given.steps, given.commit)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
