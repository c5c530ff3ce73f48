"""Cuts rows of metrics into pieces of about a second, so that a signal is soon heeded.

The cuts change nothing: what is learned and counted is the same wherever a row is cut.
"""

from __future__ import annotations

from grue.agents.kernels.select import compilation
from grue.training.config import TrainConfig

SECONDS = 1.0
FIRST_CYCLES = 10
LONGEST_FIXED = 1_000
"""Steps of a piece where its length is part of the program: a second or two on a GPU."""


class Pieces:
    """Chooses the steps of each piece; a piece ends at the latest where a row or a target does."""

    def __init__(self, config: TrainConfig) -> None:
        self.cycle = config.update_every
        self.unit = min(config.metrics_every, config.target_every)
        self.fixed = compilation().fixed_lengths
        self.steps = largest_divisor(self.unit, LONGEST_FIXED, self.cycle)
        if not self.fixed:
            self.steps = self.cycle * FIRST_CYCLES
        self._timed = False

    def next(self, step: int) -> int:
        """The steps of the piece that begins at a step."""
        return min(self.steps, self.unit - step % self.unit)

    def took(self, steps: int, seconds: float) -> None:
        """Adapts the length to the speed. The first piece waited for the compiler."""
        if self._timed and not self.fixed and seconds > 0:
            cycles = steps / self.cycle * min(SECONDS / seconds, 4.0)
            self.steps = self.cycle * max(int(cycles), 1)
        self._timed = True


def largest_divisor(whole: int, most: int, multiple_of: int) -> int:
    """The largest divisor that is a multiple of a number and at most ``most``, if there is one."""
    units = whole // multiple_of
    tried = range(1, min(units, most // multiple_of) + 1)
    fitting = [number for number in tried if units % number == 0]
    return multiple_of * max(fitting, default=1)
