"""The process that trains a task: ``python -m grue.experiments.worker``.

It reads an order from its standard input (one line of JSON) and writes events to its standard
output (a line of JSON each). If the input ends, the process that started it is gone: it then writes
a checkpoint and exits, as it does on SIGTERM. It is the same process on one machine and on Ray.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from grue.errors import BusyError, GrueError, NoCheckpointError, OutOfMemoryError, is_out_of_memory
from grue.experiments import storage

Tell = Callable[[str, Mapping[str, Any]], None]
ROW_SECONDS = 1.0
"""Least seconds between two ``row`` events."""
BUSY_SECONDS = 300.0
"""A retried task waits at most this long for the process that had it before."""


def main() -> int:
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # So that output of libraries does not mix with the events.
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_starter, daemon=True).start()
    if cores := order.get("cores"):
        os.sched_setaffinity(0, cores)  # Before JAX starts its threads.

    def tell(kind: str, value: Mapping[str, Any]) -> None:
        said.write(json.dumps([kind, value]) + "\n")
        said.flush()

    try:
        tell(*_carried_out(order, tell))
    except BrokenPipeError:  # The process that started this one was killed.
        return 1
    return 0


def _end_with_starter() -> None:
    while sys.stdin.buffer.read(1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _carried_out(order: Mapping[str, Any], tell: Tell) -> tuple[str, dict[str, Any]]:
    from grue.agents.own import import_own

    try:
        import_own()
        if order["kind"] == "evaluate":
            return evaluate(order, tell)
        return train(order, Teller(tell))
    except OutOfMemoryError as error:
        return "memory", {"why": str(error)}
    except GrueError as error:
        return "failed", {"why": str(error), "code": error.exit_code}
    except Exception as error:
        if is_out_of_memory(error):
            return "memory", {"why": str(error).partition("\n")[0]}
        raise


def train(order: Mapping[str, Any], teller: Teller) -> tuple[str, dict[str, Any]]:
    """Trains the runs of an order, and returns how it ended."""
    from grue.training.config import TrainConfig
    from grue.training.train import Interrupted, train_all

    configs = [TrainConfig.from_json(config) for _, config in order["runs"]]
    out, together = storage.folder_at(order), order["together"]
    options = order["checkpoint_seconds"], order["one_program"]
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            with storage.sending(out, [name for name, _ in order["runs"]]):
                train_all(configs, out, True, together, teller, *options)
            break
        except BusyError:
            if not order.get("again") or time.monotonic() > until:
                raise
            time.sleep(1.0)
        except Interrupted as stopped:
            return "stopped", {"step": stopped.step, "steps": stopped.steps}
        except GrueError as error:
            kind = "memory" if isinstance(error, OutOfMemoryError) else "failed"
            return kind, {"why": str(error), "code": error.exit_code, "runs": teller.names}
    if measured := teller.measured():
        teller.tell("measured", measured)
    return "done", {}


def evaluate(order: Mapping[str, Any], tell: Tell) -> tuple[str, dict[str, Any]]:
    """Plays runs. If one cannot be played, its result is the error; the others are still played."""
    from grue.training.evaluate_runs import HowToPlay, evaluate_runs

    how = HowToPlay.from_json(order)
    for name, values in order["runs"]:
        try:
            (played,) = evaluate_runs(Path(values["folder"]), how)
        except OutOfMemoryError:
            raise
        except GrueError as error:
            begun = isinstance(error, NoCheckpointError)
            why = {"why": str(error), "code": error.exit_code, "has_only_begun": begun}
            tell("result", {"run": name, **why})
            continue
        assert not isinstance(played, GrueError)  # It is raised where the folder is a run.
        run = replace(played, name=name)
        told = run.to_json(order["transcript"])
        shown = {"columns": run.columns, "rows": list(run.rows())}
        tell("result", {"run": name, "json": told, "notes": run.notes, **shown})
    return "done", {}


class Teller:
    """Turns the progress of training into events, and measures the speed."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        self.names: list[str] = []
        self.steps = 0
        self._begun, self._last, self._said = time.monotonic(), (0.0, 0), 0.0
        self._rows: list[tuple[float, int]] = []
        """Seconds and steps of each row."""

    def begin(self, names: Sequence[str], step: int, steps: int) -> None:
        self.names, self.steps = list(names), steps
        self._last = time.monotonic(), step
        self.tell("begin", {"names": list(names), "step": step, "steps": steps})

    def update(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        now, (before, first) = time.monotonic(), self._last
        self._rows.append((now - before, step - first))
        self._last = now, step
        if step == self.steps:
            for row, name in zip(rows, self.names, strict=True):
                self.tell("run", {"text": self.ended(name, row)})
        if step == self.steps or now - self._said >= ROW_SECONDS:
            self._said = now
            self.tell("row", {"step": step, "steps_per_s": self._speed() * len(self.names)})

    def ended(self, name: str, row: Mapping[str, Any]) -> str:
        """The line about a run that has ended."""
        score, fraction = row["score_average"], row["fraction_average"]
        reached = "" if score is None else f", score {score:.1f}, fraction {fraction:.2f}"
        return f"{name}: {row['step']} steps{reached}"

    def say(self, line: str) -> None:
        self.tell("line", {"text": line})

    def _speed(self) -> float:
        """Steps a second of each run. Rows that waited for the compiler are outliers."""
        return median(steps / max(seconds, 1e-9) for seconds, steps in self._rows[-10:])

    def measured(self) -> dict[str, Any] | None:
        """Steps a second of the rows at full speed, and the seconds of everything else."""
        if len(self._rows) < 3:
            return None
        import jax

        from grue.engine.bench import device_name

        speed = median(steps / max(seconds, 1e-9) for seconds, steps in self._rows)
        trained = sum(steps for _, steps in self._rows)
        stats = jax.devices()[0].memory_stats() or {}
        peak = stats.get("peak_bytes_in_use") or _resident()
        return {
            "device": device_name(),
            "runs": len(self.names),
            "steps_per_s": round(speed * len(self.names), 2),
            "start_s": round(max(time.monotonic() - self._begun - trained / speed, 0.0), 2),
            "peak_bytes": peak,
        }


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main())
