"""Which runs share a process, in which order, and how long they take."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grue import TrainConfig
from grue.errors import BrokenFileError
from grue.experiments import planner
from grue.experiments.figures import FIGURES, STAGES, find_figures
from grue.experiments.planner import Bucket, Setting
from grue.experiments.rates import Rate, Rates, keep_rates, kind_of, read_rates
from grue.experiments.scales import SCALES, stage_of
from grue.experiments.wishes import Wish
from grue.training.config import known_to

STEPS = 1_000
TINY = {"steps": STEPS, "embedding": 4, "encoder": 6, "context": 8, "hidden": 8}


def config(agent: str = "sc", gate: str = "none", seeds: tuple[int, ...] = (0,)) -> TrainConfig:
    chosen = {"agent": agent, "gate": gate}
    return TrainConfig(game="saladworld-1", seeds=seeds, **chosen, **known_to(chosen, TINY))


def rates(*measured: tuple[int, float], start: float = 0.0, agent: str = "sc") -> Rates:
    """Pairs of runs and steps a second of all of them."""
    kind = kind_of(config(agent))
    rows = [Rate("GPU", "saladworld-1", (agent,), n, speed, start, kind) for n, speed in measured]
    return Rates("GPU", tuple(rows))


# Estimates


@pytest.mark.parametrize(
    ("runs", "seconds"),
    [(1, 10.0), (4, 10 + 10 * 3 / 9), (10, 20.0), (20, 40.0)],
)
def test_seconds_by_hand(runs: int, seconds: float) -> None:
    """One run makes 100 steps a second, ten make 500: 10 and 20 seconds for 1,000 steps of each."""
    measured = rates((1, 100.0), (10, 500.0))
    found = measured.estimate([config()] * runs, STEPS, together=True)
    assert found == (pytest.approx(seconds), True)
    alone = rates((1, 100.0), start=3.0).estimate([config()] * runs, STEPS, together=False)
    assert alone == (pytest.approx(3.0 + 10 * runs), True)


def test_what_a_study_measured_is_kept(tmp_path: Path) -> None:
    measured = {"device": "GPU", "runs": 2, "steps_per_s": 50.0, "start_s": 7.0, "peak_bytes": 80}
    keep_rates(tmp_path, [config("sc"), config("drqn"), config("sc", "masking")], measured)
    assert len((tmp_path / "rates.jsonl").read_text().splitlines()) == 2
    found = read_rates("GPU", tmp_path)
    assert found.estimate([config("drqn")] * 2, STEPS, together=True) == (47.0, True)
    assert found.bytes_of(config("sc", "dropout")) == 40
    assert not read_rates("TPU", tmp_path).estimate([config()], STEPS, True).measured
    written = (tmp_path / "rates.jsonl").read_text()
    (tmp_path / "rates.jsonl").write_text(written + '{"device": "GP')  # Killed while it wrote.
    assert read_rates("GPU", tmp_path).rows == found.rows
    keep_rates(tmp_path, [config("sc")], measured)
    assert len(read_rates("GPU", tmp_path).rows) == len(found.rows) + 1
    zero = written.splitlines()[0].replace("50.0", "0.0")
    (tmp_path / "rates.jsonl").write_text(f"{written}{zero}\n")
    with pytest.raises(BrokenFileError, match=r"line 3 is damaged .*not more than 0"):
        read_rates("GPU", tmp_path)
    (tmp_path / "rates.jsonl").write_text("{}\n")
    with pytest.raises(BrokenFileError, match=r"line 1 is damaged .* delete the file"):
        read_rates("GPU", tmp_path)


def test_a_study_of_twenty_runs_takes_as_long_as_it_took() -> None:
    """The benchmark of twenty runs is scaled to the whole study of them that was timed."""
    study = json.loads((Path(__file__).parents[1] / "results/bench/twenty-runs.json").read_text())
    found = read_rates("NVIDIA H200")
    paper = TrainConfig(game="saladworld-3", agent="sc")
    told = found.estimate([paper] * 20, paper.steps, together=True)
    assert told == (pytest.approx(study["seconds"], rel=1e-3), True)
    # Ray says H200. Other sizes and unmeasured agents are guesses.
    assert read_rates("H200").estimate([paper], 1, True).measured
    assert not found.estimate([config()], 1, True).measured
    assert not found.estimate([TrainConfig(game="saladworld-3", agent="tabular")], 1, True).measured


# Plans


def test_makespan_by_hand() -> None:
    assert planner.makespan([5.0, 4.0, 3.0, 3.0, 3.0], 2) == 10
    assert planner.makespan([5.0, 4.0, 3.0, 3.0, 3.0], 5) == 5
    assert planner.makespan([], 3) == 0


def test_all_slots_end_together() -> None:
    twelve = config(seeds=tuple(range(12)))
    alone = rates((1, 100.0), start=1.0)
    tasks = planner.plan([twelve], Setting(alone, slots=3))
    assert [len(task.runs) for task in tasks] == [4, 4, 4]
    assert [task.seconds for task in tasks] == [41.0] * 3
    assert tasks[0].label == "level 1: sc, seeds 0-3"
    # Where starting takes longer than training, one process trains all.
    slow = planner.plan([twelve], Setting(rates((1, 1e6), start=100.0), slots=3))
    assert [len(task.runs) for task in slow] == [12]
    # A batch that costs no more than a run is not cut.
    batch = planner.plan([twelve], Setting(rates((1, 100.0), (12, 1200.0)), 3, together=True))
    assert [len(task.runs) for task in batch] == [12]


def test_runs_fit_into_the_memory() -> None:
    kind = kind_of(config())
    row = Rate("GPU", "saladworld-1", ("sc",), 1, 100.0, 0.0, kind, bytes_per_run=10.0)
    setting = Setting(Rates("GPU", (row,)), together=True, memory=50.0)
    tasks = planner.plan([config(seeds=tuple(range(10)))], setting)
    assert [len(task.runs) for task in tasks] == [3, 4, 3]  # At most 4 in nine tenths of 50 bytes.


AGENTS = st.sampled_from(["sc", "drqn"])
GATES = st.sampled_from(["none", "masking", "cqlh"])


@settings(max_examples=15, deadline=None)
@given(
    st.dictionaries(st.tuples(AGENTS, GATES), st.integers(1, 7), min_size=1, max_size=6),
    st.integers(1, 5),
    st.booleans(),
    st.floats(0, 50),
)
def test_every_run_is_in_one_task(
    chosen: dict[tuple[str, str], int], slots: int, together: bool, start: float
) -> None:
    configs = [config(a, g, tuple(range(n))) for (a, g), n in chosen.items()]
    measured = Rates(
        "GPU",
        rates((1, 100.0), (5, 300.0), start=start).rows
        + rates((1, 150.0), (5, 400.0), start=start, agent="drqn").rows,
    )
    setting = Setting(measured, slots, together)
    tasks = planner.plan(configs, setting)
    names = [name for task in tasks for name in task.names]
    assert len(names) == len(set(names)) == sum(chosen.values())
    lengths = [task.seconds or 0.0 for task in tasks]
    bound = planner.lower_bound(configs, setting, largest=50)
    assert planner.makespan(lengths, slots) >= bound - 0.1 * len(tasks)
    whole = planner.makespan(
        sorted(
            (planner.cost(b.runs, b.steps, setting) for b in planner.buckets_of(configs, setting)),
            reverse=True,
        ),
        slots,
    )
    assert planner.makespan(lengths, slots) <= planner.GOOD * whole + 0.1 * len(tasks)

    window, left = planner.plan_window(configs, setting, 30.0)
    assert all((task.seconds or 0.0) <= 30.05 for task in window)
    assert len(window) <= slots
    assert sum(len(task.runs) for task in window) + len(left) == len(names)


def test_pieces_that_a_command_can_name() -> None:
    """All seeds of some conditions, or some seeds of one."""
    runs = [config(gate=g).of_seed(s) for g in ("none", "masking", "cqlh") for s in range(5)]
    setting = Setting(rates((1, 100.0)), whole=True)
    three = planner.within(Bucket(list(runs)), setting, 60.0)
    assert [{run.gate for run in piece.runs} for piece in three] == [
        {"none"},
        {"masking"},
        {"cqlh"},
    ]
    six = planner.within(Bucket(list(runs)), setting, 35.0)
    assert [len(piece.runs) for piece in six] == [2, 3] * 3
    assert all(len({run.gate for run in piece.runs}) == 1 for piece in six)
    assert len(planner.within(Bucket(list(runs)), setting, None)) == 1


# The declared order


def test_stages_have_runs_that_figures_show() -> None:
    shown = {
        (level, c)
        for figure in FIGURES.values()
        for c in figure.conditions
        for level in figure.levels
    }
    for stage in STAGES:
        assert {(level, c) for c in stage.conditions for level in stage.levels} <= shown
    assert [stage.name for stage in STAGES[:3]] == ["level 4", "level 2", "levels 5 to 7"]


def test_a_window_takes_the_next_stage() -> None:
    """25 minutes on an H200 hold some runs of level 4; the others of level 4 are next."""
    wish = Wish(find_figures("all"), SCALES["paper"], levels=(2, 3, 4))
    setting = Setting(read_rates("NVIDIA H200"), together=True, stage=stage_of)
    seconds = 25 * 60 * 0.95
    (task,), left = planner.plan_window(wish.configs(), setting, seconds)
    assert task.label.startswith("level 4: drqn + oracle, sc + oracle, drqn")
    assert 10 <= len(task.runs) < 50
    more = [TrainConfig.from_json(run.config) for run in task.runs] + left[:1]
    assert planner.cost(more, more[0].steps, setting) > seconds >= (task.seconds or math.inf)
    assert [run.game for run in left[: 50 - len(task.runs)]] == ["saladworld-4"] * (
        50 - len(task.runs)
    )
    assert left[50 - len(task.runs)].game == "saladworld-2"
    (unmeasured,), _ = planner.plan_window([config(seeds=(0, 1, 2))], setting, seconds)
    assert len(unmeasured.runs) == 1
