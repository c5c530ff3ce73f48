"""What one step of a game gives back, whichever engine plays it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Step(NamedTuple):
    """The outcome of ``reset`` or ``step``. Names follow the paper: r_t, u_t, e_t."""

    observation: Any
    """The feedback as token numbers, padded with 0."""
    text: str | None
    """The feedback in words; only on the host side."""
    reward: Any
    """The change of the score."""
    score: Any
    """The score so far, u_t."""
    terminated: Any
    """The game is over: won or lost."""
    truncated: Any
    """The episode reached its limit of steps."""
    admissible: Any
    """Whether the command that was taken changed the game's state, e_t."""
    admissible_set: Any
    """For each command of the game, whether it would change the state now."""
    subtasks: Any
    """For each subtask, whether it is done."""
