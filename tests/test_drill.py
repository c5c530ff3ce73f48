"""The drill in small: kills, damaged files, a full disk; and that it finds what is wrong."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import drill
import drill_damage
import drill_runs
import pytest
from drill_calls import Ended, Forks, call, outcome
from drill_damage import Damages, damage, is_refused

import grue
from grue.experiments import progress_of, rates, status
from grue.experiments.conductor import Failure, StudyOutcome, TaskProgress
from grue.experiments.tasks import PlannedRun, Task
from grue.training.splits import best_step, read_split_rows


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [*drill_runs.TRAININGS["tabular"][:-1], "20000"]
    monkeypatch.setitem(drill_runs.TRAININGS, "tabular", command)


@pytest.mark.slow
def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each kind; that of the checkpoint by a fork and by a real process."""
    found: dict[str, Any] = {}
    real = Damages._real
    monkeypatch.setattr(drill_damage, "MOST_SECONDS", 300.0)  # Another test may be running beside.
    with Forks() as forks:
        damages = Damages(tmp_path, forks, 3, found)
        monkeypatch.setattr(
            Damages,
            "_real",
            lambda self, kind, *more: "checkpoint" in kind.path and real(self, kind, *more),
        )
        for _ in damages.kinds:
            damages.one()
    assert found["wrong"] == []
    assert {row["damaged"] for row in found["kinds"].values()} == {1}
    assert sum(row["refused"] for row in found["kinds"].values()) >= 5
    assert found["real"] == found["real_alike"] == 1


@pytest.mark.slow
def test_kills(short: None, tmp_path: Path) -> None:
    row: dict[str, Any] = {}
    kills = drill_runs.Kills("tabular", tmp_path, 1, row)
    kills.run(2)
    assert row["identical"] == row["kills"] <= 2
    assert row["runs"] == row["earlier"] == row["earlier_identical"] == 1
    # One byte of a row is a difference.
    [path] = (tmp_path / "killed").glob("*/metrics.jsonl")
    path.write_bytes(path.read_bytes()[:-2] + b" \n")
    assert outcome(tmp_path / "killed") != outcome(tmp_path / "straight")


@pytest.mark.slow
def test_kills_of_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drill_runs, "STUDY", [*drill_runs.STUDY[:-1], "steps=4000"])
    monkeypatch.setattr(drill_runs, "SIGNALS", (signal.SIGINT,))
    row: dict[str, Any] = {}
    kills = drill_runs.Kills("study", tmp_path, 0, row)
    kills.run(1)
    assert row["identical"] == row["kills"] <= 1
    assert (row["runs"], row["earlier"]) == (1, 0)
    assert len(list((tmp_path / "killed" / "runs").glob("*/metrics.jsonl"))) == 4
    assert len(kills.outcome(tmp_path / "killed")) == 16


