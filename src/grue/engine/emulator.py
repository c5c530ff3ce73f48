"""Jericho's emulator, opened with care: what it does not say, crashes on or waits for ever for."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from grue.errors import UsageError

# Commands to the interpreter, not to the game: they write files, ask questions or halt it.
INTERPRETER_COMMANDS = frozenset(
    ("save", "restore", "restart", "quit", "q", "undo", "script", "unscript", "transcript")
)
LONGEST_COMMAND = 198  # bytes: the emulator cuts what is longer
LARGEST_SEED = 2**31 - 2
FOLDER = "grue_folder"


def open_emulator(story: Path) -> Any:
    """A ``FrotzEnv`` for a story that has been checked.

    Jericho hides the prompt, and with it the score, of a story that is called "tw-…", which is
    what TextWorld calls its games: it gets another name for as long as it plays.
    """
    import jericho

    folder: TemporaryDirectory[str] | None = None
    path = story
    if story.name.startswith("tw-"):
        folder = TemporaryDirectory(prefix="grue-")
        path = Path(folder.name) / f"story{story.suffix}"
        path.symlink_to(story.resolve())
    with warnings.catch_warnings():
        # Jericho has no bindings for most stories; we do without.
        warnings.simplefilter("ignore", jericho.UnsupportedGameWarning)
        emulator = jericho.FrotzEnv(str(path), seed=1)
    vars(emulator)[FOLDER] = folder
    return emulator


def close_emulator(emulator: Any) -> None:
    emulator.close()
    folder = vars(emulator)[FOLDER]
    if folder is not None:
        folder.cleanup()


def restart_emulator(emulator: Any, seed: int) -> str:
    """The opening of a game with this seed, which lies from 0 on: Jericho takes 0 for the clock."""
    check_seed(seed)
    emulator.seed(seed + 1)
    return emulator.reset()[0]


def take_command(
    emulator: Any, commands: Sequence[str], action: int | str, state: Any, current: Any
) -> tuple[str, str]:
    """A command, by its number or in words of one's own, and what it prints in a state.

    ``current`` is the state that the emulator is in.
    """
    if state.over:
        raise UsageError("the game is over; call reset to start again")
    command = action if isinstance(action, str) else commands[action]
    check_command(command)
    if state is not current:
        if state.snapshot is None:
            raise UsageError("this game keeps no snapshots: only the last state goes on")
        emulator.set_state(state.snapshot)
    return command, emulator.step(command)[0]


def check_seed(seed: int) -> None:
    if not 0 <= seed <= LARGEST_SEED:
        raise UsageError(f"a game's seed lies from 0 to {LARGEST_SEED}, not {seed}")


@lru_cache(maxsize=2**12)
def check_command(command: str) -> None:
    """Refuses what is not a command to the game."""
    if not command.isprintable():
        # The emulator waits for ever on some of these.
        raise UsageError(f"{command!r} has characters that cannot be typed")
    if len(command.encode()) > LONGEST_COMMAND:
        raise UsageError(f"a command has at most {LONGEST_COMMAND} bytes")
    for part in re.split(r"[.,;]|\bthen\b", command.lower()):
        words = part.split()
        # The last are TextWorld's own, which change what the story reports.
        if words and (words[0] in INTERPRETER_COMMANDS or words[0].startswith("tw-")):
            raise UsageError(f"{words[0]!r} is a command to the interpreter, not to the game")
