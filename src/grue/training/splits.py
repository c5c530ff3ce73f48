"""``splits.jsonl`` of a run on a folder of games: its scores on the games of each split.

There are rows after every ``valid_every`` steps: one for the games of the training, then for those
of the validation and of the test, if there are any. Each game is played once, greedily.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grue.engine.stacked import StackedEnv
from grue.errors import BrokenFileError
from grue.training.config import TrainConfig
from grue.training.playing import Finals
from grue.training.rowfile import read_lines
from grue.training.sets import SPLITS, TRAIN, VALID

SPLITS_FILE = "splits.jsonl"
SplitRow = dict[str, Any]
COLUMNS = {
    "step": "the step at which they were played",
    "seed": "the run's seed",
    "split": "train, valid or test",
    "games": "how many games it has",
    "wins": "how many of them were won",
    "score": "mean final score",
    "normalised": "mean of the final scores, each divided by the largest of its game",
    "fraction": "mean fraction of the subtasks that were done",
}
COUNTS = ("step", "seed", "games", "wins")


def normalised(play: Finals, env: StackedEnv) -> np.ndarray:
    """Final scores divided by the largest of each game; games without points are won or not."""
    most = np.asarray(env.max_scores)
    return np.where(most > 0, np.asarray(play.score) / np.maximum(most, 1), play.won)


def make_split_row(step: int, seed: int, split: str, play: Finals, env: StackedEnv) -> SplitRow:
    values = {
        "step": step,
        "seed": seed,
        "split": split,
        "games": len(env.names),
        "wins": int(np.sum(play.won)),
        "score": float(np.mean(play.score, dtype=float)),
        "normalised": float(np.mean(normalised(play, env), dtype=float)),
        "fraction": float(np.mean(play.fraction, dtype=float)),
    }
    return {name: values[name] for name in COLUMNS}


def splits_in(config: TrainConfig) -> list[str]:
    """The splits of a run on a folder of games."""
    return [split for split in SPLITS if split == TRAIN or getattr(config, split) is not None]


def read_split_rows(folder: Path, config: TrainConfig, until: int | None = None) -> list[SplitRow]:
    """The rows up to a step. None for a run on one game."""
    names = splits_in(config)

    def fault(row: Mapping[str, Any], number: int) -> str:
        before, place = divmod(number - 1, len(names))
        wanted = {"step": (before + 1) * config.valid_every, "split": names[place]}
        for name in COLUMNS:
            value = row.get(name)
            kinds = (str,) if name == "split" else (int,) if name in COUNTS else (int, float)
            if not isinstance(value, kinds) or wanted.get(name, value) != value:
                return f"{name} is {value!r}"
        return ""

    return read_lines(folder / SPLITS_FILE, fault, until)


def check_split_rows(
    folder: Path, config: TrainConfig, rows: Sequence[SplitRow], step: int
) -> None:
    """The rows must reach the step of a checkpoint."""
    if len(rows) < len(splits_in(config)) * (step // config.valid_every):
        last = rows[-1]["step"] if rows else 0
        raise BrokenFileError(
            f"{folder / SPLITS_FILE} ends at step {last}, before the checkpoint of step {step}; "
            "train into another folder"
        )


def best_step(rows: Sequence[SplitRow]) -> int | None:
    """The first step with the highest normalised score on the validation games."""
    valid = [row for row in rows if row["split"] == VALID]
    return max(valid, key=lambda row: row["normalised"])["step"] if valid else None
