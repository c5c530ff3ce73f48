"""The state of a study, in a file beside its runs; ``grue status`` reads it."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grue.errors import BrokenFileError, UsageError
from grue.experiments import storage
from grue.experiments.conductor import Failure, StudyOutcome, TaskProgress
from grue.files import read_plain, write_atomically

NAME = storage.STATUS
KIND = "grue status"
WRITE_SECONDS = 1.0
SILENT_SECONDS = 60.0
"""A study that has not written its state for this long has no leader any more."""
MOST_LINES = 200
NUMBER = (int, float)
FIELDS = {
    **{"state": str, "host": str, "pid": int, "updated": NUMBER, "said": int},
    **{"groups": list, "failures": list, "measured": list, "lines": list},
}
GROUP_FIELDS = {
    **{"label": str, "state": str, "place": str, "why": str, "runs": list, "names": list},
    **{"step": int, "steps": int, "done": int, "steps_per_s": NUMBER},
}
"""The fields of the state that a table needs, with their types."""
COLUMNS = ("group", "runs", "state", "where", "step", "steps_per_s", "left", "note")


class StatusFile:
    """Writes the state of a study to its folder, about once a second."""

    def __init__(self, out: Path, where: str) -> None:
        self.path = out / NAME
        self.about = {
            "kind": KIND,
            "where": where,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "begun": time.time(),
        }
        self._written = 0.0
        self.lines: list[str] = []
        """The messages so far, for commands that join later."""

    def write(
        self, tasks: Sequence[TaskProgress], outcome: StudyOutcome, state: str = "running"
    ) -> dict[str, Any] | None:
        """Returns what it has written; None if it is too early to write again."""
        now = time.time()
        if state == "running" and now - self._written < WRITE_SECONDS:
            return None
        self._written = now
        values = {
            **self.about,
            "state": state,
            "updated": now,
            "groups": [one.to_json() for one in tasks],
            "failures": [asdict(failure) for failure in outcome.failures],
            "measured": outcome.measured,
            "said": len(self.lines),
            "lines": self.lines[-MOST_LINES:],
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(values, indent=1) + "\n"
        write_atomically(self.path, lambda file: file.write(text.encode()))
        storage.send_file(self.path)
        return values


def read_status(out: Path) -> dict[str, Any] | None:
    """The state of the study in a folder; None if there is none."""
    path = out / NAME
    storage.fetch_file(path)
    try:
        values = json.loads(read_plain(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise _broken(path, str(error)) from None
    if not isinstance(values, dict) or values.get("kind") != KIND:
        raise UsageError(f"{path} is not the state of a study; give the folder of --out")
    if fault := _fault(values):
        raise _broken(path, fault)
    return values


def _broken(path: Path, why: str) -> BrokenFileError:
    return BrokenFileError(f"{path} is damaged ({why}); delete it: the runs do not need it")


def _fault(values: Mapping[str, Any]) -> str:
    """What is wrong with a state; empty if nothing is."""
    checked = [(values, FIELDS)]
    if isinstance(values.get("groups"), list):
        checked += [(group, GROUP_FIELDS) for group in values["groups"]]
    for found, fields in checked:
        if not isinstance(found, dict):
            return f"a group is {found!r}"
        for name, kind in fields.items():
            if not isinstance(found.get(name), kind):
                return f"{name} is {found.get(name)!r}"
        if fields is GROUP_FIELDS and not found["steps"] >= len(found["runs"]) > 0:
            return f"a group has {found['steps']} steps for {len(found['runs'])} runs"
    for failure in values["failures"]:
        if not isinstance(failure, dict) or set(failure) != {"run", "why", "place"}:
            return f"a failure is {failure!r}"
    return ""


def is_led(values: Mapping[str, Any]) -> bool:
    """Whether a process is leading the study now."""
    return values["state"] == "running" and time.time() - values["updated"] < SILENT_SECONDS


def outcome_of(values: Mapping[str, Any]) -> StudyOutcome:
    """The outcome of a study that is over."""
    done = [name for g in values["groups"] if g["state"] == "done" for name in g["runs"]]
    return StudyOutcome(
        failures=[Failure(**failure) for failure in values["failures"]],
        stopped=values["state"] == "stopped",
        done=done,
        measured=values["measured"],
    )


def rows(values: Mapping[str, Any]) -> list[list[str]]:
    """A row of the table for each group."""
    return [_row(group) for group in values["groups"] if group["state"] != "split"]


def _row(group: Mapping[str, Any]) -> list[str]:
    from grue.training.progress import (
        duration,
    )  # Imported here because it imports JAX, which is not needed to write the state.

    running = group["state"] == "running"
    runs, current = len(group["runs"]), max(len(group["names"]), 1)
    each = group["steps"] // runs
    ended = min(group["done"], runs)
    trained = ended * each + (group["step"] % each) * current if running else ended * each
    trained = group["steps"] if group["state"] == "done" else trained
    speed = group["steps_per_s"] if running else 0.0
    left = (group["steps"] - trained) / speed if speed else None
    return [
        group["label"],
        str(runs),
        group["state"],
        group["place"],
        f"{trained:,}/{group['steps']:,}",
        f"{speed:,.0f}" if speed else "",
        duration(left) if left is not None else "",
        group["why"],
    ]


def summary(values: Mapping[str, Any]) -> str:
    """One line: "7 groups: 3 done, 2 running, 2 waiting"."""
    states = [group["state"] for group in values["groups"] if group["state"] != "split"]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return f"{len(states)} group{'s' * (len(states) != 1)}: {counts or 'nothing to do'}"
