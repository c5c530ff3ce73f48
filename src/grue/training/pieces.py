"""Cuts rows of metrics into pieces of about a second, so that signals take effect soon.

The results do not depend on the cuts: learning and metrics are the same wherever a row is cut.
"""

from __future__ import annotations

from grue.agents.kernels.select import compilation
from grue.training.config import TrainConfig

SECONDS = 1.0
FIRST_CYCLES = 10
LONGEST_FIXED = 1_000
"""Most steps of a piece whose length is compiled into the program: 1 or 2 s on a GPU."""


class Pieces:
    """Chooses the length of each piece. No piece extends past a row or a target period."""

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
        """Adapts the length to the speed. The first piece is ignored: it includes compilation."""
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
