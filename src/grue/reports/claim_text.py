"""A claim: a sentence of the paper's, and what must be so for it to hold."""

from __future__ import annotations

from dataclasses import dataclass

from grue.games.zmachine import zork
from grue.reports.verdicts import Test


@dataclass(frozen=True)
class Claim:
    id: str
    where: str
    """Section, or figure by its label."""
    sentence: str
    """The paper's words."""
    test: str
    """How we read it."""
    tests: tuple[Test, ...]
    note: str = ""
    """Why it comes out otherwise here, where that is known."""

    @property
    def subject(self) -> str:
        """What it is about."""
        levels = {cell.level for test in self.tests for cell in test.cells}
        return "Zork I" if levels == {zork.NAME} else "SaladWorld"
