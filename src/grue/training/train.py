"""Trains the runs of configs: checks all of them, then trains group after group."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import jax

from grue.errors import UsageError
from grue.files import check_out
from grue.training import checkpoint, events, memory, runs
from grue.training.config import TrainConfig
from grue.training.groups import Member, plan
from grue.training.programs import about_games, check_trainable, game_of, games_digest, resolved
from grue.training.stop import Stop
from grue.training.trainer import Interrupted, Progress, RunResult, Trainer

__all__ = ["Interrupted", "Progress", "Result", "RunResult", "train", "train_all"]

CHECKPOINT_SECONDS = 60.0


class _Silent(Progress):
    """Ignores it."""


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
    SIGTERM, and at the end. ``keep_every``: after every so many steps, the agent is also kept to
    be looked at later.
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
        lines = (line for member in members for line in about_games(member.config))
        for line in dict.fromkeys(lines):
            progress.say(line)
        stop = opened.enter_context(Stop(out is not None))
        groups = plan(members, together, one_program)
        trainers = [
            Trainer(group, stop, progress, checkpoint_seconds, keep_every) for group in groups
        ]
        # All is checked before anything is written, the slowest check last. The first group reads
        # its checkpoints as it begins.
        for trainer in trainers:
            trainer.check_rows()
        for group in groups:
            memory.check_fits(
                group.members[0].config, group.heads, len(group.members), group.explorers
            )
        for trainer in trainers[1:]:
            trainer.check()
        for trainer in trainers:
            results |= trainer.train()
    return Result([results[member.name] for member in members])


def check_all(configs: Sequence[TrainConfig], out: Path, resume: bool) -> None:
    """Raises the errors that ``train_all`` would raise before training."""
    with ExitStack() as opened:
        _members(configs, out, resume, opened)


def _members(
    configs: Sequence[TrainConfig], out: Path | None, resume: bool, opened: ExitStack
) -> list[Member]:
    """Validates the configs and returns their runs. ``opened`` will close the environments."""
    if out is not None:
        check_out(out)
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
    runs.check_same(folder, member.config, games_digest(member.config))
    checkpoints = folder / runs.CHECKPOINT
    member.saved = checkpoint.saved_steps(checkpoints)
    if member.saved:
        member.notes = checkpoint.read_header(checkpoint.path_of(checkpoints, member.latest))
