"""Measures training on this machine, and draws what was measured.

    python benchmarks/train.py --out results/bench/train-cpu.json
    python benchmarks/train.py --out results/bench/train-h200.json --commit HASH
    python benchmarks/train.py --out FILE --rows saladworld-3:50 --alone ""
    GRUE_ZORK1=zork1.z5 python benchmarks/train.py --out FILE --rows zork1:8 --alone ""
    python benchmarks/train.py --docs --plot docs/images/train.png results/bench/train-*.json

On a CPU: one run of drqn and of sc on levels 1, 3 and 7. On a GPU: level 3 with 1 to 100 runs of
all ten deep conditions, every level with 50, and where the time goes; then whether a run in a batch
is the same as that run alone. The record is written after every row, so that a measurement that is
cut short is not lost; rows of an earlier record stay unless they are measured again, and each names
its commit.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from env import _replace, commit

import grue

GATES = "none,oracle,dropout,masking,cqlh"
ON_CPU = [("saladworld-1", "1"), ("saladworld-3", "1"), ("saladworld-7", "1")]
ON_GPU = [
    *[("saladworld-3", runs) for runs in ("1", "50", "20", "5", "100")],
    *[(f"saladworld-{level}", "50") for level in (7, 1, 5, 2, 4, 6)],
]
Record = dict[str, Any]


def measure(out: Path, at_commit: str | None, wanted: str | None, alone: str | None) -> None:
    import jax

    from grue.cli.bench import measure as rows_of
    from grue.engine.bench import device_name

    on_cpu = jax.default_backend() == "cpu"
    source = {
        "command": " ".join(["python", *sys.argv]),
        "commit": at_commit or commit(),
        "versions": {"grue": grue.__version__, "jax": jax.__version__},
    }
    machine = {
        "seed": 0,
        "device": device_name(),
        "processor": platform.processor() or platform.machine(),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    record: Record = json.loads(out.read_text()) if out.exists() else machine | {"rows": []}
    if record["device"] != machine["device"]:
        sys.exit(f"{out} holds rows of {record['device']}, and this is {machine['device']}")
    for game, runs in _wanted(wanted) if wanted is not None else ON_CPU if on_cpu else ON_GPU:
        agents, gates = ("drqn,sc", _gates(game)) if runs != "1" else ("sc", "masking")
        if on_cpu:
            agents, gates = "drqn,sc", "masking"
        rows = rows_of(game, agents, gates, runs, "paper", (), parts=not on_cpu)
        for row in rows:
            print({k: v for k, v in row.items() if k != "device"}, flush=True)
        _put(record, [row | source for row in rows])
        out.write_text(json.dumps(record, indent=1) + "\n")
    for precision in _listed("auto,float32" if alone is None and not on_cpu else alone or ""):
        found = together(precision) | source
        print(found, flush=True)
        kept = [c for c in record.get("batch_against_alone", []) if c["precision"] != precision]
        record["batch_against_alone"] = [*kept, found]
        out.write_text(json.dumps(record, indent=1) + "\n")


def _gates(game: str) -> str:
    """All that there are: nobody is the oracle of a story."""
    return GATES if game.startswith("saladworld") else GATES.replace("oracle,", "")


def _listed(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _wanted(text: str) -> list[tuple[str, str]]:
    return [(game, runs) for game, _, runs in (part.partition(":") for part in _listed(text))]


def _put(record: Record, rows: list[Record]) -> None:
    """In the place of the rows that were measured again, or at the end."""
    for row in rows:
        names = ("agent", "gate", "game", "runs")
        same = [i for i, r in enumerate(record["rows"]) if all(r[n] == row[n] for n in names)]
        at = same[0] if same else len(record["rows"])
        record["rows"][at : at + 1] = [row]


def together(precision: str, steps: int = 4_000, seed: int = 2) -> Record:
    """One run of four trained side by side, and the same run alone, from the same seed."""
    import numpy as np

    short = {"steps": steps, "metrics_every": 500, "average_over": 2_000, "target_every": 500}
    config = grue.TrainConfig(
        game="saladworld-3", agent="sc", seeds=(0, 1, seed, 3), precision=precision, **short
    )
    beside = grue.train(config, together=True).runs[2].metrics
    alone = grue.train(config.of_seed(seed), together=False).runs[0].metrics
    played = ("episodes", "score", "admissible", "candidates")
    same = [
        all(np.array_equal(beside[name][i], alone[name][i], equal_nan=True) for name in played)
        for i in range(len(alone["step"]))
    ]
    q = np.abs(beside["q_loss"] - alone["q_loss"]) / np.abs(alone["q_loss"])
    return {
        "precision": precision,
        "seed": seed,
        "same_play_until_step": int(alone["step"][same.index(False)] - 500)
        if False in same
        else steps,
        "relative_difference_of_q_loss": [None if np.isnan(d) else round(float(d), 6) for d in q],
    }


def plot(picture: Path, records: list[Record]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    (record,) = [r for r in records if not r["device"].startswith("CPU")]
    figure, (by_runs, by_level) = plt.subplots(1, 2, figsize=(9.6, 3.8))
    level_3 = [r for r in record["rows"] if r["game"] == "saladworld-3"]
    fifty = [r for r in record["rows"] if r["runs"] == 50]
    _draw(by_runs, [(r, r["runs"]) for r in of_one_commit(level_3)], "o-")
    by_runs.set_xlabel("runs side by side on level 3")
    _draw(by_level, [(r, int(r["game"][-1])) for r in of_one_commit(fifty)], "o")
    by_level.set_xlabel("level, with 50 runs side by side")
    by_level.set_xlim(0.7, 7.3)
    figure.suptitle(f"{record['device']}, paper sizes, an update every 4 steps")
    figure.tight_layout()
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=120)


def of_one_commit(rows: list[Record]) -> list[Record]:
    """The rows of the commit that has most of them: others cannot be compared with these."""
    commits = [row["commit"] for row in rows]
    return [row for row in rows if row["commit"] == max(commits, key=commits.count)]


def _draw(axis: Any, rows: list[tuple[Record, int]], style: str) -> None:
    points = sorted((at, row["steps_per_s"]) for row, at in rows)
    axis.plot(*zip(*points, strict=True), style)
    axis.set_title(f"commit {rows[0][0]['commit'][:7]}", fontsize=10)
    axis.set_ylabel("training steps a second, all runs")
    axis.set_ylim(0, 1.08 * max(speed for _, speed in points))
    axis.yaxis.set_major_formatter("{x:,.0f}")
    axis.spines[["top", "right"]].set_visible(False)


def tables(records: list[Record]) -> None:
    page = Path(__file__).resolve().parent.parent / "docs" / "speed.md"
    head = ("agent", "game", "runs", "ms_per_update", "steps_per_s", "gflop_per_update")
    lines = [
        "| device | " + " | ".join(name.replace("_", " ") for name in head) + " | ratio | commit |",
        "|---" * (len(head) + 3) + "|",
    ]
    for record in records:
        for row in record["rows"]:
            cells = [f"{row[name]:,}" if name in head[2:] else row[name] for name in head]
            cells += [str(row["ratio"]), row["commit"][:7]]
            lines.append(f"| {record['device']} | " + " | ".join(cells) + " |")
    lines += [
        "",
        *dict.fromkeys(_source(record, row) for record in records for row in record["rows"]),
    ]
    _replace(page, "rows", "\n".join(lines))
    parts = [row for record in records for row in record["rows"] if "parts_ms" in row]
    if parts:
        names = list(parts[0]["parts_ms"])
        lines = ["| game, runs | " + " | ".join(names) + " | floor: arithmetic | floor: Adam |"]
        lines.append("|---" * (len(names) + 3) + "|")
        for row in parts:
            cells = [f"{row['parts_ms'][name]:.2f}" for name in names]
            cells += [f"{row['floors_ms'][name]:.2f}" for name in ("arithmetic", "optimise")]
            lines.append(f"| {row['game']}, {row['runs']} | " + " | ".join(cells) + " |")
        _replace(page, "parts", "\n".join(lines))


def _source(record: Record, row: Record) -> str:
    return (
        f"{record['device']}: `{row['command']}`, commit {row['commit'][:10]}, seed "
        f"{record['seed']}, JAX {row['versions']['jax']}.  "
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("records", nargs="*", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--commit", help="where there is no git to ask")
    parser.add_argument("--rows", help="GAME:RUNS,... instead of all")
    parser.add_argument("--alone", help="precisions for batch against alone; '' for none")
    given = parser.parse_args()
    records = [json.loads(path.read_text()) for path in given.records]
    if given.out:
        measure(given.out, given.commit, given.rows, given.alone)
    if given.plot:
        plot(given.plot, records)
    if given.docs:
        tables(records)


if __name__ == "__main__":
    main()
