"""Records: the metrics of one condition's runs, thinned to a small JSON file.

A record has at most ``MOST_ROWS`` rows: at the paper's scale each covers 5,000 steps. Numbers are
rounded to four digits when a record is made, so that its file holds exactly the same numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from grue.agents.catalogue import AGENTS, GATES
from grue.errors import BrokenFileError, NotRegisteredError, UsageError
from grue.experiments.conditions import Condition
from grue.experiments.thinning import first_solved, first_win, stacked, thin
from grue.files import Walk, read_plain, write_atomically
from grue.training.config import TrainConfig
from grue.training.metrics import columns_of, whole
from grue.training.runs import CONFIG, UNREADABLE, Curves, name_parts, read_run

FORMAT = 1
KIND = "grue record"
Steps = tuple[int | None, ...]


@dataclass(frozen=True)
class RecordedRun:
    """One seed of a record, in the form of a run."""

    config: TrainConfig
    seed: int
    metrics: Mapping[str, np.ndarray]
    folder: Path | None = None


@dataclass(frozen=True, eq=False)
class Record:
    """The thinned metrics of one condition on one game."""

    config: TrainConfig
    """The config, with the seeds of this record and without the path of a story file."""
    about: tuple[Mapping[str, Any], ...]
    """For each seed: commit, versions, device, command."""
    steps: np.ndarray
    """The last step of each row."""
    columns: Mapping[str, np.ndarray]
    """By name, seeds × rows; columns of lists are seeds × rows × parts. nan where there is no
    value, as after the last row of a seed that was trained less far than others."""
    first_solve: Steps | None = None
    """For each seed the step of the first row with a win. None where it was not recorded."""
    solved: Steps | None = None
    """For each seed the first step at which the level was solved. None: not recorded."""
    source: Path | None = None
    """The file or folder it was read from."""

    @property
    def game(self) -> str:
        return self.config.game

    @property
    def agent(self) -> str:
        return self.config.agent

    @property
    def gate(self) -> str:
        return self.config.gate

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.config.seeds

    @property
    def label(self) -> str:
        return Condition.of(self.config).label

    @property
    def story(self) -> str | None:
        """The hash of a story file: two releases of a story have the same name."""
        return self.about[0].get("game_hash") if "release" in self.about[0] else None

    @cached_property
    def reached(self) -> tuple[int, ...]:
        """The steps for which each seed has been trained, according to the rows."""
        known = np.zeros((len(self.seeds), len(self.steps)), bool)
        for column in self.columns.values():
            there = np.isfinite(column)
            known |= there.any(2) if there.ndim == 3 else there
        ends = np.append(self.steps, 0)[[np.append(np.flatnonzero(k), -1).max() for k in known]]
        return tuple(ends.tolist())

    @property
    def final(self) -> np.ndarray:
        """For each seed the last moving average of the fraction of subtasks."""
        return self.last("fraction_average")

    def last(self, name: str) -> np.ndarray:
        """For each seed the last value of a column; nan where there is none."""
        known = (row[np.isfinite(row)] for row in self.columns[name])
        return np.array([row[-1] if len(row) else np.nan for row in known], float)

    @property
    def finished(self) -> tuple[int, ...]:
        """The seeds that were trained to the end."""
        pairs = zip(self.seeds, self.reached, strict=True)
        return tuple(seed for seed, reached in pairs if reached >= self.config.steps)

    def only(self, seeds: Iterable[int]) -> Record:
        """The record of some of its seeds, in their order."""
        chosen = [self.seeds.index(seed) for seed in seeds]

        def pick(values: Sequence[Any]) -> tuple:
            return tuple(values[i] for i in chosen)

        return replace(
            self,
            config=replace(self.config, seeds=pick(self.seeds)),
            about=pick(self.about),
            columns={name: column[chosen] for name, column in self.columns.items()},
            first_solve=None if self.first_solve is None else pick(self.first_solve),
            solved=None if self.solved is None else pick(self.solved),
        )

    def runs(self) -> list[RecordedRun]:
        """A run for each seed."""
        return [
            RecordedRun(
                self.config.of_seed(seed),
                seed,
                {"step": self.steps} | {name: c[i] for name, c in self.columns.items()},
                self.source,
            )
            for i, seed in enumerate(self.seeds)
        ]


# From runs


def record_of(runs: Sequence[Curves]) -> Record:
    """The record of one condition's runs, which differ only in their seed."""
    ordered = sorted(runs, key=lambda run: run.seed)
    seeds = tuple(run.seed for run in ordered)
    config = replace(ordered[0].config, seeds=seeds, story=None)
    for run in ordered:
        check_same(config, run.config, "a record is of one condition, and these runs differ")
    thinned = [thin(run.config, run.metrics) for run in ordered]
    longest = max((steps for steps, _ in thinned), key=len)
    return Record(
        config=config,
        about=tuple(getattr(run, "about", {}) for run in ordered),
        steps=longest,
        columns=_stacked([columns for _, columns in thinned], len(longest)),
        first_solve=tuple(first_win(run.metrics) for run in ordered),
        solved=tuple(first_solved(run.metrics) for run in ordered),
        source=getattr(ordered[0], "folder", None),
    )


