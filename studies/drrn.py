"""Whether commands can be scored by their words as well as by their number: drrn against sc.

    python studies/drrn.py --seeds 3 --out results/drrn
    python studies/drrn.py --seeds 3 --levels 1 2 --out results/drrn
    python studies/drrn.py --only-table --out results/drrn

Trains sc, drrn and drrn with one head at the small preset, ε annealed over half of the steps: level
1 with masking, level 2 with the oracle. Writes results/drrn/drrn.json and table.md. Each core
trains one run at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sweep import arguments, keep, reached, small_run

LEVELS = {1: "masking", 2: "oracle"}
AGENTS = {"sc": ("sc", 5), "drrn": ("drrn", 5), "drrn, one head": ("drrn", 1)}
STEPS = 20_000


def conditions(levels: Iterable[int], seeds: int) -> Iterator[dict[str, Any]]:
    for level in levels:
        for name in AGENTS:
            for seed in range(seeds):
                yield {"level": level, "agent": name, "seed": seed}


def train_one(condition: dict[str, Any]) -> dict[str, Any]:
    """Runs in a process of its own, on one core."""
    level = condition["level"]
    agent, heads = AGENTS[condition["agent"]]
    own = {"agent": agent, "heads": heads, "gate": LEVELS[level]}
    return {**condition, **small_run(level, condition["seed"], STEPS, **own)}


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| level | gate | agent | wins | final fraction | mean fraction | solved at step |"]
    lines.append("|---|---|---|---|---|---|---|")
    for level, gate in LEVELS.items():
        for agent in AGENTS:
            mine = [row for row in rows if (row["level"], row["agent"]) == (level, agent)]
            if not mine:
                continue
            wins = ", ".join(f"{row['wins']:,}" for row in mine)
            lines.append(f"| {level} | {gate} | {agent} | {wins} | {reached(mine)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = arguments("drrn", __doc__)
    parser.add_argument("--levels", type=int, nargs="+", choices=LEVELS, default=[1])
    given = parser.parse_args()
    keep("drrn", given, train_one, conditions(given.levels, given.seeds), table)
