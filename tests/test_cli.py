"""The command line as a person meets it: real processes, pipes and a real terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import grue
from grue.cli import entry

# Table 1 of the paper, and the sum of each level's rewards.
TABLE = [
    ("saladworld-1", 4, 2, 2, 8, 15),
    ("saladworld-2", 7, 4, 3, 15, 20),
    ("saladworld-3", 7, 4, 3, 15, 20),
    ("saladworld-4", 9, 8, 4, 50, 25),
    ("saladworld-5", 11, 15, 5, 141, 30),
    ("saladworld-6", 12, 20, 6, 283, 35),
    ("saladworld-7", 12, 20, 7, 295, 40),
]
COLUMNS = ["name", "rooms", "objects", "subtasks", "commands", "max_score"]


def run(
    arguments: Sequence[str], typed: str = "", folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "grue.cli", *arguments],
        input=typed,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
    )


class Terminal:
    """A grue process at a terminal of its own."""

    def __init__(self, arguments: Sequence[str], home: Path) -> None:
        self.screen = ""
        child, self.terminal = pty.fork()
        if child == 0:
            environment = {**os.environ, "XDG_STATE_HOME": str(home), "TERM": "dumb"}
            command = [sys.executable, "-m", "grue.cli", *arguments]
            os.execve(sys.executable, command, environment)
        self.child = child

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 120
        while text not in self.screen:
            assert time.monotonic() < deadline, self.screen
            assert self._read(), self.screen
        self.screen = self.screen.split(text, 1)[1]

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def interrupt(self) -> None:
        """Presses Ctrl-C until it is seen: Python's readline misses one just before it waits."""
        for _ in range(10):
            os.kill(self.child, signal.SIGINT)
            if select.select([self.terminal], [], [], 2)[0]:
                return

    def finish(self) -> tuple[int, str]:
        """Waits for the end: the exit code and what was shown last."""
        while self._read():
            pass
        _, status = os.waitpid(self.child, 0)
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(status), self.screen

    def _read(self) -> bool:
        if not select.select([self.terminal], [], [], 120)[0]:
            raise TimeoutError(self.screen)
        try:
            data = os.read(self.terminal, 65536)
        except OSError:  # Linux's way to say that the other side is closed.
            return False
        self.screen += data.decode().replace("\r\n", "\n")
        return bool(data)


