"""The measurement of training: its rows, and the count of the work."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from grue.cli.entry import main
from grue.experiments.scales import SCALES
from grue.training.bench import Bench, TrainSpeed
from grue.training.config import TrainConfig, known_to

SMALL = dict(SCALES["smoke"].settings)
"""Tests of figures train with these: there may be a program already."""


def options(**more: object) -> list[str]:
    given = {**known_to({"agent": "drqn", "gate": "masking"}, SMALL), **more}
    return [part for name, value in given.items() for part in ("--set", f"{name}={value}")]


def test_rows_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grue.training.bench.WARM_UP", 400)
    monkeypatch.setattr("grue.training.bench.ROUNDS", 2)
    code = main(
        ["bench", "train", "--games", "saladworld-1", "--agents", "drqn", "--json", *options()]
    )
    assert code == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert list(row) == list(TrainSpeed._fields)
    assert (row["agent"], row["gate"], row["game"], row["runs"]) == (
        "drqn",
        "masking",
        "saladworld-1",
        1,
    )
    assert min(row[name] for name in TrainSpeed._fields[4:9]) > 0
    rate = row["gflop_per_update"] / (row["ms_per_update"] / 1e3)
    expected = rate / row["matrix_gflops"]
    # Both are rounded to three digits after the point, which is much of so little work.
    slack = expected * 0.0005 / row["gflop_per_update"] + 0.001
    assert abs(row["ratio"] - expected) <= slack


def test_the_median_counts() -> None:
    """Of what learning adds to a row, and of the whole row."""
    bench: Any = SimpleNamespace(settings=SimpleNamespace(metrics_every=40, update_every=4), runs=2)
    assert Bench.typical(bench, [(1.0, 3.0), (1.0, 9.0), (2.0, 5.0)]) == (3 / 10, 80 / 5)


def test_the_work_of_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grue.training.bench.WARM_UP", 400)
    bench = Bench([TrainConfig(agent="drqn", **known_to({"agent": "drqn"}, SMALL))], 1)
    # θ twice over 4 · 8 rows backward and once forward, θ⁻ over 4 · 9; 4 · 6 and 4 · 7 scored.
    context = 2 * (2 * 8 + 16) * 64 * (3 * 32 + 36)
    scorer = 2 * (16 * 16 + 16 * 8) * (3 * 24 + 28)
    words = bench.flop_per_update() - context - scorer
    each = 4 * 2 * 8 * 32
    assert words % (each / 8) == 0  # The mean over eight batches.
    assert 5 < words / each < 64 * 50
    assert bench._flop_beyond_words(False) == context + scorer
    # A learned gate trains the classifier too.
    assert bench._flop_beyond_words(True) == context + scorer + 2 * (16 * 16 + 16 * 8) * 3 * 24


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--agents", "tabular"], "only drqn, sc, drrn have updates to time, not 'tabular'"),
        (["--gates", "mask"], "there is no gate 'mask'"),
        (["--runs", "0"], "--runs takes numbers from 1 on"),
        (["--games", "saladworld-9"], "saladworld-9"),
        (["--set", "contxt=3"], "the nearest is 'context'"),
        (
            ["--set", "table_rows=3"],
            "table_rows is a setting of the agent tabular, li-tabular, not of drqn",
        ),
        (
            ["--gates", "none", "--set", "softness=0"],
            "softness is a setting of the gate dropout, masking, not of none",
        ),
        (
            ["--gates", "none,masking", "--runs", "2", "--set", "threshold=0.5"],
            "these agents and gates cannot share a program; give --runs 1",
        ),
        (["--parts"], "--parts needs a GPU, and there is none"),
    ],
)
def test_refusals(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "train", *arguments]) == 2
    assert told in capsys.readouterr().err
