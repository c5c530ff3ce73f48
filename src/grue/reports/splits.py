"""Curves of runs on folders of games: training, validation and test, and the gaps between them.

Reads ``splits.jsonl`` of run folders. A score is normalised: divided by the largest of its game.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grue.errors import GrueError
from grue.reports.curves import Panel, learning_curves, pairs_figure
from grue.reports.picture import save_picture
from grue.training.config import TrainConfig
from grue.training.runs import read_config, run_folders
from grue.training.sets import SPLITS, TRAIN
from grue.training.splits import read_split_rows

GAPS = {f"train - {split}": split for split in SPLITS if split != TRAIN}
"""The gap between training and each split of unseen games."""
SCORE = "normalised score"


@dataclass(frozen=True)
class SplitCurves:
    """The normalised scores of a run, by split and by gap; nan where there is none."""

    config: TrainConfig
    """A title with the last two parts of the folder's path."""
    seed: int
    folder: Path
    metrics: Mapping[str, np.ndarray]


def split_curves(paths: Sequence[Path]) -> list[SplitCurves]:
    """The scores of all runs on folders of games below some paths."""
    folders = [folder for path in paths if path.is_dir() for folder in run_folders(path)]
    return [found for folder in folders if (found := _read(folder)) is not None]


def _read(folder: Path) -> SplitCurves | None:
    config = read_config(folder)[0]
    rows = read_split_rows(folder, config)
    if not rows:
        return None
    steps = sorted({row["step"] for row in rows})
    scores = {(row["split"], row["step"]): row["normalised"] for row in rows}
    found = {name: np.array([scores.get((name, at), np.nan) for at in steps]) for name in SPLITS}
    gaps = {name: found[TRAIN] - found[split] for name, split in GAPS.items()}
    title = str(Path(*Path(config.game).parts[-2:]))
    shown = dataclasses.replace(config, game=title)
    return SplitCurves(shown, config.seeds[0], folder, {"step": np.array(steps), **found, **gaps})


def draw_splits(runs: Sequence[SplitCurves], path: str | Path) -> Path:
    """Draws the normalised scores on the games of each split, over the steps of training."""
    return _draw(runs, path, SPLITS, SCORE, 1.0)


def draw_gaps(runs: Sequence[SplitCurves], path: str | Path) -> Path:
    """Draws how much better the agents play the games that they were trained on."""
    return _draw(runs, path, tuple(GAPS), "gap of the normalised score", None)


def numbers_of(runs: Sequence[SplitCurves]) -> list[dict[str, Any]]:
    """What is drawn, a row for each run."""
    return [
        {
            "run": run.folder.name,
            "game": run.config.game,
            "seed": run.seed,
            **{name: _plain(values) for name, values in run.metrics.items()},
        }
        for run in runs
    ]


def _draw(
    runs: Sequence[SplitCurves],
    path: str | Path,
    columns: Sequence[str],
    ylabel: str,
    top: float | None,
) -> Path:
    found = [{panel.game: panel for panel in learning_curves(runs, name)} for name in columns]
    drawn = [n for n, panels in enumerate(found) if panels]
    if not drawn:
        raise GrueError(f"cannot draw {path}: no run has played the games of {columns[0]} yet")
    names = [columns[n] for n in drawn]
    games = sorted({game for panels in found for game in panels})
    panels = [tuple(found[n].get(game, Panel(game, ())) for n in drawn) for game in games]
    return save_picture(path, lambda: pairs_figure(panels, names, ylabel, top))


def _plain(values: np.ndarray) -> list[Any]:
    """None for nan, which JSON does not have."""
    return [None if np.isnan(value) else value for value in values.tolist()]