def _stacked(columns: Sequence[Mapping[str, np.ndarray]], rows: int) -> dict[str, np.ndarray]:
    return {name: stacked([of_seed[name] for of_seed in columns], rows) for name in columns[0]}


def check_same(one: TrainConfig, other: TrainConfig, otherwise: str) -> None:
    """Refuses two configs that differ in more than the seeds and the path of the story file."""
    ours, theirs = one.flat(), other.flat()
    for name in {**ours, **theirs}:
        first, second = ours.get(name), theirs.get(name)
        if name not in ("seeds", "story") and first != second:
            raise UsageError(f"{otherwise} ({name} is {first} and {second})")


# Several records


def merged(records: Iterable[Record]) -> list[Record]:
    """One record for each condition, with every seed once: the run that was trained longest.

    Records of one condition with other rows or another story are kept apart.
    """
    best: dict[tuple[TrainConfig, str | None, int], Record] = {}
    for record in records:
        condition = replace(record.config, seeds=(0,))
        for seed, reached in zip(record.seeds, record.reached, strict=True):
            one = record.only([seed])
            key = (condition, one.story, seed)
            if reached and (key not in best or reached > best[key].reached[0]):
                best[key] = one
    alike: dict[tuple, list[Record]] = {}
    for (condition, story, _), one in best.items():
        names = tuple(sorted(one.columns))
        kind = (condition, story, int(one.steps[0]), names, one.solved is None)
        alike.setdefault(kind, []).append(one)
    return sorted(map(_joined, alike.values()), key=_order)


def _joined(records: Sequence[Record]) -> Record:
    """Joins records of one seed each; some may have fewer rows than others."""
    ordered = sorted(records, key=lambda record: record.seeds)
    first = ordered[0]
    longest = max((record.steps for record in ordered), key=len)
    return Record(
        config=replace(first.config, seeds=tuple(record.seeds[0] for record in ordered)),
        about=tuple(record.about[0] for record in ordered),
        steps=longest,
        columns=_stacked(
            [{name: c[0] for name, c in record.columns.items()} for record in ordered],
            len(longest),
        ),
        first_solve=_of_all([record.first_solve for record in ordered]),
        solved=_of_all([record.solved for record in ordered]),
        source=first.source,
    )


def _of_all(parts: Sequence[Steps | None]) -> Steps | None:
    found = [part[0] for part in parts if part is not None]
    return tuple(found) if len(found) == len(parts) else None


def _order(record: Record) -> tuple:
    config = record.config
    place = config.game, AGENTS.number(config.agent), GATES.number(config.gate)
    return *place, not config.look_every, not config.priority, record.seeds


# Files


def record_path(config: TrainConfig, folder: Path) -> Path:
    game, condition, switches = name_parts(config)
    return folder / game / f"{condition}{switches}.json"


