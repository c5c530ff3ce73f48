"""Explorers: bonus rewards for new behaviour, and an ε that may depend on the score.

An explorer keeps counts over a run and stores extra fields in the replay memory. It computes the
bonus when sequences are sampled, so the bonus falls as the counts grow. ``register`` adds custom
explorers (docs/extending.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grue.agents.agent import Episode, Told
from grue.agents.registry import Metric, Registry
from grue.agents.replay import Fields, ReplayStep
from grue.agents.settings import NoSettings
from grue.engine.environment import Environment


class Candidates(NamedTuple):
    """The commands from which an exploratory command is drawn."""

    allowed: Bool[Array, " commands"]
    """The gate's candidate set."""
    admissibility: Float[Array, " commands"]
    """ξ̂"""
    exists: Bool[Array, " commands"] | None = None
    """In a set of games, the commands that this game has. None: all commands."""


class Explorer:
    """The base class: no bonus, ε unchanged, exploratory commands drawn uniformly."""

    def __init__(self, env: Environment, settings: Any) -> None:
        self.settings = settings
        self.commands = len(env.commands)

    def init(self) -> Any:
        """The initial state."""
        return ()

    def fields(self) -> Mapping[str, jax.ShapeDtypeStruct]:
        """Extra fields of a step in the replay memory: shape and type of each."""
        return {}

    def notice(
        self, known: Any, before: Episode, action: Int[Array, ""], after: Episode
    ) -> tuple[Any, Fields, Told]:
        """The state after a step, the step's fields, and declared metrics."""
        return known, {}, {}

    def bonus(self, known: Any, steps: ReplayStep) -> Float[Array, "*batch"]:
        """The bonus rewards of some steps."""
        return jnp.zeros_like(steps.reward)

    def epsilon(
        self, known: Any, epsilon: Float[Array, ""], score: Int[Array, ""]
    ) -> Float[Array, ""]:
        return epsilon

    def exploratory(
        self, known: Any, episode: Episode, decided: Candidates
    ) -> Float[Array, " commands"] | None:
        """The probability of each command when exploring. None: uniform over the candidates."""
        return None

    def override(self, known: Any, episode: Episode, action: Int[Array, ""]) -> Int[Array, ""]:
        """The command to play, given the agent's choice."""
        return action

    def counts(self, known: Any) -> Bool[Array, ""]:
        """Whether this episode counts in the score, the fraction and the wins of a run."""
        return jnp.bool_(True)


@dataclass(frozen=True)
class ExplorerKind:
    """The declaration of an explorer."""

    make: Callable[[Environment, Any], Explorer] = Explorer
    settings: type = NoSettings
    metrics: tuple[Metric, ...] = ()
    """Its own columns, returned by ``notice``."""
    summary: str = ""
    """One line for ``grue agents``."""


EXPLORERS: Registry[ExplorerKind] = Registry("explorer")


def register(name: str, built_in: bool = False, **declared: Any) -> Callable[[Any], Any]:
    """Registers the decorated class; ``declared`` are fields of ``ExplorerKind``."""

    def add(make: Any) -> Any:
        EXPLORERS.add(name, ExplorerKind(make, **declared), built_in)
        return make

    return add


class ChosenExplorer(NamedTuple):
    kind: ExplorerKind
    settings: Any


class ExplorerSet:
    """The explorers of a program. All see every step; each run uses its own."""

    def __init__(self, env: Environment, chosen: Sequence[ChosenExplorer]) -> None:
        self.explorers = tuple(kind.make(env, settings) for kind, settings in chosen)
        self.plain = all(type(explorer) is Explorer for explorer in self.explorers)

    def init(self) -> tuple[Any, ...]:
        return tuple(explorer.init() for explorer in self.explorers)

    def fields(self) -> dict[str, jax.ShapeDtypeStruct]:
        return {n: of for explorer in self.explorers for n, of in explorer.fields().items()}

    def notice(
        self,
        known: tuple[Any, ...],
        before: Episode,
        action: Int[Array, ""],
        after: Episode,
        number: Int[Array, ""],
    ) -> tuple[tuple[Any, ...], Fields, Told]:
        states, fields, told = [], {}, {}
        for i, explorer in enumerate(self.explorers):
            state, own, metrics = explorer.notice(known[i], before, action, after)
            states.append(state)
            # If explorers share a field or a metric, the value is that of the run's own explorer.
            for name, value in own.items():
                fields[name] = jnp.where(number == i, value, fields.get(name, value))
            for name, value in metrics.items():
                told[name] = told.get(name, 0.0) + jnp.where(number == i, value, 0.0)
        return tuple(states), fields, told

    def rewards(
        self, known: tuple[Any, ...], steps: ReplayStep, number: Int[Array, ""]
    ) -> Float[Array, "batch steps"]:
        """The game's rewards plus the bonus of the run's explorer."""
        if self.plain:
            return steps.reward
        bonuses = [e.bonus(own, steps) for e, own in zip(self.explorers, known, strict=True)]
        return steps.reward + jnp.stack(bonuses)[number]

    def epsilon(
        self,
        known: tuple[Any, ...],
        epsilon: Float[Array, ""],
        score: Int[Array, ""],
        number: Int[Array, ""],
    ) -> Float[Array, ""]:
        if self.plain:
            return epsilon
        own = [e.epsilon(k, epsilon, score) for e, k in zip(self.explorers, known, strict=True)]
        return jnp.stack(own)[number]

    def exploratory(
        self,
        known: tuple[Any, ...],
        episode: Episode,
        decided: Candidates,
        number: Int[Array, ""],
    ) -> Float[Array, " commands"] | None:
        if not known:  # Outside training.
            return None
        each = zip(self.explorers, known, strict=True)
        own = [explorer.exploratory(state, episode, decided) for explorer, state in each]
        if all(probabilities is None for probabilities in own):
            return None
        even = decided.allowed / decided.allowed.sum()
        return jnp.stack([even if one is None else one for one in own])[number]

    def override(
        self,
        known: tuple[Any, ...],
        episode: Episode,
        action: Int[Array, ""],
        number: Int[Array, ""],
    ) -> Int[Array, ""]:
        if self.plain:
            return action
        own = [e.override(k, episode, action) for e, k in zip(self.explorers, known, strict=True)]
        return jnp.stack(own)[number]

    def counts(self, known: tuple[Any, ...], number: Int[Array, ""]) -> Bool[Array, ""]:
        if self.plain:
            return jnp.bool_(True)
        own = [e.counts(k) for e, k in zip(self.explorers, known, strict=True)]
        return jnp.stack(own)[number]


register("none", True, summary="no bonus; ε unchanged")(Explorer)
