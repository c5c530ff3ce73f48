"""Trains a group of runs: reads their checkpoints, then writes rows and checkpoints.

Each call of the compiled program (``training/algorithm.py``) gives one row of metrics.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from grue.agents.agent import Agent, AgentState, RunParameters
from grue.agents.replay import lighter, with_replay
from grue.engine.environment import Environment
from grue.errors import BusyError, GrueError, is_out_of_memory, out_of_memory
from grue.training import checkpoint, events, metrics, runs
from grue.training.algorithm import PartOfRow, Run, Sums
from grue.training.config import TrainConfig
from grue.training.groups import Group, Member
from grue.training.metrics import MetricsRow
from grue.training.pieces import Pieces
from grue.training.programs import (
    Built,
    Explorers,
    about_game,
    build,
    explorer_notes,
    games_digest,
    parameters_of,
)
from grue.training.provenance import about as provenance
from grue.training.runs import BEST, KEPT, Curves, RunFolder, saved_form
from grue.training.sets import is_set
from grue.training.split_play import SplitPlay, told_rows
from grue.training.splits import SplitRow, best_step, check_split_rows, read_split_rows
from grue.training.stop import Stop

LEAST_IN_A_ROW = 10.0
"""Seconds between two checkpoints in the middle of a row; most rows are shorter."""
Trained = tuple[Environment, Agent, AgentState, RunParameters, int]


@runtime_checkable
class Progress(Protocol):
    """Receives the progress of training."""

    def begin(self, names: Sequence[str], step: int, steps: int) -> None:
        """A group of runs starts at ``step``."""

    def update(self, step: int, rows: Sequence[MetricsRow]) -> None:
        """``rows`` has the new row of each run."""

    def say(self, line: str) -> None:
        """A message for the user."""


class Interrupted(KeyboardInterrupt):
    """Training was stopped by a signal, after a checkpoint."""

    def __init__(self, step: int, steps: int) -> None:
        super().__init__(f"interrupted at step {step} of {steps}; resume to go on")
        self.step, self.steps = step, steps


@dataclass(frozen=True)
class RunResult(Curves):
    folder: Path | None
    _held: Trained | None = field(default=None, repr=False)
    splits: tuple[SplitRow, ...] = ()
    """The rows of ``splits.jsonl``; none after training on one game."""

    @property
    def trained(self) -> Trained:
        """Environment, agent, its state, the run's parameters and the step."""
        if self.folder is None:
            assert self._held is not None
            return self._held
        return runs.load_state(self.folder)


