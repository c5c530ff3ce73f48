"""Trains both tabular agents with the oracle gate on every level.

    python benchmarks/tabular.py
    python benchmarks/tabular.py --levels 1-3 --seeds 0,1 --steps 100000 --out /tmp/tabular
    python benchmarks/tabular.py --only-table

Writes one record for each agent and level, as soon as it is there, and a table of all records in
the folder. The seeds of a level train side by side in one program. Each core takes a level at a
time, in a process of its own that is bound to the core: shared out over cores, the small pieces of
a step would wait for each other. ``--workers 1`` stays in this process, on JAX's own device.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import cycle, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import grue
from grue.agents.agent import Agent, Condition
from grue.agents.registry import make_agent
from grue.engine.bench import device_name
from grue.engine.make import make
from grue.errors import GrueError, UsageError
from grue.training.algorithm import Sums, make_program
from grue.training.config import TrainConfig, parse_seeds
from grue.training.programs import condition_of

AGENTS = ("tabular", "li-tabular")
Record = dict[str, Any]


def train(config: TrainConfig) -> Record:
    """The runs of one agent on one level, as a record."""
    env = make(config.game, "compiled", config.episode_steps)
    agent = make_agent(config.agent, env, config)
    program = make_program(env, agent, config, many=True)
    run = program.init(jnp.array(config.seeds, jnp.int32), conditions(config, agent))
    rows: list[Sums] = []
    begun = compiled = time.perf_counter()
    for step in range(0, config.steps, config.metrics_every):
        run, sums = program.advance(run, jnp.int32(step), False, config.metrics_every)
        rows.append(jax.device_get(sums))
        if not step:
            compiled = time.perf_counter()
    ended = time.perf_counter()
    later = len(config.seeds) * (config.steps - config.metrics_every)
    table = jax.device_get((run.agent.kept.used, run.agent.kept.refused))
    return {
        "config": config.to_json(),
        "device": device_name(),
        "processor": platform.processor() or platform.machine(),
        "versions": {"grue": grue.__version__, "jax": jax.__version__},
        "seconds": round(ended - begun, 1),
        # Of all seeds together, without the compilation.
        "steps_per_s": round(later / (ended - compiled)),
        "runs": list(run_records(config, rows, *table)),
    }


def conditions(config: TrainConfig, agent: Agent) -> Condition:
    one = condition_of(config, agent.heads)
    return jax.tree.map(lambda value: jnp.broadcast_to(value, len(config.seeds)), one)


def run_records(
    config: TrainConfig, rows: list[Sums], used: np.ndarray, refused: np.ndarray
) -> Iterator[Record]:
    """What is kept of each seed: the moving average, once for each of its windows."""
    sums = jax.tree.map(lambda *of: np.stack(of), *rows)
    window = config.average_over // config.metrics_every
    ends = range(window, len(rows) + 1, window)
    for i, seed in enumerate(config.seeds):
        done, episodes = sums.fraction[:, i], sums.episodes[:, i]
        yield {
            "seed": seed,
            "fraction": average(done, episodes, len(rows), window),
            "episodes": int(episodes.sum()),
            "wins": int(sums.wins[:, i].sum()),
            "table_rows_used": int(used[i]),
            "table_refused": int(refused[i]),
            "curve": [average(done, episodes, end, window) for end in ends],
        }


def average(done: np.ndarray, episodes: np.ndarray, end: int, window: int) -> float | None:
    """The fraction of subtasks in the episodes of a window; none ended, no fraction."""
    begin = max(0, end - window)
    ended = episodes[begin:end].sum()
    return round(float(done[begin:end].sum() / ended), 4) if ended else None


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


def free_cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def bind_to_core(cores: Any) -> None:
    """Before JAX starts: it makes no threads where there is one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cores.get()})


# Files


def commit() -> str:
    found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def write(path: Path, text: str) -> None:
    """All of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    draft.write_text(text)
    draft.replace(path)


def record_text(record: Record) -> str:
    """JSON with a line for each field, and for each run."""
    runs = ",\n".join(f"  {json.dumps(run)}" for run in record["runs"])
    lines = [f' "{name}": {json.dumps(value)}' for name, value in record.items() if name != "runs"]
    return "{\n" + ",\n".join([*lines, f' "runs": [\n{runs}\n ]']) + "\n}\n"


def table_text(records: list[Record]) -> str:
    """Mean ± standard deviation over the seeds, agents by levels."""
    cells = {(r["config"]["agent"], r["config"]["game"]): summary(r) for r in records}
    games = sorted({game for _, game in cells})
    lines = [
        "# Tabular agents, oracle gate",
        "",
        "The fraction of subtasks done in an episode, over the last "
        f"{records[0]['config']['average_over']:,} steps of training: mean ± standard deviation "
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
    values = [run["fraction"] for run in record["runs"] if run["fraction"] is not None]
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}" if values else "no episode"


def source(record: Record) -> str:
    config, runs = record["config"], record["runs"]
    seeds = ", ".join(map(str, config["seeds"]))
    return (
        f"| {config['agent']}, {config['game']} | {config['steps']:,} | {seeds} "
        f"| {record['steps_per_s']:,} ({record['device']}, workers: {record['workers']}) "
        f"| {max(run['table_rows_used'] for run in runs):,} of {config['table_rows']:,} "
        f"| {sum(run['table_refused'] for run in runs):,} "
        f"| {record['commit'][:10]} | `{record['command']}` |"
    )


def write_table(out: Path) -> None:
    paths = sorted(out.glob("*.json"))
    if not paths:
        raise GrueError(f"there are no records in {out}; train some first")
    write(out / "table.md", table_text([json.loads(path.read_text()) for path in paths]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=1_300_000)
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--levels", default="1-7")
    parser.add_argument("--out", type=Path, default=Path("results/tabular"))
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


def parse_levels(text: str) -> tuple[int, ...]:
    """Levels from "1,2" or "1-7"."""
    try:
        levels = parse_seeds(text)
    except GrueError:
        levels = ()
    if not levels or not set(levels) <= set(range(1, 8)):
        raise UsageError(f"levels lie from 1 to 7, as in 1,2 or 1-7, not {text!r}")
    return levels


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
    asked = {
        "command": " ".join(["python", *sys.argv]),
        "commit": commit() if given.commit is None else given.commit,
        "workers": given.workers,
    }
    for config, record in train_all(configs, given.workers):
        name = f"{config.agent}-{config.game}"
        write(given.out / f"{name}.json", record_text({**asked, **record}))
        print(f"{name:24} {summary(record)} {record['steps_per_s']:>9,} steps/s", flush=True)


if __name__ == "__main__":
    main()
