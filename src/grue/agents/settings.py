"""Settings: dataclasses whose fields have limits and a description, made by ``setting``.

Every agent, gate and explorer has its own dataclass; those of agents extend ``AgentSettings``. The
defaults are the paper's (docs/agents.md).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any, get_args, get_type_hints

from grue.errors import UsageError

LARGEST = 2**31 - 1
"""Steps are 32-bit integers."""
KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}


@dataclass(frozen=True)
class Limits:
    least: int | float | None = None
    above: int | float | None = None
    most: int | float | None = None
    choices: Collection[str] | None = None

    def check(self, name: str, value: Any) -> None:
        if self.choices is not None and value not in self.choices:
            raise UsageError(f"there is no {name} {value!r}; there are {', '.join(self.choices)}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        low = self.above if self.least is None else self.least
        most = math.inf if self.most is None else self.most
        if self.most is not None and isinstance(value, float) and not (low or 0) <= value <= most:
            raise UsageError(f"{name} lies from {low or 0:g} to {most:g}, not {value}")
        if self.least is not None and value < self.least:
            raise UsageError(f"{name} must be at least {self.least:g}, not {value}")
        if self.above is not None and value <= self.above:
            raise UsageError(f"{name} must be more than {self.above:g}, not {value}")
        most = LARGEST if self.most is None and isinstance(value, int) else self.most
        if most is not None and value > most:
            raise UsageError(f"{name} must be at most {most}, not {value}")


def setting(
    default: Any,
    description: str,
    *,
    least: int | float | None = None,
    above: int | float | None = None,
    most: int | float | None = None,
    choices: Collection[str] | None = None,
    small: Any = None,
) -> Any:
    """A field of a settings dataclass, with its description and limits.

    ``small`` is its value in the preset small, if that is not the default.
    """
    limits = Limits(least, above, most, choices)
    metadata = {"description": description, "limits": limits, "small": small}
    return dataclasses.field(default=default, metadata=metadata)


def check_limits(settings: Any) -> None:
    """Raises a UsageError for the first field that is out of its limits."""
    for field in dataclasses.fields(settings):
        if limits := field.metadata.get("limits"):
            limits.check(field.name, getattr(settings, field.name))


def names_of(settings: type) -> list[str]:
    return [field.name for field in dataclasses.fields(settings)]


def small_values(settings: type) -> dict[str, Any]:
    """The values of the preset small, where they are not the defaults."""
    found = {field.name: field.metadata.get("small") for field in dataclasses.fields(settings)}
    return {name: value for name, value in found.items() if value is not None}


def from_text(settings: type, name: str, text: str) -> Any:
    """Parses a value from the command line."""
    kinds = _kinds(settings, name)
    if type(None) in kinds and text.lower() == "none":
        return None
    if str in kinds:
        return text
    if bool in kinds:
        answers = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
        if text.lower() in answers:
            return answers[text.lower()]
        raise _wrong_kind(name, text, bool)
    kind = int if int in kinds else float
    try:
        return kind(text)
    except ValueError:
        raise _wrong_kind(name, text, kind) from None


def typed(settings: type, name: str, value: Any) -> Any:
    """Converts a value to the type of its field, so that equal settings are equal in JSON."""
    return as_kind(name, value, _kinds(settings, name))


def as_kind(name: str, value: Any, kinds: tuple[type, ...]) -> Any:
    if value is None and type(None) in kinds:
        return None
    if str in kinds and isinstance(value, str | Path):
        return str(value)
    if isinstance(value, bool):
        if bool in kinds:
            return value
    elif int in kinds and isinstance(value, Integral):
        return int(value)
    elif float in kinds and isinstance(value, Real) and math.isfinite(value):
        return float(value)
    raise _wrong_kind(name, value, kinds[0])


def _kinds(settings: type, name: str) -> tuple[type, ...]:
    hint = _hints(settings)[name]
    return get_args(hint) or (hint,)


@lru_cache(maxsize=64)
def _hints(settings: type) -> dict[str, Any]:
    """Cached because it is slow; a class's annotations do not change."""
    return get_type_hints(settings)


def _wrong_kind(name: str, value: Any, kind: type) -> UsageError:
    return UsageError(f"{name} is {KINDS[kind]}, not {value!r}")


def described(settings: type) -> Iterable[tuple[str, Any, str]]:
    """Name, default and description of every field."""
    for field in dataclasses.fields(settings):
        yield field.name, field.default, field.metadata.get("description", "")


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """The settings of a gate or an explorer that has none."""


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """The settings of every agent, used by the training loop."""

    discount: float = setting(0.9, "γ, the discount of future rewards", least=0, most=1)
    epsilon_start: float = setting(1.0, "ε at the first step", least=0, most=1)
    epsilon_end: float = setting(0.1, "ε after epsilon_steps", least=0, most=1)
    epsilon_steps: int = setting(1_000_000, "steps over which ε falls", above=0, small=10_000)
    look_every: int = setting(20, "I_look: steps between two forced looks; 0: none", least=0)
    update_every: int = setting(4, "steps between two updates", above=0)
    target_every: int = setting(1_000, "I_target: steps between two copies to θ⁻", above=0)
    learning_starts: int = setting(1_000, "steps before the first update", least=0)


@dataclass(frozen=True, kw_only=True)
class ReplaySettings(AgentSettings):
    """For agents that learn by gradient descent on batches from a replay memory."""

    replay_steps: int = setting(
        500_000, "steps that the replay memory holds", above=0, small=50_000
    )
    batch_size: int = setting(32, "sequences, or single steps, of a batch", above=0, small=16)
    learning_rate: float = setting(0.001, "step size of Adam", least=0)
    learning_rate_end: float | None = setting(
        None,
        "step size after learning_rate_steps, reached linearly; by default learning_rate",
        least=0,
    )
    learning_rate_steps: int = setting(1_000_000, "steps over which the step size changes", above=0)
    gradient_clip: float = setting(5.0, "largest norm of the gradient", above=0)
    huber: bool = setting(False, "Huber's loss in place of the squared error")