class Trainer:
    """Trains a group of runs from its step to the end."""

    def __init__(
        self,
        group: Group,
        stop: Stop,
        progress: Progress,
        checkpoint_seconds: float,
        keep_every: int = 0,
    ) -> None:
        self.group = group
        self.keep_every = keep_every
        self.members = group.members
        self.config = group.members[0].config
        self.many = len(group.members) > 1
        self.stop = stop
        self.progress = progress
        self.checkpoint_seconds = checkpoint_seconds
        self.folders: list[RunFolder] = []
        self.created: set[str] = set()
        """Runs whose folders this process has created."""
        self.rows: list[list[MetricsRow]] = [[] for _ in self.members]
        self.splits: SplitPlay | None = None
        """Only with a folder of games."""
        self.split_rows: list[list[SplitRow]] = [[] for _ in self.members]

    def check_rows(self) -> None:
        """Reads the rows of metrics; changes nothing."""
        with ExitStack() as stack:
            if self.group.step < self.config.steps:
                self._read_folders(stack)

    def check(self) -> None:
        """Reads the state from which the runs start; changes nothing."""
        with ExitStack() as stack:
            if self.group.step == self.config.steps:
                self._finished()
            elif self.group.step:
                self._load(build(*self._program), self._read_folders(stack))

    def train(self) -> dict[str, RunResult]:
        if self.group.step == self.config.steps:
            results = self._finished()
            for name in self.group.names:
                self.progress.say(f"{name} is finished: {self.config.steps} steps")
            return results
        if self.stop.asked:
            raise Interrupted(self.group.step, self.config.steps)
        with ExitStack() as stack:
            try:
                read = self._read_folders(stack)
                built = build(*self._program)
                if built.env.command_sets is not None:
                    self.splits = SplitPlay(self.config, self.group.heads, self.group.explorers)
                start = self._load(built, read)
                # From here on folders are changed.
                self._begin_folders(read, stack)
                run = self._loop(built, *start)
            except Exception as error:
                self._remove_blank()
                if is_out_of_memory(error):
                    raise out_of_memory(error) from None
                raise
        return self._results(built, run)

    @property
    def _program(self) -> tuple[TrainConfig, int, bool, Explorers]:
        """The arguments of ``build``."""
        return self.config, self.group.heads, self.many, self.group.explorers

    def _loop(self, built: Built, run: Run, sums: Sums | None) -> Run:
        """Trains row after row. ``sums``: those of an unfinished row, if there is one."""
        config, step, every = self.config, self.group.step, self.config.metrics_every
        self.saved_at, self.pause = time.monotonic(), self.checkpoint_seconds
        none, pieces = built.program.no_sums(run), Pieces(config)
        self.progress.begin(self.group.names, step, config.steps)
        while step < config.steps:
            end = step - step % every + every
            sums = none if sums is None else sums
            while step < end:
                run, sums, step = self._piece(built, pieces, run, sums, step)
                if step < end and (self.stop.asked or self._is_due(LEAST_IN_A_ROW)):
                    self._save_now(step, run, sums)
                if step < end and self.stop.asked:
                    raise Interrupted(step, config.steps)
            self._add_rows(step, jax.device_get(sums))
            if self.splits is not None and step % config.valid_every == 0:
                self._play_splits(step, run)
            if self.keep_every and step % self.keep_every == 0:
                self._keep(step, run, KEPT, range(len(self.folders)))
            sums, over = None, step == config.steps
            if over or self.stop.asked or self._is_due():
                self._save_now(step, run)
            if self.stop.asked and not over:
                raise Interrupted(step, config.steps)
        return run

    def _is_due(self, least: float = 0.0) -> bool:
        """Whether it is time for the next checkpoint."""
        return time.monotonic() - self.saved_at >= max(self.pause, least)

    def _save_now(self, step: int, run: Run, sums: Sums | None = None) -> None:
        begun = time.monotonic()
        self._save(step, run, sums)
        self.saved_at = time.monotonic()
        self.pause = _pause(self.checkpoint_seconds, self.saved_at - begun)

    def _piece(
        self, built: Built, pieces: Pieces, run: Run, sums: Sums, step: int
    ) -> tuple[Run, Sums, int]:
        """Trains for about a second, and returns the step that it ends at."""
        config, begun, steps = self.config, time.monotonic(), pieces.next(step)
        learn = step >= config.learning_starts
        run, sums = built.program.advance(run, jnp.int32(step), learn, steps, sums)
        jax.block_until_ready(sums)
        pieces.took(steps, time.monotonic() - begun)
        for note in built.env.notes():
            self.progress.say(note)
        built.env.check()
        return run, sums, step + steps

    def _load(self, built: Built, read: Sequence[RunFolder | None]) -> tuple[Run, Sums | None]:
        """The state of all runs at the group's step: initial, or loaded from checkpoints.

        Also returns the sums of an unfinished row.
        """
        parameters = [parameters_of(member.config, self.group.explorers) for member in self.members]
        seeds = [jnp.int32(member.config.seeds[0]) for member in self.members]
        start = self._joined([seeds, parameters], jnp.stack)
        if self.group.step == 0:
            return built.program.init(*start), None
        template = saved_form(built, self.config, self.group.step, *start)
        one = jax.eval_shape(lambda run: self._of_run(0, run), template)
        loaded = [
            checkpoint.load(checkpoint.path_of(folder.checkpoints, self.group.step), one)
            for folder in read
            if folder is not None
        ]
        found = jax.tree.map(jnp.array, self._joined([loaded], np.stack)[0])
        found = checkpoint.with_keys(found, template)
        # A custom gate's number depends on what else is registered, so it is not loaded.
        return Run(start[1], *found[1 : len(Run._fields)]), getattr(found, "sums", None)

    def _joined(self, lists: Sequence[Sequence[Any]], stack: Any) -> list[Any]:
        """Stacks the trees of the runs into one tree."""
        if not self.many:
            return [trees[0] for trees in lists]
        return [jax.tree.map(lambda *leaves: stack(leaves), *trees) for trees in lists]

    def _of_run(self, number: int, tree: Any) -> Any:
        """The inverse: one run's slice of a stacked tree."""
        return jax.tree.map(lambda leaf: leaf[number], tree) if self.many else tree

    def _add_rows(self, step: int, sums: Any) -> None:
        for number, member in enumerate(self.members):
            before = self.rows[number]
            own = self._of_run(number, sums)
            row = metrics.make_row(member.config, step, own, before)
            before.append(row)
            if self.folders:
                with _told(self.folders[number].path):
                    self.folders[number].write(row)
        self.progress.update(step, [rows[-1] for rows in self.rows])

    def _play_splits(self, step: int, run: Run) -> None:
        """Plays the games of each split with every run; keeps the agents that are new bests."""
        assert self.splits is not None
        better = []
        for number, member in enumerate(self.members):
            own = self._of_run(number, lighter((run.agent, run.parameters)))
            rows = self.splits.play(step, member.config.seeds[0], *own)
            self.split_rows[number] += rows
            if self.folders:
                with _told(self.folders[number].path):
                    for row in rows:
                        self.folders[number].write_split(row)
            if best_step(self.split_rows[number]) == step:
                better.append(number)
            self.progress.say(told_rows(member.name, rows))
        self._keep(step, run, BEST, better)

    def _save(self, step: int, run: Run, sums: Sums | None = None) -> None:
        """Writes a checkpoint of every run. Old ones are deleted only after that.

        ``sums``: those of an unfinished row.
        """
        if not self.folders:
            return
        whole = run if sums is None else PartOfRow(*run, sums)
        tree = jax.device_get(checkpoint.without_keys(whole))
        for number, folder in enumerate(self.folders):
            with _told(folder.path):
                folder.save(step, self._of_run(number, tree), self._notes)
        for folder in self.folders:
            folder.prune()

    def _keep(self, step: int, run: Run, place: str, numbers: Iterable[int]) -> None:
        """Writes the agents of some runs, without their replay memories, which are large."""
        empty = with_replay(run, lambda leaf: np.zeros(leaf.shape, leaf.dtype))
        for number in numbers if self.folders else ():
            with _told(self.folders[number].path):
                tree = checkpoint.without_keys(self._of_run(number, empty))
                self.folders[number].keep(step, jax.device_get(tree), self._notes, place)

    @property
    def _notes(self) -> dict[str, Any]:
        """The notes in the header of a checkpoint."""
        return {
            "heads": self.group.heads,
            "explorers": explorer_notes(self.group.explorers),
            "together": self.group.names,
        }

    def _read_folders(self, stack: ExitStack) -> list[RunFolder | None]:
        """Locks and reads the folders; None for those that do not exist yet."""
        read: list[RunFolder | None] = []
        for member in self.members:
            folder = None
            if member.folder is not None and not member.is_new:
                with _told(member.folder):
                    check = partial(_check_unchanged, member)
                    folder = RunFolder(member.folder, self.group.step, check)
                    stack.callback(folder.close)
            read.append(folder)
        return read

    def _begin_folders(self, read: Sequence[RunFolder | None], stack: ExitStack) -> None:
        """Makes the new folders, and rolls the others back to the group's step."""
        step = self.group.step
        ours = provenance() if self.members[0].folder is not None else {}
        for number, (member, folder) in enumerate(zip(self.members, read, strict=True)):
            if member.folder is None:
                continue
            with _told(member.folder):
                about = {**ours, **about_game(member.config)}
                if folder is None:
                    runs.create(member.folder, member.config, about)
                    self.created.add(member.name)
                    folder = RunFolder(member.folder, step)
                    stack.callback(folder.close)
                elif step == 0:
                    self.progress.say(f"{member.name} has no checkpoint to start from: begins anew")
                folder.begin()
                if events.installed():
                    folder.write_events()
                if not member.is_new:
                    _note_resumed(member, step, about)
            self.folders.append(folder)
            self.rows[number] = folder.rows
            self.split_rows[number] = list(folder.split_rows)

    def _remove_blank(self) -> None:
        """Deletes new folders that have no row yet, so that the command can be repeated."""
        for member, rows in zip(self.members, self.rows, strict=True):
            if member.folder is not None and member.name in self.created and not rows:
                shutil.rmtree(member.folder, ignore_errors=True)

    def _finished(self) -> dict[str, RunResult]:
        found = {}
        for member in self.members:
            assert member.folder is not None
            run = runs.read_run(member.folder)
            steps = run.metrics["step"].tolist()
            runs.check_rows(member.folder, run.config, steps, self.config.steps)
            rows = tuple(read_split_rows(member.folder, run.config))
            if is_set(run.config):
                check_split_rows(member.folder, run.config, rows, self.config.steps)
            found[member.name] = RunResult(
                *(run.config, run.seed, run.metrics, member.folder), splits=rows
            )
        return found

    def _results(self, built: Built, run: Run) -> dict[str, RunResult]:
        found = {}
        for number, member in enumerate(self.members):
            held = None
            if member.folder is None:
                own = self._of_run(number, run)
                held = (built.env, built.agent, own.agent, own.parameters, self.config.steps)
            table = metrics.columns(self.rows[number], member.config)
            found[member.name] = RunResult(
                *(member.config, member.config.seeds[0], table, member.folder, held),
                splits=tuple(self.split_rows[number]),
            )
        return found


