"""Records with numbers made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from grue.experiments.conditions import Condition
from grue.experiments.records import Record
from grue.experiments.scales import game_name
from grue.training.config import TrainConfig

LOW, MIDDLE, HIGH = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), (0.8, 0.9, 1.0)
ABOUT = {"commit": "0123456789abcdef", "device": "CPU", "command": "grue train", "grue": "0.1.0"}


def made_record(
    level: int | str,
    agent: str,
    gate: str = "none",
    final: Sequence[float] = (0.5,),
    rise: Sequence[float] | None = None,
    first_solve: Sequence[int | None] | None = None,
    columns: dict[str, np.ndarray] | None = None,
    about: dict[str, Any] | None = None,
    **settings: Any,
) -> Record:
    """A record at the paper's scale, of four rows that go up to the final values.

    ``rise`` is where the curve is at each row, as a share of the final value.
    """
    shares = np.array((0.25, 0.5, 0.75, 1.0) if rise is None else rise)
    seeds = tuple(range(len(final)))
    config = TrainConfig(game=game_name(level), agent=agent, gate=gate, seeds=seeds, **settings)
    rows = len(shares)
    return Record(
        config=config,
        about=(ABOUT if about is None else about,) * len(seeds),
        steps=np.array([config.steps * (i + 1) // rows for i in range(rows)], np.int64),
        columns={"fraction_average": np.outer(np.array(final, float), shares)} | (columns or {}),
        first_solve=None if first_solve is None else tuple(first_solve),
        solved=None if first_solve is None else (None,) * len(seeds),
    )


def sc(level: int, final: Sequence[float], **more: Any) -> Record:
    return made_record(level, "sc", final=final, **more)


def rich(level: int, gate: str, final: tuple[float, ...], **more: Any) -> Record:
    """Of sc, with all that training measures."""
    seeds = len(final)
    columns = {
        "precision": np.tile([0.2, 0.4, 0.6, 0.8], (seeds, 1)),
        "recall": np.tile([1.0, 0.9, 0.9, 0.9], (seeds, 1)),
        "candidates": np.tile([8.0, 6.0, 4.0, 3.0], (seeds, 1)),
        "admissible_commands": np.full((seeds, 4), 2.0),
        "heads": np.tile([[1.0, 0.0], [0.75, 0.25], [0.5, 0.5], [0.5, 0.5]], (seeds, 1, 1)),
    }
    return made_record(level, "sc", gate, final, columns=columns, **more)


def drqn(level: int, final: Sequence[float], **more: Any) -> Record:
    return made_record(level, "drqn", final=final, **more)


def on_zork(
    condition: Condition, scores: Sequence[float], seeds: int = 5, **more_settings: Any
) -> Record:
    """A record of Zork I whose score is this at every half million steps, in the first seed."""
    more = np.resize((0.0, 0.25, 0.5, 0.25, 0.0), seeds) if seeds == 5 else np.zeros(seeds)
    columns = {"score_average": np.add.outer(more, np.array(scores, float))}
    settings = {**condition.settings, "final": (0.0,) * seeds, "columns": columns}
    return made_record("zork1", **settings, **more_settings)
