"""Turns the runs to do into tasks: which runs share a process, how many, and in which order.

One plan serves local processes, Ray, Slurm and a window of some minutes. Its costs are estimates
from measured rates (``rates.py``).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from grue.experiments.conditions import Condition
from grue.experiments.rates import Rates
from grue.experiments.scales import level_of
from grue.experiments.tasks import PlannedRun, Task
from grue.experiments.wishes import spans, tell_levels
from grue.training import checkpoint
from grue.training.config import TrainConfig
from grue.training.programs import game_of, program_key
from grue.training.runs import CHECKPOINT, run_name

MEMORY_SHARE = 0.9
"""The fraction of a device's memory that measured runs may use together."""


GOOD = 1.02
"""Of the plans up to this factor longer than the shortest, the one with the fewest tasks wins."""


@dataclass(frozen=True)
class Setting:
    """The constraints of a plan."""

    rates: Rates
    slots: int = 1
    """Tasks at the same time."""
    together: bool = False
    """Runs of a task are trained side by side."""
    one_program: bool = False
    memory: float = math.inf
    """Bytes of the device for a task."""
    out: Path | None = None
    """The folder of the runs: those started side by side continue side by side."""
    whole: bool = False
    """A task has all seeds of its conditions, or seeds of one condition."""
    stage: Callable[[TrainConfig], int] = field(default=lambda config: 0)
    """A run's stage in the declared order. Runs of different stages do not share a task."""


@dataclass
class Bucket:
    """Runs that can share a program, in order."""

    runs: list[TrainConfig]
    begun: int = 0
    """The step that all of them have reached."""

    @property
    def steps(self) -> int:
        return self.runs[0].steps - self.begun


def plan(configs: Iterable[TrainConfig], setting: Setting) -> list[Task]:
    """All tasks; with several slots the longest first, so that all slots finish together."""
    buckets = buckets_of(configs, setting)
    pieces = spread(buckets, setting) if setting.slots > 1 else limited(buckets, setting)
    return tasks_of(pieces, setting)


def plan_first(configs: Iterable[TrainConfig], setting: Setting) -> list[Task]:
    """The first task of the declared order, even if it takes too long."""
    return tasks_of(limited(buckets_of(configs, setting), setting)[:1], setting)


def plan_window(
    configs: Iterable[TrainConfig], setting: Setting, seconds: float
) -> tuple[list[Task], list[TrainConfig]]:
    """The next tasks that finish within some seconds, at most one for each slot; the other runs.

    A task is the first runs of the first bucket of which at least one fits.
    """
    buckets = buckets_of(configs, setting)
    taken: list[Bucket] = []
    while len(taken) < setting.slots:
        fitting = ((bucket, _fits(bucket, setting, seconds)) for bucket in buckets)
        bucket, count = next(((b, n) for b, n in fitting if n), (None, 0))
        if bucket is None:
            break
        taken.append(Bucket(bucket.runs[:count], bucket.begun))
        bucket.runs = bucket.runs[count:]
        buckets = [bucket for bucket in buckets if bucket.runs]
    return tasks_of(taken, setting), [run for bucket in buckets for run in bucket.runs]


def buckets_of(configs: Iterable[TrainConfig], setting: Setting) -> list[Bucket]:
    """Groups runs by program, first those that were started side by side."""
    runs = [config.of_seed(seed) for config in configs for seed in config.seeds]
    runs.sort(key=setting.stage)
    begun = _begun(runs, setting)
    names = {run_name(run) for bucket in begun for run in bucket.runs}
    alike: dict[tuple, list[TrainConfig]] = {}
    for run in runs:
        if run_name(run) not in names:
            shared = setting.together or setting.one_program
            heads = None if shared else run.heads_in_use
            alike.setdefault((setting.stage(run), program_key(run), heads), []).append(run)
    return [*begun, *(Bucket(some) for some in alike.values())]


