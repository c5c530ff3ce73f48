"""``grue reproduce`` on Zork I: the story file, the plan, and a figure at the smoke scale."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from made_records import made_record

from grue.cli import entry
from grue.errors import UsageError
from grue.experiments.conditions import BASELINE
from grue.experiments.figures import FIGURES
from grue.experiments.records import Record, read_records, write_record
from grue.experiments.runner import Places, run_missing
from grue.experiments.scales import SCALES
from grue.experiments.wishes import make_wish
from grue.reports.paper_figures import draw_figure
from grue.reports.report import write_report
from grue.training.runs import check_same, read_config

ZORK = ["zork", "zork-ablation", "zork-cqlh"]
SWITCHES = ("no-priority", "no-look")
RUNS = [f"zork1-drqn-none-seed0-{switch}" for switch in SWITCHES]


@pytest.fixture
def no_story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Zork; returns where its data folder would be."""
    monkeypatch.delenv("GRUE_ZORK1", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "grue"


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert entry.main(["reproduce", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    return shown.err


# The story file


@pytest.mark.parametrize("name", ZORK)
def test_a_missing_story_is_told_as_by_grue_train(
    name: str, no_story: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    told = complaint(capsys, name, "--out", out)
    assert told.startswith("grue: Zork I does not come with grue: give its story file with --story")
    assert entry.main(["train", "zork1", "--out", out]) == 2
    assert capsys.readouterr().err == told
    assert not (tmp_path / "out").exists()


def test_wrong_stories_are_refused(
    no_story: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("--out", str(tmp_path / "out"))
    nowhere = tmp_path / "nowhere.z5"
    assert str(nowhere) in complaint(capsys, "zork", "--story", str(nowhere), *out)
    assert str(nowhere) in complaint(capsys, "all", "--story", str(nowhere), *out)
    assert complaint(capsys, "oracle", "--story", str(nowhere), *out) == (
        "grue: --story is for the figures of Zork I; oracle needs none\n"
    )
    assert complaint(capsys, "zork", "--levels", "1", *out) == (
        "grue: zork shows nothing of these --levels and --conditions\n"
    )
    assert "nothing of these" in complaint(capsys, "zork-cqlh", "--conditions", "sc", *out)
    # Of all figures only Zork's have it.
    told = complaint(capsys, "all", "--conditions", "ae-dqn", *out)
    assert told.startswith("grue: Zork I does not come with grue")
    assert not (tmp_path / "out").exists()


def test_another_story_is_not_zork(
    zork_file: Callable[[int], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = bytearray(zork_file(119).read_bytes())
    changed[0x13] ^= 1  # The serial number.
    path = tmp_path / "other.z3"
    path.write_bytes(changed)
    told = complaint(capsys, "zork", "--story", str(path), "--out", str(tmp_path / "out"))
    assert f"{path} is not a known release of Zork I: releases 88 and 119" in told


def games(story: Path | None = None, **more: Any) -> set[str]:
    wish = make_wish("all", "smoke", story=story, **more)
    if wish.left_out:
        assert [figure.name for figure in wish.left_out] == ZORK
    return {config.game for config in wish.configs()}


def test_all_leaves_zork_out_without_a_story(no_story: Path) -> None:
    assert len(games()) == 7
    assert "zork1" not in games()
    assert len(games(levels="1")) == 1


def test_all_has_zork_with_a_story(
    no_story: Path, zork_file: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    story = zork_file(119)
    assert "zork1" in games(story)
    assert games(story, levels="2") == {"saladworld-2"}
    monkeypatch.setenv("GRUE_ZORK1", str(story))
    assert "zork1" in games()
    monkeypatch.delenv("GRUE_ZORK1")
    no_story.mkdir(parents=True)
    shutil.copy(story, no_story / "zork1.z3")
    assert "zork1" in games()
    assert {c.story for c in make_wish("zork", "paper").configs()} == {None}
    monkeypatch.setenv("GRUE_ZORK1", str(no_story / "nothing.z3"))
    with pytest.raises(UsageError, match=r"nothing\.z3"):
        games()


# Figures from records


def scored(scores: Sequence[float], **settings: Any) -> Record:
    values = np.array([scores, np.add(scores, 2.0)])
    return made_record(
        "zork1", "drqn", final=(0.0, 0.0), columns={"score_average": values}, **settings
    )


def test_records_are_drawn_without_a_story(
    no_story: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "records"
    write_record(scored((1, 2, 3, 4)), data)
    write_record(scored((0, 1, 2, 3), priority=False), data)
    assert sorted(path.name for path in (data / "zork1").iterdir()) == [
        *("drqn-none-no-priority.json", "drqn-none.json"),
    ]
    arguments = ["reproduce", "all", "--scale", "paper", "--draw-only", "--data", str(data)]
    assert entry.main([*arguments, "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr()
    assert f"(--story PATH): {', '.join(ZORK)}" in shown.err
    assert "zork1: drqn (seeds 2-4), drqn with no priority (seeds 2-4), drqn" in shown.out
    figures = tmp_path / "out" / "figures"
    assert not (figures / "zork-cqlh.png").exists()
    found = json.loads((figures / "zork-ablation.json").read_text())
    assert (found["value"], found["steps"], found["average_over"]) == ("score", 2_000_000, 20_000)
    at = [500_000, 1_000_000, 1_500_000, 2_000_000]
    curve = {"game": "zork1", "seeds": [0, 1], "at": at, "deviation": [1.0] * 4}
    assert found["curves"] == [
        {**curve, "condition": "drqn", "mean": [2, 3, 4, 5]},
        {**curve, "condition": "drqn, no priority", "mean": [1, 2, 3, 4]},
    ]
    assert found["missing"] == [
        {"game": "zork1", "condition": "drqn", "seeds": [2, 3, 4]},
        {"game": "zork1", "condition": "drqn, no priority", "seeds": [2, 3, 4]},
        {"game": "zork1", "condition": "drqn, no look", "seeds": [0, 1, 2, 3, 4]},
    ]


def test_a_report_tells_the_score(tmp_path: Path) -> None:
    data = tmp_path / "records"
    write_record(scored((1, 2, 3, 4)), data)
    write_record(made_record(1, "drqn", final=(0.5, 0.7)), data)
    figures = tmp_path / "figures"
    page, _ = sorted(write_report([data], tmp_path / "page.html", figures=figures), reverse=True)
    text = page.read_text()
    assert "<td class=number>5.0 ± 1.0</td>" in text
    # One condition of three is no comparison; two are.
    assert "Figure zork-ablation" not in text
    assert not (figures / "zork-ablation.png").exists()
    write_record(scored((0, 1, 2, 3), priority=False), tmp_path / "more")
    write_report([data, tmp_path / "more"], page, figures=tmp_path / "others")
    assert "Figure zork-ablation" in page.read_text()
    assert (tmp_path / "others" / "zork-ablation.png").exists()
    # All its settings are the paper's for Zork.
    assert "<div><dt>discount</dt><dd>0.8</dd></div>" in text
    assert " class=own" not in text
    (scores,) = json.loads((figures / "scores.json").read_text())
    assert (scores["game"], scores["mean"]) == ("zork1", [2.0, 3.0, 4.0, 5.0])
    for name in ("curves", "bars"):
        shown = json.loads((figures / f"{name}.json").read_text())
        assert {entry["game"] for entry in shown} == {"saladworld-1"}


def test_records_of_another_release_are_not_gone_on_with(
    zork_file: Callable[[int], Path], tmp_path: Path
) -> None:
    wish = make_wish("zork", "smoke", conditions="drqn", story=zork_file(119))
    (config,) = wish.configs()
    record = scored((1, 2, 3, 4), about={"release": 88, "game_hash": "of release 88"})
    half = replace(record, config=replace(config, story=None)).only([0])
    half = replace(half, steps=np.arange(1, 5) * 400)
    path = write_record(half, Places(tmp_path).records)
    with pytest.raises(
        UsageError, match=r"drqn-none\.json has runs of another release of zork1; give another"
    ):
        run_missing(wish, Places(tmp_path), Silent(), jobs=1)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]


class Silent:
    def begin(self, names: Sequence[str], step: int, steps: int) -> None: ...
    def update(self, step: int, rows: Sequence[dict[str, Any]]) -> None: ...
    def say(self, line: str) -> None: ...


# Trained


@pytest.fixture(scope="module")
def out(zork_file: Callable[[int], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both ablations of the baseline, with one seed: two runs of one program."""
    folder = tmp_path_factory.mktemp("zork") / "out"
    story = ("--story", str(zork_file(119)))
    assert reproduce(folder, *story) == 0
    return folder


def reproduce(out: Path, *options: str) -> int:
    arguments = ["reproduce", "zork-ablation", "--seeds", "0", "--jobs", "1", "--out", str(out)]
    arguments += ["--conditions", ",".join(f"drqn+{switch}" for switch in SWITCHES)]
    return entry.main([*arguments, *options])


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_figure_of_zork_is_trained_and_drawn(out: Path) -> None:
    assert sorted(path.name for path in (out / "runs").iterdir()) == sorted(RUNS)
    found = json.loads((out / "figures" / "zork-ablation.json").read_text())
    assert (found["scale"], found["steps"]) == ("smoke", 1600)
    assert found["missing"] == [{"game": "zork1", "condition": "drqn", "seeds": [0]}]
    labels = ["drqn, no priority", "drqn, no look"]
    assert [curve["condition"] for curve in found["curves"]] == labels
    for curve, run in zip(found["curves"], RUNS, strict=True):
        rows = rows_of(out / "runs" / run)
        assert curve["at"] == [row["step"] for row in rows] == list(range(200, 1601, 200))
        assert curve["mean"] == pytest.approx([row["score_average"] for row in rows], rel=1e-3)
        assert sum(row["updates"] for row in rows) == 350
    assert matplotlib.image.imread(out / "figures" / "zork-ablation.png").shape[2] == 4


@pytest.mark.slow
def test_records_of_zork_say_nothing_of_where_the_story_was(out: Path) -> None:
    paths = sorted((out / "records").rglob("*.json"))
    assert [path.stem for path in paths] == ["drqn-none-no-look", "drqn-none-no-priority"]
    assert all(path.parent.name == "zork1" for path in paths)
    no_priority, no_look = read_records([out / "records"])
    assert (no_priority.label, no_look.label) == ("drqn, no priority", "drqn, no look")
    for record in (no_priority, no_look):
        assert record.config.story is None
        assert (record.about[0]["release"], record.about[0]["serial"]) == (119, "880429")
        assert record.finished == (0,)
        # Nobody knows which commands are admissible.
        for name in ("precision", "recall", "admissible_commands"):
            assert np.isnan(record.columns[name]).all()
        assert record.columns["failures"].sum() == 0
        assert (record.first_solve, record.solved) == ((None,), (None,))
    assert no_look.about[0]["command"] == (
        "grue reproduce zork-ablation --scale smoke --conditions drqn+no-look --seeds 0"
    )


@pytest.mark.slow
def test_the_same_story_elsewhere_runs_nothing_again(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, about = read_config(out / "runs" / RUNS[0])
    moved = tmp_path / "moved.z3"
    shutil.copy(str(config.story), moved)
    assert reproduce(out, "--story", str(moved)) == 0
    assert "2 runs: 2 are done, 0 to go" in capsys.readouterr().err
    # A run that was stopped could go on from there too, but not with another story.
    other = replace(config, story=moved)
    check_same(out / "runs" / RUNS[0], other, about["game_hash"])
    with pytest.raises(UsageError, match="was trained on another zork1"):
        check_same(out / "runs" / RUNS[0], other, "another hash")
    with pytest.raises(UsageError, match="was trained with discount"):
        check_same(out / "runs" / RUNS[0], replace(other, discount=0.5), about["game_hash"])


@pytest.mark.slow
def test_run_folders_and_records_draw_the_same(out: Path, tmp_path: Path) -> None:
    wish = make_wish("zork-ablation", "smoke", seeds="0", draw_only=True)
    for place in ("runs", "records"):
        drawn = draw_figure(
            FIGURES["zork-ablation"], wish, read_records([out / place]), tmp_path / place
        )
        assert drawn.missing == (SCALES["smoke"].config(BASELINE, "zork1", (0,)),)
        made = (tmp_path / place / "zork-ablation.json").read_bytes()
        assert made == (out / "figures" / "zork-ablation.json").read_bytes()