def write_record(record: Record, folder: Path) -> Path:
    """Writes a record to its path in a folder, atomically."""
    path = record_path(record.config, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = laid_out(_to_json(record), 3) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
    return path


def _to_json(record: Record) -> dict[str, Any]:
    return {
        "kind": KIND,
        "format": FORMAT,
        "config": record.config.to_json(),
        "about": [dict(about) for about in record.about],
        "steps": record.steps.tolist(),
        "columns": {
            name: _seed_rows(c, name in whole(record.config)) for name, c in record.columns.items()
        },
        "first_solve": record.first_solve,
        "solved": record.solved,
    }


def _seed_rows(column: np.ndarray, is_count: bool) -> list:
    """A list for each seed, or a single one if all seeds have the same."""
    same = all(np.array_equal(column[0], row, equal_nan=True) for row in column[1:])
    return [_plain(row, is_count) for row in (column[:1] if same else column)]


def _plain(values: np.ndarray, is_count: bool) -> list:
    if values.ndim > 1:
        return [_plain(row, is_count) for row in values]
    kind = int if is_count else float
    return [kind(value) if math.isfinite(value) else None for value in values]


def laid_out(value: Any, levels: int) -> str:
    """JSON with a line for each entry of the first levels; deeper entries stay on one line."""
    if levels and isinstance(value, dict) and value:
        parts = [f"{json.dumps(k)}: {laid_out(value[k], levels - 1)}" for k in sorted(value)]
        return "{\n" + ",\n".join(parts) + "}"
    if levels and isinstance(value, list) and value and isinstance(value[0], list | dict):
        return "[\n" + ",\n".join(laid_out(part, levels - 1) for part in value) + "]"
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def read_records(paths: Iterable[Path | str]) -> list[Record]:
    """The records of run folders, record files, or folders that hold any of them at any depth.

    There is one for each condition."""
    found: list[Record] = []
    for path in map(Path, paths):
        if not path.exists():
            raise UsageError(f"{path} does not exist: give run folders, records or their folders")
        inside = records_in(path)
        if not inside:
            raise UsageError(
                f"{path} holds no record and no run with a row of metrics: "
                "grue train and grue reproduce make them"
            )
        found += inside
    return merged(found)


def records_in(path: Path, walk: Walk | None = None) -> list[Record]:
    """The records in a file or folder; a folder may hold none."""
    if path.exists() and not path.is_dir():
        values = _load(path)
        if not _is_record(values):
            raise UsageError(f"{path} is not a record; grue reproduce writes records")
        return [_from_json(values, path)]
    if (path / CONFIG).is_file():
        return merged([record_of([read_run(path)])])
    found: list[Record] = []
    walk = Walk(path) if walk is None else walk
    for inner in walk.inside(path):
        if inner.is_dir():
            found += records_in(inner, walk)
        elif inner.suffix == ".json" and _is_record(values := _load(inner)):
            found.append(_from_json(values, inner))
    return merged(found)


def _load(path: Path) -> Any:
    try:
        return json.loads(read_plain(path))
    except (ValueError, RecursionError) as error:
        raise BrokenFileError(
            f"{path} cannot be read as JSON ({error}); restore it, or move it out of the folder"
        ) from None


def _is_record(values: Any) -> bool:
    return isinstance(values, dict) and values.get("kind") == KIND


def _from_json(values: Mapping[str, Any], path: Path) -> Record:
    try:
        if values["format"] != FORMAT:
            raise ValueError(f"it has format {values['format']}, this grue reads {FORMAT}")
        config = TrainConfig.from_json(values["config"])
        shape = len(config.seeds), len(values["steps"])
        record = Record(
            config=config,
            about=tuple(_facts(about) for about in values["about"]),
            steps=np.array(values["steps"], np.int64),
            columns={n: _read(n, c, shape, config) for n, c in values["columns"].items()},
            first_solve=_read_steps(values["first_solve"]),
            solved=_read_steps(values["solved"]),
            source=path,
        )
        _check(record)
    except NotRegisteredError as error:
        raise NotRegisteredError(f"{path}: {error}") from None
    except UNREADABLE as error:
        raise BrokenFileError(
            f"{path} is damaged or of another version ({error}); restore it, or delete it and "
            "train again"
        ) from None
    return record


def _facts(about: Any) -> dict[str, Any]:
    if not isinstance(about.get("game_hash", ""), str):
        raise ValueError("game_hash is not a text")
    return dict(about)


def _read(
    name: str, rows: Sequence[Any], shape: tuple[int, int], config: TrainConfig
) -> np.ndarray:
    column = np.array(rows, float)
    if len(column) == 1:
        column = np.repeat(column, shape[0], 0)
    parts = {metric.name: metric.parts for metric in columns_of(config)}
    wanted = 3 if parts.get(name) else 2
    if name not in parts or column.shape[:2] != shape or column.ndim != wanted:
        raise ValueError(f"{name} is not a column of {shape[0]} seeds and {shape[1]} rows")
    return column


def _read_steps(values: Sequence[int | None] | None) -> Steps | None:
    if values is None:
        return None
    return tuple(None if value is None else int(value) for value in values)


def _check(record: Record) -> None:
    if not len(record.steps) or (np.diff(record.steps) <= 0).any() or record.steps[0] <= 0:
        raise ValueError("its steps do not grow")
    if "fraction_average" not in record.columns:
        raise ValueError("fraction_average is missing")
    for name in ("about", "solved", "first_solve"):
        values = getattr(record, name)
        if values is not None and len(values) != len(record.seeds):
            raise ValueError(f"{name} has {len(values)} entries for {len(record.seeds)} seeds")
