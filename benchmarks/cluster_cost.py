"""How long the whole study takes on 1 to 64 GPUs, by simulation from measured rates.

    GRUE_ZORK1=zork1.z5 python benchmarks/cluster_cost.py --docs

The planner cuts the 460 runs into groups for so many GPUs, with the rates in results/bench, and the
groups are taken by the GPUs one after the other, the longest first. Nothing is trained. The lower
bound is what no plan can beat: all work in the most efficient batches shared out evenly, or the
longest run alone. --docs rewrites the table in docs/cluster.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from env import _replace

from grue.experiments import planner
from grue.experiments.conditions import Condition
from grue.experiments.data_files import shipped
from grue.experiments.planner import Setting
from grue.experiments.rates import BENCHMARKS, STUDIES, read_rates
from grue.experiments.wishes import make_wish
from grue.training.config import TrainConfig

DEVICE = "NVIDIA H200"
LARGEST = 50
"""Runs of one program in the study."""


def table(counts: list[int]) -> str:
    rates = read_rates(DEVICE)
    everything = make_wish("all", "paper").configs()
    configs = [config for config in everything if rates.knows(config.agent)]
    runs = sum(len(config.seeds) for config in configs)
    unknown = [config for config in everything if config not in configs]
    lines = ["| GPUs | groups | largest group | makespan | lower bound | GPU hours |"]
    lines.append("|---|---|---|---|---|---|")
    for slots in counts:
        setting = Setting(rates, slots, together=True)
        tasks = planner.plan(configs, setting)
        assert sum(len(task.runs) for task in tasks) == runs
        lengths = [task.seconds or 0.0 for task in tasks]
        lines.append(
            f"| {slots} | {len(tasks)} | {max(len(task.runs) for task in tasks)} runs "
            f"| {hours(planner.makespan(lengths, slots))} "
            f"| {hours(planner.lower_bound(configs, setting, LARGEST))} "
            f"| {sum(lengths) / 3600:,.1f} |"
        )
    planner.close_games(configs)
    return "\n".join([*lines, "", source(configs, runs, unknown)])


def source(configs: list[TrainConfig], runs: int, unknown: list[TrainConfig]) -> str:
    """Where the rates are from, and which runs have none."""
    rates = read_rates(DEVICE)
    guessed: dict[str, int] = {}
    for config in configs:
        if not rates.estimate([config], config.steps, together=True).measured:
            label = Condition.of(config).label
            guessed[label] = guessed.get(label, 0) + len(config.seeds)
    told = ", ".join(f"{label} ({count} runs)" for label, count in guessed.items())
    files = ", ".join(f"results/bench/{name}" for name in (*BENCHMARKS, *STUDIES))
    found = (json.loads(shipped(name).read_text()) for name in BENCHMARKS)
    commits = sorted({row["commit"][:10] for rows in found for row in rows["rows"]})
    left = ", ".join(f"{c.agent} ({len(c.seeds)} runs)" for c in unknown)
    return (
        f"{runs} of the {runs + sum(len(c.seeds) for c in unknown)} runs, at the paper's scale on "
        f"{DEVICE}: `python benchmarks/cluster_cost.py --docs`, rates of {files}, "
        f"measured at the commits {', '.join(commits)}, seed 0. Left out, because no rate of it "
        f"was recorded: {left}. With the speed that they have on a CPU: {told}."
    )


def hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else f"{seconds / 60:,.0f} min"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gpus", default="1,4,16,64")
    parser.add_argument("--docs", action="store_true", help="rewrite docs/cluster.md")
    given = parser.parse_args()
    text = table([int(count) for count in given.gpus.split(",")])
    if given.docs:
        _replace(Path(__file__).resolve().parents[1] / "docs" / "cluster.md", "cost", text)
    print(text)


if __name__ == "__main__":
    main()
