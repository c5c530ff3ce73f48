"""``grue reproduce``: real training at the smoke scale, on the first level."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from grue.cli import entry
from grue.errors import StoppedError, UsageError
from grue.experiments import planner
from grue.experiments.figures import FIGURES, find_figures, parse_conditions
from grue.experiments.planner import Setting
from grue.experiments.rates import read_rates
from grue.experiments.records import read_records
from grue.experiments.runner import Places, keep_records, run_missing
from grue.experiments.scales import SCALES
from grue.experiments.wishes import Wish, make_wish, spans, tell_missing
from grue.experiments.worker_process import WorkerProcess
from grue.training.config import TrainConfig

ONLY_TABULAR = ("--levels", "1", "--conditions", "tabular+oracle", "--jobs", "1")
ONLY_DRQN = ("--levels", "1", "--conditions", "drqn", "--jobs", "1")
TABULAR = "saladworld-1-tabular-oracle-seed"


def reproduce(out: Path, figure: str, *options: str) -> int:
    return entry.main(["reproduce", figure, "--scale", "smoke", "--out", str(out), *options])


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One condition of each of two figures, the second in a process of its own: four runs."""
    folder = tmp_path_factory.mktemp("reproduce") / "out"
    assert reproduce(folder, "oracle", *ONLY_TABULAR) == 0
    assert reproduce(folder, "sc-masking", *ONLY_DRQN[:-1], "2") == 0
    return folder


def numbers(out: Path, figure: str) -> dict[str, Any]:
    return json.loads((out / "figures" / f"{figure}.json").read_text())


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def last_fraction(run: Path) -> float:
    return rows_of(run)[-1]["fraction_average"]


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_the_runs_are_there(out: Path) -> None:
    names = sorted(path.name for path in (out / "runs").iterdir())
    assert names == [
        *(f"saladworld-1-drqn-none-seed{seed}" for seed in (0, 1)),
        *(f"{TABULAR}{seed}" for seed in (0, 1)),
    ]
    for name in names:
        rows = rows_of(out / "runs" / name)
        assert [row["step"] for row in rows] == list(range(200, 1601, 200))
        assert sum(row["updates"] for row in rows) == (350 if "drqn" in name else 0)


def test_the_figure_shows_the_runs(out: Path) -> None:
    found = numbers(out, "oracle")
    finals = [last_fraction(out / "runs" / f"{TABULAR}{seed}") for seed in (0, 1)]
    (bar,) = found["bars"]
    assert bar == {
        "level": 1,
        "condition": "tabular + oracle",
        "mean": pytest.approx(np.mean(finals), abs=1e-4),
        "deviation": pytest.approx(np.std(finals), abs=1e-4),
        "seeds": [0, 1],
        "of_seeds": pytest.approx(finals, abs=1e-4),
    }
    assert (found["steps"], found["average_over"], found["scale"]) == (1600, 800, "smoke")
    assert found["paper"]["figure"] == "fig:adm_images"
    lacking = {(entry["level"], entry["condition"]) for entry in found["missing"]}
    shown = {(level, label) for level in range(1, 8) for label in FIGURES["oracle"].labels}
    assert lacking == shown - {(1, "tabular + oracle")}
    assert all(entry["seeds"] == [0, 1] for entry in found["missing"])
    assert matplotlib.image.imread(out / "figures" / "oracle.png").shape[2] == 4


def test_the_same_command_again_does_nothing(out: Path, capsys) -> None:
    before = snapshot(out / "runs") | snapshot(out / "records")
    figures = {path: data for path, (_, data) in snapshot(out / "figures").items()}
    assert reproduce(out, "oracle", *ONLY_TABULAR) == 0
    assert reproduce(out, "sc-masking", *ONLY_DRQN) == 0
    assert "2 runs: 2 are done, 0 to go" in capsys.readouterr().err
    assert snapshot(out / "runs") | snapshot(out / "records") == before
    again = {path: data for path, (_, data) in snapshot(out / "figures").items()}
    assert figures.items() <= again.items()


