"""Looks for what keeps the paper's baseline from level 1, which ours solves.

    python benchmarks/baseline.py --out results/baseline
    python benchmarks/baseline.py --only-table --out results/baseline

Trains drqn and sc with all commands on level 1 at the small preset, changing one thing at a time
that the paper leaves open, or that its baseline may not have had, and writes what each run reached:
results/baseline/baseline.json and table.md. Each core takes a run at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sweep import arguments, keep, on_all_cores, small_run

AGENTS = ("drqn", "sc")
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"target_every": 5_000},
    {"target_every": 10_000},
    {"activation": "relu"},
    {"replay_steps": 5_000},
    {"batch_size": 4},
    {"positive_fraction": 0.0, "negative_fraction": 0.0},
    {"learning_rate": 0.0001},
)
STEPS = 40_000


def conditions(seeds: int) -> Iterator[dict[str, Any]]:
    for change in CHANGES:
        for agent in AGENTS:
            for seed in range(seeds):
                yield {"agent": agent, "change": change, "seed": seed}


def train_one(condition: dict[str, Any]) -> dict[str, Any]:
    """Runs in a process of its own, on one core."""
    reached = small_run(
        1,
        condition["seed"],
        agent=condition["agent"],
        gate="none",
        steps=STEPS,
        **condition["change"],
    )
    return {**condition, **reached}


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| changed | agent | final fraction | mean fraction | solved at step |"]
    lines.append("|---|---|---|---|---|")
    for change in CHANGES:
        named = ", ".join(f"{name} {value}" for name, value in change.items()) or "nothing"
        for agent in AGENTS:
            mine = [row for row in rows if row["change"] == change and row["agent"] == agent]
            final, mean = (
                np.mean([row[key] for row in mine]) for key in ("final_fraction", "mean_fraction")
            )
            solved = ", ".join(f"{row['solved_at'] or 'never'}" for row in mine)
            lines.append(f"| {named} | {agent} | {final:.3f} | {mean:.3f} | {solved} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    given = arguments("baseline", __doc__).parse_args()
    keep("baseline", given, lambda: on_all_cores(train_one, conditions(given.seeds)), table)


if __name__ == "__main__":
    main()
