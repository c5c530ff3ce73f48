"""The benchmark: what its rows say, not how fast this machine is."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

import grue
from grue.engine.bench import BATCHES, EnvSpeed, bench_env, device_name, textworld_row

pytestmark = pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning")

KEYS = ("engine", "game", "batch", "steps_per_s", "device")


def test_keys() -> None:
    assert EnvSpeed._fields == KEYS
    assert BATCHES == (1, 32, 1024, 16384)


@pytest.mark.parametrize(
    ("admissible", "name"), [(False, "textworld"), (True, "textworld, admissible commands")]
)
def test_textworld_row(admissible: bool, name: str) -> None:
    row = textworld_row(grue.load("saladworld-1"), admissible, seconds=0.05)
    assert (row.engine, row.game, row.batch) == (name, "saladworld-1", 1)
    assert row.steps_per_s > 0


def test_rows_are_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def measure(game: grue.Game, batch: int, seconds: float) -> EnvSpeed:
        measured.append((game.name, batch, seconds))
        return EnvSpeed("grue compiled", game.name, batch, 1.0, "CPU")

    monkeypatch.setattr("grue.engine.bench.compiled_row", measure)
    rows = list(bench_env(["saladworld-1", "saladworld-3"], (2, 5), 0.5, hosted=False))
    expected = [(f"saladworld-{level}", batch, 0.5) for level in (1, 3) for batch in (2, 5)]
    assert measured == expected
    assert [(row.game, row.batch, 0.5) for row in rows] == expected


def test_command_line() -> None:
    line = ["bench", "env", "--game", "saladworld-1", "--batch", "8", "--seconds", "0.05", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "grue.cli", *line], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert all(tuple(row) == KEYS for row in rows)
    assert all(row["steps_per_s"] > 0 for row in rows)
    assert rows[0]["device"] == device_name() != ""
    ours = [(r["engine"], r["game"], r["batch"]) for r in rows if r["game"] == "saladworld-1"]
    assert ours == [
        ("grue compiled", "saladworld-1", 8),
        ("textworld", "saladworld-1", 1),
        ("textworld, admissible commands", "saladworld-1", 1),
    ]
    # Games of its own follow where it is installed.
    express = find_spec("textworld_express") is not None
    assert (len(rows) > len(ours)) == express
