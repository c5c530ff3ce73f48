"""More of what is refused in one line, before a byte is changed or much memory is taken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_nothing_lost import NAME, TRAIN, contents, out, refused, trained

import grue
from grue.cli import entry
from grue.errors import BrokenFileError
from grue.games.registry import load_textworld
from grue.training import memory
from grue.training.programs import explorers_of

__all__ = ["out", "trained"]  # Fixtures.

RESUME = [*TRAIN, "--steps", "700", "--resume", "--out"]


# A refused resume changes nothing


@pytest.mark.parametrize("place", ["checkpoint", "kept", "best"])
def test_a_file_in_place_of_a_folder(place: str, out: Path, capsys) -> None:
    shutil.rmtree(out / NAME / place, ignore_errors=True)
    (out / NAME / place).write_text("")
    before = contents(out)
    said = refused([*RESUME, str(out)], 1, capsys)
    assert said.endswith(f"{place} is not a folder of checkpoints; delete it to go on")
    assert contents(out) == before


def test_a_link_to_nowhere_in_place_of_a_folder(out: Path, capsys) -> None:
    shutil.rmtree(out / NAME / "checkpoint")
    (out / NAME / "checkpoint").symlink_to("nowhere")
    before = contents(out)
    assert "is not a folder of checkpoints" in refused([*RESUME, str(out)], 1, capsys)
    assert contents(out) == before


def test_rows_of_a_run_that_begins_anew(out: Path, capsys) -> None:
    """They are read before another run of the command is changed."""
    other = out / NAME.replace("seed0", "seed1")
    options = [*TRAIN, "--one-by-one", "--out", str(out), "--resume", "--seeds", "0,1"]
    assert entry.main([*options, "--steps", "500"]) == 0
    shutil.rmtree(other / "checkpoint")
    rows = (other / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (other / "metrics.jsonl").write_bytes(b"".join([*rows[:2], *rows[3:]]))
    capsys.readouterr()
    before = contents(out)
    assert "line 3 is damaged" in refused([*options, "--steps", "700"], 1, capsys)
    assert contents(out) == before


def test_a_folder_below_a_file(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("")
    below = str(tmp_path / "file" / "runs")
    for command in (TRAIN, ["reproduce", "sc-gates", "--scale", "smoke"]):
        said = refused([*command, "--out", below], 2, capsys)
        assert said == f"grue: {tmp_path / 'file'} is no folder; give another --out"


# Damaged game files


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("infos", 3, 1, "name"), 2.5, "the name of .* is 2.5"),
        (("infos", 3, 1, "desc"), [[]], "the desc of"),
        (("infos", 3, 1, "type"), "sack", "there is no type 'sack'"),
        (("quests", 1, "win_events", 0, "condition", "preconditions", 0, "arguments"), [], "about"),
        (
            ("quests", 1, "win_events", 0, "condition", "preconditions", 0, "arguments", 1, "name"),
            "x",
            r"about .*\(.*, x\)",
        ),
    ],
)
def test_what_a_game_file_says(
    place: tuple[Any, ...], value: Any, says: str, tmp_path: Path
) -> None:
    level = grue.load("saladworld-1").story
    data = json.loads(level.with_suffix(".json").read_text())
    part = data
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    shutil.copy(level, tmp_path / "copy.z8")
    (tmp_path / "copy.json").write_text(json.dumps(data))
    with pytest.raises(BrokenFileError, match=says):
        load_textworld(tmp_path / "copy.z8")


def test_an_error_without_a_text(tmp_path: Path, monkeypatch, capsys) -> None:
    own = tmp_path / "own.py"
    own.write_text("class E(BaseException):\n    def __str__(self): raise ValueError\n\nraise E\n")
    monkeypatch.setenv("GRUE_IMPORT", str(own))
    assert f"(E: it has no text at {own}:4)" in refused(["agents"], 2, capsys)


# Too large


def test_many_runs_are_estimated_from_shapes(monkeypatch) -> None:
    """Ten thousand arrays are not stacked for it."""
    monkeypatch.setattr(memory, "jnp", SimpleNamespace(int32=memory.jnp.int32))
    config = grue.TrainConfig(agent="tabular")
    one, many = (
        memory.program_bytes(config, 1, runs, explorers_of([config]), 1) for runs in (2, 10_000)
    )
    assert many == 5_000 * one


def test_more_games_than_can_be_made(tmp_path: Path, capsys) -> None:
    command = ["make-games", "coin", "--count", str(10**12), "-o", str(tmp_path / "games")]
    assert "1000000, not 1000000000000" in refused(command, 2, capsys)
    assert not (tmp_path / "games").exists()


# What is measured must fit into memory, too


def test_a_batch_that_is_too_large(capsys) -> None:
    options = ["bench", "env", "--game", "saladworld-1", "--batch", "2000000000"]
    said = refused(options, 2, capsys)
    assert "a batch of 2000000000 games of saladworld-1 needs more than" in said
    assert said.endswith("give a smaller --batch")


def test_too_many_runs_to_measure(capsys) -> None:
    options = ["bench", "train", "saladworld-1", "--agents", "sc", "--preset", "small"]
    said = refused([*options, "--runs", "1000000"], 2, capsys)
    assert "1000000 runs side by side" in said
