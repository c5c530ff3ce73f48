"""The verification of compiled games, and that it finds faults."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from both_engines import Pair

import grue
from grue.cli import entry
from grue.engine.make import compiled
from grue.engine.verify import Report, verify
from grue.games.gamefile import CompiledGame
from grue.games.tokens import squeeze

pytestmark = pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning")


def test_verify_finds_nothing(pair: Pair, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 300 if level < 4 else 150
    if level > 2:  # Every command is tried above; here it would need another large program.
        monkeypatch.setattr("grue.engine.verify.SWEEP_SHARE", 10**9)
    report = pair(level).run(steps, seed=level)
    assert str(report.first or "") == ""
    assert report.mismatches == 0
    assert report.steps >= steps
    # It did more than walk into walls.
    assert len(report.rules) >= 5


def faulty(name: str, index: Any, value: Any) -> CompiledGame:
    """Level 1 with one number changed."""
    game = compiled(grue.load("saladworld-1"))
    arrays = {key: array.copy() for key, array in game.arrays.items()}
    assert arrays[name][index] != value
    arrays[name][index] = value
    return CompiledGame(game.header, arrays)


def outcome_of(command: str) -> tuple[int, int]:
    """Where a command's decision table has its first outcome that changes something, and it."""
    game = compiled(grue.load("saladworld-1"))
    arrays = game.arrays
    number = game.commands.index(command)
    ends = [*arrays["command_offset"].tolist()[1:], len(arrays["decision_table"])]
    for index in range(arrays["command_offset"][number], ends[number]):
        outcome = int(arrays["decision_table"][index])
        if arrays["outcome_changes"][outcome]:
            return index, outcome
    raise AssertionError(command)


def wrong_token() -> CompiledGame:
    game = compiled(grue.load("saladworld-1"))
    (number,) = game.vocabulary.encode("pick")
    (place,) = np.flatnonzero(game.arrays["tokens"] == number)
    return faulty("tokens", place, game.vocabulary.encode("put")[0])


def wrong_outcome() -> CompiledGame:
    return faulty("decision_table", outcome_of("take lettuce")[0], outcome_of("drop lettuce")[1])


def wrong_opening() -> CompiledGame:
    game = compiled(grue.load("saladworld-1"))
    bit = np.uint32(1 << game.commands.index("look"))
    possible = game.arrays["mask_possible"]
    return faulty("mask_possible", (0, 0), possible[0, 0] | bit)


def wrong_mask() -> CompiledGame:
    """One bit of the row for the second room: "go east" is not possible there."""
    game = compiled(grue.load("saladworld-1"))
    arrays = game.arrays
    row = arrays["mask_offset"][arrays["mask_variables"].tolist().index(0)] + 1
    bit = np.uint32(1 << game.commands.index("go east"))
    assert arrays["masks"][row, 0, 0] & bit
    return faulty("masks", (row, 0, 0), arrays["masks"][row, 0, 0] & ~bit)


def wrong_reward() -> CompiledGame:
    return faulty("quest_reward", 0, 5)


def wrong_end() -> CompiledGame:
    return faulty("quest_needed", 1, False)


FAULTS: list[tuple[Callable[[], CompiledGame], set[str], str]] = [
    (wrong_token, {"text differs"}, "put up the lettuce from the ground"),
    (wrong_outcome, {"text differs", "admissible set: take lettuce, drop lettuce"}, "You drop"),
    (wrong_mask, {"admissible set: go east"}, "-= Living Room =-"),
    (wrong_reward, {"text differs", "reward: real 10, compiled 5"}, "five points"),
    (wrong_end, {"terminated: real 0, compiled 1"}, "*** The End ***"),
]


@pytest.mark.parametrize(
    ("fault", "expected", "shown"), FAULTS, ids=[fault.__name__ for fault, *_ in FAULTS]
)
def test_verify_catches(
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[], CompiledGame],
    expected: set[str],
    shown: str,
) -> None:
    monkeypatch.setattr("grue.engine.verify.compiled", lambda _: fault())
    # Play alone finds these; sweeps over all commands would take longer to compile.
    monkeypatch.setattr("grue.engine.verify.SWEEP_SHARE", 10**9)
    report = verify("saladworld-1", steps=200, seed=0)
    assert report.mismatches > 0
    assert report.first is not None
    assert expected <= set(report.first.differences)
    # Both transcripts are shown, up to the command that differs.
    told = str(report.first)
    real, ours = told.split("--- real\n")[1].split("\n--- compiled\n")
    last = report.first.commands[-1] if report.first.commands else ""
    assert f"> {last}\n" in real
    assert f"> {last}\n" in ours
    assert shown in ours
    assert (squeeze(real) != squeeze(ours)) == ("text differs" in report.first.differences)


def test_verify_ends_when_the_openings_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """No episode gets as far as a step, so counting steps would never end."""
    monkeypatch.setattr("grue.engine.verify.compiled", lambda _: wrong_opening())
    report = verify("saladworld-1", steps=40, seed=0)
    assert (report.steps, report.mismatches) == (0, 1)
    assert report.first is not None
    assert report.first.commands == ()
    assert report.first.differences == ("admissible set: look",)
    assert len(report.first.real) == len(report.first.compiled) == 1


def test_verify_catches_a_wrong_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking without a step is compared as well, although it is no command."""
    game = compiled(grue.load("saladworld-1"))
    wrong = faulty("inventory_frame", (), int(game.arrays["opening_frame"]))
    monkeypatch.setattr("grue.engine.verify.compiled", lambda _: wrong)
    monkeypatch.setattr("grue.engine.verify.SWEEP_SHARE", 0)  # after every step
    report = verify("saladworld-1", steps=1, seed=0)
    assert report.first is not None
    assert report.first.commands[1:] == ("inventory",)
    assert report.first.differences == ("text differs",)
    assert "You are carrying" in report.first.real[-1]
    assert "You are making a salad" in report.first.compiled[-1]


def test_same_seed_same_verification(pair: Pair) -> None:
    reports = [pair(2).run(60, seed) for seed in (3, 3)]
    assert reports[0] == reports[1]
    assert reports[0].steps >= 60


def test_reports_add_up() -> None:
    total = Report(3, 1, None, {"take"}) + Report(4, 0, None, {"drop"})
    assert total == Report(7, 1, None, {"take", "drop"})


def test_verify_at_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["verify", "saladworld-1", "--steps", "12", "--seed", "1"]) == 0
    assert capsys.readouterr().out == "saladworld-1: 12 steps, 0 mismatches\n"


def test_verify_at_the_command_line_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    game = grue.load("saladworld-1")
    story = tmp_path / "wrong.z8"
    shutil.copy(game.story, story)
    shutil.copy(game.story.with_suffix(".json"), story.with_suffix(".json"))
    wrong_reward().save(story.with_suffix(".grue.npz"))
    assert entry.main(["verify", str(story), "--steps", "40"]) == 1
    out, err = capsys.readouterr()
    assert " 0 mismatches" not in out
    assert "reward: real 10, compiled 5" in out
    assert out.index("--- real") < out.index("ten points") < out.index("--- compiled")
    assert "five points" in out.split("--- compiled")[1]
    assert err.strip() == f"grue: the compiled {story} differs from the real game"
