"""Whether agents learn faster when sequences may run past the end of an episode.

    python studies/past_end.py --seeds 3 --out results/past_end
    python studies/past_end.py --only-table --out results/past_end

Without the setting past_end, the last step of an episode, where a win is paid, is trained on in one
sequence, and an inner step in nine. Trains at the small preset with and without the setting. Writes
the results to results/past_end/past_end.json and table.md. Each core trains one run at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sweep import command, reached, small_run

CASES = (
    {"level": 1, "steps": 40_000, "agent": "drqn", "gate": "none"},
    {"level": 1, "steps": 40_000, "agent": "sc", "gate": "none"},
)


def conditions(seeds: int) -> Iterator[dict[str, Any]]:
    for seed in range(seeds):
        for case in CASES:
            for past_end in (False, True):
                yield {**case, "past_end": past_end, "seed": seed}


def train_one(condition: dict[str, Any]) -> dict[str, Any]:
    """Runs in a process of its own, on one core."""
    return {**condition, **small_run(**condition)}


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| level | condition | past_end | wins | final fraction | mean fraction | solved at step |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        for past_end in (False, True):
            wanted = {**case, "past_end": past_end}
            mine = [row for row in rows if wanted.items() <= row.items()]
            wins = ", ".join(f"{row['wins']:,}" for row in mine)
            name = case["agent"] if case["gate"] == "none" else f"{case['agent']} + {case['gate']}"
            on = "on" if past_end else "off"
            lines.append(f"| {case['level']} | {name} | {on} | {wins} | {reached(mine)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command("past_end", __doc__, train_one, conditions, table)
