"""Tasks in processes of their own: what is killed or does not fit is tried again, or told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from small_runs import same_results

from grue import TrainConfig
from grue.cli import entry
from grue.errors import GrueError
from grue.experiments import devices
from grue.experiments.conductor import (
    MOST_LOSSES,
    Conductor,
    StudyOutcome,
    TaskProgress,
    told_failures,
)
from grue.experiments.devices import Cores, environment, free_cores
from grue.experiments.local_processes import LocalProcesses
from grue.experiments.tasks import Event, PlannedRun, Task
from grue.experiments.worker_process import WorkerProcess
from grue.training.runs import run_name
from grue.training.train import train

STEPS = 100_000
PATIENCE = 300.0
"""Seconds; a machine that is busy with other tests starts processes slowly."""


def config(seed: int, **values: Any) -> TrainConfig:
    """A tabular agent: its program compiles in seconds."""
    own = {"steps": STEPS, "metrics_every": 500, "average_over": 2000, "table_rows": 4096} | values
    return TrainConfig(
        game="saladworld-1",
        agent="tabular",
        seeds=(seed,),
        episode_steps=45,
        learning_starts=own["steps"],
        **own,
    )


def task(number: int, *configs: TrainConfig, together: bool = False) -> Task:
    runs = tuple(PlannedRun(run_name(one), one.to_json()) for one in configs)
    return Task(number, f"task {number}", runs, together)


class Notes:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)

    def show(self, tasks: Sequence[TaskProgress], outcome: StudyOutcome) -> None:
        self.tasks = tasks


# What happens, by a script


class Scripted:
    """An executor that answers each task with the next ending of a list."""

    slots = 2

    def __init__(self, endings: dict[frozenset[str], list[tuple[str, dict[str, Any]]]]) -> None:
        self.endings, self.started = endings, []
        self.running: list[Task] = []

    def start(self, task: Task, again: bool) -> str:
        self.started.append((task.names, again))
        self.running.append(task)
        return "there"

    def poll(self, seconds: float) -> list[Event]:
        one = self.running.pop(0)
        kind, value = self.endings.get(frozenset(one.names), [("done", {})]).pop(0)
        return [Event(one.number, kind, value)]

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


def named(*names: str, together: bool = True) -> Task:
    return Task(0, "a group", tuple(PlannedRun(name, {"steps": 10}) for name in names), together)


def conducted(
    one: Task, endings: dict[str, list[tuple[str, dict]]]
) -> tuple[Scripted, StudyOutcome]:
    executor = Scripted({frozenset(names): list(some) for names, some in endings.items()})
    return executor, Conductor([one], executor, Notes()).run()


def test_a_group_without_memory_is_tried_again_in_halves() -> None:
    memory = ("memory", {"why": "not enough memory"})
    executor, outcome = conducted(named(*"abcd"), {"abcd": [memory], "cd": [memory], "d": [memory]})
    assert [names for names, _ in executor.started] == [
        list("abcd"),
        list("ab"),
        list("cd"),
        ["c"],
        ["d"],
    ]
    assert [(f.run, f.why) for f in outcome.failures] == [("d", "not enough memory")]
    assert outcome.done == ["a", "b", "c"]
    assert told_failures(outcome, 4) == "1 of 4 runs failed; the first, d: not enough memory"


def test_a_run_that_fails_does_not_keep_the_others() -> None:
    full = ("failed", {"why": "no space left", "runs": ["b"]})
    executor, outcome = conducted(named(*"abc", together=False), {"abc": [full]})
    assert [names for names, _ in executor.started] == [list("abc"), ["a", "c"]]
    assert [f.run for f in outcome.failures] == ["b"]
    assert outcome.done == ["a", "c"]
    assert outcome.state == "failed"


def test_a_lost_group_is_tried_again_and_then_in_halves() -> None:
    lost = ("lost", {"why": "its node was lost"})
    executor, outcome = conducted(named(*"ab"), {"ab": [lost] * MOST_LOSSES, "b": [lost] * 9})
    tries = [names for names, _ in executor.started]
    assert tries == [["a", "b"]] * MOST_LOSSES + [["a"]] + [["b"]] * MOST_LOSSES
    assert [again for _, again in executor.started] == [False] + [True] * (len(tries) - 1)
    assert [(f.run, f.place) for f in outcome.failures] == [("b", "there")]
    assert outcome.failures[0].why == f"its node was lost, {MOST_LOSSES} times in a row"


# Real processes


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone")
    for seed in (0, 1):
        train(config(seed), out)
    return out


def test_a_killed_process_goes_on_from_its_checkpoint(alone: Path, tmp_path: Path) -> None:
    options = {"kind": "train", "out": str(tmp_path), "checkpoint_seconds": 0.0}
    executor = LocalProcesses(2, options)
    saved = tmp_path / run_name(config(0)) / "checkpoint"
    killed: list[int] = []

    class Killing(Notes):
        def show(self, tasks: Sequence[TaskProgress], outcome: StudyOutcome) -> None:
            if not killed and 0 in executor._running and list(saved.glob("*.npz")):
                worker, _, _ = executor._running[0]
                killed.append(worker.process.pid)
                os.kill(worker.process.pid, signal.SIGKILL)

    notes = Killing()
    outcome = Conductor([task(0, config(0)), task(1, config(1))], executor, notes).run()
    assert outcome.done == [run_name(config(0)), run_name(config(1))] or len(outcome.done) == 2
    assert "ended by signal 9, perhaps for want of memory; goes on from" in " ".join(notes.said)
    assert outcome.failures == []
    for seed in (0, 1):
        same_results(tmp_path / run_name(config(seed)), alone / run_name(config(seed)))
    assert {measured["runs"] for measured in outcome.measured} == {1}


def test_a_process_killed_in_the_middle_of_a_line_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "cut"
    says = """'["line", {"text": "a"}]\\n["li'"""
    program.write_text(f"#!/bin/sh\nread order\nprintf {says}\nkill -9 $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    worker, said = WorkerProcess({"number": 7}, {}), list[Event]()
    while not said or said[-1].kind == "line":
        said += worker.events(PATIENCE)
    worker.close()
    assert [(event.task, event.kind) for event in said] == [(7, "line"), (7, "lost")]
    assert "ended by signal 9" in said[-1].value["why"]


def test_a_worker_without_its_starter_writes_a_checkpoint_and_ends(tmp_path: Path) -> None:
    options = {"kind": "train", "out": str(tmp_path), "checkpoint_seconds": 600.0}
    executor = LocalProcesses(1, options)
    long = config(0, steps=1_000_000_000)
    executor.start(task(0, long), again=False)
    worker, _, _ = executor._running[0]

    def wait_for(kind: str) -> None:
        begun = time.monotonic()
        while not any(event.kind == kind for event in executor.poll(0.5)):
            assert time.monotonic() - begun < PATIENCE

    wait_for("row")
    assert worker.process.stdin is not None
    worker.process.stdin.close()
    assert worker.process.wait(PATIENCE) == 0
    wait_for("stopped")
    assert len(list((tmp_path / run_name(long) / "checkpoint").glob("*.npz"))) == 1


def test_cores_are_held_by_one_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devices.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(devices, "free_cores", lambda: [0, 1, 2])
    first, second = Cores(1), Cores(1)
    assert (first.numbers, second.numbers) == ([0], [1])
    both = Cores(2)
    assert both.numbers[0] == 2  # One is free, the other is shared.
    first.close()
    assert Cores(1).numbers == [0]
    assert free_cores() == sorted(os.sched_getaffinity(0))


def test_a_process_gets_its_device_before_jax() -> None:
    assert environment(None) == {"JAX_PLATFORMS": "cpu"}
    assert environment("3") == {"CUDA_VISIBLE_DEVICES": "3"}
    half = environment("0", 0.5)
    assert half == {"CUDA_VISIBLE_DEVICES": "0", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.450"}
    code = "import sys, grue.experiments.on_ray, grue.experiments.worker_process; "
    code += "import grue.experiments.worker; print('jax' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.stdout.strip() == "False"


# Windows, plans and Slurm


SMOKE = ["reproduce", "oracle", "--levels", "1", "--conditions", "tabular+oracle,li-tabular+oracle"]


def reproduce(out: Path, *more: str) -> int:
    return entry.main([*SMOKE, "--out", str(out), *more])


def test_minutes_end_in_time_and_say_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = ("--set", "steps=1000000000", "--set", "learning_starts=1000000000", "--no-draw")
    begun = time.monotonic()
    assert reproduce(tmp_path, *long, "--jobs", "1", "--minutes", "0.25") == 0
    assert time.monotonic() - begun < 120  # It would train for an hour.
    told = capsys.readouterr().err
    assert "left: level 1: tabular + oracle, li-tabular + oracle" in told
    (run,) = (tmp_path / "runs").iterdir()
    assert len(list((run / "checkpoint").iterdir())) >= 1
    assert reproduce(tmp_path, *long, "--plan") == 0
    assert "level 1: tabular + oracle" in capsys.readouterr().out


def test_enough_minutes_finish_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(tmp_path, "--jobs", "2", "--minutes", "5", "--no-draw") == 0
    assert "left: nothing" in capsys.readouterr().err
    records = sorted(path.name for path in (tmp_path / "records").rglob("*.json"))
    assert records == ["li-tabular-oracle.json", "tabular-oracle.json"]
    assert entry.main(["status", str(tmp_path)]) == 0
    assert "4 runs have begun, 4 are done; the study is done" in capsys.readouterr().out


def test_a_slurm_job_trains_its_group_and_asks_for_more_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert reproduce(out, "--slurm", "--gpus-per-group", "0") == 0
    script = tmp_path / "study.sh"
    script.write_text(capsys.readouterr().out)
    assert "#SBATCH --array=0-1" in script.read_text()
    bin_ = Path(sys.executable).parent
    asked = tmp_path / "asked"
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    (tmp_path / "scontrol").chmod(0o755)
    own = {"PATH": f"{tmp_path}:{bin_}:{os.environ['PATH']}", "SLURM_ARRAY_JOB_ID": "7"}
    variables = {**os.environ, **own, "SLURM_ARRAY_TASK_ID": "0"}
    job = subprocess.Popen(["bash", str(script)], env=variables, stderr=subprocess.PIPE)
    begun = time.monotonic()
    while not list(out.glob("runs/*/metrics.jsonl")):
        assert time.monotonic() - begun < PATIENCE
        time.sleep(0.02)
    job.terminate()
    job.communicate()
    if job.returncode:  # It was stopped before its end, and goes on.
        assert job.returncode in (130, 143)
        assert asked.read_text() == "requeue 7_0\n"
        assert subprocess.run(["bash", str(script)], env=variables).returncode == 0
    (record,) = out.glob("records/*/*.json")
    assert record.name == "tabular-oracle.json"
    variables["SLURM_ARRAY_TASK_ID"] = "9"
    assert subprocess.run(["bash", str(script)], env=variables).returncode == 2


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--minutes", "0"], "--minutes must be more than 2 with --slurm, not 0"),
        (["--minutes", "2"], "--minutes must be more than 2 with --slurm, not 2"),
        (["--minutes", "nan"], "--minutes must be more than 2 with --slurm, not nan"),
        (["--jobs", "3"], "leave --jobs or --slurm out"),
        (["--gpus-per-group", "0.5"], "--gpus-per-group is 0 or 1 with --slurm, not 0.5"),
        (["--ray"], "give --slurm or --ray, not both"),
        (["--plan"], "give --slurm or --plan, not both"),
        (["--draw-only"], "give --slurm or --draw-only, not both"),
    ],
)
def test_what_has_no_meaning_with_slurm(
    options: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(tmp_path / "out", "--slurm", *options) == 2
    told = capsys.readouterr()
    assert (why in told.err, told.out) == (True, "")
    assert not (tmp_path / "out").exists()


def test_a_plan_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["reproduce", "maps-1-2", "--out", str(tmp_path), "--plan"]) == 0
    assert capsys.readouterr().out == "there is nothing left to train\n"


def test_a_folder_without_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["status", str(tmp_path / "none")]) == 2
    assert "is no folder" in capsys.readouterr().err
    assert entry.main(["status", str(tmp_path)]) == 2
    assert "has no study and no runs" in capsys.readouterr().err
    train(config(0, steps=1000), tmp_path)
    assert entry.main(["status", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "1,000/1,000" in shown
    assert "1 run has begun, 1 is done" in shown


GROUP = {"label": "a", "state": "done", "place": "", "why": "", "runs": ["x"], "names": []}
GROUP |= {"step": 5, "steps": 5, "done": 1, "steps_per_s": 1.0}
STATE = {"kind": "grue status", "state": "done", "host": "h", "pid": 1, "updated": 0.0}
STATE |= {"groups": [GROUP], "failures": [], "measured": [], "said": 0, "lines": []}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x", "Expecting value"),
        ("[" * 100_000, "recursion"),
        (json.dumps({**STATE, "groups": 3}), "groups is 3"),
        (json.dumps({**STATE, "groups": [{}]}), "label is None"),
        (json.dumps({**STATE, "groups": [{**GROUP, "runs": []}]}), "5 steps for 0 runs"),
        (json.dumps({**STATE, "failures": [{"run": "x"}]}), "a failure is {'run': 'x'}"),
        (json.dumps({"kind": "grue status"}), "state is None"),
    ],
)
def test_a_damaged_state(text: str, why: str, tmp_path: Path, capsys) -> None:
    file = tmp_path / "status.json"
    file.write_text(json.dumps(STATE))
    assert entry.main(["status", str(tmp_path)]) == 0
    assert "the study is done" in capsys.readouterr().out
    file.write_text(text)
    assert entry.main(["status", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line
    assert "status.json is damaged" in line
    assert line.endswith("delete it: the runs do not need it")


def test_pipes_instead_of_a_state_and_rates(tmp_path: Path, capsys) -> None:
    os.mkfifo(tmp_path / "status.json")
    assert entry.main(["status", str(tmp_path)]) == 1
    assert "it is a pipe or a device" in capsys.readouterr().err
    os.mkfifo(tmp_path / "rates.jsonl")
    assert entry.main(["reproduce", "oracle", "--out", str(tmp_path), "--plan"]) == 1
    assert "it is a pipe or a device" in capsys.readouterr().err


def test_failures_are_told(tmp_path: Path) -> None:
    options = {"kind": "train", "out": str(tmp_path), "checkpoint_seconds": 600.0}
    wrong = config(0).to_json() | {"game": str(tmp_path / "gone.z8")}
    lost = Task(0, "one", (PlannedRun("gone", wrong),), False)
    outcome = Conductor([lost], LocalProcesses(1, options), Notes()).run()
    (failure,) = outcome.failures
    assert "gone.z8" in failure.why
    assert isinstance(GrueError(failure.why), GrueError)
