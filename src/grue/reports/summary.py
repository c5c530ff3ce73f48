"""Labels that tell records apart, and the table of results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grue.experiments.conditions import describe, switches_of
from grue.experiments.records import Record
from grue.games.zmachine import zork
from grue.reports.picture import short_number
from grue.reports.statistics import Estimate, StepsToSolve, interquartile_mean, steps_to_solve
from grue.training.config import TrainConfig, all_settings

NOTHING = "–"
UNFINISHED = "unfinished"
MOST_SETTINGS = 3
"""The most settings in a label; further ones are only counted."""


@dataclass(frozen=True)
class Named:
    """A record with a label that is unique on its game."""

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
    """Labels records by agent and gate. Where these are the same on a game, the label adds the
    settings that differ, then the planned steps, then the file. Finished and unfinished seeds
    become separate records."""
    records = [part for record in records for part in _parts(record)]
    groups: dict[tuple[str, str], list[TrainConfig]] = {}
    for record in records:
        groups.setdefault((record.game, record.label), []).append(record.config)
    switches = {name for configs in groups.values() for name in switches_of(configs)}
    ordered = [name for name in all_settings() if name in switches]
    labels = [_short(describe(record.config, ordered)) for record in records]
    ended = {(r.game, label) for r, label in zip(records, labels, strict=True) if r.finished}
    labels = [
        label if record.finished or (record.game, label) not in ended else f"{label}, {UNFINISHED}"
        for record, label in zip(records, labels, strict=True)
    ]
    for tell in (_planned, _place):
        counts = _counts(records, labels)
        labels = [
            label if counts[record.game, label] == 1 else f"{label}, {tell(record)}"
            for record, label in zip(records, labels, strict=True)
        ]
    seen: Counter[tuple[str, str]] = Counter()
    entries = []
    for record, label in zip(records, labels, strict=True):
        seen[record.game, label] += 1
        number = seen[record.game, label]
        entries.append(Named(label if number == 1 else f"{label} ({number})", record))
    return tuple(entries)


def _parts(record: Record) -> list[Record]:
    ended = record.finished
    others = [seed for seed in record.seeds if seed not in ended]
    return [record.only(seeds) for seeds in (ended, others) if seeds]


def _short(label: str) -> str:
    """A label with at most three settings, to leave room in pictures."""
    parts = label.split(", ")
    if len(parts) <= MOST_SETTINGS + 1:
        return label
    return ", ".join([*parts[:MOST_SETTINGS], f"{len(parts) - MOST_SETTINGS} more settings"])


def _planned(record: Record) -> str:
    return f"{record.config.steps:,} steps"


def _place(record: Record) -> str:
    return "unsaved" if record.source is None else "/".join(record.source.parts[-2:])


def _counts(records: Sequence[Record], labels: Sequence[str]) -> Counter[tuple[str, str]]:
    return Counter(zip((record.game for record in records), labels, strict=True))


def games_of(entries: Sequence[Named]) -> list[str]:
    return sorted({entry.game for entry in entries})


def labels_of(entries: Sequence[Named]) -> list[str]:
    """In the order in which agents, gates and explorers are registered."""
    return list(dict.fromkeys(entry.label for entry in sorted(entries, key=_order)))


def _order(entry: Named) -> tuple:
    from grue.agents.catalogue import AGENTS, EXPLORERS, GATES

    config = entry.record.config
    parts = AGENTS.number(config.agent), GATES.number(config.gate), EXPLORERS.number(config.explore)
    return *parts, not config.look_every, not config.priority, entry.label


@dataclass(frozen=True)
class ResultRow:
    """The result of a condition on a game."""

    game: str
    label: str
    steps: int
    """The steps that all seeds have reached."""
    planned: int
    seeds: tuple[int, ...]
    """Those with a finished episode."""
    mean: float
    deviation: float
    iqm: Estimate
    first_win: StepsToSolve | None
    solved: StepsToSolve | None
    scores: np.ndarray
    """The final score of each seed; empty where the record has no scores."""

    @property
    def by_score(self) -> bool:
        return told_by_score(self.game)


COLUMNS = (
    *("game", "condition", "steps", "seeds", "fraction of subtasks", "IQM [95% interval]"),
    *("first win", "solved", "score"),
)


def table(entries: Sequence[Named]) -> tuple[ResultRow, ...]:
    rows = []
    for game in games_of(entries):
        for label in labels_of(entries):
            rows += [result_row(e) for e in entries if (e.game, e.label) == (game, label)]
    return tuple(row for row in rows if row is not None)


def result_row(entry: Named) -> ResultRow | None:
    record = entry.record
    known = np.isfinite(record.final)
    if not known.any():
        return None
    values = record.final[known]
    return ResultRow(
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
        scores=record.last("score_average")[known] if _has_score(record) else np.zeros(0),
    )


def _has_score(record: Record) -> bool:
    return "score_average" in record.columns


def cells(row: ResultRow) -> tuple[str, ...]:
    """The texts of a row, one for each of ``COLUMNS``."""
    whole = row.steps >= row.planned
    known = len(row.scores) > 0
    middle = interquartile_mean([row.scores]) if row.by_score and known else row.iqm
    digits = 1 if row.by_score else 3
    interval = f"{middle.value:.{digits}f} [{middle.low:.{digits}f}, {middle.high:.{digits}f}]"
    return (
        row.game,
        row.label,
        short_number(row.steps) if whole else f"{short_number(row.steps)} of {row.planned:,}",
        ", ".join(map(str, row.seeds)),
        NOTHING if row.by_score else _spread(row.mean, row.deviation, row.seeds, 3),
        interval if len(row.seeds) > 1 else NOTHING,
        spoken_steps(row.first_win),
        spoken_steps(row.solved),
        _spread(row.scores.mean(), row.scores.std(), row.seeds, 1) if known else NOTHING,
    )


def _spread(mean: float, deviation: float, seeds: Sequence[int], digits: int) -> str:
    """Mean ± deviation; one seed has no deviation."""
    return f"{mean:.{digits}f}" + (f" ± {deviation:.{digits}f}" if len(seeds) > 1 else "")


def told_by_score(game: str) -> bool:
    """Whether the score is the result: the only subtask is to win, and no agent wins."""
    return game == zork.NAME


def spoken_steps(steps: StepsToSolve | None) -> str:
    """ "120k (4 of 5)": the median, and how many seeds got there."""
    if steps is None:
        return NOTHING
    middle = "never" if steps.median is None else short_number(steps.median)
    return f"{middle} ({len(steps.reached)} of {steps.seeds})"
