"""Times one whole command of grue by the clock, and writes down what it was.

    python benchmarks/clock.py --out results/bench/twenty-runs.json --records DIR/records \
        -- reproduce all --scale paper --levels 3 --conditions drqn,sc+masking --out DIR

From the start of the process to its end: imports, compilation, training, checkpoints, records,
figures. The runs and steps are counted in the records that the command left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from env import commit

from grue.experiments.records import read_records


def measure(given: argparse.Namespace) -> dict[str, Any]:
    if list(given.records.rglob("*.json")):
        sys.exit(f"{given.records} holds records already: what they took would not be timed")
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "grue.cli", *given.arguments], check=True)
    seconds = time.perf_counter() - start
    records = read_records([given.records])
    runs = sum(len(record.config.seeds) for record in records)
    steps = sum(record.config.steps * len(record.config.seeds) for record in records)
    return {
        "command": " ".join(["grue", *given.arguments]),
        "commit": given.commit or commit(),
        "device": sorted({about["device"] for record in records for about in record.about}),
        "conditions": [f"{r.config.game} {r.config.agent}+{r.config.gate}" for r in records],
        "seeds": sorted({seed for record in records for seed in record.config.seeds}),
        "compilation_cache": os.environ.get("JAX_COMPILATION_CACHE_DIR", "none"),
        "runs": runs,
        "steps": steps,
        "seconds": round(seconds, 1),
        "minutes": round(seconds / 60, 2),
        "steps_per_s": round(steps / seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--records", type=Path, required=True, help="where the command puts them")
    parser.add_argument("--commit", help="where there is no git to ask")
    parser.add_argument("arguments", nargs="+", help="of grue, after --")
    given = parser.parse_args()
    found = measure(given)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(found)


if __name__ == "__main__":
    main()
