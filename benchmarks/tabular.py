"""Trains both tabular agents with the oracle gate on every level.

    python benchmarks/tabular.py
    python benchmarks/tabular.py --levels 1-3 --seeds 0,1 --steps 100000 --out /tmp/tabular
    python benchmarks/tabular.py --only-table

Writes one record for each agent and level, as soon as it is there, a table of all such records in
the folder, and their speeds for the planner. The seeds of a level train side by side in one
program. Each core takes a level at a time, in a process of its own that is bound to the core:
shared out over cores, the small pieces of a step would wait for each other. ``--workers 1`` stays
in this process, on JAX's own device.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from itertools import cycle, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from grue.agents.agent import RunParameters
from grue.errors import GrueError
from grue.experiments.devices import free_cores
from grue.experiments.figures import parse_levels
from grue.experiments.records import Record, read_records, record_of, write_record
from grue.training import metrics
from grue.training.config import TrainConfig, parse_seeds
from grue.training.programs import build, parameters_of
from grue.training.provenance import about
from grue.training.runs import Curves

AGENTS = ("tabular", "li-tabular")
TABLE = "tabular.md"
RATES = Path("results/bench/tabular-cpu.json")


def train(config: TrainConfig) -> Record:
    """The runs of one agent on one level, as a record."""
    program = build(config, 1, many=True).program
    run = program.init(jnp.array(config.seeds, jnp.int32), parameters(config))
    rows: list[list[metrics.MetricsRow]] = [[] for _ in config.seeds]
    begun = compiled = time.perf_counter()
    for step in range(0, config.steps, config.metrics_every):
        run, sums = program.advance(run, jnp.int32(step), False, config.metrics_every)
        sums = jax.device_get(sums)
        for i, seed in enumerate(config.seeds):
            own = jax.tree.map(lambda leaf, i=i: leaf[i], sums)
            end = step + config.metrics_every
            rows[i].append(metrics.make_row(config.of_seed(seed), end, own, rows[i]))
        if not step:
            compiled = time.perf_counter()
    ended = time.perf_counter()
    kept = jax.device_get(run.agent.kept)
    told = {
        **about(),
        "processor": platform.processor() or platform.machine(),
        "seconds": round(ended - begun, 1),
        # Of all seeds together, without the compilation.
        "steps_per_s": round(
            len(config.seeds) * (config.steps - config.metrics_every) / (ended - compiled)
        ),
    }
    record = record_of(
        [
            Curves(config.of_seed(seed), seed, metrics.columns(rows[i], config))
            for i, seed in enumerate(config.seeds)
        ]
    )
    own_about = (
        {**told, "table_rows_used": int(kept.used[i]), "table_refused": int(kept.refused[i])}
        for i in range(len(config.seeds))
    )
    return replace(record, about=tuple(own_about))


def parameters(config: TrainConfig) -> RunParameters:
    one = parameters_of(config)
    return jax.tree.map(lambda value: jnp.broadcast_to(value, len(config.seeds)), one)


# Many at once


def train_all(configs: list[TrainConfig], workers: int) -> Iterator[tuple[TrainConfig, Record]]:
    """Records as they are done."""
    if workers == 1:
        for config in configs:
            yield config, train(config)
        return
    context = get_context("spawn")
    cores = context.SimpleQueue()
    for core in islice(cycle(free_cores()), workers):
        cores.put(core)
    with ProcessPoolExecutor(workers, context, bind_to_core, (cores,)) as pool:
        jobs = {pool.submit(train, config): config for config in configs}
        try:
            for job in as_completed(jobs):
                yield jobs[job], job.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def bind_to_core(cores: Any) -> None:
    """Before JAX starts: it makes no threads where there is one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cores.get()})


# The table


def table_text(records: list[Record]) -> str:
    """Mean ± standard deviation over the seeds, agents by levels."""
    cells = {(record.agent, record.game): summary(record) for record in records}
    games = sorted({game for _, game in cells})
    lines = [
        "# Tabular agents, oracle gate",
        "",
        "The fraction of subtasks done in an episode, over the last "
        f"{records[0].config.average_over:,} steps of training: mean ± standard deviation "
        "over the seeds. Made from the records in this folder.",
        "",
        "| agent | " + " | ".join(games) + " |",
        "|---|" + "---|" * len(games),
    ]
    for agent in AGENTS:
        row = " | ".join(cells.get((agent, game), "") for game in games)
        lines.append(f"| {agent} | {row} |")
    lines += [
        "",
        "Steps per second are of all seeds of a record together, in one of the workers.",
        "",
    ]
    lines += ["| record | steps | seeds | steps/s | rows used | refused | commit | command |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    lines += [source(record) for record in records]
    return "\n".join(lines) + "\n"


def summary(record: Record) -> str:
    values = record.final[np.isfinite(record.final)]
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}" if len(values) else "no episode"


def source(record: Record) -> str:
    config, told = record.config, record.about[0]
    seeds = ", ".join(map(str, config.seeds))
    return (
        f"| {config.agent}, {config.game} | {config.steps:,} | {seeds} "
        f"| {told['steps_per_s']:,} ({told['device']}, workers: {told['workers']}) "
        f"| {max(of['table_rows_used'] for of in record.about):,} of {config.table_rows:,} "
        f"| {sum(of['table_refused'] for of in record.about):,} "
        f"| {told['commit'][:10]} | `{told['command']}` |"
    )


def write_table(out: Path) -> None:
    records = [
        record
        for agent in sorted(AGENTS)
        for record in read_records([out])
        # Those that were trained here: others do not tell their speed.
        if record.agent == agent and "steps_per_s" in record.about[0]
    ]
    if not records:
        raise GrueError(f"there are no records of tabular agents in {out}; train some first")
    (out / TABLE).write_text(table_text(records))
    RATES.write_text(json.dumps({"rows": [rate(record) for record in records]}, indent=1) + "\n")


def rate(record: Record) -> dict[str, Any]:
    """The speed of a record, as the planner reads it."""
    told = {name: record.about[0][name] for name in ("device", "steps_per_s", "commit", "command")}
    config = record.config
    own = {"agent": config.agent, "gate": config.gate, "game": config.game}
    return {**own, "runs": len(config.seeds), **told}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=1_300_000)
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--levels", default="1-7")
    parser.add_argument("--out", type=Path, default=Path("results/saladworld"))
    parser.add_argument("--workers", type=int, default=len(free_cores()))
    parser.add_argument("--commit", help="where there is no git to ask")
    parser.add_argument("--only-table", action="store_true")
    given = parser.parse_args()
    if given.workers < 1:
        parser.error(f"--workers must be at least 1, not {given.workers}")
    try:
        if not given.only_table:
            measure(given)
        write_table(given.out)
    except GrueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def measure(given: argparse.Namespace) -> None:
    configs = [
        TrainConfig(
            game=f"saladworld-{level}",
            agent=agent,
            gate="oracle",
            steps=given.steps,
            seeds=parse_seeds(given.seeds),
        )
        # The longest first, so that the cores end together.
        for level in sorted(parse_levels(given.levels), reverse=True)
        for agent in reversed(AGENTS)
    ]
    asked: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "workers": given.workers,
    }
    if given.commit is not None:
        asked["commit"] = given.commit
    for config, record in train_all(configs, given.workers):
        record = replace(record, about=tuple({**told, **asked} for told in record.about))
        write_record(record, given.out)
        speed = record.about[0]["steps_per_s"]
        print(f"{config.agent:10} {config.game} {summary(record)} {speed:>9,} steps/s", flush=True)


if __name__ == "__main__":
    main()
