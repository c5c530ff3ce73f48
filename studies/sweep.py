"""Chooses I_target and ε₁, which the paper leaves open, by short runs on levels 1 and 2.

    python studies/sweep.py --out results/sweep
    python studies/sweep.py --only-table --out results/sweep

Trains sc with masking at the small preset, one value changed at a time, and writes what each run
reached: results/sweep/sweep.json and table.md. Each core takes a run at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

VALUES = {"target_every": (200, 500, 1_000, 5_000), "softness": (0.0, 0.05, 0.1, 0.3)}
STEPS = {1: 20_000, 2: 40_000}
SOLVED = 0.9
"""A run has solved its level when the moving average of the fraction is above this."""


def conditions(seeds: int) -> Iterator[dict[str, Any]]:
    for level, steps in STEPS.items():
        for name, values in VALUES.items():
            for value in values:
                for seed in range(seeds):
                    yield {"level": level, "steps": steps, name: value, "seed": seed}


def train_one(condition: dict[str, Any]) -> dict[str, Any]:
    """Runs in a process of its own, on one core."""
    given = dict(condition)
    level, seed = given.pop("level"), given.pop("seed")
    return {**condition, **small_run(level, seed, agent="sc", gate="masking", **given)}


def small_run(level: int, seed: int, steps: int, **settings: Any) -> dict[str, Any]:
    """What a run at the small preset reaches, with its settings."""
    import grue
    from grue.training.provenance import about

    config = grue.TrainConfig.preset(
        "small",
        game=f"saladworld-{level}",
        seeds=(seed,),
        steps=steps,
        epsilon_steps=steps // 2,
        average_over=2_000,
        **settings,
    )
    run = grue.train(config).runs[0]
    at, fraction = run.curve("fraction")
    solved = at[np.flatnonzero(fraction > SOLVED)]
    won = run.metrics["step"][run.metrics["wins"] > 0]
    return {
        "first_win": int(won[0]) if len(won) else None,
        "wins": int(run.metrics["wins"].sum()),
        "final_fraction": round(float(fraction[-1]), 4),
        "mean_fraction": round(float(np.nanmean(fraction)), 4),
        "solved_at": int(solved[0]) if len(solved) else None,
        "config": config.to_json(),
        "about": about(),
    }


def _bind(cores: Any) -> None:
    os.sched_setaffinity(0, {cores.get()})


def on_all_cores(
    train: Callable[[dict[str, Any]], dict[str, Any]],
    chosen: Iterable[dict[str, Any]],
    so_far: Path,
) -> list[dict[str, Any]]:
    """What the runs give, each made on a core of its own; printed and kept as they come.

    A run that failed stops those that have not begun, and what ended before is not made again.
    """
    kept = [json.loads(line) for line in so_far.read_text().splitlines()] if so_far.exists() else []
    waiting, rows = [], []
    for one in chosen:
        same = [row for row in kept if one.items() <= row.items()]
        rows += same[:1]
        waiting += [] if same else [one]
    context = get_context("spawn")
    cores = context.Queue()
    mine = sorted(os.sched_getaffinity(0))
    for core in mine:
        cores.put(core)
    with (
        ProcessPoolExecutor(len(mine), context, _bind, (cores,)) as pool,
        so_far.open("a") as file,
    ):
        try:
            for done in as_completed([pool.submit(train, condition) for condition in waiting]):
                rows.append(done.result())
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
                shown = {k: v for k, v in rows[-1].items() if k not in ("config", "about")}
                print(shown, flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return sorted(rows, key=lambda row: json.dumps(row["config"], sort_keys=True))


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| level | setting | value | seeds | final fraction | mean fraction | solved at step |",
        "|---|---|---|---|---|---|---|",
    ]
    for level in STEPS:
        for name, values in VALUES.items():
            for value in values:
                mine = [r for r in rows if r["level"] == level and r.get(name) == value]
                if not mine:
                    continue
                lines.append(f"| {level} | {name} | {value:g} | {len(mine)} | {reached(mine)} |")
    return "\n".join(lines) + "\n"


def reached(rows: list[dict[str, Any]]) -> str:
    """Three columns of a table: how the runs end, how they are all along, when they solve it."""
    final, mean = (np.mean([r[key] for r in rows]) for key in ("final_fraction", "mean_fraction"))
    solved = ", ".join(str(r["solved_at"] or "never") for r in rows)
    return f"{final:.3f} | {mean:.3f} | {solved}"


def told(change: dict[str, Any]) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in change.items()) or "none changed"


def arguments(name: str, about: str | None) -> argparse.ArgumentParser:
    """The options of studies of many small runs; their results are in a folder of this name."""
    parser = argparse.ArgumentParser(description=(about or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results") / name)
    parser.add_argument("--only-table", action="store_true")
    return parser


def keep(
    name: str,
    given: argparse.Namespace,
    train: Callable[[dict[str, Any]], dict[str, Any]],
    chosen: Iterable[dict[str, Any]],
    table: Callable[[list[dict[str, Any]]], str],
) -> None:
    """Writes what was measured, with the command, and a table of it."""
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"{name}.json"
    if not given.only_table:
        so_far = path.with_suffix(".jsonl")
        rows = on_all_cores(train, chosen, so_far)
        typed = " ".join(["python", f"studies/{name}.py", *sys.argv[1:]])
        path.write_text(json.dumps({"command": typed, "rows": rows}, indent=1) + "\n")
        so_far.unlink()
    text = table(json.loads(path.read_text())["rows"])
    (given.out / "table.md").write_text(text)
    print(text)


def command(
    name: str,
    about: str | None,
    train: Callable[[dict[str, Any]], dict[str, Any]],
    conditions: Callable[[int], Iterable[dict[str, Any]]],
    table: Callable[[list[dict[str, Any]]], str],
) -> None:
    given = arguments(name, about).parse_args()
    keep(name, given, train, conditions(given.seeds), table)


if __name__ == "__main__":
    command("sweep", __doc__, train_one, conditions, table)
