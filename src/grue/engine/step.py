"""The result of a step, for all engines."""

from __future__ import annotations

from typing import Any, NamedTuple


class Step(NamedTuple):
    """The result of ``reset`` or ``step``. r_t, u_t and e_t are the paper's names."""

    observation: Any
    """The game's output as token numbers, padded with 0."""
    text: str | None
    """The game's output as text, only in hosted games."""
    reward: Any
    """r_t, the change of the score."""
    score: Any
    """u_t, the score so far."""
    terminated: Any
    """The game is over: won or lost."""
    truncated: Any
    """The episode reached its limit of steps."""
    admissible: Any
    """e_t, whether the command changed the game's state."""
    admissible_set: Any
    """For each command, whether it would change the state now."""
    subtasks: Any
    """For each subtask, whether it is done."""
