"""A Slurm array script: a job for each group of runs, requeued at its time limit."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence

from grue.errors import UsageError
from grue.experiments import planner
from grue.experiments.conditions import Condition
from grue.experiments.planner import Bucket, Setting
from grue.experiments.rates import read_rates
from grue.experiments.runner import Places
from grue.experiments.scales import level_of
from grue.experiments.storage import address_at
from grue.experiments.study import Where
from grue.experiments.tasks import spoken
from grue.experiments.wishes import Wish, spans
from grue.training.config import TrainConfig
from grue.training.progress import duration

WARNING_SECONDS = 120
"""Seconds before the time limit at which Slurm sends a signal."""
SPARE = 1.5
"""The time limit of a job is its estimated time multiplied by this."""
LEAST_MINUTES = 10

SCRIPT = """\
#!/bin/bash
# {count} groups of runs, a job for each: submit this file with sbatch. A job that its time limit
# ends has written checkpoints, and is put into the queue again.
#SBATCH --job-name=grue
#SBATCH --array=0-{last}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={cores}
{gpus}#SBATCH --time={minutes}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@{warning}

run() {{
    "$@" &
    child=$!
    trap 'kill -TERM "$child"' TERM
    wait "$child"
    code=$?
    if [ "$code" = 143 ]; then  # wait was interrupted by the trap, not the child
        wait "$child"
        code=$?
    fi
    if [ "$code" = 130 ] || [ "$code" = 143 ]; then  # 143: it was told before it trained
        scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
    fi
    exit "$code"
}}

case "$SLURM_ARRAY_TASK_ID" in
{cases}
*) echo "there is no group $SLURM_ARRAY_TASK_ID" >&2; exit 2 ;;
esac
"""


def array_script(wish: Wish, places: Places, wanted: Sequence[TrainConfig], where: Where) -> str:
    """The script. A group has runs that share a program; with ``where.minutes``, as many as fit."""
    if not wanted:
        raise UsageError("there is nothing left to run: Slurm is not needed")
    _check(where)
    share = 1.0 if where.gpus is None else where.gpus
    setting = Setting(
        read_rates("NVIDIA H200" if share else "CPU", places.out),
        together=share > 0,
        one_program=wish.scale.one_program,
        whole=True,
    )
    groups = _groups(wish, wanted, setting, where.minutes)
    longest = max(planner.cost(group.runs, group.steps, setting) for group in groups)
    planner.close_games(wanted)
    minutes = where.minutes or max(SPARE * longest / 60, LEAST_MINUTES)
    cases = (_case(n, wish, places, group, where, setting) for n, group in enumerate(groups))
    return SCRIPT.format(
        count=len(groups),
        last=len(groups) - 1,
        cores=where.cores or 1,
        gpus="#SBATCH --gres=gpu:1\n" if share else "",
        minutes=round(minutes),
        warning=WARNING_SECONDS,
        cases="\n".join(cases),
    )


def _check(where: Where) -> None:
    """Refuses options that have no meaning for Slurm jobs."""
    if where.ray is not None:
        raise UsageError("give --slurm or --ray, not both")
    if where.jobs is not None:
        raise UsageError("a job of Slurm trains in one process; leave --jobs or --slurm out")
    if where.gpus not in (None, 0, 1):
        raise UsageError(
            f"a job of Slurm gets a whole GPU or none: --gpus-per-group is 0 or 1 with --slurm, "
            f"not {where.gpus:g}"
        )
    least = WARNING_SECONDS / 60
    if where.minutes is not None and not least < where.minutes < math.inf:
        raise UsageError(
            f"--minutes must be more than {least:g} with --slurm, not {where.minutes:g}: Slurm "
            f"warns a job {least:g} minutes before its time limit"
        )


def _groups(
    wish: Wish, wanted: Iterable[TrainConfig], setting: Setting, minutes: float | None
) -> list[Bucket]:
    """Groups that a command line can express: conditions and seeds, and figures of one game."""
    by_figure: dict[str, list[TrainConfig]] = {}
    for config in wanted:
        by_figure.setdefault(wish.command(config).split()[2], []).append(config)
    found: list[Bucket] = []
    for configs in by_figure.values():
        for bucket in planner.buckets_of(configs, setting):
            found += planner.within(bucket, setting, None if minutes is None else minutes * 60)
    return found


def _case(
    number: int, wish: Wish, places: Places, group: Bucket, where: Where, setting: Setting
) -> str:
    first = group.runs[0]
    conditions = dict.fromkeys(Condition.of(run).typed for run in group.runs)
    seeds = sorted({run.seeds[0] for run in group.runs})
    level = level_of(first.game)
    words = ["grue", "reproduce", wish.command(first).split()[2], "--scale", wish.scale.name]
    words += ["--levels", str(level)] if isinstance(level, int) else []
    words += ["--conditions", ",".join(conditions), "--seeds", spans(seeds).replace(" ", "")]
    words += [w for name, value in wish.scale.given.items() for w in ("--set", f"{name}={value}")]
    words += ["--story", first.story] if first.story else []
    words += [word for path in places.data for word in ("--data", str(path.resolve()))]
    out = address_at(places.out) or str(places.out.resolve())
    words += ["--out", out, "--jobs", "1", "--no-draw"]
    words += ["--checkpoint-seconds", f"{where.checkpoint_seconds:g}"]
    about = duration(planner.cost(group.runs, group.steps, setting))
    return f"{number}) run {shlex.join(words)} ;;  # {spoken(len(group.runs))}, about {about}"
