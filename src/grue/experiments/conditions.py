"""A condition of an experiment: an agent, its gate, and what of the paper's is switched off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grue.training.config import TrainConfig


@dataclass(frozen=True)
class Condition:
    agent: str
    gate: str = "none"
    priority: bool = True
    look: bool = True
    """Whether a look is forced now and then."""
    explore: str = "none"

    @classmethod
    def of(cls, config: TrainConfig) -> Condition:
        return cls(
            config.agent, config.gate, config.priority, config.look_every > 0, config.explore
        )

    @property
    def label(self) -> str:
        """In words: "sc + masking, no priority"."""
        return ", ".join([" + ".join(self._names()), *(f"no {name}" for name in self._off())])

    @property
    def in_a_list(self) -> str:
        """In words without a comma: "sc + masking with no priority"."""
        return self.label.replace(", ", " with ", 1).replace(", ", " and ")

    @property
    def typed(self) -> str:
        """As the command line takes it: "sc+masking+no-priority"."""
        return "+".join([*self._names(), *(f"no-{name}" for name in self._off())])

    @property
    def settings(self) -> dict[str, Any]:
        """What it sets of a config."""
        look = {} if self.look else {"look_every": 0}
        parts = {"agent": self.agent, "gate": self.gate, "explore": self.explore}
        return {**parts, "priority": self.priority, **look}

    def _names(self) -> list[str]:
        return [self.agent, *(part for part in (self.gate, self.explore) if part != "none")]

    def _off(self) -> list[str]:
        return [name for name in ("priority", "look") if not getattr(self, name)]
