"""How often sc wins level 2 at the small preset, and whether it learns from these wins.

    python studies/rare.py --seeds 3 --out results/rare
    python studies/rare.py --only-table --out results/rare

Trains sc with all commands, with more frequent target copies, and with masking. Writes what
each run reached: results/rare/rare.json and table.md. Each core takes a run at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sweep import command, reached, small_run, told

STEPS = 320_000
CHANGES: tuple[dict[str, Any], ...] = ({}, {"target_every": 200}, {"gate": "masking"})


def conditions(seeds: int) -> Iterator[dict[str, Any]]:
    for seed in range(seeds):
        for change in CHANGES:
            yield {"change": change, "seed": seed}


def train_one(condition: dict[str, Any]) -> dict[str, Any]:
    """Runs in a process of its own, on one core."""
    settings = {"agent": "sc", "gate": "none", **condition["change"]}
    return {**condition, **small_run(2, condition["seed"], STEPS, **settings)}


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| setting | wins | final fraction | mean fraction | solved at step |"]
    lines.append("|---|---|---|---|---|")
    for change in CHANGES:
        mine = [row for row in rows if row["change"] == change]
        wins = ", ".join(f"{row['wins']:,}" for row in mine)
        lines.append(f"| {told(change)} | {wins} | {reached(mine)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command("rare", __doc__, train_one, conditions, table)
