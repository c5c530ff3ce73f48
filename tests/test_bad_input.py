"""What users get wrong: one line on stderr, the right exit code, and never a traceback."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import grue
from grue.cli import entry


@pytest.fixture
def story(tmp_path: Path) -> Path:
    """A copy of level 1 that may be broken."""
    shipped = grue.load("saladworld-1").story
    for suffix in (".z8", ".json"):
        shutil.copy(shipped.with_suffix(suffix), tmp_path / f"copy{suffix}")
    return tmp_path / "copy.z8"


def complaint(arguments: Sequence[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a command says as it fails."""
    assert entry.main(arguments) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("grue: ")
    assert shown.err.endswith("\n")
    assert shown.err.count("\n") == 1
    return shown.err[len("grue: ") : -1]


def process(arguments: Sequence[str], typed: bytes = b"") -> tuple[int, list[str], str]:
    """Exit code, lines of stderr, and stdout of a real process."""
    command = [sys.executable, "-m", "grue.cli", *arguments]
    result = subprocess.run(command, input=typed, capture_output=True, timeout=300)
    return result.returncode, result.stderr.decode().splitlines(), result.stdout.decode()


def test_usage_errors_are_one_line_each(capsys) -> None:
    hint = " (grue --help shows what there is)"
    assert complaint(["gmaes"], 2, capsys).startswith("No such command 'gmaes'.")
    assert complaint(["play"], 2, capsys) == f"Missing argument 'GAME'.{hint}"
    assert "--sede" in complaint(["play", "saladworld-1", "--sede", "1"], 2, capsys)
    said = complaint(["play", "saladworld-1", "--seed", "-1"], 2, capsys)
    assert said.startswith("Invalid value for '--seed': ")
    assert ", not -1 (grue" in said
    assert ", not nan (grue" in complaint(["bench", "env", "--seconds=nan"], 2, capsys)
    assert ", not inf (grue" in complaint(["bench", "env", "--seconds", "inf"], 2, capsys)
    assert complaint(["play", "~nobody-here/x.z5"], 2, capsys) == (
        "there is no home folder for ~nobody-here/x.z5; give the full path"
    )
    assert "integer" in complaint(["play", "saladworld-1", "--seed", "x"], 2, capsys)
    assert "(extra)" in complaint(["games", "extra"], 2, capsys)


@pytest.mark.parametrize("command", ["play", "walkthrough", "map"])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("saladworld-8", "there is no game 'saladworld-8': the games are saladworld-1 to"),
        ("saladworld-0", "the games are saladworld-1 to saladworld-7"),
        ("", ". is a folder, not a story file"),
        ("missing/story.z8", "there is no file missing/story.z8"),
        ("missing.z8", "there is no file missing.z8"),
    ],
)
def test_games_that_are_not_there(command: str, name: str, says: str, capsys) -> None:
    assert says in complaint([command, name], 2, capsys)


def test_a_real_process_says_the_same() -> None:
    for arguments in (["play", "saladworld-9"], ["map", "saladworld-1", "--frame"]):
        code, lines, shown = process(arguments)
        assert code == 2
        assert len(lines) == 1
        assert lines[0].startswith("grue: ")
        assert shown == ""


