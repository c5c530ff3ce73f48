"""Trains the runs that a figure needs and that are missing; interrupted runs continue.

OUT/runs/NAME          a run folder for each run, shared by all figures
OUT/records/GAME/...   the record of every condition, of its finished runs
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grue.errors import GrueError, StoppedError, UsageError
from grue.experiments.conductor import told_failures
from grue.experiments.records import (
    Record,
    check_same,
    merged,
    read_records,
    record_of,
    record_path,
    records_in,
    write_record,
)
from grue.experiments.scales import stage_of
from grue.experiments.study import PlannedStudy, Where, tell_failures
from grue.experiments.wishes import Wish, finished, missing, tell_missing
from grue.files import check_out
from grue.training.config import TrainConfig
from grue.training.programs import game_of, resolved
from grue.training.runs import METRICS, read_run, run_name
from grue.training.train import CHECKPOINT_SECONDS, Progress

GO_ON = "the same command goes on"


@dataclass(frozen=True)
class Places:
    """The folders of runs and records."""

    out: Path
    data: tuple[Path, ...] = ()
    """Further folders or files, which are only read."""

    def __post_init__(self) -> None:
        check_out(self.out)

    @property
    def runs(self) -> Path:
        return self.out / "runs"

    @property
    def records(self) -> Path:
        return self.out / "records"

    def read(self) -> list[Record]:
        """All records. A path of ``data`` must exist."""
        found = read_records(self.data)
        return merged([*found, *records_in(self.records), *records_in(self.runs)])


def run_missing(
    wish: Wish,
    places: Places,
    progress: Progress,
    jobs: int | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    where: Where | None = None,
) -> list[Record]:
    """Trains the missing runs and returns all records.

    ``where``: the machines and the time limit; by default ``jobs`` processes on this machine.
    """
    configs = wish.configs()
    records = places.read()
    wanted = missing(records, configs)
    count = sum(len(config.seeds) for config in configs)
    to_do = sum(len(config.seeds) for config in wanted)
    keep_records(wish, configs, places)
    progress.say(f"{count} runs: {count - to_do} are done, {to_do} to go")
    if not wanted:
        return records
    _check_story(records, wanted)
    if where is None:
        where = Where(jobs=jobs, checkpoint_seconds=checkpoint_seconds)
    study = study_of(wish, places, wanted, where, progress)
    outcome = study.carry_out()
    in_time = study.until is not None and time.time() >= study.until
    if outcome.stopped and not in_time:
        at = "" if outcome.at is None else f" at step {outcome.at[0]} of {outcome.at[1]}"
        raise StoppedError(f"interrupted{at}; {GO_ON}")
    keep_records(wish, wanted, places)
    records = places.read()
    left = missing(records, wanted)
    if outcome.failures:
        tell_failures(outcome.failures, progress)
        raise GrueError(f"{told_failures(outcome, to_do)}; {GO_ON}")
    if study.until is not None:
        progress.say(f"left: {tell_missing(left, wish.all_seeds) or 'nothing'}")
    elif left:
        raise GrueError(f"{run_name(left[0])} was not trained to its end; {GO_ON}")
    return records


def study_of(
    wish: Wish,
    places: Places,
    wanted: Sequence[TrainConfig],
    where: Where,
    progress: Progress,
) -> PlannedStudy:
    """The study of some runs of a request, in the declared order."""
    shared = wish.scale.one_program
    return PlannedStudy(wanted, places.runs, places.out, where, progress, shared, stage=stage_of)


def _check_story(records: Sequence[Record], wanted: Sequence[TrainConfig]) -> None:
    """Refuses to mix runs of two releases of a story in one figure."""
    games = {config.game: config for config in wanted}
    for record in records:
        config = games.get(record.game)
        if config is None or record.story is None:
            continue
        if record.story != game_of(resolved(config)).digest:
            raise UsageError(
                f"{record.source} has runs of another release of {record.game}; "
                "give another --out, and other --data"
            )


def keep_records(wish: Wish, configs: Iterable[TrainConfig], places: Places) -> list[Path]:
    """Writes the records of finished runs and returns the paths of those that have changed."""
    written = []
    for config in configs:
        runs = [_record_of_run(wish, config.of_seed(seed), places) for seed in config.seeds]
        new = finished(merged(run for run in runs if run is not None), config)
        if new is None:
            continue
        path = record_path(config, places.records)
        old = records_in(path) if path.exists() else []
        for record in old:
            check_same(
                record.config, config, f"{path} has runs with other settings; give another --out"
            )
            if record.story != new.story:
                raise UsageError(
                    f"{path} is of another release of {config.game}; give another --out"
                )
        if missing(old, [new.config]):
            both = merged([*old, new])
            seeds = sorted({seed for record in both for seed in record.seeds})
            kept = finished(both, replace(config, seeds=tuple(seeds)))
            assert kept is not None
            written.append(write_record(kept, places.records))
    return written


def _record_of_run(wish: Wish, config: TrainConfig, places: Places) -> Record | None:
    """The record of one run, or None if it has not begun."""
    folder = places.runs / run_name(config)
    if not (folder / METRICS).exists():
        return None
    record = record_of([read_run(folder)])
    return replace(record, about=({**record.about[0], "command": wish.command(config)},))
