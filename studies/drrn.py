"""Whether commands can be scored by their words as well as by their number: drrn against sc.

    python studies/drrn.py --seeds 3 --out results/drrn
    python studies/drrn.py --seeds 3 --levels 1 2 --out results/drrn
    python studies/drrn.py --only-table --out results/drrn
    python studies/drrn.py --paper --seeds 3 --levels 2 3 --out results/drrn

Trains sc, drrn and drrn with one head at the small preset, ε annealed over half of the steps: level
1 with masking, level 2 with the oracle. Writes results/drrn/drrn.json and table.md. Each core
trains one run at a time.

With --paper, for a GPU: trains drrn with masking at the paper's sizes, all seeds of a level side by
side, and writes records to results/drrn/paper. Its table, paper.md, has the same seeds of sc with
masking beside them, up to the same step, from results/saladworld.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sweep import arguments, keep, reached, small_run

LEVELS = {1: "masking", 2: "oracle"}
AGENTS = {"sc": ("sc", 5), "drrn": ("drrn", 5), "drrn, one head": ("drrn", 1)}
STEPS = 20_000
PAPER_STEPS = 400_000
RECORDS = Path("results") / "saladworld"


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


def train_at_the_papers_sizes(given: argparse.Namespace) -> None:
    import grue
    from grue.experiments.records import record_of, write_record
    from grue.training.progress import Display
    from grue.training.train import train_all

    for level in given.levels:
        config = grue.TrainConfig(
            game=f"saladworld-{level}",
            agent="drrn",
            gate="masking",
            steps=given.steps,
            seeds=tuple(range(given.seeds)),
        )
        with Display() as display:
            made = train_all([config], given.runs, resume=True, together=True, progress=display)
        write_record(record_of(made.runs), given.out / "paper")


def paper_table(records: Iterable[Any], others: Path) -> str:
    """Each record of drrn, and the same seeds of sc up to the same step."""
    from grue.experiments.records import read_records

    lines = ["| level | agent | seeds | solved at step | fraction at the last step | last step |"]
    lines.append("|---|---|---|---|---|---|")
    for record in records:
        end = record.config.steps
        (other,) = read_records([others / record.game / f"sc-{record.gate}.json"])
        for one in (other.only(record.seeds), record):
            at = int(np.flatnonzero(one.steps <= end)[-1])
            solved = ", ".join(
                f"{step:,}" if step is not None and step <= end else "not yet"
                for step in one.solved or ()
            )
            last = ", ".join(f"{row[at]:.3f}" for row in one.columns["fraction_average"])
            lines.append(
                f"| {one.game[-1]} | {one.label} | {len(one.seeds)} | {solved} | {last} | {end:,} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = arguments("drrn", __doc__)
    parser.add_argument("--levels", type=int, nargs="+", choices=(1, 2, 3), default=[1])
    parser.add_argument("--paper", action="store_true", help="the paper's sizes, on a GPU")
    parser.add_argument("--steps", type=int, default=PAPER_STEPS, help="with --paper")
    parser.add_argument("--runs", type=Path, default=Path("runs") / "drrn", help="with --paper")
    given = parser.parse_args()
    if not given.paper:
        if unknown := set(given.levels) - set(LEVELS):
            parser.error(f"level {min(unknown)} is for --paper")
        keep("drrn", given, train_one, conditions(given.levels, given.seeds), table)
        return
    from grue.experiments.records import read_records

    if not given.only_table:
        train_at_the_papers_sizes(given)
    text = paper_table(read_records([given.out / "paper"]), RECORDS)
    (given.out / "paper.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
