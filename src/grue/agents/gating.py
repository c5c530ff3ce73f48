"""Action gating: which commands may be chosen (the paper's candidate set).

A program computes all gates and selects that of the run, so that runs with different gates can
share it. If the set is empty, all commands of the game are allowed. ``register`` adds custom gates
(docs/extending.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from grue.agents.agent import RunParameters
from grue.agents.registry import Registry
from grue.agents.settings import NoSettings, setting


class Belief(NamedTuple):
    """The inputs of a gate's candidate set."""

    key: PRNGKeyArray
    admissibility: Float[Array, " commands"]
    """ξ̂, the classifier's estimate."""
    admissible_set: Bool[Array, " commands"]
    """The admissible commands, from the game."""
    settings: Any
    """The gate's settings."""


class After(NamedTuple):
    """The inputs of a gate's target values."""

    best: Float[Array, "*batch"]
    """max_a Q(h_{t+1}, a)"""
    same: Float[Array, "*batch"]
    """Q(h_{t+1}, a_t), or Q(h_t, a_t) as in equation (4)."""
    admissibility: Float[Array, "*batch"]
    """ξ̂(h_t, a_t)"""
    best_admissible: Float[Array, "*batch"]
    """max_a Q(h_{t+1}, a) over the admissible commands."""
    values: Float[Array, "*batch commands"]
    """Q(h_{t+1}, ·); -inf for commands that the game does not have."""
    believed: Float[Array, "*batch commands"]
    """ξ̂(h_{t+1}, ·)"""
    settings: Any = None
    """The gate's settings."""
    chooser: Float[Array, "*batch commands"] | None = None
    """With double Q-learning the values of θ at h_{t+1}; ``values`` are those of θ⁻."""

    def best_of(self, kept: Bool[Array, "*batch commands"]) -> Float[Array, "*batch"]:
        """max_a Q(h_{t+1}, a) over the commands in ``kept``."""
        return best_of(self.values, kept, self.chooser)


def best_of(
    values: Float[Array, "*batch commands"],
    kept: Bool[Array, "*batch commands"],
    chooser: Float[Array, "*batch commands"] | None,
) -> Float[Array, "*batch"]:
    """The largest value, or the value of the command that ``chooser`` prefers."""
    if chooser is None:
        return jnp.where(kept, values, -jnp.inf).max(-1)
    chosen = jnp.where(kept, chooser, -jnp.inf).argmax(-1)
    return jnp.take_along_axis(values, chosen[..., None], axis=-1)[..., 0]


@dataclass(frozen=True, kw_only=True)
class SoftSettings:
    softness: float = setting(
        0.1, "ε₁: probability that the gate allows all commands", least=0, most=1
    )


@dataclass(frozen=True, kw_only=True)
class MaskingSettings(SoftSettings):
    threshold: float = setting(0.001, "c: masking keeps commands with ξ̂ ≥ c", least=0, most=1)
    masked_targets: bool = setting(
        False, "the maximum in a target is over the commands with ξ̂ ≥ c, too"
    )


def everything(belief: Belief) -> Bool[Array, " commands"]:
    return jnp.ones_like(belief.admissible_set)


def best(after: After) -> Float[Array, "*batch"]:
    return after.best


class Gate(NamedTuple):
    """The declaration of a gate."""

    candidates: Callable[[Belief], Bool[Array, " commands"]] = everything
    value: Callable[[After], Float[Array, "*batch"]] = best
    classifier: bool = False
    """Whether it needs Φ_C."""
    oracle: bool = False
    """Whether it needs the admissible commands from the game."""
    settings: type = NoSettings
    """With ``SoftSettings`` or a subclass, all commands are allowed with probability ε₁."""
    summary: str = ""
    """One line for ``grue agents``."""


def drop_out(belief: Belief) -> Bool[Array, " commands"]:
    """Each command with probability ξ̂."""
    draws = jax.random.uniform(belief.key, belief.admissibility.shape)
    return draws < belief.admissibility


def mask(belief: Belief) -> Bool[Array, " commands"]:
    """Commands with ξ̂ ≥ c."""
    return belief.admissibility >= belief.settings.threshold


def best_believed(after: After) -> Float[Array, "*batch"]:
    """max_a Q(h_{t+1}, a), over the commands with ξ̂(h_{t+1}, a) ≥ c if targets are masked."""
    if not after.settings.masked_targets:
        return after.best
    exists = after.values > -jnp.inf
    kept = exists & (after.believed >= after.settings.threshold)
    # If no command is kept, the maximum is over all.
    return after.best_of(jnp.where(kept.any(-1, keepdims=True), kept, exists))


