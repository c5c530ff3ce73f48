"""What the paper leaves open, and whether the baseline's failure on level 1 hangs on it.

    python benchmarks/silent.py --out results/silent
    python benchmarks/silent.py --only-table --out results/silent

Trains drqn and sc with all commands at the small preset, one setting changed at a time, for as many
steps as the baseline just needs with none changed (benchmarks/baseline.py), and writes what each
run reached: results/silent/silent.json and table.md. Each core takes a run at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from baseline import AGENTS
from sweep import arguments, keep, reached, small_run

STEPS = 80_000
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


def conditions(seeds: int) -> Iterator[dict[str, Any]]:
    for change in CHANGES:
        for agent in AGENTS:
            for seed in range(seeds):
                yield {"change": change, "agent": agent, "seed": seed}


def train_one(condition: dict[str, Any]) -> dict[str, Any]:
    """Runs in a process of its own, on one core."""
    change, agent, seed = condition["change"], condition["agent"], condition["seed"]
    return {**condition, **small_run(1, seed, STEPS, gate="none", agent=agent, **change)}


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| setting | agent | final fraction | mean fraction | solved at step |"]
    lines.append("|---|---|---|---|---|")
    for change in CHANGES:
        told = ", ".join(f"`{name}={value}`" for name, value in change.items()) or "none changed"
        for agent in AGENTS:
            mine = [row for row in rows if row["change"] == change and row["agent"] == agent]
            lines.append(f"| {told} | {agent} | {reached(mine)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    given = arguments("silent", __doc__).parse_args()
    keep("silent", given, train_one, conditions(given.seeds), table)


if __name__ == "__main__":
    main()