def test_files_that_are_no_story(story: Path, tmp_path: Path, capsys) -> None:
    assert "is a folder" in complaint(["play", str(tmp_path)], 2, capsys)
    data = story.read_bytes()
    for size in (0, 63, 64, len(data) // 2, len(data) - 1024):
        story.write_bytes(data[:size])
        says = "cut short" if size >= 64 else "not a Z-machine story"
        assert says in complaint(["play", str(story)], 1, capsys)
    story.write_bytes(data[:5000] + b"\xff\x00\xff" + data[5003:])
    assert "damaged" in complaint(["walkthrough", str(story), "--run"], 1, capsys)
    story.write_text("It is pitch dark. You are likely to be eaten by a grue. " * 9)
    assert "not a Z-machine story" in complaint(["play", str(story)], 1, capsys)
    shutil.copy(sys.executable, tmp_path / "python.z5")
    assert "not a Z-machine story" in complaint(["map", str(tmp_path / "python.z5")], 1, capsys)


def test_a_story_without_its_json(story: Path, capsys) -> None:
    story.with_suffix(".json").unlink()
    assert "its world is unknown" in complaint(["map", str(story)], 2, capsys)
    assert "a TextWorld game with its .json" in complaint(["verify", str(story)], 2, capsys)
    story.with_suffix(".json").mkdir()
    assert "cannot read" in complaint(["map", str(story)], 2, capsys)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe\x00",
        b'{"world": [], "quests": [], "infos": []}',
        b'{"world": 1, "quests": 1, "infos": 1, "KB": 1}',
        b'{"world": [], "quests": [], "infos": [], "KB": {"logic": ""}}',
        b'{"world": [{"name": "at"}], "quests": [], "infos": [], "KB": {"logic": ""}}',
    ],
)
def test_a_broken_json(story: Path, text: bytes, capsys) -> None:
    story.with_suffix(".json").write_bytes(text)
    for command in ("play", "walkthrough", "map"):
        assert "is not a TextWorld game file" in complaint([command, str(story)], 1, capsys)


def test_a_json_cut_in_the_middle(story: Path, capsys) -> None:
    path = story.with_suffix(".json")
    path.write_bytes(path.read_bytes()[:3000])
    assert "is not a TextWorld game file" in complaint(["play", str(story)], 1, capsys)


def change_metadata(story: Path, **changes: Any) -> None:
    path = story.with_suffix(".json")
    data = json.loads(path.read_text())
    data["metadata"].update(changes)
    path.write_text(json.dumps(data))


def test_walkthroughs_that_do_not_work(story: Path, capsys) -> None:
    change_metadata(story, walkthrough=[])
    assert complaint(["walkthrough", str(story)], 1, capsys) == "copy comes with no walkthrough"

    change_metadata(story, walkthrough=["go south", "go east", "go east"])
    assert entry.main(["walkthrough", str(story), "--run"]) == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == "score 10/15, game not over"
    assert shown.err.startswith("grue: the walkthrough of copy does not finish it")

    change_metadata(story, walkthrough=["quit"])
    assert entry.main(["walkthrough", str(story), "--run"]) == 2
    assert "'quit'" in capsys.readouterr().err


