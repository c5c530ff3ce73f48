"""Run folders.

NAME/config.json     all settings; "about" has the commit, versions and device
NAME/metrics.jsonl   one row for every ``metrics_every`` steps
NAME/events.*        the same for TensorBoard
NAME/checkpoint/     the last two checkpoints
NAME/kept/           the agent at some steps, to look at later; not for resuming
NAME/splits.jsonl    for a run on a folder of games: its scores on them and on unseen games
NAME/best/           the agent that played best on the validation games
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from grue.agents.agent import Agent, AgentState, RunParameters
from grue.engine.environment import Environment
from grue.errors import (
    BrokenFileError,
    BusyError,
    NoCheckpointError,
    NotRegisteredError,
    UsageError,
)
from grue.files import PARTIAL, Walk, read_plain, sync_folder, write_atomically
from grue.games.gamefile import SUFFIX
from grue.training import checkpoint, metrics
from grue.training.algorithm import PartOfRow, Run
from grue.training.config import TrainConfig
from grue.training.events import Events
from grue.training.metrics import MetricsRow
from grue.training.programs import Built, build, noted_explorers, parameters_of
from grue.training.rowfile import UNREADABLE, RowFile, read_lines
from grue.training.sets import is_set
from grue.training.splits import (
    SPLITS_FILE,
    SplitRow,
    best_step,
    check_split_rows,
    read_split_rows,
)

CONFIG, METRICS, CHECKPOINT, KEPT = "config.json", "metrics.jsonl", "checkpoint", "kept"
BEST = "best"
PLACES = (CHECKPOINT, KEPT, BEST)
"""Folders with agents. Only those in the first contain a replay memory."""


def run_name(config: TrainConfig) -> str:
    game, condition, switches = name_parts(config)
    return f"{game}-{condition}-seed{config.seeds[0]}{switches}"


def name_parts(config: TrainConfig) -> tuple[str, str, str]:
    """The parts of a run's name: game, condition and switches."""
    path = Path(config.game)
    game = path.stem
    if is_set(config) or path.name.endswith(SUFFIX):
        game = path.name.removesuffix(SUFFIX)
    explore = "" if config.explore == "none" else f"-{config.explore}"
    priority = "" if config.priority else "-no-priority"
    look = "" if config.look_every else "-no-look"
    return game, f"{config.agent}-{config.gate}{explore}", priority + look


# Reading


@dataclass(frozen=True)
class Curves:
    """The metrics of a run."""

    config: TrainConfig
    seed: int
    metrics: Mapping[str, np.ndarray]
    """Arrays by column, with nan for null."""

    def curve(self, name: str = "fraction") -> tuple[np.ndarray, np.ndarray]:
        """The steps, and the moving average of a column over ``average_over`` steps."""
        return metrics.moving_average(self.metrics, name, self.config)

    @property
    def final(self) -> dict[str, float]:
        """The last moving averages; nan if there is no row."""
        curves = {name: self.curve(name)[1] for name in metrics.averaged(self.config)}
        return {name: float(curve[-1]) if len(curve) else np.nan for name, curve in curves.items()}


@dataclass(frozen=True)
class StoredRun(Curves):
    folder: Path
    about: Mapping[str, Any]


def read_runs(paths: Iterable[Path | str]) -> list[StoredRun]:
    """Reads run folders, and all run folders below other folders."""
    found: list[StoredRun] = []
    for path in map(Path, paths):
        found += map(read_run, some_run_folders(path))
    return found


def some_run_folders(path: Path) -> list[Path]:
    """As ``run_folders``, but it is an error if there is none."""
    folders = run_folders(path)
    if not folders:
        raise UsageError(
            f"{path} is no run folder and holds none: a run folder has a {CONFIG}, "
            "and grue train makes it"
        )
    return folders


def read_run(folder: Path) -> StoredRun:
    config, about = read_config(folder)
    table = metrics.columns(read_rows(folder), config)
    return StoredRun(config, config.seeds[0], table, folder, about)


def is_finished(folder: Path, steps: int) -> bool:
    """Whether a run has all its rows and its last checkpoint."""
    saved = checkpoint.saved_steps(folder / CHECKPOINT)
    if not saved or saved[-1] < steps:
        return False
    return _has_all_rows(folder, steps)


def stored_steps(folder: Path) -> list[int]:
    """The steps whose agent can be loaded, oldest first: checkpoints and what was kept."""
    return sorted({step for name in PLACES for step in checkpoint.saved_steps(folder / name)})


def best_stored(folder: Path) -> int:
    """The step at which a run played best on its validation games."""
    best = best_step(read_split_rows(folder, read_config(folder)[0]))
    if best is None:
        raise UsageError(
            f"{folder} has no best step: it was trained without --valid, or has not reached its "
            "first validation; leave --best out"
        )
    return best


