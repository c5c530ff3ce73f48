"""The training loop on the host: run folders, checkpoints and resuming.

Each call of the compiled program (``training/algorithm.py``) gives one row of metrics.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from grue.agents.agent import Agent, AgentState, RunParameters
from grue.engine.environment import Environment
from grue.errors import GrueError, UsageError, is_out_of_memory, out_of_memory
from grue.training import checkpoint, events, metrics, runs
from grue.training.algorithm import Run
from grue.training.config import TrainConfig
from grue.training.groups import Group, Member, plan
from grue.training.metrics import MetricsRow
from grue.training.programs import (
    Built,
    about_game,
    build,
    check_trainable,
    explorer_notes,
    game_of,
    hosting,
    parameters_of,
    resolved,
)
from grue.training.provenance import about as provenance
from grue.training.runs import Curves, RunFolder
from grue.training.stop import Stop

CHECKPOINT_SECONDS = 60.0
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


class _Silent(Progress):
    """Ignores it."""


class Interrupted(KeyboardInterrupt):
    """Training was stopped by a signal, after a checkpoint."""

    def __init__(self, step: int, steps: int) -> None:
        super().__init__(f"interrupted at step {step} of {steps}; resume to go on")
        self.step, self.steps = step, steps


@dataclass(frozen=True)
class RunResult(Curves):
    folder: Path | None
    _held: Trained | None = field(default=None, repr=False)

    @property
    def trained(self) -> Trained:
        """Environment, agent, its state, the run's parameters and the step."""
        if self.folder is None:
            assert self._held is not None
            return self._held
        return runs.load_state(self.folder)


@dataclass(frozen=True)
class Result:
    runs: list[RunResult]


