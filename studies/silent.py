"""Whether a setting that the paper leaves open explains why its baseline fails on level 1.

    python studies/silent.py --out results/silent
    python studies/silent.py --only-table --out results/silent

Trains drqn and sc with all commands at the small preset, one setting changed at a time, for about
as many steps as the baseline needs (studies/baseline.py); the baseline with some of the changes
four times as long. Writes the results to results/silent/silent.json and table.md. Each core trains
one run at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from baseline import AGENTS
from sweep import command, reached, small_run, told

STEPS, LONG = 80_000, 320_000
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"activation": "relu"},
    {"huber": True},
    {"target_every": 200},
    {"target_every": 5_000},
    {"update_every": 8},
    {"update_every": 20},
    {"batch_size": 8},
    {"replay_steps": 5_000},
    {"gradient_clip": 0.5},
)
FOR_LONG: tuple[dict[str, Any], ...] = ({}, {"huber": True}, {"target_every": 5_000})


def cells() -> Iterator[dict[str, Any]]:
    """The rows of the table."""
    for change in CHANGES:
        for agent in AGENTS:
            yield {"change": change, "steps": STEPS, "agent": agent}
    for change in FOR_LONG:
        yield {"change": change, "steps": LONG, "agent": AGENTS[0]}


def conditions(seeds: int) -> Iterator[dict[str, Any]]:
    for cell in cells():
        for seed in range(seeds):
            yield {**cell, "seed": seed}


def train_one(condition: dict[str, Any]) -> dict[str, Any]:
    """Runs in a process of its own, on one core."""
    given = dict(condition)
    change, seed = given.pop("change"), given.pop("seed")
    return {**condition, **small_run(1, seed, gate="none", **given, **change)}


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| setting | steps | agent | final fraction | mean fraction | solved at step |"]
    lines.append("|---|---|---|---|---|---|")
    for cell in cells():
        mine = [row for row in rows if cell.items() <= row.items()]
        named = f"{told(cell['change'])} | {cell['steps']:,} | {cell['agent']}"
        lines.append(f"| {named} | {reached(mine)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command("silent", __doc__, train_one, conditions, table)
