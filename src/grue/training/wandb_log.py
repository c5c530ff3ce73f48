"""Logs metrics to Weights & Biases, one run there for every run folder.

It wraps the ``Progress`` that is shown. ``WANDB_MODE=offline``
writes files for ``wandb sync``, and needs neither network nor account.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from grue.errors import GrueError
from grue.training.config import TrainConfig
from grue.training.metrics import KEYS, MetricsRow, part_name
from grue.training.runs import run_name
from grue.training.trainer import Progress

NOT_INSTALLED = "--wandb needs the package wandb; install it with pip install 'grue[wandb]'"


class WandbLog:
    """Passes everything on to ``shown``, and logs each row of metrics."""

    def __init__(
        self, project: str, configs: Iterable[TrainConfig], out: Path, shown: Progress
    ) -> None:
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise GrueError(NOT_INSTALLED) from None
        self._wandb: Any = wandb
        self.project, self.out, self.shown = project, out.resolve(), shown
        single = [replace(one, seeds=(seed,)) for one in configs for seed in one.seeds]
        self.configs = {run_name(config): config for config in single}
        self._runs: list[Any] = []

    def __enter__(self) -> WandbLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._finish(0 if kind is None else 1)

    def begin(self, names: Sequence[str], step: int, steps: int) -> None:
        self.shown.begin(names, step, steps)
        self._finish(0)  # Groups of runs come one after the other.
        self.out.mkdir(parents=True, exist_ok=True)
        try:
            self._runs = [self._begun(name) for name in names]
        except self._wandb.Error as error:
            why = " ".join(str(error).split())
            raise GrueError(f"Weights & Biases: {why} (WANDB_MODE=offline needs neither)") from None

    def update(self, step: int, rows: Sequence[MetricsRow]) -> None:
        self.shown.update(step, rows)
        for run, row in zip(self._runs, rows, strict=True):
            run.log(logged(row), step=step)

    def say(self, line: str) -> None:
        self.shown.say(line)

    def _begun(self, name: str) -> Any:
        # A resumed run continues under the same id.
        identity = hashlib.sha256(str(self.out / name).encode()).hexdigest()[:16]
        return self._wandb.init(
            project=self.project,
            name=name,
            id=identity,
            resume="allow",
            config=self.configs[name].to_json(),
            dir=str(self.out),
            reinit="create_new",
            settings=self._wandb.Settings(silent=True, console="off"),
        )

    def _finish(self, code: int) -> None:
        for run in self._runs:
            run.finish(exit_code=code)
        self._runs = []


def logged(row: MetricsRow) -> dict[str, int | float]:
    """The numbers of a row; of lists each part, from 1 on."""
    numbers = {n: v for n, v in row.items() if n not in KEYS and isinstance(v, int | float)}
    lists = {name: value for name, value in row.items() if isinstance(value, list)}
    parts = [(name, i, part) for name, own in lists.items() for i, part in enumerate(own, 1)]
    return numbers | {part_name(name, i): part for name, i, part in parts}