def train(
    config: TrainConfig,
    out: Path | str | None = None,
    resume: bool = False,
    together: bool | None = None,
    progress: Progress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Result:
    """Trains one run for each seed of a config. Without ``out`` nothing is written to disk."""
    return train_all([config], out, resume, together, progress, checkpoint_seconds)


def train_all(
    configs: Sequence[TrainConfig],
    out: Path | str | None = None,
    resume: bool = False,
    together: bool | None = None,
    progress: Progress | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    one_program: bool = False,
    keep_every: int = 0,
) -> Result:
    """Trains several configs.

    ``together``: runs that can share a program are trained in one batch. Default: on an
    accelerator only. ``one_program``: runs trained one by one share a compiled program too, of
    the size of the largest. Checkpoints are written every ``checkpoint_seconds``, on SIGINT and
    SIGTERM, and at the end. ``keep_every``: what the agent has learned is also kept after every
    so many steps, to be looked at later.
    """
    if resume and out is None:
        raise UsageError("only runs that were written can be resumed: give out, their folder")
    if not checkpoint_seconds >= 0:
        raise UsageError(f"checkpoint_seconds must be at least 0, not {checkpoint_seconds}")
    for config in configs:
        if keep_every < 0 or keep_every % config.metrics_every:
            raise UsageError(
                f"keep_every must be a multiple of metrics_every, which is "
                f"{config.metrics_every}, not {keep_every}"
            )
    if together is None:
        together = jax.default_backend() != "cpu"
    progress = _Silent() if progress is None else progress
    results: dict[str, RunResult] = {}
    with ExitStack() as opened:
        members = _members(configs, None if out is None else Path(out), resume, opened)
        if out is not None and not events.installed():
            progress.say(events.NOT_INSTALLED)
        for line in dict.fromkeys(filter(None, (hosting(member.config) for member in members))):
            progress.say(line)
        stop = opened.enter_context(Stop(out is not None))
        for group in plan(members, together, one_program):
            results |= _Trainer(group, stop, progress, checkpoint_seconds, keep_every).train()
    return Result([results[member.name] for member in members])


def _members(
    configs: Sequence[TrainConfig], out: Path | None, resume: bool, opened: ExitStack
) -> list[Member]:
    """Validates the configs and returns their runs. ``opened`` will close the environments."""
    if out is not None and out.exists() and not out.is_dir():
        raise UsageError(f"{out} is no folder; give another --out")
    members: dict[str, Member] = {}
    for config in map(resolved, configs):
        opened.callback(game_of(config).close)
        check_trainable(config)
        for seed in config.seeds:
            run = config.of_seed(seed)
            member = Member(runs.run_name(run), run, run.heads_in_use)
            if member.name in members:
                raise UsageError(f"two runs are called {member.name}; train them one at a time")
            members[member.name] = member
            if out is not None:
                _find_folder(member, out / member.name, resume)
    return list(members.values())


def _find_folder(member: Member, folder: Path, resume: bool) -> None:
    member.folder = folder
    member.is_new = not folder.exists()
    if member.is_new:
        return
    if not resume:
        raise UsageError(f"{folder} exists; use --resume to go on with it, or another --out")
    runs.check_same(folder, member.config, game_of(member.config).digest)
    checkpoints = folder / runs.CHECKPOINT
    member.saved = checkpoint.saved_steps(checkpoints)
    if member.saved:
        member.notes = checkpoint.read_header(checkpoint.path_of(checkpoints, member.latest))


class _Trainer:
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
        self.rows: list[list[MetricsRow]] = [[] for _ in self.members]

    def train(self) -> dict[str, RunResult]:
        if self.group.step == self.config.steps:
            return self._finished()
        if self.stop.asked:
            raise Interrupted(self.group.step, self.config.steps)
        with ExitStack() as stack:
            self._open_folders(stack)
            try:
                built = build(self.config, self.group.heads, self.many, self.group.explorers)
                run = self._loop(built, self._begin(built))
            except Exception as error:
                self._remove_blank()
                if is_out_of_memory(error):
                    raise out_of_memory(error) from None
                raise
        return self._results(built, run)

    def _loop(self, built: Built, run: Run) -> Run:
        config, program, step = self.config, built.program, self.group.step
        every, target_every = config.metrics_every, config.target_every
        saved_at, pause = time.monotonic(), self.checkpoint_seconds
        self.progress.begin(self.group.names, step, config.steps)
        while step < config.steps:
            learn = step >= config.learning_starts
            run, sums = program.advance(run, jnp.int32(step), learn, every)
            step += every
            # The program itself copies targets only if target_every divides metrics_every.
            if learn and every < target_every and step % target_every == 0:
                run = program.copy_to_target(run)
            counted = jax.device_get(sums)
            for note in built.env.notes():
                self.progress.say(note)
            built.env.check()
            self._add_rows(step, counted)
            if self.keep_every and step % self.keep_every == 0:
                self._save(step, run, keep=True)
            over = step == config.steps
            begun = time.monotonic()
            if over or self.stop.asked or begun - saved_at >= pause:
                self._save(step, run)
                saved_at = time.monotonic()
                pause = _pause(self.checkpoint_seconds, saved_at - begun)
            if self.stop.asked and not over:
                raise Interrupted(step, config.steps)
        return run

    def _begin(self, built: Built) -> Run:
        """The state of all runs at the group's step: initial, or loaded from checkpoints."""
        parameters = [parameters_of(member.config, self.group.explorers) for member in self.members]
        seeds = [jnp.int32(member.config.seeds[0]) for member in self.members]
        start = self._joined([seeds, parameters], jnp.stack)
        if self.group.step == 0:
            return built.program.init(*start)
        template = jax.eval_shape(built.program.init, *start)
        one = jax.eval_shape(lambda run: self._of_run(0, run), template)
        loaded = [
            checkpoint.load(checkpoint.path_of(folder.checkpoints, self.group.step), one)
            for folder in self.folders
        ]
        run = jax.tree.map(jnp.array, self._joined([loaded], np.stack)[0])
        # A custom gate's number depends on what else is registered, so it is not loaded.
        return checkpoint.with_keys(run, template)._replace(parameters=start[1])

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
            row = metrics.make_row(member.config, step, own, member.heads, before)
            before.append(row)
            if self.folders:
                with _told(self.folders[number].path):
                    self.folders[number].write(row)
        self.progress.update(step, [rows[-1] for rows in self.rows])

    def _save(self, step: int, run: Run, keep: bool = False) -> None:
        """Writes a checkpoint of every run. Old ones are deleted only after that.

        With ``keep``, writes what is kept for looking back instead.
        """
        if not self.folders:
            return
        tree = jax.device_get(checkpoint.without_keys(run))
        notes = {
            "heads": self.group.heads,
            "explorers": explorer_notes(self.group.explorers),
            "together": self.group.names,
        }
        for number, folder in enumerate(self.folders):
            with _told(folder.path):
                (folder.keep if keep else folder.save)(step, self._of_run(number, tree), notes)
        for folder in self.folders:
            folder.prune()

    def _open_folders(self, stack: ExitStack) -> None:
        step = self.group.step
        ours = provenance() if self.members[0].folder is not None else {}
        for number, member in enumerate(self.members):
            if member.folder is None:
                continue
            with _told(member.folder):
                about = {**ours, **about_game(member.config)}
                if member.is_new:
                    runs.create(member.folder, member.config, about)
                folder = RunFolder(member.folder, step, partial(_check_unchanged, member))
                stack.callback(folder.close)
                if not member.is_new:
                    _note_resumed(member, step, about)
                if events.installed():
                    folder.write_events(step)
            self.folders.append(folder)
            self.rows[number] = folder.rows

    def _remove_blank(self) -> None:
        """Deletes new folders that have no row yet, so that the command can be repeated."""
        for member, rows in zip(self.members, self.rows, strict=True):
            if member.folder is not None and member.is_new and not rows:
                shutil.rmtree(member.folder, ignore_errors=True)

    def _finished(self) -> dict[str, RunResult]:
        found = {}
        for member in self.members:
            assert member.folder is not None
            self.progress.say(f"{member.name} is finished: {self.config.steps} steps")
            run = runs.read_run(member.folder)
            runs.check_rows(member.folder, run.metrics["step"].tolist(), self.config.steps)
            found[member.name] = RunResult(run.config, run.seed, run.metrics, member.folder)
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
                member.config, member.config.seeds[0], table, member.folder, held
            )
        return found


def _check_unchanged(member: Member) -> None:
    """Re-validates under the lock."""
    assert member.folder is not None
    runs.check_same(member.folder, member.config, game_of(member.config).digest)
    if checkpoint.saved_steps(member.folder / runs.CHECKPOINT) != list(member.saved):
        raise GrueError(
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
    """Turns an OSError into a GrueError that says how to go on."""
    try:
        yield
    except OSError as error:
        where = folder if error.filename is None else error.filename
        raise GrueError(
            f"{where}: {error.strerror or error}; earlier checkpoints are intact: "
            "fix this and go on with --resume"
        ) from error