def _check_unchanged(member: Member) -> None:
    """Re-validates under the lock."""
    assert member.folder is not None
    runs.check_same(member.folder, member.config, games_digest(member.config))
    if checkpoint.saved_steps(member.folder / runs.CHECKPOINT) != list(member.saved):
        raise BusyError(
            f"another process has trained in {member.folder} meanwhile; give the command again"
        )


def _pause(seconds: float, took: float) -> float:
    """Seconds until the next checkpoint. Slow checkpoints may take at most 5% of the time."""
    return max(seconds, 20 * took) if took > 1 else seconds


def _note_resumed(member: Member, step: int, about: dict[str, Any]) -> None:
    """Updates config.json if steps, commit, versions or device have changed."""
    assert member.folder is not None
    config, before = runs.read_config(member.folder)
    resumed = before.get("resumed", [])
    last = {**before, **(resumed[-1] if resumed else {})}
    changed = {name: value for name, value in about.items() if last.get(name) != value}
    if changed:
        before = {**before, "resumed": [*resumed, {"step": step, **about}]}
    if changed or config != member.config:
        runs.write_config(member.folder, member.config, before)


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Turns an OSError into a GrueError that says how to continue."""
    try:
        yield
    except OSError as error:
        where = folder if error.filename is None else error.filename
        saved = checkpoint.saved_steps(folder / runs.CHECKPOINT)
        kept = f"the checkpoint of step {saved[-1]} is intact" if saved else "nothing is saved yet"
        then = "go on with --resume" if folder.exists() else "give the command again"
        why = error.strerror or error
        raise GrueError(f"{where}: {why}; {kept}: fix this and {then}") from error