def load_state(
    folder: Path | str, step: int | Literal["best"] | None = None
) -> tuple[Environment, Agent, AgentState, RunParameters, int]:
    """Environment, agent, its state and the run's parameters at a step, by default the latest.

    The step "best" is that of the best play on the validation games.
    """
    folder = Path(folder)
    config, about = read_config(folder)
    steps = stored_steps(folder)
    if not steps:
        raise NoCheckpointError(f"{folder} has no checkpoint yet; train it first")
    at = best_stored(folder) if step == "best" else steps[-1] if step is None else step
    if at not in steps:
        listed = ", ".join(map(str, steps))
        raise UsageError(f"{folder} has no checkpoint of step {at}; there are {listed}")
    paths = [checkpoint.path_of(folder / name, at) for name in PLACES]
    path = next(path for path in paths if path.exists())
    notes = checkpoint.read_header(path)
    explorers = noted_explorers(notes)
    built = build(config, notes["heads"], False, explorers)
    if about.get("train_hash", built.env.digest) != built.env.digest:
        raise UsageError(
            f"the games of {config.game} have changed since {folder} was trained on them; put them "
            "back as they were"
        )
    parameters = parameters_of(config, explorers)
    template = saved_form(built, config, at, jnp.int32(0), parameters)
    run = jax.tree.map(jnp.array, checkpoint.load(path, template))
    run = checkpoint.with_keys(run, template)
    # Not the stored parameters: a custom gate's number depends on what else is registered.
    return built.env, built.agent, run.agent, parameters, at


def saved_form(
    built: Built, config: TrainConfig, step: int, seeds: Any, parameters: RunParameters
) -> Run | PartOfRow:
    """The shapes of the checkpoint of a step. Within a row, it also has the row's sums."""
    run: Run = jax.eval_shape(built.program.init, seeds, parameters)
    if step % config.metrics_every == 0:
        return run
    return PartOfRow(**run._asdict(), sums=jax.eval_shape(built.program.no_sums, run))


def read_config(folder: Path) -> tuple[TrainConfig, dict[str, Any]]:
    path = folder / CONFIG
    try:
        values = json.loads(read_plain(path))
        about = values.pop("about")
        if not isinstance(about, dict):
            raise ValueError("'about' is not an object")
        if not all(isinstance(one, dict) for one in about.get("resumed", [])):
            raise ValueError("'resumed' is not a list of objects")
        config = TrainConfig.from_json(values)
    except FileNotFoundError:
        raise UsageError(f"{folder} is no run folder: it has no {CONFIG}") from None
    except NotRegisteredError as error:
        raise NotRegisteredError(f"{path}: {error}") from None
    except UNREADABLE as error:
        raise BrokenFileError(
            f"{path} is damaged, or not the settings of a run of this grue ({error}); "
            "use another folder"
        ) from None
    return config, about


def read_rows(folder: Path, until: int | None = None) -> list[MetricsRow]:
    """The rows of metrics, up to a step. An unfinished last line is left out."""
    if not (folder / METRICS).exists():
        return []
    config = read_config(folder)[0]
    return read_lines(folder / METRICS, lambda row, n: metrics.fault(row, config, n), until)


def check_rows(folder: Path, config: TrainConfig, steps: Sequence[int], step: int) -> None:
    """The rows must reach the step of the checkpoint; its unfinished row does not count."""
    last = steps[-1] if steps else 0
    if last != step - step % config.metrics_every:
        raise BrokenFileError(
            f"{folder / METRICS} ends at step {last}, before the checkpoint of step {step}; "
            "train into another folder"
        )


def run_folders(path: Path, walk: Walk | None = None) -> list[Path]:
    """The folder if it is a run folder, else those below it."""
    if (path / CONFIG).is_file():
        return [path]
    walk = Walk(path) if walk is None else walk
    return [folder for each in walk.inside(path) for folder in run_folders(each, walk)]


# Writing