@pytest.mark.slow
def test_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In rows that would take longer; a training that fails by itself is no answer to a signal."""
    tabular = {"tabular": drill_runs.TRAININGS["tabular"]}
    monkeypatch.setattr(drill_runs, "TRAININGS", tabular)
    (row,) = drill_runs.drill_signals(tmp_path, 0).values()
    assert row["codes"] == [130, 130]
    assert row["left"]
    monkeypatch.setattr(drill_runs, "ROW", 150)
    with pytest.raises(SystemExit, match="tabular ended by itself with 2"):
        drill_runs.drill_signals(tmp_path / "other", 0)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a small file system")
def test_a_full_disk(short: None, tmp_path: Path) -> None:
    row = drill_runs.drill_disk(tmp_path, 0, times=1)
    if "skipped" in row:
        pytest.skip(row["skipped"])
    assert (row["tries"], row["told"], row["identical"]) == (1, 1, 1)


def test_a_fork_is_a_process_of_its_own() -> None:
    with Forks() as forks:
        forked = forks.call(["walkthrough", "nowhere"])
        again = forks.call(["walkthrough", "saladworld-1"])
    real = call(["walkthrough", "nowhere"])
    assert (forked.code, forked.lines) == (real.code, real.lines)
    assert (real.code, len(real.lines)) == (2, 1)
    assert (again.code, again.lines) == (0, [])
    assert "put lettuce on counter" in again.out
    assert forks.importing < forked.seconds < 60
    assert 10**7 < forked.bytes < 10**9


def test_damage_changes_the_file() -> None:
    data = bytes(range(256))
    found = [damage(data, random.Random(number)) for number in range(200)]
    assert data not in found
    assert len(set(found)) > 150
    assert found == [damage(data, random.Random(number)) for number in range(200)]


def test_small_files(tmp_path: Path) -> None:
    """The state and the rates of a study, and the rows of splits: read, or refused in a line."""
    one = Task(0, "a group", (PlannedRun("run", {"steps": 5}),), False)
    failed = StudyOutcome(failures=[Failure("run", "why", "here")])
    status.StatusFile(tmp_path, "here").write([TaskProgress(one)], failed)
    config = grue.TrainConfig(game=str(tmp_path), valid=str(tmp_path), agent="drrn")
    told = {"device": "CPU", "runs": 2, "steps_per_s": 9.5, "start_s": 1.0, "peak_bytes": 80}
    for _ in range(2):
        rates.keep_rates(tmp_path, [config], told)
    row = {"seed": 0, "games": 2, "wins": 1, "score": 1.5, "normalised": 0.5, "fraction": 0.5}
    rows = [{"step": config.valid_every, **row, "split": split} for split in ("train", "valid")]
    (tmp_path / "splits.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in rows))

    def estimate() -> None:
        rates.read_rates("CPU", tmp_path).estimate([config], 1000, True)

    for name, read in (
        ("status.json", lambda: progress_of.table_of(tmp_path)),
        ("rates.jsonl", estimate),
        ("splits.jsonl", lambda: best_step(read_split_rows(tmp_path, config))),
    ):
        read()
        whole, refused = (tmp_path / name).read_bytes(), []
        for number in range(200):
            (tmp_path / name).write_bytes(damage(whole, random.Random(number)))
            try:
                read()
            except grue.GrueError as error:
                refused.append(str(error))
        assert len(refused) > 80
        assert {len(line.splitlines()) for line in refused} == {1}
        (tmp_path / name).write_bytes(whole)


@pytest.mark.parametrize(
    ("ended", "refused"),
    [
        (Ended(1, ["grue: it is damaged"], 1.0, 10**8), True),
        (Ended(2, ["grue: it is damaged"], 9.9, 10**8), True),
        (Ended(1, ["grue: it is damaged"], 10.1, 10**8), False),
        (Ended(1, ["grue: it is damaged"], 1.0, 10**9), False),
        (Ended(1, ["Traceback", "ValueError"], 1.0, 10**8), False),
        (Ended(134, ["grue: it is damaged"], 1.0, 10**8), False),
        (Ended(0, [], 1.0, 10**8), False),
    ],
)
def test_the_rule(ended: Ended, refused: bool) -> None:
    assert is_refused(ended) is refused


def test_a_drill_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A complete part stays. One that is not begins anew at another commit."""
    monkeypatch.setattr(drill, "PARTS", {"writers": None, "kills": None, "memory": None})
    out, other = tmp_path / "new" / "drill.json", {"commit": "abc", "changed_tree": False}
    for number, kills in enumerate((4, 3)):
        monkeypatch.setattr(drill, "about", lambda number=number: {**other, "commit": number})
        found = drill.resumed(out, seed=0)
        chosen = argparse.Namespace(out=out, seed=0, kills=4, files=0, minutes=1.0, piece=1.0)
        drill.Drill(chosen)  # Makes the folder.
        made = dict.fromkeys(("writers", "kills", "memory"), other)
        found |= {"writers": {}, "kills": {"tabular": {"kills": kills}}, "compiled_memory": {}}
        out.write_text(json.dumps({**found, "made": made}))
        ran = drill.Drill(chosen)
        incomplete = ["kills"] * (kills < 4) + ["memory"]
        assert [part for part in drill.PARTS if not ran.is_complete(part)] == incomplete
        for part in incomplete:
            ran.begin(part)
            assert ran.found["made"][part] == {"commit": number, "changed_tree": False}
        assert ran.found["made"]["writers"] == other
        assert ("kills" in ran.found, "compiled_memory" in ran.found) == (kills == 4, False)
    assert drill.resumed(out, seed=1)["made"] == {}


def test_the_commits_are_told() -> None:
    one, two = ({"commit": c * 12, "changed_tree": c == "b"} for c in "ab")
    told = drill._commits({"files": one, "kills": one, "disk": two})
    assert told == "Commit aaaaaaaaaa: files, kills; Commit bbbbbbbbbb with changes: disk"
