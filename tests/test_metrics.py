"""Rows of metrics, and the events that TensorBoard reads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_rows import CONFIG, rows, single, sums

import grue
from grue.agents.registry import AGENTS, AgentKind, Metric
from grue.training import metrics
from grue.training.config import TrainConfig
from grue.training.events import Events
from grue.training.metrics import MetricsRow, columns_of, fault, make_row, part_name

TABULAR = TrainConfig(agent="tabular", gate="oracle", metrics_every=100, average_over=300)
COLUMNS = ("step", "seed", *(metric.name for metric in columns_of(CONFIG)))

# Rows of metrics


def test_a_row() -> None:
    assert make_row(CONFIG, 100, sums(), []) == {
        "step": 100,
        "seed": 0,
        "episodes": 2,
        "wins": 1,
        "score": 7.5,
        "fraction": 0.75,
        "score_average": 7.5,
        "fraction_average": 0.75,
        "epsilon": 0.775,
        "q_loss": 2.0,
        "classifier_loss": 0.5,
        "classifier_accuracy": 0.8,
        "precision": 0.75,
        "recall": 150 / 225,
        "inadmissible_value": 0.4,
        "candidates": 2.5,
        "admissible_commands": 2.25,
        "admissible": 0.3,
        "heads": [0.75, 0.25, 0.0, 0.0, 0.0],
        "updates": 25,
        "failures": 0,
    }
    assert tuple(make_row(CONFIG, 100, sums(), [])) == COLUMNS


def test_the_columns_of_an_agent() -> None:
    """What an agent neither declares nor estimates is no column of its runs."""
    learned = (
        *("q_loss", "classifier_loss", "classifier_accuracy", "precision", "recall"),
        "inadmissible_value",
    )
    row = make_row(TABULAR, 100, sums(), [])
    assert tuple(row) == tuple(name for name in COLUMNS if name not in learned)
    assert fault(row, TABULAR, 1) == ""
    assert fault(row, CONFIG, 1) == "q_loss is missing"
    assert tuple(metrics.columns([row], TABULAR)) == tuple(row)
    assert metrics.averaged(CONFIG) == [
        *("score", "fraction", *learned, "candidates", "admissible_commands", "admissible")
    ]
    assert metrics.averaged(TABULAR) == [
        *("score", "fraction", "candidates", "admissible_commands", "admissible")
    ]
    assert metrics.whole(CONFIG) == ["step", "seed", "episodes", "wins", "updates", "failures"]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("wins", None, "wins is None"),
        ("wins", 1.5, "wins is 1.5"),
        ("score", None, ""),
        ("score", "x", "score is 'x'"),
        ("q_loss", float("inf"), "q_loss is inf"),
        ("heads", [0.5, None, 0.5, 0, 0], ""),
        ("heads", [0.5, 0.5], "heads is [0.5, 0.5], not a list of 5"),
        ("heads", 1.0, "heads is 1.0, not a list of 5"),
        ("step", 200, "its step is 200, not 100: a line is missing or of another run"),
        ("seed", 1, "its seed is 1, not 0: a line is missing or of another run"),
        ("heads", [0.5, "x"], "heads is [0.5, 'x']"),
    ],
)
def test_rows_that_are_damaged(name: str, value: Any, why: str) -> None:
    assert fault({**rows(1)[0], name: value}, CONFIG, 1) == why


def test_spans_of_declared_columns() -> None:
    """A mean over steps, over ended episodes and over updates, and a sum."""
    declared: dict[str, Any] = {
        "by_step": "step",
        "by_episode": "episode",
        "by_update": "update",
        "many": "count",
    }
    own = *(Metric(name, "", per) for name, per in declared.items()), Metric("ways", "", "step", 2)
    AGENTS.add("of-four", AgentKind(AGENTS["tabular"].make, metrics=own))
    try:
        config = TrainConfig(agent="of-four", metrics_every=100, average_over=300)
        told = {**sums(by_step=50, by_episode=3, by_update=5, many=7), "ways": np.array([25, 75])}
        row = make_row(config, 100, told, [])
        table = metrics.columns([row], config)
        assert "not a list of 2" in fault(row | {"ways": [0.25]}, config, 1)
        assert "ways" not in metrics.averaged(config)
    finally:
        AGENTS.remove("of-four")
    assert [row[name] for name in declared] == [0.5, 1.5, 0.2, 7]
    assert [table[name].dtype.kind for name in declared] == ["f", "f", "f", "i"]
    assert row["ways"] == [0.25, 0.75]
    assert table["ways"].tolist() == [[0.25, 0.75]]
    assert (part_name("ways", 1), part_name("heads", 3)) == ("way_1", "head_3")


def test_what_is_undefined_is_null() -> None:
    empty = sums(episodes=0, wins=0, score=0, fraction=0, updates=0, rightly_admitted=0)
    row = make_row(CONFIG, 800, {**empty, "wrongly_admitted": single(0)}, [])
    undefined = {name for name, value in row.items() if value is None}
    assert undefined == {
        *("score", "fraction", "score_average", "fraction_average", "precision"),
        *("q_loss", "classifier_loss", "classifier_accuracy"),
    }
    assert row["recall"] == 0.0
    assert row["epsilon"] == 0.1
    # JSON has no word for what a diverged run gives.
    lost = {**sums(), "q_loss": single("nan"), "classifier_loss": single("inf")}
    row = make_row(CONFIG, 100, lost, [])
    assert (row["q_loss"], row["classifier_loss"]) == (None, None)
    json.dumps(row, allow_nan=False)


def test_the_moving_average_is_over_episodes() -> None:
    made: list[MetricsRow] = []
    ended = [(1, 10), (0, 0), (4, 0), (1, 15), (0, 0), (0, 0), (0, 0)]
    for i, (episodes, score) in enumerate(ended, 1):
        told = sums(episodes=episodes, score=score, fraction=score / 20)
        made.append(make_row(CONFIG, 100 * i, told, made))
    # Three rows: 10; 10; 10 of 5 episodes; 15 of 5; 15 of 5; 15; none.
    assert [row["score_average"] for row in made] == [10, 10, 2, 3, 3, 15, None]
    assert [row["fraction_average"] for row in made] == [0.5, 0.5, 0.1, 0.15, 0.15, 0.75, None]

    table = metrics.columns(made, CONFIG)
    for name in ("score", "fraction"):
        steps, curve = metrics.moving_average(table, name, CONFIG)
        np.testing.assert_array_equal(steps, np.arange(100, 800, 100))
        np.testing.assert_array_equal(curve, table[f"{name}_average"])


def test_other_columns_are_averaged_over_rows() -> None:
    made = rows(4)
    for row, loss in zip(made, [None, 1.0, 2.0, 4.5], strict=True):
        row["q_loss"] = loss
    steps, curve = metrics.moving_average(metrics.columns(made, CONFIG), "q_loss", CONFIG)
    np.testing.assert_array_equal(steps, [100, 200, 300, 400])
    np.testing.assert_array_equal(curve, [np.nan, 1.0, 1.5, 2.5])
    with pytest.raises(grue.UsageError, match="there is no curve 'loss'; there are score, frac"):
        metrics.moving_average(metrics.columns(made, CONFIG), "loss", CONFIG)


def test_columns() -> None:
    table = metrics.columns(rows(3, episodes=0), CONFIG)
    assert tuple(table) == COLUMNS
    assert table["step"].dtype == np.int64
    np.testing.assert_array_equal(table["score"], [np.nan] * 3)
    assert table["heads"].shape == (3, 5)
    empty = metrics.columns([], CONFIG)
    assert {len(column) for column in empty.values()} == {0}
    assert empty["heads"].shape == (0, 5)


# TensorBoard


def read_events(path: Path) -> list[Any]:
    from tensorboardX.proto import event_pb2

    data, found = path.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        found.append(event_pb2.Event.FromString(data[12 : 12 + length]))  # type: ignore
        data = data[16 + length :]
    return found


def test_events(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.0.old").write_text("of a killed process")
    events = Events(tmp_path, rows(4)[3:])
    for row in rows(5)[4:]:
        events.add(row)
    events.close()
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("events.out.tfevents.")
    assert path.name.endswith(f".{os.getpid()}")
    version, first, second = read_events(path)
    assert version.file_version == "brain.Event:2"
    assert (first.step, second.step) == (400, 500)
    values = {value.tag: value.simple_value for value in first.summary.value}
    assert values["score"] == 7.5
    assert values["head 2"] == 0.25
    assert set(values) == {
        *(set(COLUMNS) - {"step", "seed", "heads"}),
        *(f"head {i}" for i in range(1, 6)),
    }


def test_nulls_are_no_events(tmp_path: Path) -> None:
    events = Events(tmp_path, [])
    events.add(rows(1, episodes=0)[0])
    events.close()
    tags = {value.tag for value in read_events(next(tmp_path.iterdir()))[1].summary.value}
    assert "score" not in tags
    assert "candidates" in tags
