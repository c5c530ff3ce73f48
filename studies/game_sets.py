"""Whether drrn learns a set of games, and how it plays unseen ones: with and without score heads.

    python studies/game_sets.py --seeds 3 --on first_steps,double,lower_bound
    python studies/game_sets.py --seeds 3 --on first_steps --preset paper --steps 300000
    python studies/game_sets.py --only-table

Makes 30 easy cooking games (ftwp-easy, seeds from 0 on): 20 to learn on, 5 for the validation and 5
for the test, whose foods are others. Trains drrn, and drrn with one head, with masking, ε annealed
over half of the steps. On a CPU each core trains one run at a time, on a GPU all seeds of an agent
are trained side by side. Games and run folders go to runs/game_sets. Writes what all run folders
there have reached, finished or not, to results/game_sets: game_sets.json, table.md and pictures.
Rows of runs that were made elsewhere stay.
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from sweep import arguments

from grue.experiments.devices import gpus

AGENTS = {"drrn": 5, "drrn, one head": 1}
WORK = Path("runs") / "game_sets"
GAMES = WORK / "games"
SPLITS = ("train", "valid", "test")
LEARNED = 0.9
"""Of the largest score of the training games."""
OPTIONS = ("first_steps", "double", "lower_bound")
"""Settings that are off by default (docs/agents.md)."""
Row = dict[str, Any]


def make_the_games() -> None:
    """Made once, and compiled once."""
    from grue.cli.sets import compile_folder
    from grue.games.makers import make_games

    if not GAMES.exists():
        make_games("cooking", "ftwp-easy", 30, 0, GAMES, (67, 17, 16))
        compile_folder(GAMES, near=True)


def train(given: argparse.Namespace, agent: str, seeds: tuple[int, ...], core: int | None) -> None:
    """Some seeds of an agent; on a CPU on one core. Runs that were stopped go on."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    import grue

    heads, steps = AGENTS[agent], given.steps
    config = grue.TrainConfig.preset(
        given.preset,
        **{"game": str(GAMES / "train"), "valid": str(GAMES / "valid")},
        **{"test": str(GAMES / "test"), "agent": "drrn", "gate": "masking", "heads": heads},
        **{"seeds": seeds, "steps": steps, **dict.fromkeys(given.on, True)},
        **{"epsilon_steps": steps // 2, "replay_steps": steps, "valid_every": steps // 20},
    )
    kind = "-".join([given.preset, *given.on]).replace("_", "-")
    grue.train(config, WORK / kind / f"{heads}-heads", resume=True)


def train_all(given: argparse.Namespace) -> None:
    seeds = tuple(range(given.seeds))
    if gpus():
        for agent in AGENTS:
            train(given, agent, seeds, None)
        return
    cores = sorted(os.sched_getaffinity(0))
    with ProcessPoolExecutor(len(cores), get_context("spawn"), max_tasks_per_child=1) as pool:
        wanted = [(agent, (seed,)) for seed in seeds for agent in AGENTS]
        going = [
            pool.submit(train, given, *one, cores[i % len(cores)]) for i, one in enumerate(wanted)
        ]
        for one in going:
            one.result()


def row_of(folder: Path) -> Row:
    """What a run has reached so far."""
    from grue.training.runs import read_config
    from grue.training.splits import read_split_rows

    config, about = read_config(folder)
    rows = read_split_rows(folder, config)
    scores = {name: [r["normalised"] for r in rows if r["split"] == name] for name in SPLITS}
    steps = [row["step"] for row in rows if row["split"] == "train"]
    best = int(np.argmax(scores["valid"]))
    learned = [at for at, score in zip(steps, scores["train"], strict=True) if score >= LEARNED]
    return {
        "agent": next(name for name, heads in AGENTS.items() if heads == config.heads),
        "seed": config.seeds[0],
        "units": config.context,
        "on": [name for name in OPTIONS if getattr(config, name)],
        "step": steps[-1],
        "learned_at": learned[0] if learned else None,
        "most_train": round(max(scores["train"]), 4),
        **{f"final_{name}": round(scores[name][-1], 4) for name in SPLITS},
        "best_step": steps[best],
        **{f"best_{name}": round(scores[name][best], 4) for name in SPLITS},
        "splits": {name: [round(score, 4) for score in scores[name]] for name in SPLITS},
        "config": {**config.to_json(), **{n: Path(getattr(config, n)).name for n in PATHS}},
        "about": about,
    }


PATHS = ("game", "valid", "test")


def order(row: Row) -> tuple[Any, ...]:
    return (
        -row["units"],
        len(row["on"]),
        tuple(row["on"]),
        list(AGENTS).index(row["agent"]),
        row["seed"],
    )


def table(rows: list[Row]) -> str:
    lines = [
        "| units | settings that are on | agent | seed | steps | "
        f"{LEARNED:g} of the training score at step | highest | train, valid, test at the end | "
        "at the step that is best on valid |",
        "|---" * 9 + "|",
    ]
    for row in rows:
        final, best = (
            ", ".join(f"{row[f'{when}_{name}']:.2f}" for name in SPLITS)
            for when in ("final", "best")
        )
        learned = "never" if row["learned_at"] is None else f"{row['learned_at']:,}"
        on = ", ".join(f"`{name}`" for name in row["on"])
        lines.append(
            f"| {row['units']} | {on} | {row['agent']} | {row['seed']} | {row['step']:,} | "
            f"{learned} | {row['most_train']:.2f} | {final} | {best} ({row['best_step']:,}) |"
        )
    return "\n".join(lines) + "\n"


def write(out: Path) -> None:
    file = out / "game_sets.json"
    old = json.loads(file.read_text()) if file.exists() else []
    found = sorted(path.parent for path in WORK.glob("*/*-heads/*/splits.jsonl"))
    every = {order(row): row for row in [*old, *map(row_of, found)]}
    rows = sorted(every.values(), key=order)
    out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(rows) + "\n")
    (out / "table.md").write_text(table(rows))
    print(table(rows))
    draw(out)


def draw(out: Path) -> None:
    """The pictures of each kind of runs in this folder."""
    from grue.reports.splits import draw_gaps, draw_splits, split_curves

    for kind in sorted({path.parent for path in WORK.glob("*/*-heads")}):
        runs = split_curves([kind])
        draw_splits(runs, out / f"splits-{kind.name}.png")
        draw_gaps(runs, out / f"gaps-{kind.name}.png")


def main() -> None:
    parser = arguments("game_sets", __doc__)
    parser.add_argument("--preset", choices=("small", "paper"), default="small")
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--on", default="", help=f"settings to turn on: {', '.join(OPTIONS)}")
    given = parser.parse_args()
    given.on = given.on.split(",") if given.on else []
    for name in given.on:
        if name not in OPTIONS:
            parser.error(f"--on takes some of {', '.join(OPTIONS)}, not {name!r}")
    if not given.only_table:
        make_the_games()
        train_all(given)
    write(given.out)


if __name__ == "__main__":
    main()
