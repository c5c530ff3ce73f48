"""Shows the progress of training: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from statistics import median

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from grue.training.metrics import ESTIMATES, FIRST, KEYS, LAST, MetricsRow

PLAIN_SECONDS = 10.0
COMPILED_ROWS = 4
"""After this many rows, the median is free of compilation."""
WINDOW = 10
"""The speed is the median of this many rows."""


class _Bar(Progress):
    """A bar with a line of text below."""

    below = ""
    table: Table | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        yield Text(self.below, no_wrap=True, overflow="ellipsis")
        if self.table is not None:
            yield self.table


class Display:
    """Shows the progress on stderr."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = Console(stderr=True) if console is None else console
        self._bar: _Bar | None = None
        self._what, self._steps = "", 0
        self._speeds: deque[float] = deque(maxlen=WINDOW)
        self._last, self._said = (0.0, 0), 0.0

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self._bar = _Bar(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=16),
                TextColumn("{task.completed}/{task.total}"),
                TextColumn("{task.fields[left]}", markup=False),
                console=self.console,
                transient=True,
            )
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, names: Sequence[str], step: int, steps: int) -> None:
        self._what = names[0] if len(names) == 1 else f"{len(names)} runs"
        self._steps = steps
        self._speeds.clear()
        self._said = time.monotonic()
        self._last = self._said, step
        if self._bar is None:
            self.say(f"{self._what}: step {step}/{steps}, compiling")
            return
        for task in self._bar.task_ids:
            self._bar.remove_task(task)
        self._bar.below = ""
        self._bar.add_task(self._what, total=steps, completed=step, left="compiling")

    def update(self, step: int, rows: Sequence[MetricsRow]) -> None:
        (before, first), now = self._last, time.monotonic()
        self._speeds.append((step - first) / max(now - before, 1e-9))
        self._last = now, step
        speed = median(self._speeds)  # Rows that waited for the compiler are outliers.
        over = step == self._steps
        # The first row, and the first that learns, waited for the compiler.
        known = not over and len(self._speeds) > COMPILED_ROWS
        left = f"{duration((self._steps - step) / speed)} left" if known else ""
        told = _told(speed, rows)
        if self._bar is not None:
            self._bar.below = told
            self._bar.update(self._bar.task_ids[0], completed=step, left=left)
        if over or (self._bar is None and now - self._said >= PLAIN_SECONDS):
            self._said = now
            self.say(f"{self._what}: step {step}/{self._steps}, {told}{', ' if left else ''}{left}")

    def show_groups(self, columns: Sequence[str], rows: Sequence[Sequence[str]], line: str) -> None:
        """Groups of runs in several processes: a live table in a terminal, else text lines."""
        if self._bar is None:
            now = time.monotonic()
            if now - self._said >= PLAIN_SECONDS:
                self._said = now
                self.say(line)
            return
        table = Table(*(column.replace("_", " ") for column in columns), title=line)
        for row in rows:
            table.add_row(*map(Text, row))
        self._bar.table = table

    def say(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def _told(speed: float, rows: Sequence[MetricsRow]) -> str:
    return ", ".join(
        [
            f"{speed * len(rows):,.0f} steps/s",
            f"ε {rows[0]['epsilon']:.2f}",
            f"score {_mean(rows, 'score_average', 1)}",
            f"fraction {_mean(rows, 'fraction_average', 2)}",
            *(f"{name.replace('_', ' ')} {_mean(rows, name, 3)}" for name in _declared(rows[0])),
        ]
    )


def _declared(row: MetricsRow) -> list[str]:
    """The columns declared by the agent and the explorer, without those that are still 0."""
    usual = {metric.name for metric in (*FIRST, *ESTIMATES, *LAST)}
    others = [name for name in row if name not in usual and name not in KEYS and row[name]]
    return [name for name in others if not isinstance(row[name], list)]


def _mean(rows: Sequence[MetricsRow], name: str, digits: int) -> str:
    known = [row[name] for row in rows if row[name] is not None]
    return f"{sum(known) / len(known):.{digits}f}" if known else "-"


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
