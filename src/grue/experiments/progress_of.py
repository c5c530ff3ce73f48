"""The progress of the study in a folder, read from its files only; for ``grue status``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grue.errors import UsageError
from grue.experiments import status
from grue.training import runs
from grue.training.progress import Display, duration

RUN_COLUMNS = ("run", "step", "state")
Table = tuple[Sequence[str], list[list[str]], str]


def values_of(folder: Path) -> dict[str, Any]:
    """The state of a study, with the runs of its folder."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder; give the --out of a study")
    return {**(status.read_status(folder) or {}), "runs": _runs(folder)}


def table_of(folder: Path) -> Table:
    """The groups of a study and a line about it; for a folder without a study, its runs."""
    values = values_of(folder)
    found = values["runs"]
    done = sum(run["step"] >= run["steps"] for run in found)
    begun = f"{len(found)} {'run has' if len(found) == 1 else 'runs have'} begun"
    line = f"{begun}, {done} {'is' if done == 1 else 'are'} done"
    if "groups" not in values:
        if not found:
            raise UsageError(f"{folder} has no study and no runs; give the --out of a study")
        each = [[run["run"], f"{run['step']:,}/{run['steps']:,}", _state(run)] for run in found]
        return RUN_COLUMNS, each, line
    return status.COLUMNS, status.rows(values), f"{status.summary(values)}; {line}; {_led(values)}"


def _led(values: dict[str, Any]) -> str:
    if values["state"] != "running":
        return f"the study is {values['state']}"
    place = f"process {values['pid']} on {values['host']}"
    if status.is_led(values):
        return f"led by {place}"
    silent = duration(time.time() - values["updated"])
    return f"no news from {place} for {silent}: the same command goes on"


def _runs(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in runs.run_folders(folder):
        config, _ = runs.read_config(path)
        rows = runs.read_rows(path)
        step = rows[-1]["step"] if rows else 0
        name = path.name if path == folder else str(path.relative_to(folder))
        found.append({"run": name, "step": step, "steps": config.steps})
    return found


def _state(run: dict[str, Any]) -> str:
    return "done" if run["step"] >= run["steps"] else "not done"


def follow(folder: Path, display: Display) -> None:
    """Shows the table until the study is over or has no leader any more."""
    said = 0
    while (values := status.read_status(folder)) is not None:
        new = values["said"] - said
        for line in values["lines"][-new:] if new > 0 else ():
            display.say(line)
        said = values["said"]
        display.show_groups(status.COLUMNS, status.rows(values), status.summary(values))
        if not status.is_led(values):
            return
        time.sleep(status.WRITE_SECONDS)