def test_games_as_json_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["games", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[:-1] == [dict(zip(COLUMNS, row, strict=True)) for row in TABLE]
    assert rows[-1] == {**dict.fromkeys(COLUMNS), "name": "zork1", "max_score": 350}
    assert [list(row) for row in rows] == [COLUMNS] * 8

    assert entry.main(["--version"]) == 0
    assert capsys.readouterr().out == f"grue {grue.__version__}\n"


def test_games_as_a_table() -> None:
    result = run(["games"])
    assert result.returncode == 0
    assert result.stderr == ""
    cells = [
        tuple(cell.strip() for cell in line.split("│")[1:-1])
        for line in result.stdout.splitlines()
        if line.startswith("│")
    ]
    assert cells[:-1] == [tuple(str(value) for value in row) for row in TABLE]
    assert cells[-1] == ("zork1", "-", "-", "-", "-", "350")


def test_help_names_every_command_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from grue.cli.entry import main; code = main(['--help']);"
        "heavy = {'textworld', 'jericho', 'matplotlib', 'jax'};"
        "print(sorted(heavy & set(sys.modules)), code)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.splitlines()[-1] == "[] 0"
    for command in ("games", "play", "walkthrough", "map"):
        assert f" {command} " in result.stdout


def test_no_command_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main([]) == 0
    assert "Usage: grue" in capsys.readouterr().out


def test_walkthrough(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["walkthrough", "saladworld-3"]) == 0
    assert tuple(capsys.readouterr().out.splitlines()) == grue.load("saladworld-3").walkthrough

    assert entry.main(["walkthrough", "saladworld-1", "--run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "go south                  0/15",
        "go east                   0/15",
        "go east                  10/15",
        "take lettuce             10/15",
        "go west                  10/15",
        "go west                  10/15",
        "go north                 10/15",
        "put lettuce on counter   15/15",
        "score 15/15, game won",
    ]


def test_map_is_named_after_the_game(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert entry.main(["map", "saladworld-1"]) == 0
    assert capsys.readouterr().out == "saladworld-1.png\n"
    assert entry.main(["map", "saladworld-1", "-o", "here.svg"]) == 0
    assert sorted(os.listdir()) == ["here.svg", "saladworld-1.png"]


KITCHEN = """\
You are making a salad. Enter the vegetable market. Put the lettuce on the counter.

-= Kitchen =-
You are in the kitchen.

There is a counter with nothing on it.

There is an exit to the south.

[score 0/15, 0 steps]
[you can: go south]
"""
LIVING_ROOM = """\
-= Living Room =-
You are in the living room.

There are exits to the east and north.

[score 0/15, {}]
[you can: go north, go east]
"""


def test_a_piped_game_with_every_command_of_grue(tmp_path: Path) -> None:
    typed = "help\nundo\ngo south\n  GO   EAST \nundo\n\nsave\nquit now\nrestart\nquit\ngo south\n"
    arguments = ["play", "saladworld-1", "--hints", "--transcript", "game.txt"]
    result = run(arguments, typed, tmp_path)
    assert result.returncode == 0
    assert result.stderr == ""
    shown = result.stdout.split("> ")
    assert shown[0] == KITCHEN
    assert shown[1].startswith("help\nType what you want to do")
    assert shown[2] == "undo\nThere is nothing to undo.\n\n"
    assert shown[3] == "go south\n" + LIVING_ROOM.format("1 step")
    assert shown[4].startswith("  GO   EAST \n-= Open Space =-\n")
    assert shown[5] == "undo\nYou take back a step.\n\n" + LIVING_ROOM.format("1 step")
    assert shown[6] == "\n"
    assert shown[7] == "save\n'save' is a command to the interpreter, not to the game.\n\n"
    assert shown[8] == "quit now\n'quit' is a command to the interpreter, not to the game.\n\n"
    assert shown[9] == "restart\n" + KITCHEN
    assert shown[10] == "quit\nYou left the game; score 0/15.\n\n"
    assert len(shown) == 11

    transcript = (tmp_path / "game.txt").read_text()
    assert transcript.startswith("You are making a salad.")
    assert transcript.count("-= Living Room =-") == 2
    assert transcript.endswith("> quit\n\nYou left the game; score 0/15.\n\n")


def test_a_game_played_to_its_end() -> None:
    commands = grue.load("saladworld-1").walkthrough
    result = run(["play", "saladworld-1", "--seed", "7"], "\n".join(commands) + "\nlook\n")
    assert result.returncode == 0
    assert result.stdout.rstrip().endswith("You have won; score 15/15 in 8 steps.")
    assert "*** The End ***" in result.stdout
    assert "look" not in result.stdout
    assert "you can" not in result.stdout


def test_people_have_no_limit_of_steps() -> None:
    result = run(["play", "saladworld-1"], "look\n" * 120)
    assert "[score 0/15, 120 steps]" in result.stdout
    assert result.stdout.rstrip().endswith("The input ended; score 0/15.")
    assert result.returncode == 0


def test_a_terminal_has_history_and_ctrl_c_and_ctrl_d(tmp_path: Path) -> None:
    home = tmp_path / "state"
    history = home / "grue" / "history"
    terminal = Terminal(["play", "saladworld-1"], home)
    terminal.wait_for("> ")
    terminal.type("go south\n")
    terminal.wait_for("1 step]")
    terminal.wait_for("> ")
    terminal.type("\x04")
    code, screen = terminal.finish()
    assert code == 0
    assert screen.strip() == "The input ended; score 0/15."
    assert history.read_text() == "go south\n"

    transcript = tmp_path / "game.txt"
    terminal = Terminal(["play", "saladworld-1", "--transcript", str(transcript)], home)
    terminal.wait_for("> ")
    terminal.type("\x10\n")  # Ctrl-P: the line before, from the game before.
    terminal.wait_for("-= Living Room =-")
    terminal.wait_for("> ")
    assert transcript.read_text().endswith("[score 0/15, 1 step]\n\n")  # Before the game ends.
    terminal.interrupt()
    code, screen = terminal.finish()
    assert code == 130
    assert [line for line in screen.splitlines() if line.strip(" ^C")] == ["grue: interrupted"]


def test_history_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    terminal = Terminal(["play", "saladworld-1"], tmp_path / "file")
    terminal.wait_for("> ")
    terminal.interrupt()
    code, screen = terminal.finish()
    assert code == 130
    assert screen.strip() == "grue: interrupted"


def test_closed_pipe_and_full_disk() -> None:
    command = f"{sys.executable} -m grue.cli walkthrough saladworld-7"
    closed = subprocess.run(
        ["bash", "-c", f"({command}; echo $? >&2) | true"], capture_output=True, text=True
    )
    assert closed.stderr in ("0\n", "1\n")  # It may have been faster than the reader.
    full = subprocess.run(["bash", "-c", f"{command} > /dev/full"], capture_output=True, text=True)
    assert full.returncode == 1
    assert full.stderr == "grue: No space left on device\n"
