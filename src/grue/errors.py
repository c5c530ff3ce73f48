"""Errors that a user can mend: one line that says what is wrong, what is allowed, what to do."""

from __future__ import annotations

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


class GrueError(Exception):
    """Something failed that is not grue's fault. The command line exits with ``exit_code``."""

    exit_code = 1


class UsageError(GrueError, ValueError):
    """A value that grue was given is not one that it takes."""

    exit_code = 2


class NotRegisteredError(UsageError):
    """An agent or a gate that nobody has registered: perhaps one of the user's own."""


class StoppedError(GrueError):
    """A signal ended the training."""

    exit_code = INTERRUPTED


class BrokenFileError(GrueError):
    """A file is there but is not what it should be."""


class CannotCompileError(GrueError):
    """The game has a rule or a text that the compiler does not know; it still plays hosted."""


NO_MEMORY = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory")
SMALLER = "make replay_steps, table_rows, the network's sizes or the number of runs smaller"


def is_out_of_memory(error: BaseException) -> bool:
    """JAX has no class of its own for it."""
    return isinstance(error, MemoryError) or any(word in str(error) for word in NO_MEMORY)


def out_of_memory(error: BaseException) -> GrueError:
    first = str(error).strip().partition("\n")[0][:120]
    return GrueError(f"there is not enough memory{f' ({first})' if first else ''}; {SMALLER}")
