"""One update: targets from the target network, the loss over sequences, a clipped Adam step."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from grue.agents import contexts, targets
from grue.agents.contexts import ScoreContexts
from grue.agents.gating import ACQLH, CQLH, DROPOUT, MASKING
from grue.agents.network import Network, Outputs
from grue.agents.replay import Sequences


class LearnerSettings(NamedTuple):
    """What the paper sets, and what it leaves open (docs/agents.md)."""

    gate: int | Int[Array, ""]
    look: int
    """The number of the command "look": it stands for a_0, before any command."""
    heads: int | Int[Array, ""] = 5
    discount: float | Float[Array, ""] = 0.9
    learning_rate: float = 0.001
    gradient_clip: float = 5.0
    minimum_history: int = 6
    consistent_with_next: bool = True
    """CQLH in the form of the appendix, Q(h_{t+1}, a_t); else of equation (4), Q(h_t, a_t)."""
    huber: bool = False


class Learner(NamedTuple):
    network: Network
    target: Network
    optimiser: Any


class Losses(NamedTuple):
    q: Float[Array, ""]
    classifier: Float[Array, ""]
    accuracy: Float[Array, ""]
    """How often ξ̂ ≥ 1/2 agrees with e_t on the commands that were taken."""


def optimiser(settings: LearnerSettings) -> optax.GradientTransformation:
    return optax.chain(
        optax.clip_by_global_norm(settings.gradient_clip), optax.adam(settings.learning_rate)
    )


def init(network: Network, settings: LearnerSettings) -> Learner:
    """θ⁻ ← θ"""
    return Learner(network, network, optimiser(settings).init(eqx.filter(network, eqx.is_array)))


def update(
    learner: Learner,
    batch: Sequences,
    known: ScoreContexts,
    command_words: Int[Array, "commands words"],
    settings: LearnerSettings,
) -> tuple[Learner, Losses]:
    """One gradient step on L(θ)."""

    def objective(network: Network) -> tuple[Array, Losses]:
        return loss(network, learner.target, batch, known, command_words, settings)

    slope, losses = eqx.filter_grad(objective, has_aux=True)(learner.network)
    changes, state = optimiser(settings).update(slope, learner.optimiser)
    network = eqx.apply_updates(learner.network, changes)
    return Learner(network, learner.target, state), losses


def copy_to_target(learner: Learner, now: Bool[Array, ""]) -> Learner:
    """θ⁻ ← θ, if it is time."""
    target = jax.tree.map(
        lambda new, old: jnp.where(now, new, old), learner.network, learner.target
    )
    return learner._replace(target=target)


def loss(
    network: Network,
    target: Network,
    batch: Sequences,
    known: ScoreContexts,
    command_words: Int[Array, "commands words"],
    settings: LearnerSettings,
) -> tuple[Float[Array, ""], Losses]:
    """L(θ): the mean over the updated states of (y - Q)² and, for learned gates, the BCE."""
    heads = jax.vmap(jax.vmap(lambda score: contexts.head(known, score, settings.heads)))(
        batch.rows.score
    )
    action = batch.rows.action[:, :-1].astype(jnp.int32)
    before = jnp.where(batch.previous < 0, settings.look, batch.previous)
    batch = batch._replace(previous=before)
    ours = run(network, batch, heads, command_words)
    q_t = _of(ours.values[:, :-1], action)
    logit = _of(ours.logits[:, :-1], action)

    y = sequence_targets(run(target, batch, heads, command_words), batch, settings)
    length = action.shape[1]
    counts = targets.after_minimum_history(length, settings.minimum_history, batch.valid)
    error = targets.huber_error(y, q_t) if settings.huber else targets.squared_error(y, q_t)
    admissible = batch.rows.admissible[:, :-1]
    entropy = targets.bandit_cross_entropy(logit, admissible)
    losses = Losses(
        _mean(error, counts),
        _mean(entropy, counts),
        _mean(((logit >= 0) == admissible).astype(jnp.float32), counts),
    )
    return losses.q + uses_classifier(settings.gate) * losses.classifier, losses


def sequence_targets(
    theirs: Outputs, batch: Sequences, settings: LearnerSettings
) -> Float[Array, "batch steps"]:
    """TARGETS of Algorithm 1: y for every step of every sequence, from the target network."""
    action = batch.rows.action[:, :-1].astype(jnp.int32)
    q_next = theirs.values[:, 1:]
    same = q_next if settings.consistent_with_next else theirs.values[:, :-1]
    admissibility = jax.nn.sigmoid(_of(theirs.logits[:, :-1], action))
    value = targets.next_value(settings.gate, q_next, _of(same, action), admissibility)
    return targets.q_target(
        batch.rows.reward[:, :-1], batch.rows.terminated[:, :-1], value, settings.discount
    )


def run(
    network: Network,
    batch: Sequences,
    heads: Int[Array, "batch rows"],
    command_words: Int[Array, "commands words"],
) -> Outputs:
    """The network along every sequence, from an empty memory."""
    size, rows = heads.shape
    texts = batch.rows.observation.reshape(size * rows, -1).astype(jnp.int32)
    seen = network.encoder(texts).reshape(size, rows, -1)
    # Every command is read once.
    said = network.encoder(command_words)[batch.previous]
    inputs = jnp.concatenate([seen, said], axis=-1)
    return jax.vmap(network.sequence)(heads, inputs)


def uses_classifier(gate: int | Int[Array, ""]) -> Bool[Array, ""]:
    """Whether a gate needs Φ_C: the oracle and no gate do not."""
    needing = jnp.array([DROPOUT, MASKING, CQLH, ACQLH])
    return (needing == gate).any()


def _of(
    values: Float[Array, "batch steps commands"], action: Int[Array, "batch steps"]
) -> Float[Array, "batch steps"]:
    return jnp.take_along_axis(values, action[..., None], axis=-1)[..., 0]


def _mean(
    values: Float[Array, "batch steps"], counts: Bool[Array, "batch steps"]
) -> Float[Array, ""]:
    return jnp.where(counts, values, 0.0).sum() / jnp.maximum(counts.sum(), 1)