def test_all_draws_what_there_is(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.delenv("GRUE_ZORK1", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    before = snapshot(out / "runs")
    assert reproduce(out, "all", "--draw-only") == 0
    shown = capsys.readouterr()
    assert (
        "left out, because they need a story file (--story PATH): zork, zork-ablation, zork-cqlh"
    ) in shown.err
    assert "level 1: sc, sc + masking; levels 2-7: drqn, sc, sc + masking" in shown.out
    assert shown.out.count("nothing to draw yet") == 3
    undrawn = ("sc-gates-level-3", "sc-gates", "oracle-or-learned")
    names = [figure.name for figure in find_figures("all")]
    drawn = sorted(name for name in names if name not in undrawn and "zork" not in name)
    files = sorted(path.name for path in (out / "figures").iterdir())
    assert files == [f"{name}.{kind}" for name in drawn for kind in ("json", "png")]
    assert snapshot(out / "runs") == before

    (tasks,) = numbers(out, "tasks-solved")["bars"]
    (fraction,) = numbers(out, "sc-masking")["bars"]
    assert tasks["of_seeds"] == pytest.approx([2 * value for value in fraction["of_seeds"]])
    (curve,) = numbers(out, "all-levels")["curves"]
    assert (curve["level"], curve["condition"], curve["seeds"]) == (1, "drqn", [0, 1])
    runs = [rows_of(out / "runs" / f"saladworld-1-drqn-none-seed{seed}") for seed in (0, 1)]
    table = np.array([[row["fraction_average"] for row in rows] for rows in runs])
    np.testing.assert_allclose(curve["mean"], table.mean(0), atol=1e-4)
    np.testing.assert_allclose(curve["deviation"], table.std(0), atol=1e-4)
    assert curve["at"] == list(range(200, 1601, 200))


def test_records_count_as_done_without_their_runs(out: Path, tmp_path: Path, capsys) -> None:
    written = sorted(path.relative_to(out) for path in (out / "records").rglob("*.json"))
    assert [str(path) for path in written] == [
        "records/saladworld-1/drqn-none.json",
        "records/saladworld-1/tabular-oracle.json",
    ]
    record, *_ = read_records([out / "records"])
    assert record.about[1]["command"] == (
        "grue reproduce all --scale smoke --levels 1 --conditions tabular+oracle --seeds 1"
    )
    assert {"commit", "device", "jax", "game_hash"} <= record.about[1].keys()
    data = ("--data", str(out / "records"))
    assert reproduce(tmp_path / "new", "oracle", *ONLY_TABULAR, *data) == 0
    assert "2 runs: 2 are done, 0 to go" in capsys.readouterr().err
    assert not (tmp_path / "new" / "runs").exists()
    assert numbers(tmp_path / "new", "oracle") == numbers(out, "oracle")
    moved = tmp_path / "moved"
    shutil.copytree(out / "records", moved / "records")
    assert reproduce(moved, "oracle", *ONLY_TABULAR) == 0
    assert sorted(path.name for path in moved.iterdir()) == ["figures", "records"]


class Stopping:
    """Presses Ctrl-C when a run has come to a step."""

    def __init__(self, run: str, step: int) -> None:
        self.run, self.step, self.now = run, step, ""

    def begin(self, names: Sequence[str], step: int, steps: int) -> None:
        self.now = names[0]

    def update(self, step: int, rows: Sequence[dict[str, Any]]) -> None:
        if (self.now, step) == (self.run, self.step):
            os.kill(os.getpid(), signal.SIGINT)

    def say(self, line: str) -> None:
        pass


def tabular_wish() -> Wish:
    return make_wish("oracle", "smoke", levels="1", conditions="tabular+oracle")


def test_an_interrupted_command_goes_on(out: Path, tmp_path: Path) -> None:
    places = Places(tmp_path)
    second = places.runs / f"{TABULAR}1"
    with pytest.raises(StoppedError, match="at step 800 of 1600; the same command goes on"):
        run_missing(tabular_wish(), places, Stopping(second.name, 800), jobs=1)
    assert [row["step"] for row in rows_of(second)] == [200, 400, 600, 800]
    assert not places.records.exists()  # Of one seed of two there is none yet: both are asked for.
    before, half = snapshot(places.runs / f"{TABULAR}0"), (second / "metrics.jsonl").read_bytes()

    (record,) = run_missing(tabular_wish(), places, Stopping("", 0), jobs=1)
    assert record.finished == (0, 1)
    assert snapshot(places.runs / f"{TABULAR}0") == before
    assert (second / "metrics.jsonl").read_bytes().startswith(half)
    for seed in (0, 1):
        name = f"runs/{TABULAR}{seed}/metrics.jsonl"
        assert (tmp_path / name).read_bytes() == (out / name).read_bytes()


def test_only_the_missing_seed_is_trained(out: Path, tmp_path: Path) -> None:
    """The record of seed 0 is there, seed 1 is not; then a third seed is asked for."""
    places = Places(tmp_path)
    (record,) = [r for r in read_records([out / "runs"]) if r.agent == "tabular"]
    run = f"runs/{TABULAR}0"
    shutil.copytree(out / run, tmp_path / run)
    wish = replace(tabular_wish(), seeds=(0,))
    keep_records(wish, wish.configs(), places)
    shutil.rmtree(tmp_path / run)
    (found,) = run_missing(tabular_wish(), places, Stopping("", 0), jobs=1)
    assert [path.name for path in places.runs.iterdir()] == [f"{TABULAR}1"]
    assert found.seeds == (0, 1)
    for name, column in record.columns.items():
        np.testing.assert_array_equal(column, found.columns[name], err_msg=name)
    (kept,) = read_records([places.records])
    assert kept.seeds == (0, 1)
    third = replace(tabular_wish(), seeds=(1, 2))
    (found,) = run_missing(third, places, Stopping("", 0), jobs=1)
    assert sorted(path.name for path in places.runs.iterdir()) == [f"{TABULAR}1", f"{TABULAR}2"]
    assert found.seeds == (0, 1, 2)


def test_another_scale_in_the_same_folder_is_refused(out: Path, capsys) -> None:
    before = snapshot(out)
    arguments = ["reproduce", "oracle", "--scale", "paper", "--out", str(out), *ONLY_TABULAR]
    assert entry.main(arguments) == 2
    shown = capsys.readouterr().err.splitlines()
    assert shown[-1].startswith("grue: ")
    assert "was trained with" in shown[-1]
    assert "train into another --out" in shown[-1]
    assert snapshot(out) == before


class Impatient(Stopping):
    """Presses Ctrl-C a second after the processes have been started."""

    def show_groups(self, columns: object, rows: object, line: object) -> None:
        if not self.step:
            self.step = 1
            signal.setitimer(signal.ITIMER_REAL, 1)


def test_processes_stop_when_they_are_told(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with pytest.raises(StoppedError, match="interrupted; the same command goes on") as stopped:
            run_missing(tabular_wish(), Places(tmp_path), Impatient("", 0), jobs=2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert stopped.value.exit_code == 130
    assert workers() == []


def workers() -> list[str]:
    """The commands of the processes that this one has started, and that still run."""
    own = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    commands = (Path(f"/proc/{number}/cmdline").read_text() for number in own)
    return [command for command in commands if "grue.experiments.worker" in command]


def test_ctrl_c_while_a_process_ends_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = WorkerProcess.close

    def press_and_close(worker: WorkerProcess) -> None:
        signal.raise_signal(signal.SIGINT)
        close(worker)

    with monkeypatch.context() as patch:
        patch.setattr(WorkerProcess, "close", press_and_close)
        with pytest.raises(StoppedError, match="interrupted"):
            run_missing(tabular_wish(), Places(tmp_path), Stopping("", 0), jobs=2)
    (record,) = run_missing(tabular_wish(), Places(tmp_path), Stopping("", 0), jobs=2)
    assert record.finished == (0, 1)


@pytest.mark.parametrize("one_program", [False, True])
def test_runs_of_one_program_share_a_process(one_program: bool) -> None:
    wish = Wish(find_figures("all"), SCALES["smoke"], (1, 3), seeds=(0,))
    setting = Setting(read_rates("CPU"), slots=2, one_program=one_program)
    found = planner.buckets_of(wish.configs(), setting)
    told = [(b.runs[0].game[-1], {run.agent for run in b.runs}, len(b.runs)) for b in found]
    deep = [({"drqn", "sc"}, 10)] if one_program else [({"sc"}, 5), ({"drqn"}, 5)]
    expected = [*deep, ({"li-tabular"}, 1), ({"tabular"}, 1)]
    assert len(told) == 2 * len(expected)
    assert all((level, *of) in told for of in expected for level in "31")
    # The longest first.
    lengths = [task.seconds or 0.0 for task in planner.plan(wish.configs(), setting)]
    assert lengths == sorted(lengths, reverse=True)


# What is typed


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = entry.main(["reproduce", *arguments])
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    return code, shown.err.removeprefix("grue: ").rstrip()


def test_list_names_every_figure(capsys) -> None:
    assert entry.main(["reproduce", "list"]) == 0
    shown = capsys.readouterr().out
    for name, figure in FIGURES.items():
        assert name in shown
        assert figure.paper in shown
    assert shown.count("needs a story file") == 4


def test_what_is_wrong_is_told_in_a_line(tmp_path: Path, capsys) -> None:
    out = ("--out", str(tmp_path / "out"))
    assert complaint(capsys, "list", "--scale", "x") == (
        2,
        "there is no scale 'x'; there are paper, short, smoke",
    )
    assert complaint(capsys, "orakle", *out) == (
        2,
        "there is no figure 'orakle': did you mean oracle? grue reproduce list names them all",
    )
    assert complaint(capsys, "all", "--scale", "big", *out)[0] == 2
    assert complaint(capsys, "all", "--levels", "8", *out)[0] == 2
    assert complaint(capsys, "all", "--conditions", "sc+tea", *out)[0] == 2
    assert complaint(capsys, "all", "--seeds", "x", *out)[0] == 2
    assert complaint(capsys, "oracle", "--levels", "1", "--conditions", "sc", *out) == (
        2,
        "oracle shows nothing of these --levels and --conditions",
    )
    code, said = complaint(capsys, "oracle", "--draw-only", *out)
    assert (code, said[:60]) == (1, "nothing that oracle shows has been run yet at the scale smok")
    nowhere = tmp_path / "nowhere"
    code, said = complaint(capsys, "oracle", "--data", str(nowhere), *out)
    assert (code, said.split(":")[0]) == (2, f"{nowhere} does not exist")
    (tmp_path / "bad.json").write_text('{"kind": "grue record"}')
    code, said = complaint(capsys, "oracle", "--data", str(tmp_path), "--draw-only", *out)
    assert (code, "bad.json is damaged" in said) == (1, True)
    assert not (tmp_path / "out").exists()


def test_maps_need_no_training(tmp_path: Path, capsys) -> None:
    assert reproduce(tmp_path, "maps-1-2") == 0
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        *("figures", "maps-1-2.json", "maps-1-2.png"),
    ]
    assert numbers(tmp_path, "maps-1-2")["maps"] == [
        {"level": 1, "rooms": 4, "objects": 2, "subtasks": 2, "commands": 8},
        {"level": 2, "rooms": 7, "objects": 4, "subtasks": 3, "commands": 15},
    ]
    image = matplotlib.image.imread(tmp_path / "figures" / "maps-1-2.png")[:, :, :3]
    middle = image.shape[1] // 2
    assert (image[:, :middle].min(), image[:, middle:].min()) < (0.2, 0.2)
    with pytest.raises(UsageError, match="levels lie"):
        make_wish("maps-1-2", "smoke", levels="9")


def test_missing_in_words() -> None:
    scale = SCALES["paper"]
    sc, masking = parse_conditions("sc,sc+masking")

    def config(condition: Any, level: int, *seeds: int) -> TrainConfig:
        return scale.config(condition, level, seeds)

    configs = [
        config(sc, 2, 3, 4),
        config(masking, 2, 0, 1, 2, 3, 4),
        *(config(sc, level, 0, 1, 2, 3, 4) for level in (4, 5, 7)),
    ]
    assert tell_missing(configs, scale.seeds) == (
        "level 2: sc (seeds 3-4), sc + masking; levels 4-5, 7: sc"
    )
    assert tell_missing([], scale.seeds) == ""
    assert spans((5, 1, 2, 3)) == "1-3, 5"
