"""Action gating: which commands may be tried now (the paper's candidate set).

A gate is known by a small integer, so that runs with different gates can share one program: every
gate is computed, and the run's own is taken. Where the set would be empty all commands are allowed.
A gate of your own joins them with ``register`` (docs/extending.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from grue.errors import UsageError


class Belief(NamedTuple):
    """What a gate may go by."""

    key: PRNGKeyArray
    admissibility: Float[Array, " commands"]
    """ξ̂, the classifier's estimate."""
    admissible_set: Bool[Array, " commands"]
    """The oracle."""
    threshold: float | Float[Array, ""]
    """c"""


class After(NamedTuple):
    """What the value after a step may be made of; each for any number of steps."""

    best: Float[Array, "*batch"]
    """max_a Q(h_{t+1}, a)"""
    same: Float[Array, "*batch"]
    """Q(h_{t+1}, a_t), or in the form of equation (4) Q(h_t, a_t)."""
    admissibility: Float[Array, "*batch"]
    """ξ̂(h_t, a_t)"""
    best_admissible: Float[Array, "*batch"]
    """max_a Q(h_{t+1}, a) over what the oracle allows then."""


def everything(belief: Belief) -> Bool[Array, " commands"]:
    return jnp.ones_like(belief.admissible_set)


def best(after: After) -> Float[Array, "*batch"]:
    return after.best


class Gate(NamedTuple):
    candidates: Callable[[Belief], Bool[Array, " commands"]] = everything
    value: Callable[[After], Float[Array, "*batch"]] = best
    classifier: bool = False
    """Whether it needs Φ_C."""
    soft: bool = False
    """Whether it steps aside now and then: the paper's ε₁."""


def drop_out(belief: Belief) -> Bool[Array, " commands"]:
    """Each command is in with probability ξ̂."""
    draws = jax.random.uniform(belief.key, belief.admissibility.shape)
    return draws < belief.admissibility


def mask(belief: Belief) -> Bool[Array, " commands"]:
    """Commands with ξ̂ ≥ c."""
    return belief.admissibility >= belief.threshold


def consistent(after: After) -> Float[Array, "*batch"]:
    """CQLH: the best value if the state changed, else that of the same command."""
    return after.admissibility * after.best + (1 - after.admissibility) * after.same


def alternate(after: After) -> Float[Array, "*batch"]:
    """ACQLH: without the second term."""
    return after.admissibility * after.best


GATES: dict[str, Gate] = {
    "none": Gate(),
    "oracle": Gate(lambda belief: belief.admissible_set, value=lambda after: after.best_admissible),
    "dropout": Gate(drop_out, classifier=True, soft=True),
    "masking": Gate(mask, classifier=True, soft=True),
    "cqlh": Gate(value=consistent, classifier=True),
    "acqlh": Gate(value=alternate, classifier=True),
}
NONE, ORACLE, DROPOUT, MASKING, CQLH, ACQLH = range(len(GATES))


def register(name: str, gate: Gate) -> None:
    """Makes a gate known under a name."""
    GATES[name] = gate


def gate_number(name: str) -> int:
    if name not in GATES:
        raise UsageError(f"there is no gate {name!r}; the gates are {', '.join(GATES)}")
    return list(GATES).index(name)


def uses_classifier(gate: int | Int[Array, ""]) -> Bool[Array, ""]:
    """Whether a gate needs Φ_C."""
    return jnp.array([each.classifier for each in GATES.values()])[gate]


class GateSettings(NamedTuple):
    gate: int | Int[Array, ""]
    threshold: float | Float[Array, ""] = 0.001
    """Masking keeps commands that are at least so likely to be admissible: the paper's c."""
    softness: float | Float[Array, ""] = 0.0
    """How often the soft gates allow all commands: the paper's ε₁."""


def candidate_set(
    key: PRNGKeyArray,
    settings: GateSettings,
    admissibility: Float[Array, " commands"],
    admissible_set: Bool[Array, " commands"],
) -> Bool[Array, " commands"]:
    """The commands that may be chosen. CQLH and ACQLH allow all and act on the targets."""
    draw, soften = jax.random.split(key)
    belief = Belief(draw, admissibility, admissible_set, settings.threshold)
    allowed = jnp.stack([gate.candidates(belief) for gate in GATES.values()])[settings.gate]
    may_be_soft = jnp.array([gate.soft for gate in GATES.values()])[settings.gate]
    soft = may_be_soft & (jax.random.uniform(soften) < settings.softness)
    return jnp.where(soft | ~allowed.any(), everything(belief), allowed)


def choose(
    key: PRNGKeyArray,
    values: Float[Array, " commands"],
    candidates: Bool[Array, " commands"],
    epsilon: float | Float[Array, ""],
) -> Int[Array, ""]:
    """ε-greedy over the candidates: a uniform one with probability ε, else the best."""
    explore, pick = jax.random.split(key)
    greedy = jnp.where(candidates, values, -jnp.inf).argmax()
    uniform = jax.random.categorical(pick, jnp.where(candidates, 0.0, -jnp.inf))
    return jnp.where(jax.random.uniform(explore) < epsilon, uniform, greedy)


def annealed_epsilon(
    step: int | Int[Array, ""],
    start: float = 1.0,
    end: float = 0.1,
    over: int = 1_000_000,
) -> Float[Array, ""]:
    """ε falls in a straight line from ``start`` to ``end`` over so many steps, then stays."""
    done = jnp.clip(jnp.asarray(step, jnp.float32) / over, 0.0, 1.0)
    return start + (end - start) * done
