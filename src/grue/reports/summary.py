"""Records side by side: what to call them, and the table of what they came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grue.experiments.records import Record
from grue.reports.curves import describe, switches_of
from grue.reports.picture import short_number
from grue.reports.statistics import Estimate, StepsToSolve, interquartile_mean, steps_to_solve

NOTHING = "–"


@dataclass(frozen=True)
class Named:
    """A record, and a label that no other record of its game has."""

    label: str
    record: Record

    @property
    def game(self) -> str:
        return self.record.game

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.record.seeds

    @property
    def final(self) -> np.ndarray:
        return self.record.final


def named(records: Sequence[Record]) -> tuple[Named, ...]:
    """Labels tell agent, gate and the settings in which records differ; then how many steps they
    were to be trained, and at last where they were read."""
    switches = switches_of([record.config for record in records])
    labels = [describe(record.config, switches) for record in records]
    further = (
        lambda record: f"{record.config.steps:,} steps",
        lambda record: str(record.source),
    )
    for tell in further:
        counts = Counter(zip((record.game for record in records), labels, strict=True))
        labels = [
            label if counts[record.game, label] == 1 else f"{label}, {tell(record)}"
            for record, label in zip(records, labels, strict=True)
        ]
    return tuple(Named(label, record) for label, record in zip(labels, records, strict=True))


def games_of(entries: Sequence[Named]) -> list[str]:
    return sorted({entry.game for entry in entries})


def labels_of(entries: Sequence[Named]) -> list[str]:
    """In the order of the records: agents and gates as they are listed."""
    return list(dict.fromkeys(entry.label for entry in sorted(entries, key=_order)))


def _order(entry: Named) -> tuple:
    from grue.agents.gating import gate_number
    from grue.agents.registry import AGENTS

    config = entry.record.config
    return list(AGENTS).index(config.agent), gate_number(config.gate), entry.label


@dataclass(frozen=True)
class Row:
    """What a condition came to on a game."""

    game: str
    label: str
    steps: int
    """As far as all seeds have come."""
    planned: int
    seeds: tuple[int, ...]
    """Those that have finished an episode."""
    mean: float
    deviation: float
    iqm: Estimate
    first_win: StepsToSolve | None
    solved: StepsToSolve | None


COLUMNS = (
    *("game", "condition", "steps", "seeds", "fraction of subtasks", "IQM [95% interval]"),
    *("first win", "solved"),
)


def table(entries: Sequence[Named]) -> tuple[Row, ...]:
    rows = []
    for game in games_of(entries):
        for label in labels_of(entries):
            rows += [_row(e) for e in entries if (e.game, e.label) == (game, label)]
    return tuple(row for row in rows if row is not None)


def _row(entry: Named) -> Row | None:
    record = entry.record
    known = np.isfinite(record.final)
    if not known.any():
        return None
    values = record.final[known]
    return Row(
        game=record.game,
        label=entry.label,
        steps=min(record.reached),
        planned=record.config.steps,
        seeds=tuple(seed for seed, is_known in zip(record.seeds, known, strict=True) if is_known),
        mean=float(values.mean()),
        deviation=float(values.std()),
        iqm=interquartile_mean([values]),
        first_win=None if record.first_solve is None else steps_to_solve(record.first_solve),
        solved=None if record.solved is None else steps_to_solve(record.solved),
    )


def cells(row: Row) -> tuple[str, ...]:
    """A row as texts, one for each of ``COLUMNS``."""
    whole = row.steps >= row.planned
    return (
        row.game,
        row.label,
        short_number(row.steps) if whole else f"{short_number(row.steps)} of {row.planned:,}",
        ", ".join(map(str, row.seeds)),
        f"{row.mean:.3f} ± {row.deviation:.3f}",
        str(row.iqm),
        spoken_steps(row.first_win),
        spoken_steps(row.solved),
    )


def spoken_steps(steps: StepsToSolve | None) -> str:
    """ "120k (4 of 5)": the median, and how many seeds came to it at all."""
    if steps is None:
        return NOTHING
    middle = "never" if steps.median is None else short_number(steps.median)
    return f"{middle} ({len(steps.reached)} of {steps.seeds})"
