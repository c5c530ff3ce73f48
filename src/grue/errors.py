"""Errors that users can fix. Messages are one line: what is wrong, what is allowed, what to do."""

from __future__ import annotations

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


class GrueError(Exception):
    """An expected failure. The command line exits with ``exit_code``."""

    exit_code = 1


class UsageError(GrueError, ValueError):
    """The user gave an invalid value."""

    exit_code = 2


class NotRegisteredError(UsageError):
    """An agent or gate is not registered; the user may have to import it."""


class StoppedError(GrueError):
    """A signal ended the training."""

    exit_code = INTERRUPTED


class BrokenFileError(GrueError):
    """A file exists but is invalid."""


class NoCheckpointError(GrueError):
    """A run has no checkpoint yet."""


class BusyError(GrueError):
    """Another process is training in a run folder, or has just done so."""


class OutOfMemoryError(GrueError):
    """The runs do not fit into the memory of the device."""


class CannotCompileError(GrueError):
    """The compiler does not support the game. It can still be played hosted."""


NO_MEMORY = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory")
SMALLER = "make replay_steps, table_rows, the network's sizes or the number of runs smaller"


def is_out_of_memory(error: BaseException) -> bool:
    """Checks the message, because JAX has no class for this error."""
    return isinstance(error, MemoryError) or any(word in str(error) for word in NO_MEMORY)


def out_of_memory(error: BaseException) -> OutOfMemoryError:
    first = str(error).strip().partition("\n")[0][:120]
    why = f" ({first})" if first else ""
    return OutOfMemoryError(f"there is not enough memory{why}; {SMALLER}")
