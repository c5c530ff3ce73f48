"""Measures every engine on every level and draws how the cost grows.

    python benchmarks/env.py --out results/bench/env-cpu.json
    python benchmarks/env.py --plot docs/images/env-scaling.png results/bench/env-*.json
    python benchmarks/env.py --docs results/bench/env-*.json

The first form measures on this machine and writes the rows with what they were measured on. The
second draws the compiled engine's cost per step against the size of the level, and the third
writes the tables of the README and of docs/engine.md, all from the records alone.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path
from typing import Any

import grue
from grue.engine.bench import BATCHES, bench_env, device_name
from grue.games.registry import game_names, load
from grue.training.provenance import commit_of

GPU_BATCHES = (*BATCHES, 65536, 262144)


def commit() -> str:
    return commit_of(Path(__file__).resolve().parent.parent)[0] or "unknown"


def level_size(name: str) -> int:
    """Commands plus facts: each room, place, door and state that a thing can be in is a fact."""
    game = load(name)
    from grue.games.gamefile import compiled_path, load_compiled

    arrays = load_compiled(compiled_path(game), game).arrays
    return len(game.commands) + len(arrays["event_masks"])


def measure(out: Path, seconds: float, at_commit: str | None) -> None:
    import jax

    device = device_name()
    batches = BATCHES if device.startswith("CPU") else GPU_BATCHES
    rows = []
    for row in bench_env(batches=batches, seconds=seconds):
        print(f"{row.engine:32} {row.game:14} {row.batch:>7} {row.steps_per_s:>14,.0f}", flush=True)
        rows.append(row._asdict())
    record = {
        "command": " ".join(["python", *sys.argv]),
        "commit": at_commit or commit(),
        "seed": 0,
        "device": device,
        "processor": platform.processor() or platform.machine(),
        "versions": {"grue": grue.__version__, "jax": jax.__version__},
        "sizes": {name: level_size(name) for name in game_names()},
        "rows": rows,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n")


def plot(picture: Path, records: list[dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(records), figsize=(5.2 * len(records), 3.8), squeeze=False)
    for axis, record in zip(axes[0], records, strict=True):
        batch = max(row["batch"] for row in record["rows"])
        cost = {
            row["game"]: 1e9 / row["steps_per_s"]
            for row in record["rows"]
            if row["engine"] == "grue compiled" and row["batch"] == batch
        }
        names = sorted(cost)
        sizes = [record["sizes"][name] for name in names]
        costs = [cost[name] for name in names]
        axis.plot(sizes, costs, "o-", label=f"batch {batch:,}")
        linear = [costs[0] * size / sizes[0] for size in sizes]
        axis.plot(sizes, linear, "--", color="grey", label="linear in the size")
        for told, size, value in named_points(names, sizes, costs):
            around = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}
            place = {"textcoords": "offset points", "xytext": (0, 8), "ha": "center"}
            axis.annotate(told, (size, value), bbox=around, **place)
        axis.set_xlabel("commands + facts of the level")
        axis.set_ylabel("nanoseconds per step")
        axis.set_title(record["device"])
        axis.set_ylim(bottom=0)
        axis.legend(frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=120)


def named_points(
    names: list[str], sizes: list[int], costs: list[float]
) -> list[tuple[str, float, float]]:
    """The levels' numbers and where they stand; levels of nearly one size share a place."""
    found: list[tuple[str, float, float]] = []
    for name, size, cost in sorted(zip(names, sizes, costs, strict=True), key=lambda p: p[1]):
        if found and size - found[-1][1] < 0.03 * max(sizes):
            told, before, value = found.pop()
            found.append((f"{told}, {name[-1]}", before, max(value, cost)))
        else:
            found.append((name[-1], size, cost))
    return found


def tables(records: list[dict[str, Any]]) -> None:
    """Rewrites the tables between the markers of the README and the engine's page."""
    folder = Path(__file__).resolve().parent.parent
    _replace(folder / "README.md", "bench", _short_table(records))
    _replace(folder / "docs" / "engine.md", "speed", _long_table(records))


def _short_table(records: list[dict[str, Any]]) -> str:
    lines = ["| level 7, steps a second | |", "|---|---|"]
    for record in records:
        best: dict[str, float] = {}
        for row in record["rows"]:
            if row["game"] == "saladworld-7":
                best[row["engine"]] = max(row["steps_per_s"], best.get(row["engine"], 0))
        for engine, rate in sorted(best.items(), key=lambda item: item[1]):
            lines.append(f"| {engine} ({record['device']}) | {rate:,.0f} |")
    return "\n".join([*lines, "", *_sources(records)])


def _long_table(records: list[dict[str, Any]]) -> str:
    levels = game_names()
    lines = ["| engine | batch | " + " | ".join(f"level {n[-1]}" for n in levels) + " |"]
    lines.append("|---|---|" + "---|" * len(levels))
    others = []
    for record in records:
        rates: dict[tuple[str, int], dict[str, float]] = {}
        for row in record["rows"]:
            rates.setdefault((row["engine"], row["batch"]), {})[row["game"]] = row["steps_per_s"]
        for (engine, batch), by_game in rates.items():
            if levels[0] not in by_game:
                others += [f"{engine} on its `{g}`: {rate:,.0f}" for g, rate in by_game.items()]
                continue
            cells = " | ".join(f"{by_game[name]:,.0f}" for name in levels)
            lines.append(f"| {engine}, {record['device']} | {batch:,} | {cells} |")
    if others:
        lines += ["", "; ".join(others) + "."]
    return "\n".join([*lines, "", *_sources(records)])


def _sources(records: list[dict[str, Any]]) -> list[str]:
    return [
        f"{r['device']}: `{r['command']}`, commit {r['commit'][:10]}, seed {r['seed']}, "
        f"JAX {r['versions']['jax']}.  "
        for r in records
    ]


def _replace(page: Path, name: str, text: str) -> None:
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("records", nargs="*", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--commit", help="where there is no git to ask")
    given = parser.parse_args()
    records = [json.loads(path.read_text()) for path in given.records]
    if given.out:
        measure(given.out, given.seconds, given.commit)
    if given.plot:
        plot(given.plot, records)
    if given.docs:
        tables(records)


if __name__ == "__main__":
    main()