def test_outputs_that_cannot_be_written(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("")
    for place in (f"{tmp_path}/file/map.png", "/dev/null/map.png", "/proc/map.png"):
        said = complaint(["map", "saladworld-1", "-o", place], 1, capsys)
        assert said.startswith(f"cannot write {place}: ")
    assert ".png, .svg, .pdf" in complaint(["map", "saladworld-1", "-o", "map.jpg"], 2, capsys)

    for place in (f"{tmp_path}/file/game.txt", f"{tmp_path}/missing/game.txt", "/proc/game.txt"):
        said = complaint(["play", "saladworld-1", "--transcript", place], 1, capsys)
        assert said.startswith(f"cannot write {place}: ")
    said = complaint(["play", "saladworld-1", "--transcript", str(tmp_path / "file")], 2, capsys)
    assert said == f"{tmp_path}/file exists already; give the transcript another name"
    assert (tmp_path / "file").read_text() == ""
    assert os.listdir(tmp_path) == ["file"]


def test_outputs_that_are_no_files(tmp_path: Path, capsys) -> None:
    """A pipe or a device would be replaced by a file."""
    os.mkfifo(tmp_path / "pipe.png")
    for command in ("compile", "map"):
        said = complaint([command, "saladworld-1", "-o", str(tmp_path / "pipe.png")], 2, capsys)
        assert said.startswith(f"{tmp_path}/pipe.png is not a plain file and would be replaced")
    assert stat.S_ISFIFO((tmp_path / "pipe.png").stat().st_mode)
    for place in (str(tmp_path), "", "/"):
        said = complaint(["compile", "saladworld-1", "-o", place], 2, capsys)
        assert said.endswith(" is a folder: give the name of a file to write")
    said = complaint(["compile", "saladworld-1", "-o", f"{tmp_path}/missing/x.grue.npz"], 1, capsys)
    assert said == f"cannot write {tmp_path}/missing/x.grue.npz: No such file or directory"
    assert os.listdir(tmp_path) == ["pipe.png"]


def test_a_compiled_game_where_a_story_is_wanted(tmp_path: Path, capsys) -> None:
    said = complaint(["play", str(tmp_path / "x.grue.npz")], 2, capsys)
    assert "is a compiled game, for grue train and grue.make only" in said


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("matplotlib", ["map", "saladworld-1", "-o", "map.png"]),
        ("textworld", ["walkthrough", "saladworld-1", "--run"]),
        ("equinox", ["train", "saladworld-1", "--steps", "1000"]),
    ],
)
def test_packages_that_are_missing(name: str, arguments: list[str], tmp_path: Path) -> None:
    # None in its place makes every import of it fail.
    run = "from grue.cli.entry import main; sys.exit(main())"
    code = f"import sys; sys.modules[{name!r}] = None; {run}"
    command = [sys.executable, "-c", code, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 1
    said = f"grue: the package {name} is needed and cannot be imported"
    assert result.stderr.splitlines()[-1].startswith(said)
    assert "Traceback" not in result.stderr


def test_streams_that_are_closed_or_poor() -> None:
    grue_command = f"{sys.executable} -m grue.cli"
    for shell in (f"{grue_command} games >&-", f"{grue_command} games 2>&-"):
        result = subprocess.run(shell, shell=True, capture_output=True, text=True)
        assert (result.returncode, result.stderr) == (0, ""), shell
    poor = os.environ | {"PYTHONIOENCODING": "ascii"}
    result = subprocess.run(f"{grue_command} --help", shell=True, capture_output=True, env=poor)
    assert result.returncode == 0
    assert b"?" in result.stdout


def test_too_little_memory(tmp_path: Path, monkeypatch, capsys) -> None:
    """Nothing stays behind that would be in the way of the next try."""

    def fail(*_: object) -> None:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory.\nMore lines")

    monkeypatch.setattr("grue.training.trainer.build", fail)
    given = ["train", "saladworld-1", "--steps", "1000", "--out", str(tmp_path / "runs")]
    assert entry.main(given) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "grue: there is not enough memory (RESOURCE_EXHAUSTED: Out of memory.); "
        "make replay_steps, table_rows, the network's sizes or the number of runs smaller"
    )
    assert not (tmp_path / "runs").exists()


def test_odd_input_to_a_game() -> None:
    typed = (
        b"\x00\n\x1b[A\n"
        + b"a" * 500
        + b"\n"
        + "é".encode() * 99
        + b"\ntw-print\n[bold]\n:smile:\n"
    )
    code, lines, shown = process(["play", "saladworld-1"], typed)
    assert code == 0
    assert lines == []
    assert shown.count("cannot be typed") == 2
    assert "at most 198 bytes" in shown
    assert "'tw-print' is a command to the interpreter" in shown
    assert shown.count("That's not a verb I recognise.") == 3
    assert shown.rstrip().endswith("The input ended; score 0/15.")


def test_input_that_is_no_text() -> None:
    code, lines, shown = process(["play", "saladworld-1"], b"\xff\xfe\nlook\n")
    assert (code, lines) == (0, [])
    assert "That's not a verb I recognise." in shown
    assert "[score 0/15, 2 steps]" in shown
    code, lines, shown = process(["play", "saladworld-1"])
    assert (code, lines) == (0, [])
    assert shown.rstrip().endswith("The input ended; score 0/15.")
