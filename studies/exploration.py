"""Which explorer, which targets and which balance of the replay memory get past level 3.

    python studies/exploration.py --game saladworld-4 --seeds 0-2 --variants plain,trace
    python studies/exploration.py --game zork1 --story STORY --variants zork-archive
    python studies/exploration.py --only-table

Trains sc with masking, one variant after the other, the seeds of a variant side by side, and tells
what every run reached. Several processes may train different variants into one folder. A study that
was stopped continues, and its table shows what there is. Runs are in OUT/runs, results in
OUT/exploration.json and OUT/table.md; --only-table writes these again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from grue.agents.catalogue import EXPLORERS
from grue.agents.settings import names_of
from grue.training.config import TrainConfig, parse_seeds
from grue.training.progress import Display
from grue.training.runs import read_run
from grue.training.train import CHECKPOINT_SECONDS, train_all

SIZES: dict[str, dict[str, Any]] = {
    "small": {"encoder": 32, "context": 64, "hidden": 64, "batch_size": 16, "replay_steps": 50_000},
    "laptop": {"encoder": 32, "context": 64, "hidden": 64, "batch_size": 16},
    "medium": {"encoder": 32, "context": 128, "hidden": 64, "replay_steps": 200_000},
    "half": {"context": 256},
    "paper": {},
}
FOUND: dict[str, Any] = {"explore": "achievements", "bonus": 1.5, "heads": 8}
"""What solved level 4 in three seeds of five, with more heads."""
MASKED: dict[str, Any] = {**FOUND, "masked_targets": True}
ARCHIVE: dict[str, Any] = {
    **MASKED,
    "past_end": True,
    "return_share": 0.5,
    "archive_share": 0.5,
    "novel_share": 0.8,
}
JOINED: dict[str, Any] = {
    **ARCHIVE,
    "return_share": 0.8,
    "archive_share": 0.8,
    "archive_joined": 0.5,
    "archive_lower": 0.25,
}
RARE: dict[str, Any] = {**JOINED, "balance": "score", "rare_share": 0.3}
FAR: dict[str, Any] = {
    **RARE,
    "lower_bound": True,
    "frontier_epsilon": 0.0,
    "discount": 0.95,
    "bonus_behind": 0.0,
}
ZORK: dict[str, Any] = {
    **ARCHIVE,
    "balance": "score",
    "archive_share": 0.8,
    "archive_words": 3,
    "rare_share": 0.1,
}
ZORK_BOUND: dict[str, Any] = {
    **ZORK,
    "discount": 0.9,
    "heads": 16,
    "lower_bound": True,
    "frontier_epsilon": 0.0,
}
ZORK_LOW: dict[str, Any] = {**ZORK_BOUND, "double": True, "epsilon_end": 0.02}
ZORK_STEADY: dict[str, Any] = {
    **ZORK_LOW,
    "learning_rate_end": 0.0001,
    "learning_rate_steps": 500_000,
}
EXPLORING = {"explore", *names_of(EXPLORERS.find("achievements").settings)}
"""The settings that go without the explorer."""
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "heads": {"heads": 8},
    "counts": {"explore": "counts", "bonus": 1.5, "heads": 8},
    "episodic": {"explore": "episodic", "bonus": 0.5, "heads": 8},
    "achievements": FOUND,
    "weak": {**FOUND, "bonus": 0.7},
    "floor": {**FOUND, "bonus": 0.7, "bonus_floor": 0.2},
    "any-score": {**FOUND, "by_score": False},
    "usual-epsilon": {**FOUND, "frontier_epsilon": 0.0},
    "balance": {**FOUND, "balance": "score", "past_end": True},
    "balance-floor": {
        **FOUND,
        "bonus": 0.7,
        "bonus_floor": 0.2,
        "balance": "score",
        "past_end": True,
    },
    "trace": {**FOUND, "balance": "score", "past_end": True, "trace": 0.7},
    "trace-floor": {
        **FOUND,
        "bonus": 0.7,
        "bonus_floor": 0.2,
        "balance": "score",
        "past_end": True,
        "trace": 0.7,
    },
    "return": {**FOUND, "balance": "score", "past_end": True, "return_share": 0.25},
    "return-half": {**FOUND, "balance": "score", "past_end": True, "return_share": 0.5},
    "return-floor": {
        **FOUND,
        "bonus": 0.7,
        "bonus_floor": 0.2,
        "balance": "score",
        "past_end": True,
        "trace": 0.7,
        "return_share": 0.25,
    },
    "past-end": {**FOUND, "past_end": True},
    "masked": {"masked_targets": True},
    "masked-heads": {"masked_targets": True, "heads": 8},
    "masked-achievements": MASKED,
    "masked-past-end": {**MASKED, "past_end": True},
    "masked-return": {**MASKED, "past_end": True, "return_share": 0.25},
    "masked-return-balance": {
        **MASKED,
        "balance": "score",
        "past_end": True,
        "return_share": 0.25,
    },
    "archive": ARCHIVE,
    "archive-more": {**ARCHIVE, "archive_share": 0.8},
    "archive-most": {**ARCHIVE, "return_share": 0.8, "archive_share": 0.8},
    "archive-joined": JOINED,
    "archive-balance": {**JOINED, "balance": "score"},
    "archive-rare": {**JOINED, "rare_share": 0.3},
    "archive-rare-balance": RARE,
    "archive-own": {**ARCHIVE, "archive_epsilon": 0.4},
    "masked-bound": {**MASKED, "past_end": True, "lower_bound": True},
    "return-bound": {**MASKED, "past_end": True, "lower_bound": True, "return_share": 0.25},
    "archive-bound": {**RARE, "lower_bound": True},
    "archive-greedy": {**RARE, "lower_bound": True, "frontier_epsilon": 0.0},
    "archive-far": FAR,
    "archive-double": {**FAR, "double": True},
    "archive-steady": {
        **FAR,
        "double": True,
        "epsilon_end": 0.02,
        "learning_rate_end": 0.0001,
        "learning_rate_steps": 1_300_000,
    },
    "zork-archive": ZORK,
    "zork-far": {**ZORK, "return_share": 0.8, "discount": 0.97},
    "zork-greedy": ZORK_BOUND,
    "zork-double": {**ZORK_BOUND, "double": True},
    "zork-low": ZORK_LOW,
    "zork-steady": ZORK_STEADY,
    "zork-unaided": {
        "epsilon_steps": 300_000,
        **{name: value for name, value in ZORK_STEADY.items() if name not in EXPLORING},
    },
    "oracle": {"gate": "oracle", "heads": 8},
    "long": {
        **FOUND,
        "balance": "score",
        "past_end": True,
        "trace": 0.7,
        "sequence_length": 30,
    },
}
SOLVED = 0.95
SCORES = ("final_score", "best_score", "found")
"""Columns of the table that the first runs do not have."""


def config_of(variant: str, given: argparse.Namespace) -> TrainConfig:
    own = VARIANTS[variant]
    return TrainConfig(
        **{
            "game": given.game,
            "story": given.story,
            "agent": "sc",
            "gate": "masking",
            "steps": given.steps,
            "seeds": parse_seeds(given.seeds),
            # As in the first trial; without an explorer ε falls as in the paper.
            "epsilon_steps": 300_000 if "explore" in own else 1_000_000,
            **SIZES[given.sizes],
            **own,
        }
    )


def folder_of(variant: str, given: argparse.Namespace) -> Path:
    return given.out / "runs" / f"{given.sizes}_{given.game}_{variant}"


def row_of(variant: str, folder: Path) -> dict[str, Any]:
    """What a run has reached so far."""
    run = read_run(folder)
    steps, fraction = run.curve("fraction")
    wins, solved = run.metrics["wins"], steps[np.flatnonzero(fraction >= SOLVED)]
    _, score = run.curve("score")
    found = run.metrics.get("best", score)
    won = run.metrics["step"][wins > 0]
    return {
        "variant": variant,
        "game": run.config.game,
        "seed": run.config.seeds[0],
        "step": int(steps[-1]),
        "final_fraction": round(float(fraction[-1]), 4),
        "best_fraction": round(float(np.nanmax(fraction)), 4),
        "final_score": round(float(score[-1]), 2),
        "best_score": round(float(np.nanmax(score)), 2),
        "found": round(float(np.nanmax(found)), 2),
        "wins": int(wins.sum()),
        "first_win": int(won[0]) if len(won) else None,
        "solved_at": int(solved[0]) if len(solved) else None,
        "command": command(variant, run.config),
        # The story's path says nothing on another machine.
        "config": run.config.to_json() | {"story": "STORY" if run.config.story else None},
        "about": run.about,
    }


def command(variant: str, config: TrainConfig) -> str:
    """Repeats a run."""
    flat = config.flat()
    sizes = next(n for n, own in SIZES.items() if own.items() <= flat.items())
    return (
        f"python studies/exploration.py --game {config.game} --steps {config.steps} "
        f"--seeds {config.seeds[0]} --sizes {sizes} --variants {variant}"
        + (" --story STORY" if config.story else "")
    )


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| game | units | variant | seed | steps | final fraction | best | wins | first win | "
        "solved at | final score | best | highest of an episode |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        first, solved = (f"{row[k]:,}" if row[k] else "never" for k in ("first_win", "solved_at"))
        lines.append(
            f"| {row['game']} | {row['config']['context']} | {row['variant']} | {row['seed']} | "
            f"{row['step']:,} | "
            f"{row['final_fraction']:.3f} | {row['best_fraction']:.3f} | {row['wins']} | {first} | "
            f"{solved} | {' | '.join(str(row.get(name, '')) for name in SCORES)} |"
        )
    return "\n".join(lines) + "\n"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--game", default="saladworld-4")
    parser.add_argument("--story", help="the story file of zork1")
    parser.add_argument("--steps", type=int, default=600_000)
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--sizes", choices=SIZES, default="medium")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--out", type=Path, default=Path("results/exploration"))
    parser.add_argument("--checkpoint-seconds", type=float, default=CHECKPOINT_SECONDS)
    parser.add_argument("--only-table", action="store_true")
    given = parser.parse_args()
    given.variants = given.variants.split(",")
    for name in given.variants:
        if name not in VARIANTS:
            parser.error(f"there is no variant {name!r}; there are {', '.join(VARIANTS)}")
    return given


def write(given: argparse.Namespace) -> None:
    """Writes the results and the table of all runs in the folder.

    A row of the results stays if its run was made elsewhere.
    """
    found = sorted((given.out / "runs").glob("*/*/metrics.jsonl"))
    file = given.out / "exploration.json"
    old = json.loads(file.read_text()) if file.exists() else []
    new = [row_of(p.parent.parent.name.split("_", 2)[2], p.parent) for p in found]
    rows = list({row["command"]: row for row in old + new}.values())
    given.out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(rows, indent=1) + "\n")
    (given.out / "table.md").write_text(table(rows))
    print(table(rows))


def main() -> None:
    given = arguments()
    try:
        if not given.only_table:
            with Display() as display:
                for variant in given.variants:
                    config, folder = config_of(variant, given), folder_of(variant, given)
                    train_all(
                        [config],
                        folder,
                        resume=True,
                        together=True,
                        progress=display,
                        checkpoint_seconds=given.checkpoint_seconds,
                    )
    finally:
        write(given)


if __name__ == "__main__":
    main()