def consistent(after: After) -> Float[Array, "*batch"]:
    """CQLH: the best value if the state changed, else that of the same command."""
    return after.admissibility * after.best + (1 - after.admissibility) * after.same


def alternate(after: After) -> Float[Array, "*batch"]:
    """ACQLH: without the second term."""
    return after.admissibility * after.best


GATES: Registry[Gate] = Registry("gate")


def register(name: str, gate: Gate) -> None:
    """Registers a custom gate."""
    GATES.add(name, gate)


def _built_in(name: str, *parts: Any, **declared: Any) -> None:
    GATES.add(name, Gate(*parts, **declared), built_in=True)


_built_in("none", summary="all commands may be tried")
_built_in(
    "oracle",
    lambda belief: belief.admissible_set,
    lambda after: after.best_admissible,
    oracle=True,
    summary="only the commands that the game says are admissible",
)
_built_in(
    "dropout",
    drop_out,
    classifier=True,
    settings=SoftSettings,
    summary="each command with the probability ξ̂ that it is admissible",
)
_built_in(
    "masking",
    mask,
    best_believed,
    classifier=True,
    settings=MaskingSettings,
    summary="the commands whose ξ̂ is at least the threshold",
)
_built_in(
    "cqlh",
    value=consistent,
    classifier=True,
    summary="all commands; ξ̂ weighs the value in the targets",
)
_built_in(
    "acqlh",
    value=alternate,
    classifier=True,
    summary="as cqlh, without the value of staying in the same state",
)


class GateSet(NamedTuple):
    """The gates of a program. A run's gate is an index into them."""

    gates: tuple[Gate, ...]
    settings: tuple[Any, ...]

    def candidates(
        self,
        key: PRNGKeyArray,
        parameters: RunParameters,
        admissibility: Float[Array, " commands"],
        admissible_set: Bool[Array, " commands"],
        exists: Bool[Array, " commands"] | None = None,
    ) -> Bool[Array, " commands"]:
        """The commands that may be chosen. CQLH and ACQLH allow all; they change the targets.

        ``exists`` are the commands that the game has, where it is one of a set.
        """
        draw, soften = jax.random.split(key)
        beliefs = [Belief(draw, admissibility, admissible_set, own) for own in self.settings]
        sets = [gate.candidates(own) for gate, own in zip(self.gates, beliefs, strict=True)]
        allowed = jnp.stack(sets)[parameters.gate]
        every = everything(beliefs[0])
        if exists is not None:
            allowed, every = allowed & exists, exists
        soft = jax.random.uniform(soften) < parameters.softness
        return jnp.where(soft | ~allowed.any(), every, allowed)

    def value(self, number: int | Int[Array, ""], after: After) -> Float[Array, "*batch"]:
        """The value after a step, with the run's gate."""
        each = zip(self.gates, self.settings, strict=True)
        values = [gate.value(after._replace(settings=own)) for gate, own in each]
        return jnp.stack(values)[number]

    def uses_classifier(self, number: int | Int[Array, ""]) -> Bool[Array, ""]:
        """Whether a run's gate needs Φ_C."""
        return jnp.array([gate.classifier for gate in self.gates])[number]


def registered_gates(settings: Mapping[str, Any] | None = None) -> GateSet:
    """All registered gates, with default settings unless given."""
    given = settings or {}
    return GateSet(
        tuple(GATES.values()),
        tuple(given.get(name, gate.settings()) for name, gate in GATES.items()),
    )


def choose(
    key: PRNGKeyArray,
    values: Float[Array, " commands"],
    candidates: Bool[Array, " commands"],
    epsilon: float | Float[Array, ""],
    exploratory: Float[Array, " commands"] | None = None,
) -> Int[Array, ""]:
    """ε-greedy over the candidates.

    ``exploratory``: the probability of each command when exploring; by default uniform over the
    candidates.
    """
    explore, pick = jax.random.split(key)
    greedy = jnp.where(candidates, values, -jnp.inf).argmax()
    odds = candidates if exploratory is None else exploratory
    drawn = jax.random.categorical(pick, jnp.log(odds))
    return jnp.where(jax.random.uniform(explore) < epsilon, drawn, greedy)


def annealed(step: Any, start: float, end: float, over: int) -> Any:
    """Falls linearly from ``start`` to ``end`` over ``over`` steps; a float for an int step."""
    if isinstance(step, int):
        done: Any = min(step / over, 1.0)
    else:
        done = jnp.clip(jnp.asarray(step, jnp.float32) / over, 0.0, 1.0)
    return start * (1.0 - done) + end * done
