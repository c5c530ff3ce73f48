"""The demo with a training that is too short to win: all of it is shown, and it says so."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import grue
from grue.cli.demo import CONFIG, learn, main, make_room
from grue.training.runs import create, read_run, run_name


def test_the_demo_can_be_repeated_and_says_when_it_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    assert main(["--out", str(out), "--steps", "1000"]) == 1
    shown = capsys.readouterr()
    last = shown.err.splitlines()[-1]
    assert re.match(r"grue: the trained agent does not win: its score is \d+ of 15; ", last)
    assert re.search(r"Fraction of subtasks over the last 2,000 steps, .*: 0\.\d\d", shown.out)
    assert "played greedily" not in shown.out
    for name in grue.game_names():
        game = grue.load(name)
        row = next(line for line in shown.out.splitlines() if f" {name} " in line)
        cells = [cell.strip() for cell in row.split("│")[1:-1]]
        score, subtasks = str(game.max_score), len(game.subtasks)
        done = f"{subtasks}/{subtasks}"
        assert cells[1:6] == [str(len(game.walkthrough)), score, score, done, "yes"]
        assert (out / f"{name}.png").stat().st_size > 10_000
    assert (out / "curve.png").stat().st_size > 10_000
    (folder,) = (out / "runs").iterdir()
    run = read_run(folder)
    assert run.config.game == "saladworld-1"
    assert run.metrics["step"].tolist() == [1000]
    assert run.metrics["episodes"][0] >= 10

    before = (folder / "metrics.jsonl").read_bytes()
    make_room(out, CONFIG)
    assert not folder.exists()
    again = learn(out, replace(CONFIG, steps=1000), Console())
    assert again.folder == folder
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_a_run_that_is_not_the_demos_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = grue.TrainConfig.preset("small", gate="masking")
    folder = tmp_path / "runs" / run_name(CONFIG)
    create(folder, other, {})
    assert main(["--out", str(tmp_path), "--steps", "1000"]) == 2
    assert (
        f"grue: {folder} is not a run of the demo; give another --out\n" in capsys.readouterr().err
    )
    assert read_run(folder).config == other


def test_wrong_values_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path), "--steps", "1500"]) == 2
    told = capsys.readouterr()
    assert told.err == "grue: steps must be a multiple of metrics_every, which is 1000, not 1500\n"
    assert told.out == ""
    (tmp_path / "file").write_text("")
    assert main(["--out", str(tmp_path / "file" / "maps")]) == 1
    assert capsys.readouterr().err.startswith("grue: cannot write ")
