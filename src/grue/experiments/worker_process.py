"""Starts a worker's process (``worker.py``) and listens to it. Nothing here imports JAX."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import IO, Any

from grue.experiments.tasks import ENDINGS, Event, Task


class WorkerProcess:
    """A worker's process and its events."""

    def __init__(self, order: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "grue.experiments.worker"]
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        # A session of its own: Ctrl-C goes to the starter only, which asks the worker to stop.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **variables},
            start_new_session=True,
        )
        self.number: int = order["number"]
        self._asked = False
        self._said: queue.Queue[Event] = queue.Queue()
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        ended = False
        with self.process.stdout as said:
            for line in said:
                if not line.endswith(b"\n"):
                    break  # It was killed in the middle of a line.
                event = Event(self.number, *json.loads(line))
                ended = ended or event.kind in ENDINGS
                self._said.put(event)
        code = self.process.wait()
        if not ended:
            kind = "stopped" if self._asked else "lost" if code < 0 else "failed"
            self._said.put(Event(self.number, kind, {"why": self._reason(code)}))
        self._errors.close()

    def _reason(self, code: int) -> str:
        if code < 0:
            memory = ", perhaps for want of memory" if -code == signal.SIGKILL else ""
            return f"its process was ended by signal {-code}{memory}"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"its process ended with code {code}" + (f" ({lines[-1]})" if lines else "")

    def events(self, seconds: float = 0.0) -> list[Event]:
        """The events since the last call; waits at most this long for the first."""
        found: list[Event] = []
        try:
            found.append(self._said.get(timeout=seconds) if seconds else self._said.get_nowait())
            while True:
                found.append(self._said.get_nowait())
        except queue.Empty:
            return found

    def stop(self) -> None:
        """Asks it to write a checkpoint and end."""
        self._asked = True
        if self.process.poll() is None:
            self.process.terminate()

    def close(self) -> None:
        """Ends it at once. Its output is read to the end by the thread."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


def order_of(task: Task, again: bool, options: Mapping[str, Any]) -> dict[str, Any]:
    """The order for a worker. ``options``: kind, out, checkpoint_seconds and more."""
    return {**task.to_json(), "again": again, **options}
