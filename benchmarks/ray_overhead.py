"""What Ray costs on one machine: the same small runs with --ray and with --jobs.

    python benchmarks/ray_overhead.py --out results/bench/ray-overhead.json --docs
    python benchmarks/ray_overhead.py --from results/bench/ray-overhead.json --docs

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
from env import _replace, commit

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


def told(found: dict[str, Any]) -> str:
    """For docs/cluster.md."""
    return (
        f"On {found['device']}, {found['runs']} small runs ({found['steps']:,} steps each) take "
        f"{found['jobs_seconds']} s with `--jobs` and {found['ray_seconds']} s with `--ray`, from "
        f"the start of the command to its end: {found['ratio']} times as long. "
        f"`{found['command']}`, "
        f"commit {found['commit'][:10]}, seeds 0 to 2, JAX {found['versions']['jax']}, "
        f"Ray {found['versions']['ray']}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--from", type=Path, dest="source", help="do not measure; read this")
    parser.add_argument("--docs", action="store_true", help="rewrite docs/cluster.md")
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--commit", help="where there is no git to ask")
    given = parser.parse_args()
    if given.source is not None:
        found = json.loads(given.source.read_text())
    else:
        found = measure(given.steps, given.commit)
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    if given.docs:
        page = Path(__file__).resolve().parents[1] / "docs" / "cluster.md"
        _replace(page, "overhead", told(found))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