def _begun(runs: Sequence[TrainConfig], setting: Setting) -> list[Bucket]:
    """Runs that were trained side by side. To end with the same bits, they must stay together."""
    if setting.out is None or not setting.together:
        return []
    by_name = {run_name(run): run for run in runs}
    teams: dict[tuple[str, ...], int] = {}
    for name in by_name:
        folder = setting.out / name / CHECKPOINT
        if saved := checkpoint.saved_steps(folder):
            header = checkpoint.read_header(checkpoint.path_of(folder, saved[-1]))
            team = tuple(header["together"])
            teams[team] = min(teams.get(team, saved[-1]), saved[-1])
    return [
        Bucket([by_name[name] for name in team], step)
        for team, step in teams.items()
        if len(team) > 1 and all(name in by_name for name in team)
    ]


# The number of runs of a task


def cost(runs: Sequence[TrainConfig], steps: int, setting: Setting) -> float:
    return setting.rates.estimate(runs, steps, setting.together).seconds


def limited(buckets: Sequence[Bucket], setting: Setting) -> list[Bucket]:
    """As many runs in a task as the memory holds."""
    return [
        piece
        for bucket in buckets
        for piece in _cut(bucket, math.ceil(len(bucket.runs) / _most(bucket, setting)), setting)
    ]


def spread(buckets: Sequence[Bucket], setting: Setting) -> list[Bucket]:
    """Divides buckets so that all slots finish together and early; the longest task comes first.

    Larger batches of runs are more efficient, and every task compiles its program, so buckets are
    divided no more than needed. Every possible duration is tried as that of the longest task.
    """
    choices: list[list[tuple[float, int]]] = []
    for bucket in buckets:
        least = math.ceil(len(bucket.runs) / _most(bucket, setting))
        fixed = setting.one_program or bucket.begun
        most = least if fixed else min(len(bucket.runs), max(least, 4 * setting.slots))
        sizes = {count: math.ceil(len(bucket.runs) / count) for count in range(least, most + 1)}
        counts = {size: count for count, size in reversed(sizes.items())}
        choices.append(
            [(cost(bucket.runs[:size], bucket.steps, setting), n) for size, n in counts.items()]
        )
    limits = {length for some in choices for length, _ in some}
    tried = [_numbers(choices, limit) for limit in limits]
    ends = [_makespan_of(choices, numbers, setting.slots) for numbers in tried]
    good = GOOD * min(ends, default=0.0)
    fitting = (numbers for numbers, end in zip(tried, ends, strict=True) if end <= good)
    best = min(fitting, key=sum, default=[])
    pieces = [p for b, count in zip(buckets, best, strict=True) for p in _cut(b, count, setting)]
    return sorted(pieces, key=lambda piece: -cost(piece.runs, piece.steps, setting))


def _numbers(choices: Sequence[Sequence[tuple[float, int]]], limit: float) -> list[int]:
    """For each bucket the smallest number of pieces of at most this length, if there is one."""
    return [
        min((n for length, n in some if length <= limit), default=max(n for _, n in some))
        for some in choices
    ]


def _makespan_of(
    choices: Sequence[Sequence[tuple[float, int]]], numbers: Sequence[int], slots: int
) -> float:
    lengths = [
        length
        for some, number in zip(choices, numbers, strict=True)
        for length in [next(length for length, n in some if n == number)] * number
    ]
    return makespan(sorted(lengths, reverse=True), slots)


def makespan(lengths: Sequence[float], slots: int) -> float:
    """When the last of some tasks ends, if each slot takes the next task when it is free."""
    free = [0.0] * slots
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def _fits(bucket: Bucket, setting: Setting, seconds: float) -> int:
    """The first runs of a bucket that finish in time. An unmeasured program starts with one run."""
    everyone = len(bucket.runs)
    if setting.rates.estimate(bucket.runs[:1], bucket.steps, setting.together).measured:
        most = min(everyone, _most(bucket, setting))
        fitting = (
            n for n in range(most, 0, -1) if cost(bucket.runs[:n], bucket.steps, setting) <= seconds
        )
        found = next(fitting, 0)
    else:
        found = 1
    return found if found == everyone or not bucket.begun else 0


