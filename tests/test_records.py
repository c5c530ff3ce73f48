"""Records of runs: thinned by hand, written, read, put together, and what is missing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grue.errors import BrokenFileError, UsageError
from grue.experiments.conditions import Condition
from grue.experiments.records import (
    Record,
    merged,
    read_records,
    record_of,
    records_in,
    write_record,
)
from grue.experiments.scales import SCALES
from grue.experiments.thinning import MOST_ROWS, rounded, row_steps
from grue.experiments.wishes import finished, missing
from grue.training.config import TrainConfig
from grue.training.metrics import columns, columns_of
from grue.training.runs import Curves, create

NAN = float("nan")
COLUMNS = ("step", "seed", *(metric.name for metric in columns_of(TrainConfig())))


# Thinning


def row(step: int, episodes: int, fraction: float | None, **more: Any) -> dict[str, Any]:
    """A row of metrics, null where nothing is said."""
    values = dict.fromkeys(COLUMNS) | {"step": step, "seed": 0, "episodes": episodes, "wins": 0}
    values |= {
        "fraction": fraction,
        "updates": 250,
        "failures": 0,
        "heads": [0.5, 0.5],
        "epsilon": 1 - step / 1e6,
    }
    return values | more


def run(rows: list[dict[str, Any]], seed: int = 0, **settings: Any) -> Curves:
    values: dict[str, Any] = {"steps": 600_000, "game": "saladworld-3", "gate": "masking"}
    config = TrainConfig(**values | settings).of_seed(seed)
    return Curves(config, seed, columns(rows, config))


def hand_made(seed: int = 0, **settings: Any) -> Curves:
    """Six rows of 1,000 steps, which are thinned to two of 3,000."""
    rows = [
        row(1000, 0, None, precision=0.25, heads=[1.0, 0.0]),
        row(2000, 1, 0.5, score=10.0, fraction_average=0.5, precision=None, heads=[0.7, 0.3]),
        row(3000, 3, 1.0, score=20.0, wins=3, fraction_average=0.875, precision=0.5),
        row(4000, 2, 0.123456, fraction_average=0.96, candidates=3.0, q_loss=0.000123456),
        row(5000, 0, None, fraction_average=0.97, candidates=4.0),
        row(6000, 2, 0.5, fraction_average=1.0, candidates=4.0, admissible=123456.0),
    ]
    return run(rows, seed, **settings)


def test_rows_are_put_together_by_hand() -> None:
    made = hand_made()
    assert row_steps(made.config) == 3000  # 600 rows, of which at most 260 stay.
    record = record_of([made])
    found = {name: column[0].tolist() for name, column in record.columns.items()}
    assert record.steps.tolist() == [3000, 6000]
    assert found["episodes"] == [4, 4]
    assert found["wins"] == [3, 0]
    assert found["updates"] == [750, 750]
    assert found["fraction"] == [(0.5 + 3 * 1.0) / 4, 0.3117]  # (2 × 0.123456 + 2 × 0.5) / 4
    assert found["score"][0] == (10 + 3 * 20) / 4
    assert found["precision"][0] == (0.25 + 0.5) / 2
    assert found["candidates"][1] == 3.667
    assert found["q_loss"][1] == 0.0001235
    assert found["admissible"][1] == 123500.0
    assert found["fraction_average"] == [0.875, 1.0]
    assert found["epsilon"] == [0.997, 0.994]
    np.testing.assert_allclose(found["heads"], [[0.7333, 0.2667], [0.5, 0.5]], rtol=0, atol=1e-12)
    for name, at in (("score", 1), ("precision", 1), ("candidates", 0), ("recall", 0)):
        assert np.isnan(found[name][at])
    assert record.first_solve == (3000,)
    assert record.solved == (4000,)  # Of the full metrics: the thinned rows say 6,000.
    assert record.final.tolist() == [1.0]
    assert (record.reached, record.finished) == ((6000,), ())
    assert (record.game, record.agent, record.gate) == ("saladworld-3", "sc", "masking")
    assert record.label == "sc + masking"


def test_seeds_of_other_lengths_and_runs_that_never_win() -> None:
    short = run([row(n * 1000, 1, 0.5, fraction_average=0.5) for n in range(1, 6)], 1)
    record = record_of([short, hand_made(4)])
    assert record.seeds == (1, 4)
    assert record.steps.tolist() == [3000, 6000]
    assert record.columns["episodes"][0, 0] == 3
    assert np.isnan(record.columns["episodes"][0, 1])  # Two rows of three: not yet a row.
    assert np.isnan(record.columns["heads"][0, 1]).all()
    assert record.reached == (3000, 6000)
    assert record.final.tolist() == [0.5, 1.0]
    assert (record.first_solve, record.solved) == ((None, 3000), (None, 4000))
    only = record.only([4])
    assert (only.seeds, only.final.tolist(), only.solved) == ((4,), [1.0], (4000,))


def test_the_last_row_of_a_finished_run_may_be_shorter() -> None:
    rows = [row(n * 1000, 1, 0.5, fraction_average=n / 1000) for n in range(1, 524)]
    record = record_of([run(rows, steps=523_000)])
    assert row_steps(record.config) == 3000
    assert record.steps[-3:].tolist() == [519_000, 522_000, 523_000]
    assert record.columns["episodes"][0, -2:].tolist() == [3, 1]
    assert record.finished == (0,)
    assert row_steps(TrainConfig()) == 5000
    assert TrainConfig().steps // row_steps(TrainConfig()) == MOST_ROWS
    assert row_steps(SCALES["smoke"].config(Condition("sc"), 1, (0,))) == 200


def test_rounding() -> None:
    values = np.array([[0.123456, 12345.6], [NAN, -0.00098765]])
    assert rounded(values)[0].tolist() == [0.1235, 12350.0]
    assert rounded(values)[1, 1] == -0.0009877
    assert np.isnan(rounded(values)[1, 0])


def test_runs_that_differ_in_more_than_the_seed_are_no_record() -> None:
    with pytest.raises(UsageError, match=r"one condition.*\(huber is False and True\)"):
        record_of([hand_made(0), hand_made(1, huber=True)])


# Files


def same(one: Record, other: Record) -> bool:
    assert (one.config, one.about) == (other.config, other.about)
    assert (one.first_solve, one.solved) == (other.first_solve, other.solved)
    assert one.steps.tolist() == other.steps.tolist()
    assert sorted(one.columns) == sorted(other.columns)
    for name, column in one.columns.items():
        np.testing.assert_array_equal(column, other.columns[name], err_msg=name)
    return True


def with_about(*runs: Curves) -> Record:
    record = record_of(runs)
    return replace(record, about=tuple({"commit": "ab", "device": "CPU"} for _ in record.seeds))


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = with_about(hand_made(0), hand_made(3))
    path = write_record(record, tmp_path)
    assert path == tmp_path / "saladworld-3" / "sc-masking.json"
    (back,) = read_records([path])
    assert same(record, back)
    assert back.source == path
    first = path.read_bytes()
    assert write_record(back, tmp_path).read_bytes() == first
    assert [p.name for p in path.parent.iterdir()] == ["sc-masking.json"]
    stored = json.loads(first)
    assert stored["columns"]["wins"] == [[3, 0]]  # All seeds have the same.
    assert stored["columns"]["recall"] == [[None, None]]
    ablated = replace(record, config=replace(record.config, priority=False, look_every=0))
    assert write_record(ablated, tmp_path).name == "sc-masking-no-priority-no-look.json"


def test_a_record_at_the_papers_scale_is_small(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    config = TrainConfig(seeds=(0, 1, 2, 3, 4))
    runs = []
    for seed in config.seeds:
        rows = []
        for step in range(1000, 1_300_001, 1000):
            noise = dict(zip(COLUMNS[4:-2], rng.random(len(COLUMNS)), strict=False))
            noise |= {"candidates": rng.random() * 15, "epsilon": max(0.1, 1 - step / 1e6)}
            heads = rng.dirichlet(np.ones(5)).tolist()
            rows.append(row(step, int(rng.integers(5, 9)), **noise | {"heads": heads, "wins": 3}))
        runs.append(Curves(config.of_seed(seed), seed, columns(rows, config)))
    record = record_of(runs)
    assert len(record.steps) == MOST_ROWS
    assert write_record(record, tmp_path).stat().st_size < 180_000


def test_runs_and_records_are_found_at_any_depth_and_put_together(tmp_path: Path) -> None:
    two = {"heads": 2}
    pair = with_about(hand_made(0, **two), hand_made(1, **two))
    write_record(pair, tmp_path / "results" / "deep")
    (tmp_path / "results" / "table.json").write_text('{"rows": [1, 2]}')
    (tmp_path / "results" / "table.md").write_text("no JSON")
    store(tmp_path / "runs" / "a", hand_made(2, **two))
    store(tmp_path / "runs" / "b", hand_made(0, agent="drqn"))
    store(tmp_path / "runs" / ".c.partial", hand_made(3))
    create(tmp_path / "runs" / "empty", hand_made(5).config, {})
    baseline, sc = read_records([tmp_path])
    assert (baseline.agent, baseline.seeds, sc.agent, sc.seeds) == ("drqn", (0,), "sc", (0, 1, 2))
    assert sc.about[2] == {"commit": "of the folder"}
    assert sc.columns["wins"].tolist() == [[3, 0]] * 3
    assert [run.seed for run in sc.runs()] == [0, 1, 2]
    assert sc.runs()[2].metrics["fraction_average"].tolist() == [0.875, 1.0]
    assert sc.runs()[2].metrics["step"].tolist() == [3000, 6000]


def store(folder: Path, of: Curves) -> None:
    create(folder, of.config, {"commit": "of the folder"})
    lines = []
    for i in range(len(of.metrics["step"])):
        values = {name: of.metrics[name][i].tolist() for name in COLUMNS}
        values["seed"] = of.config.seeds[0]
        values["heads"] = [*values["heads"], *[0.0] * 5][: of.config.heads_in_use]
        plain = {k: None if v != v else v for k, v in values.items()}
        lines.append(json.dumps(plain) + "\n")
    (folder / "metrics.jsonl").write_text("".join(lines))


def test_of_a_seed_that_is_there_twice_the_longer_run_counts() -> None:
    rows = [row(n * 1000, 1, 0.5, fraction_average=0.5) for n in range(1, 4)]
    half, whole = record_of([run(rows)]), with_about(hand_made())
    for order in ([half, whole], [whole, half]):
        (found,) = merged(order)
        assert (found.seeds, found.reached) == ((0,), (6000,))
    again = replace(whole, about=({"commit": "other"},))
    assert merged([whole, again])[0].about[0]["commit"] == "ab"  # The first of two alike.
    coarse = replace(
        whole.only([0]),
        config=replace(whole.config, seeds=(1,)),
        columns={"fraction_average": whole.columns["fraction_average"]},
        first_solve=None,
        solved=None,
    )
    assert [record.seeds for record in merged([whole, coarse])] == [(0,), (1,)]  # Other columns.


def test_two_releases_of_a_story_are_no_record() -> None:
    """Of two files that are called zork1, neither adds seeds to the other."""

    def of_release(seed: int, release: int) -> Record:
        about = {"release": release, "game_hash": f"of {release}"}
        return replace(record_of([hand_made(seed, game="zork1")]), about=(about,))

    records = [of_release(0, 88), of_release(1, 119), of_release(0, 119)]
    assert [(r.seeds, r.story) for r in merged(records)] == [((0,), "of 88"), ((0, 1), "of 119")]
    config = replace(records[0].config, seeds=(0, 1), steps=6000)
    longer = [replace(record, config=replace(record.config, steps=6000)) for record in records]
    found = finished(merged(longer), config)
    assert found is not None
    assert (found.seeds, found.story) == ((0, 1), "of 119")


def test_where_a_story_lies_is_not_in_a_record() -> None:
    here, there = hand_made(0, game="zork1", story="/a"), hand_made(1, game="zork1", story="/b")
    record = record_of([here, there])
    assert (record.config.story, record.seeds) == (None, (0, 1))
    wanted = replace(record.config, steps=6000, story="/c", seeds=(0, 1, 2))
    done = replace(record, config=replace(record.config, steps=6000))
    (left,) = missing([done], [wanted])
    assert (left.seeds, left.story) == ((2,), "/c")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda v: v.pop("steps"), "'steps'"),
        (lambda v: v.update(format=2), "it has format 2, this grue reads 1"),
        (lambda v: v["steps"].reverse(), "its steps do not grow"),
        (lambda v: v["steps"].append(9000), "is not a column of 1 seeds and 3 rows"),
        (lambda v: v["columns"].pop("fraction_average"), "fraction_average is missing"),
        (lambda v: v["columns"].update(tea=[[1, 2]]), "tea is not a column"),
        (lambda v: v["columns"].update(wins=[["x", 1]]), "could not convert"),
        (lambda v: v["config"].update(speed=3), "no setting 'speed'"),
        (lambda v: v["about"].append({}), "about has 2 entries for 1 seeds"),
        (lambda v: v.update(solved=[1, 2]), "solved has 2 entries"),
        (lambda v: v.update(first_solve=[]), "first_solve has 0 entries"),
    ],
)
def test_broken_records_are_refused_in_a_line(tmp_path: Path, change: Any, why: str) -> None:
    path = write_record(with_about(hand_made()), tmp_path)
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    with pytest.raises(BrokenFileError, match="delete it and train again") as caught:
        read_records([tmp_path])
    assert str(path) in str(caught.value)
    assert why in str(caught.value)


def test_a_record_of_an_agent_that_is_not_registered(tmp_path: Path) -> None:
    path = write_record(with_about(hand_made()), tmp_path)
    values = json.loads(path.read_text())
    values["config"]["agent"] = "dqn"
    path.write_text(json.dumps(values))
    with pytest.raises(UsageError, match=r"there is no agent 'dqn'.* GRUE_IMPORT") as caught:
        read_records([tmp_path])
    assert str(path) in str(caught.value)
    assert "damaged" not in str(caught.value)


def test_files_that_are_no_records(tmp_path: Path) -> None:
    path = write_record(with_about(hand_made()), tmp_path)
    path.write_text(path.read_text()[:200])
    with pytest.raises(BrokenFileError, match=r"sc-masking\.json cannot be read as JSON"):
        read_records([tmp_path])
    path.write_text("{}")
    assert records_in(tmp_path) == []
    with pytest.raises(UsageError, match="holds no record and no run with a row of metrics"):
        read_records([tmp_path])
    with pytest.raises(UsageError, match="is not a record; grue reproduce"):
        read_records([path])
    with pytest.raises(UsageError, match=r"nowhere does not exist: give run folders"):
        read_records([tmp_path / "nowhere"])


# What is there and what is not


def done(seeds: tuple[int, ...], **settings: Any) -> Record:
    rows = [row(n * 1000, 1, 0.5, fraction_average=0.25) for n in range(1, 4)]
    return record_of([run(rows, seed, steps=3000, **settings) for seed in seeds])


def test_only_finished_runs_of_the_same_settings_count() -> None:
    config = replace(done((0,)).config, seeds=(0, 1, 2))
    assert [c.seeds for c in missing([], [config])] == [(0, 1, 2)]
    assert finished([], config) is None
    records = [done((2, 0)), done((0, 1, 2), huber=True), done((1,), gate="none")]
    record = finished(records, config)
    assert record is not None
    assert record.seeds == (0, 2)
    assert [c.seeds for c in missing(records, [config])] == [(1,)]
    assert missing(records, [replace(config, seeds=(2,))]) == []
    longer = replace(config, steps=6000)
    assert missing(records, [longer]) == [longer]
