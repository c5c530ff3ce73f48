"""A condition of an experiment: an agent, its gate and explorer, and switched-off components."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grue.agents.catalogue import AGENTS, EXPLORERS, GATES
from grue.errors import UsageError
from grue.training.config import TrainConfig, all_settings

NO_SWITCHES = ("game", "agent", "gate", "explore", "seeds", "steps", "metrics_every")
NO_SWITCHES += ("valid", "test", "valid_every")
"""Settings that do not belong to a condition, or that every label shows anyway."""


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

    @classmethod
    def parse(cls, text: str) -> Condition:
        """The condition whose ``typed`` form is this text."""
        agent, *parts = text.replace(" ", "").split("+")
        off = [part.removeprefix("no-") for part in parts if part.startswith("no-")]
        on = [part for part in parts if not part.startswith("no-")]
        explorers = [part for part in on if part in EXPLORERS and part not in GATES]
        gates = [part for part in on if part not in explorers]
        if len(gates) > 1 or len(explorers) > 1 or not set(off) <= {"priority", "look"}:
            raise UsageError(
                f"a condition is written AGENT, AGENT+GATE or AGENT+GATE+EXPLORER, or with "
                f"+no-priority or +no-look, not {text!r}"
            )
        gate, explore = (*gates, "none")[0], (*explorers, "none")[0]
        AGENTS.find(agent)
        GATES.find(gate)
        return cls(agent, gate, "priority" not in off, "look" not in off, explore)

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
        """The settings of a config that the condition decides."""
        look = {} if self.look else {"look_every": 0}
        parts = {"agent": self.agent, "gate": self.gate, "explore": self.explore}
        return {**parts, "priority": self.priority, **look}

    def _names(self) -> list[str]:
        return [self.agent, *(part for part in (self.gate, self.explore) if part != "none")]

    def _off(self) -> list[str]:
        return [name for name in ("priority", "look") if not getattr(self, name)]


BASELINE, SC, SC_MASKING = Condition("drqn"), Condition("sc"), Condition("sc", "masking")


def describe(config: TrainConfig, switches: Sequence[str] = ()) -> str:
    """A label with the given settings where they are not the default: "sc + masking, huber"."""
    words = [Condition.of(config).label]
    own, usual = config.flat(), usual_settings(config)
    for name in switches:
        value = own.get(name)
        in_label = name == "priority" or (name == "look_every" and value == 0)
        if name not in own or in_label or value == usual[name]:
            continue
        spoken = name.replace("_", " ")
        if isinstance(value, bool):
            words.append(spoken if value else f"no {spoken}")
        else:
            words.append(f"{spoken} {value:,}" if isinstance(value, int) else f"{spoken} {value}")
    return ", ".join(words)


def switches_of(configs: Sequence[TrainConfig]) -> tuple[str, ...]:
    """The settings in which runs of one game differ."""
    found: dict[tuple[str, str], set] = {}
    for config in configs:
        for name, value in config.flat().items():
            found.setdefault((config.game, name), set()).add(value)
    differing = {name for (_, name), values in found.items() if len(values) > 1}
    return tuple(name for name in all_settings() if name in differing - set(NO_SWITCHES))


def usual_settings(config: TrainConfig) -> dict[str, Any]:
    """Every setting of a config's agent, gate and explorer, with the default for its game."""
    return TrainConfig(
        game=config.game, agent=config.agent, gate=config.gate, explore=config.explore
    ).flat()
