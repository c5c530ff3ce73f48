"""Whether drrn learns a set of games, and how it plays unseen ones: with and without score heads.

    python studies/game_sets.py --seeds 3 --out results/game_sets
    python studies/game_sets.py --seeds 3 --preset paper --steps 300000 --out results/game_sets
    python studies/game_sets.py --only-table --out results/game_sets

Makes 30 easy cooking games (ftwp-easy, seeds from 0 on): 20 to learn on, 5 for the validation and 5
for the test, whose foods are others. Trains drrn, and drrn with one head, with masking, ε annealed
over half of the steps. Games and run folders go to runs/game_sets. Writes game_sets.json, table.md,
splits.png and gaps.png. On a CPU each core trains one run at a time, on a GPU all seeds of an agent
are trained side by side.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sweep import arguments, keep

AGENTS = {"drrn": 5, "drrn, one head": 1}
WORK = Path("runs") / "game_sets"
GAMES = WORK / "games"
SPLITS = ("train", "valid", "test")
LEARNED = 0.9
"""Of the largest score of the training games."""


def make_the_games() -> None:
    """Made once, and compiled once."""
    from grue.cli.sets import compile_folder
    from grue.games.makers import make_games

    if not GAMES.exists():
        make_games("cooking", "ftwp-easy", 30, 0, GAMES, (67, 17, 16))
        compile_folder(GAMES, near=True)


def conditions(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for seed in range(given.seeds):
        for name in AGENTS:
            yield {"agent": name, "seed": seed, "preset": given.preset, "steps": given.steps}


def train_one(condition: dict[str, Any]) -> dict[str, Any]:
    """Runs in a process of its own, on one core."""
    return train_some([condition])[0]


def train_some(chosen: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Conditions that differ by their seeds; on a GPU side by side."""
    import grue
    from grue.training.provenance import about

    one = chosen[0]
    heads, steps = AGENTS[one["agent"]], one["steps"]
    config = grue.TrainConfig.preset(
        one["preset"],
        **{"game": str(GAMES / "train"), "valid": str(GAMES / "valid")},
        **{"test": str(GAMES / "test"), "agent": "drrn", "gate": "masking", "heads": heads},
        **{"seeds": tuple(each["seed"] for each in chosen), "steps": steps},
        **{"epsilon_steps": steps // 2, "replay_steps": steps, "valid_every": steps // 20},
    )
    out = WORK / f"{heads}-heads"
    for seed in config.seeds:
        shutil.rmtree(out / f"train-drrn-masking-seed{seed}", ignore_errors=True)
    made = grue.train(config, out).runs
    return [
        {**each, **reached(run.splits), "config": run.config.to_json(), "about": about()}
        for each, run in zip(chosen, made, strict=True)
    ]


def reached(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    scores = {name: [r["normalised"] for r in rows if r["split"] == name] for name in SPLITS}
    steps = [row["step"] for row in rows if row["split"] == "train"]
    best = int(np.argmax(scores["valid"]))
    learned = [at for at, score in zip(steps, scores["train"], strict=True) if score >= LEARNED]
    return {
        "learned_at": learned[0] if learned else None,
        "best_step": steps[best],
        **{f"final_{name}": round(scores[name][-1], 4) for name in SPLITS},
        **{f"best_{name}": round(scores[name][best], 4) for name in SPLITS},
        "splits": [{k: row[k] for k in ("step", "split", "wins", "normalised")} for row in rows],
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"| agent | seed | train | valid | test | {LEARNED:g} of train at step | best step |"]
    lines[0] += " train, valid and test then |"
    lines.append("|---" * 8 + "|")
    for agent in AGENTS:
        for row in sorted((r for r in rows if r["agent"] == agent), key=lambda r: r["seed"]):
            final, best = (
                [f"{row[f'{when}_{name}']:.3f}" for name in SPLITS] for when in ("final", "best")
            )
            learned = "never" if row["learned_at"] is None else f"{row['learned_at']:,}"
            lines.append(
                f"| {agent} | {row['seed']} | {' | '.join(final)} | {learned} | "
                f"{row['best_step']:,} | {', '.join(best)} |"
            )
    return "\n".join(lines) + "\n"


def draw(out: Path) -> None:
    from grue.reports.splits import draw_gaps, draw_splits, split_curves

    runs = split_curves([WORK / f"{heads}-heads" for heads in AGENTS.values()])
    draw_splits(runs, out / "splits.png")
    draw_gaps(runs, out / "gaps.png")


def main() -> None:
    parser = arguments("game_sets", __doc__)
    parser.add_argument("--preset", choices=("small", "paper"), default="small")
    parser.add_argument("--steps", type=int, default=100_000)
    given = parser.parse_args()
    if not given.only_table:
        make_the_games()
    keep("game_sets", given, train_one, conditions(given), table, on_gpu)
    if not given.only_table:
        draw(given.out)


def on_gpu(chosen: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    every = list(chosen)
    return [
        row
        for agent in AGENTS
        for row in train_some([one for one in every if one["agent"] == agent])
    ]


if __name__ == "__main__":
    main()
