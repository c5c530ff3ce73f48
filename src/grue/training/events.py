"""TensorBoard events of a run, where tensorboardX is installed."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from grue.training.metrics import MetricsRow, part_name

PREFIX = "events.out.tfevents."
NOT_INSTALLED = "tensorboardX is not installed: no TensorBoard events are written"


def installed() -> bool:
    return find_spec("tensorboardX") is not None


class Events:
    """Writes in the caller's thread, so that the caller gets the errors (a full disk)."""

    def __init__(self, folder: Path, rows: Sequence[MetricsRow]) -> None:
        """Writes a file with the earlier rows, in place of all earlier files.

        The file of a killed process may end in the middle of an event, and may contain rows that
        will be trained again.
        """
        from tensorboardX.record_writer import RecordWriter

        before = list(folder.glob(f"{PREFIX}*"))
        name = f"{PREFIX}{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        self._writer: Any = RecordWriter(str(folder / name))
        self._write(0, file_version="brain.Event:2")
        for row in rows:
            self.add(row)
        self.flush()
        for path in before:
            path.unlink(missing_ok=True)

    def add(self, row: MetricsRow) -> None:
        summary = _proto("summary").Summary
        values = {name: value for name, value in row.items() if isinstance(value, int | float)}
        for name, value in row.items():
            if isinstance(value, list):
                parts = enumerate(value, 1)
                values |= {part_name(name, i).replace("_", " "): part for i, part in parts}
        del values["step"], values["seed"]
        told = [summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(row["step"], summary=summary(value=told))

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        with suppress(OSError):
            self._writer.close()

    def _write(self, step: int, **what: Any) -> None:
        event = _proto("event").Event(wall_time=time.time(), step=step, **what)
        self._writer.write(event.SerializeToString())


def _proto(name: str) -> Any:
    return import_module(f"tensorboardX.proto.{name}_pb2")
