"""Action gating: which commands may be tried now (the paper's candidate set).

A gate is a small integer, so that runs with different gates can share one program. Where the set
would be empty all commands are allowed.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from grue.errors import UsageError

GATES = ("none", "oracle", "dropout", "masking", "cqlh", "acqlh")
NONE, ORACLE, DROPOUT, MASKING, CQLH, ACQLH = range(len(GATES))


class GateSettings(NamedTuple):
    gate: int | Int[Array, ""]
    threshold: float | Float[Array, ""] = 0.001
    """Masking keeps commands that are at least so likely to be admissible: the paper's c."""
    softness: float | Float[Array, ""] = 0.0
    """How often the learned gates allow all commands: the paper's ε₁."""


def gate_number(name: str) -> int:
    if name not in GATES:
        raise UsageError(f"there is no gate {name!r}; the gates are {', '.join(GATES)}")
    return GATES.index(name)


def candidate_set(
    key: PRNGKeyArray,
    settings: GateSettings,
    admissibility: Float[Array, " commands"],
    admissible_set: Bool[Array, " commands"],
) -> Bool[Array, " commands"]:
    """The commands that may be chosen.

    ``admissibility`` is the classifier's estimate ξ̂ and ``admissible_set`` the oracle. Dropout
    adds each command with probability ξ̂; masking keeps those with ξ̂ ≥ c. CQLH and ACQLH leave the
    set as it is and act on the targets.
    """
    draw, soften = jax.random.split(key)
    everything = jnp.ones_like(admissible_set)
    by_gate = jnp.stack(
        [
            everything,
            admissible_set,
            jax.random.uniform(draw, admissibility.shape) < admissibility,
            admissibility >= settings.threshold,
            everything,
            everything,
        ]
    )
    allowed = by_gate[settings.gate]
    learned = (settings.gate == DROPOUT) | (settings.gate == MASKING)
    soft = learned & (jax.random.uniform(soften) < settings.softness)
    return jnp.where(soft | ~allowed.any(), everything, allowed)


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