def within(bucket: Bucket, setting: Setting, seconds: float | None) -> list[Bucket]:
    """A bucket divided into tasks of at most some seconds, or of a single run if that is longer."""
    least = math.ceil(len(bucket.runs) / _most(bucket, setting))
    for count in range(least, len(bucket.runs) + 1):
        pieces = _cut(bucket, count, setting)
        longest = max(cost(piece.runs, piece.steps, setting) for piece in pieces)
        if seconds is None or longest <= seconds:
            return pieces
    return _cut(bucket, len(bucket.runs), setting)


def _most(bucket: Bucket, setting: Setting) -> int:
    needed = setting.rates.bytes_of(bucket.runs[0])
    if not setting.together or not needed or math.isinf(setting.memory):
        return len(bucket.runs)
    return max(min(int(MEMORY_SHARE * setting.memory / needed), len(bucket.runs)), 1)


def _cut(bucket: Bucket, count: int, setting: Setting) -> list[Bucket]:
    """This many pieces, of sizes as equal as possible."""
    units = _by_condition(bucket.runs) if setting.whole else [[run] for run in bucket.runs]
    if setting.whole and len(units) < count:
        each = math.ceil(count / len(units))
        return [p for unit in units for p in _cut(Bucket(unit), each, _loose(setting))]
    edges = [round(at * len(units) / count) for at in range(count + 1)]
    pieces = [units[a:b] for a, b in pairwise(edges)]
    return [Bucket([run for unit in some for run in unit], bucket.begun) for some in pieces if some]


def _loose(setting: Setting) -> Setting:
    return Setting(setting.rates, setting.slots, setting.together)


def _by_condition(runs: Iterable[TrainConfig]) -> list[list[TrainConfig]]:
    found: dict[Condition, list[TrainConfig]] = {}
    for run in runs:
        found.setdefault(Condition.of(run), []).append(run)
    return list(found.values())


# Tasks


def tasks_of(buckets: Iterable[Bucket], setting: Setting) -> list[Task]:
    return [
        Task(
            number,
            label(bucket.runs),
            tuple(PlannedRun(run_name(run), run.to_json()) for run in bucket.runs),
            setting.together,
            setting.one_program,
            round(cost(bucket.runs, bucket.steps, setting), 1),
        )
        for number, bucket in enumerate(buckets)
    ]


def label(runs: Sequence[TrainConfig]) -> str:
    """In words: "level 4: drqn, sc + masking, seeds 0-4"."""
    names = ", ".join(dict.fromkeys(Condition.of(run).in_a_list for run in runs))
    seeds = sorted({run.seeds[0] for run in runs})
    level = tell_levels([level_of(runs[0].game)])
    return f"{level}: {names}, seed{'s' * (len(seeds) > 1)} {spans(seeds)}"


def close_games(configs: Iterable[TrainConfig]) -> None:
    """Ends the emulators that planning has started; each worker starts its own."""
    for config in configs:
        game_of(config).close()


def lower_bound(configs: Iterable[TrainConfig], setting: Setting, largest: int) -> float:
    """A lower bound: all work in the best batches and shared evenly, or the longest run."""
    total, longest = 0.0, 0.0
    for bucket in buckets_of(configs, setting):
        whole = min(largest, len(bucket.runs))
        sizes = range(1, whole + 1)
        each = min(cost(bucket.runs[:n], bucket.steps, setting) / n for n in sizes)
        total += len(bucket.runs) * each
        longest = max(longest, cost(bucket.runs[:1], bucket.steps, setting))
    return max(total / setting.slots, longest)
