"""Run folders.

NAME/config.json     all settings; "about" has the commit, versions and device
NAME/metrics.jsonl   one row for every ``metrics_every`` steps
NAME/events.*        the same for TensorBoard
NAME/checkpoint/     the last two checkpoints
NAME/kept/           what the agent had learned at some steps, for looking back; not for resuming
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import jax
import jax.numpy as jnp
import numpy as np

from grue.agents.agent import Agent, AgentState, RunParameters
from grue.agents.replay import EpisodicReplay
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

CONFIG, METRICS, CHECKPOINT, KEPT = "config.json", "metrics.jsonl", "checkpoint", "kept"
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""Exceptions from reading a file with unexpected content."""


def run_name(config: TrainConfig) -> str:
    game, condition, switches = name_parts(config)
    return f"{game}-{condition}-seed{config.seeds[0]}{switches}"


def name_parts(config: TrainConfig) -> tuple[str, str, str]:
    """The parts of a run's name: game, condition and switches."""
    path = Path(config.game)
    game = path.name.removesuffix(SUFFIX) if path.name.endswith(SUFFIX) else path.stem
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
    rows = read_rows(folder)
    return bool(rows) and rows[-1]["step"] >= steps


def stored_steps(folder: Path) -> list[int]:
    """The steps whose agent can be loaded, oldest first: checkpoints and what was kept."""
    places = (folder / CHECKPOINT, folder / KEPT)
    return sorted({step for place in places for step in checkpoint.saved_steps(place)})


def load_state(
    folder: Path | str, step: int | None = None
) -> tuple[Environment, Agent, AgentState, RunParameters, int]:
    """Environment, agent, its state and the run's parameters at a step, by default the latest."""
    folder = Path(folder)
    config, _ = read_config(folder)
    steps = stored_steps(folder)
    if not steps:
        raise NoCheckpointError(f"{folder} has no checkpoint yet; train it first")
    at = steps[-1] if step is None else step
    if at not in steps:
        listed = ", ".join(map(str, steps))
        raise UsageError(f"{folder} has no checkpoint of step {at}; there are {listed}")
    path = checkpoint.path_of(folder / CHECKPOINT, at)
    path = path if path.exists() else checkpoint.path_of(folder / KEPT, at)
    notes = checkpoint.read_header(path)
    explorers = noted_explorers(notes)
    built = build(config, notes["heads"], False, explorers)
    parameters = parameters_of(config, explorers)
    template = saved_form(built, config, at, jnp.int32(0), parameters)
    run = jax.tree.map(jnp.array, checkpoint.load(path, template))
    run = checkpoint.with_keys(run, template)
    # Not the stored parameters: a custom gate's number depends on what else is registered.
    return built.env, built.agent, run.agent, parameters, at


def saved_form(
    built: Built, config: TrainConfig, step: int, seeds: Any, parameters: RunParameters
) -> Run | PartOfRow:
    """The shapes of the checkpoint of a step: within a row it has the row's sums too."""
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
            f"{path} is damaged or of another grue ({error}); train into another folder"
        ) from None
    return config, about


def read_rows(folder: Path, until: int | None = None) -> list[MetricsRow]:
    """The rows of metrics, up to a step. An unfinished last line is left out."""
    path = folder / METRICS
    try:
        lines = read_plain(path).split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    config = read_config(folder)[0]
    rows: list[MetricsRow] = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            fault = metrics.fault(row, config, number)
        except UNREADABLE:
            row, fault = {}, "it is no row"
        if fault:
            raise BrokenFileError(
                f"{path}, line {number} is damaged ({fault}); train into another folder"
            )
        if until is not None and row["step"] > until:
            break
        rows.append(row)
    return rows


def check_rows(folder: Path, config: TrainConfig, steps: Sequence[int], step: int) -> None:
    """The rows must reach the checkpoint's step, but for a row that has only begun there."""
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
            f"{folder} was trained on another {config.game}: its files have changed since; "
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


class RunFolder:
    """A run folder, locked against other processes: first read, then written."""

    def __init__(self, path: Path, step: int, check: Callable[[], object] | None = None) -> None:
        """Reads the rows up to a step; changes nothing. ``check`` runs under the lock."""
        self.path, self.step = path, step
        self.checkpoints = path / CHECKPOINT
        self._metrics: BinaryIO | None = None
        self._events: Events | None = None
        self._lock = _locked(path)
        try:
            if check is not None:
                check()
            self.rows: list[MetricsRow] = read_rows(path, step)
            check_rows(path, read_config(path)[0], [row["step"] for row in self.rows], step)
        except BaseException:
            os.close(self._lock)
            raise

    def begin(self) -> RunFolder:
        """Deletes the rows and checkpoints after the step, and opens the metrics for writing."""
        if self.step == 0:
            self._keep_finished_rows()
        self.checkpoints.mkdir(exist_ok=True)
        checkpoint.remove_partial(self.path)
        checkpoint.remove_partial(self.checkpoints)
        # Checkpoints first: without its rows a checkpoint cannot be resumed.
        for place in (self.checkpoints, self.path / KEPT):
            saved = checkpoint.saved_steps(place)
            checkpoint.remove(place, [at for at in saved if at > self.step])
        lines = b"".join(map(_line, self.rows))
        write_atomically(self.path / METRICS, lambda file: file.write(lines))
        self._metrics = (self.path / METRICS).open("ab")
        return self

    def _keep_finished_rows(self) -> None:
        """Keeps a copy of the metrics of a finished run whose checkpoints were deleted."""
        rows, (config, _) = read_rows(self.path), read_config(self.path)
        if rows and rows[-1]["step"] >= config.steps:
            shutil.copyfile(self.path / METRICS, self.path / f"{METRICS}.old")

    def write_events(self) -> None:
        """Starts to write TensorBoard events."""
        self._events = Events(self.path, self.rows)

    def write(self, row: MetricsRow) -> None:
        assert self._metrics is not None
        self._metrics.write(_line(row))
        self._metrics.flush()
        if self._events is not None:
            self._events.add(row)

    def save(self, step: int, tree: Any, notes: Mapping[str, Any]) -> None:
        """Writes a checkpoint, after the rows that belong to it."""
        assert self._metrics is not None
        os.fsync(self._metrics.fileno())
        if self._events is not None:
            self._events.flush()
        checkpoint.save(self.checkpoints, step, tree, notes)

    def keep(self, step: int, tree: Any, notes: Mapping[str, Any]) -> None:
        """Keeps what the agent has learned. Its replay memory, which is large, is left empty."""
        (self.path / KEPT).mkdir(exist_ok=True)
        checkpoint.save(self.path / KEPT, step, without_replay(tree), notes)

    def prune(self) -> None:
        """Removes all checkpoints but the last ones."""
        saved = checkpoint.saved_steps(self.checkpoints)
        checkpoint.remove(self.checkpoints, saved[: -checkpoint.KEPT])

    def close(self) -> None:
        if self._metrics is not None:
            with suppress(OSError):
                self._metrics.close()
        if self._events is not None:
            self._events.close()
        os.close(self._lock)


def without_replay(tree: Any) -> Any:
    """The tree with replay memories of zeros, which take no room in a file."""

    def is_replay(node: Any) -> bool:
        return isinstance(node, EpisodicReplay)

    def emptied(node: Any) -> Any:
        return jax.tree.map(np.zeros_like, node) if is_replay(node) else node

    return jax.tree.map(emptied, tree, is_leaf=is_replay)


def _line(row: MetricsRow) -> bytes:
    return json.dumps(row, allow_nan=False).encode() + b"\n"


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