def create(folder: Path, config: TrainConfig, about: Mapping[str, Any]) -> None:
    """Creates a run folder atomically."""
    if folder.exists():
        raise UsageError(
            f"{folder} exists: another process has just created it; use --resume to go on with "
            "it, or another --out"
        )
    scratch = folder.with_name(f".{folder.name}{PARTIAL}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        (scratch / CHECKPOINT).mkdir(parents=True)
        write_config(scratch, config, about)
        scratch.rename(folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    sync_folder(folder.parent)


def write_config(folder: Path, config: TrainConfig, about: Mapping[str, Any]) -> None:
    text = json.dumps({**config.to_json(), "about": about}, indent=2) + "\n"
    write_atomically(folder / CONFIG, lambda file: file.write(text.encode()))


def check_same(folder: Path, config: TrainConfig, game_hash: str) -> None:
    """Resumed runs keep their settings. Only ``steps`` may grow, and the story file may move."""
    stored, about = read_config(folder)
    if about.get("game_hash", game_hash) != game_hash:
        raise UsageError(
            f"{folder} was trained on another {_games(config)}: its files have changed since; "
            "train into another --out"
        )
    before, after = {**stored.flat(), "story": config.story}, config.flat()
    if config.steps >= stored.steps:
        before["steps"] = config.steps
    for name in {**before, **after}:
        was, now = before.get(name), after.get(name)
        if was != now:
            least = "; it may only grow" if name == "steps" else ""
            raise UsageError(
                f"{folder} was trained with {name} {was}, not {now}{least}; "
                "go on with the old value or train into another --out"
            )


def _games(config: TrainConfig) -> str:
    """The game, or the folders of games, of a config: for error messages."""
    return " or ".join(filter(None, (config.game, config.valid, config.test)))


class RunFolder:
    """A run folder, locked against other processes: first read, then written."""

    def __init__(self, path: Path, step: int, check: Callable[[], object] | None = None) -> None:
        """Reads the rows up to a step; changes nothing. ``check`` runs under the lock."""
        self.path, self.step = path, step
        self.checkpoints = path / CHECKPOINT
        self._metrics: RowFile | None = None
        self._splits: RowFile | None = None
        self._events: Events | None = None
        self._lock = _locked(path)
        try:
            if check is not None:
                check()
            for name in PLACES:
                checkpoint.saved_steps(path / name)
            self.rows: list[MetricsRow] = read_rows(path, step)
            config = read_config(path)[0]
            self._had_ended = step == 0 and _has_all_rows(path, config.steps)
            check_rows(path, config, [row["step"] for row in self.rows], step)
            self.has_splits = is_set(config)
            self.split_rows = read_split_rows(path, config, step)
            if self.has_splits:
                check_split_rows(path, config, self.split_rows, step)
        except BaseException:
            os.close(self._lock)
            raise

    def begin(self) -> RunFolder:
        """Deletes the rows and checkpoints after the step, and opens the metrics for writing."""
        if self._had_ended:
            self._keep_finished_rows()
        self.checkpoints.mkdir(exist_ok=True)
        checkpoint.remove_partial(self.path)
        checkpoint.remove_partial(self.checkpoints)
        # Checkpoints first: without its rows a checkpoint cannot be resumed.
        for place in (self.path / name for name in PLACES):
            saved = checkpoint.saved_steps(place)
            checkpoint.remove(place, [at for at in saved if at > self.step])
        self._metrics = RowFile(self.path / METRICS, self.rows)
        if self.has_splits:
            self._splits = RowFile(self.path / SPLITS_FILE, self.split_rows)
        return self

    def _keep_finished_rows(self) -> None:
        """Keeps a copy of the metrics of a finished run whose checkpoints were deleted."""
        for name in (METRICS, SPLITS_FILE):
            if (self.path / name).exists():
                shutil.copyfile(self.path / name, self.path / f"{name}.old")

    def write_events(self) -> None:
        """Starts to write TensorBoard events."""
        self._events = Events(self.path, self.rows)

    def write(self, row: MetricsRow) -> None:
        assert self._metrics is not None
        self._metrics.add(row)
        if self._events is not None:
            self._events.add(row)

    def write_split(self, row: SplitRow) -> None:
        assert self._splits is not None
        self.split_rows.append(row)
        self._splits.add(row)

    def save(self, step: int, tree: Any, notes: Mapping[str, Any]) -> None:
        """Writes a checkpoint, after the rows that belong to it."""
        for file in (self._metrics, self._splits):
            if file is not None:
                file.sync()
        if self._events is not None:
            self._events.flush()
        checkpoint.save(self.checkpoints, step, tree, notes)

    def keep(self, step: int, tree: Any, notes: Mapping[str, Any], place: str = KEPT) -> None:
        """Keeps the agent. Its replay memory is empty, and its zeros take no space."""
        (self.path / place).mkdir(exist_ok=True)
        checkpoint.save(self.path / place, step, tree, notes)

    def prune(self) -> None:
        """Removes all checkpoints except the last ones, and all agents in ``best`` except the best.

        Only after a checkpoint: a run that goes on from an earlier one may need an earlier best.
        """
        saved = checkpoint.saved_steps(self.checkpoints)
        checkpoint.remove(self.checkpoints, saved[: -checkpoint.KEPT])
        best, place = best_step(self.split_rows), self.path / BEST
        checkpoint.remove(place, [at for at in checkpoint.saved_steps(place) if at != best])

    def close(self) -> None:
        for file in (self._metrics, self._splits):
            if file is not None:
                file.close()
        if self._events is not None:
            self._events.close()
        os.close(self._lock)


def _has_all_rows(folder: Path, steps: int) -> bool:
    rows = read_rows(folder)
    return bool(rows) and rows[-1]["step"] >= steps


def _locked(folder: Path) -> int:
    """Locks a folder until the handle is closed."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Some network file systems cannot lock.
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            os.close(handle)
            why = f"another process is training in {folder}; wait for it or stop it"
            raise BusyError(why) from None
    return handle
