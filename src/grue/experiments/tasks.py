"""A task: the runs that one process trains. It is plain data, so that any machine can take it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple


class PlannedRun(NamedTuple):
    """One run: the name of its folder, and its config as JSON."""

    name: str
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """Runs side by side in one program, or one after the other in one process."""

    number: int
    label: str
    runs: tuple[PlannedRun, ...]
    together: bool
    """Side by side. Otherwise one after the other, which is faster on a CPU."""
    one_program: bool = False
    seconds: float | None = None
    """The estimate; None if nothing like it was measured."""

    @property
    def names(self) -> list[str]:
        return [run.name for run in self.runs]

    @property
    def steps(self) -> int:
        """Of all runs."""
        return sum(run.config["steps"] for run in self.runs)

    def of(self, runs: Iterable[PlannedRun], number: int) -> Task:
        """The same task with only some of its runs."""
        some = tuple(runs)
        share = None if self.seconds is None else self.seconds * len(some) / len(self.runs)
        label = f"{self.label}, {len(some)} of {len(self.runs)}"
        return replace(self, number=number, runs=some, seconds=share, label=label)

    def to_json(self) -> dict[str, Any]:
        runs = [[run.name, dict(run.config)] for run in self.runs]
        return {**{name: getattr(self, name) for name in PLAIN}, "runs": runs}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Task:
        runs = tuple(PlannedRun(name, config) for name, config in values["runs"])
        return cls(**{name: values[name] for name in PLAIN}, runs=runs)


PLAIN = ("number", "label", "together", "one_program", "seconds")


class Event(NamedTuple):
    """An event: what a worker reports about its task.

    ``place`` (name), ``begin`` (names, step, steps), ``row`` (step, and steps_per_s of all its
    runs), ``run`` (text: one has ended), ``line`` (text), ``measured`` (a row of ``rates.py``),
    ``result`` (of an evaluation). The last one is ``done``, ``stopped`` (after a checkpoint),
    ``memory`` (why), ``failed`` (why, runs) or ``lost`` (why).
    """

    task: int
    kind: str
    value: Mapping[str, Any]


ENDINGS = ("done", "stopped", "memory", "failed", "lost")


def spoken(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"
