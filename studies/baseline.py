"""How many steps the baseline and sc need for level 1, which the paper's baseline does not solve.

    python studies/baseline.py --out results/baseline
    python studies/baseline.py --only-table --out results/baseline

Trains drqn and sc with all commands at the small preset for three numbers of steps, ε annealed over
half of them. Writes the results to results/baseline/baseline.json and table.md. Each core trains
one run at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sweep import command, reached, small_run

AGENTS = ("drqn", "sc")
STEPS = (20_000, 40_000, 80_000)


def conditions(seeds: int) -> Iterator[dict[str, Any]]:
    for steps in STEPS:
        for agent in AGENTS:
            for seed in range(seeds):
                yield {"agent": agent, "steps": steps, "seed": seed}


def train_one(condition: dict[str, Any]) -> dict[str, Any]:
    """Runs in a process of its own, on one core."""
    given = dict(condition)
    return {**condition, **small_run(1, given.pop("seed"), gate="none", **given)}


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| steps | agent | final fraction | mean fraction | solved at step |"]
    lines.append("|---|---|---|---|---|")
    for steps in STEPS:
        for agent in AGENTS:
            mine = [row for row in rows if row["steps"] == steps and row["agent"] == agent]
            lines.append(f"| {steps:,} | {agent} | {reached(mine)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command("baseline", __doc__, train_one, conditions, table)
