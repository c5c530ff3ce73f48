"""Opens Jericho's emulator and avoids what makes it crash or hang."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from grue.errors import UsageError

# They write files, ask questions or halt the interpreter.
INTERPRETER_COMMANDS = frozenset(
    ("save", "restore", "restart", "quit", "q", "undo", "script", "unscript", "transcript")
)
LONGEST_COMMAND = 198  # bytes; the emulator cuts longer ones
LARGEST_SEED = 2**31 - 2
FOLDER = "grue_folder"


def open_emulator(story: Path) -> Any:
    """A ``FrotzEnv`` for a story that has been checked.

    Jericho hides the prompt and the score of stories called "tw-…", TextWorld's default name. So
    these get another name while they are played.
    """
    import jericho

    folder: TemporaryDirectory[str] | None = None
    path = story
    if story.name.startswith("tw-"):
        folder = TemporaryDirectory(prefix="grue-")
        path = Path(folder.name) / f"story{story.suffix}"
        path.symlink_to(story.resolve())
    with warnings.catch_warnings():
        # grue also plays stories without Jericho's bindings.
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
    """The opening of a game. Jericho's seed 0 means the clock, so 1 is added."""
    check_seed(seed)
    emulator.seed(seed + 1)
    return emulator.reset()[0]


def check_seed(seed: int) -> None:
    if not 0 <= seed <= LARGEST_SEED:
        raise UsageError(f"the game's seed is {seed}; give one from 0 to {LARGEST_SEED}")


@lru_cache(maxsize=2**12)
def check_command(command: str) -> None:
    """Refuses commands to the interpreter, and those that the emulator cannot read."""
    if not command.isprintable():
        # The emulator hangs on some of these.
        raise UsageError(f"{command!r} has characters that cannot be typed")
    if (size := len(command.encode())) > LONGEST_COMMAND:
        raise UsageError(f"a command has at most {LONGEST_COMMAND} bytes, not {size}; shorten it")
    for part in re.split(r"[.,;]|\bthen\b", command.lower()):
        words = part.split()
        # TextWorld's "tw-…" commands change the story's output.
        if words and (words[0] in INTERPRETER_COMMANDS or words[0].startswith("tw-")):
            raise UsageError(f"{words[0]!r} is a command to the interpreter, not to the game")
