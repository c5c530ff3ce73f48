"""One update: targets from the target network, the loss over sequences, a clipped Adam step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grue.agents import contexts, optimiser, targets
from grue.agents.agent import RunParameters, Told
from grue.agents.contexts import ScoreContexts
from grue.agents.gating import GateSet
from grue.agents.kernels import select
from grue.agents.kernels.select import Weights
from grue.agents.kernels.texts import Pool, padded, pool, rows_of
from grue.agents.network import Commands, Network, Outputs
from grue.agents.optimiser import AdamState
from grue.agents.replay import GAME, ReplayStep, Sequences

if TYPE_CHECKING:
    from grue.agents.deep import DeepSettings


class Learning(NamedTuple):
    """The constants of a run's updates."""

    settings: DeepSettings
    gates: GateSet
    parameters: RunParameters
    look: int
    """The number of the command "look", used as a_0."""
    command_sets: Bool[Array, "games commands"] | None = None
    """The commands that each game of a set has; None for one game, which has all."""


class Working(NamedTuple):
    """Values derived from θ, cached until the next update."""

    table: Float[Array, "words gates"]
    """The input of each word to the encoder's gates."""
    weights: Weights | None
    """The context LSTM's weights in lower precision, if that is used."""
    commands: Commands | None
    """The output layers for the commands, if they depend on the commands' words."""


class Learner(NamedTuple):
    network: Network
    """θ"""
    working: Working
    target: Network
    """θ⁻, with the context LSTM in the working precision."""
    optimiser: AdamState


def init(network: Network, precision: str, command_words: Int[Array, "commands words"]) -> Learner:
    """θ⁻ ← θ"""
    weights = select.in_working_type(network.context.weights, precision)
    working = derived(network, weights, command_words)
    return copy_to_target(Learner(network, working, network, optimiser.init(network)))


def derived(
    network: Network, weights: Weights | None, command_words: Int[Array, "commands words"]
) -> Working:
    table = network.encoder.table()
    return Working(table, weights, network.read_commands(command_words, table))


def copy_to_target(learner: Learner) -> Learner:
    """θ⁻ ← θ"""
    target, weights = learner.network, learner.working.weights
    if weights is not None:
        target = eqx.tree_at(lambda network: network.context.weights, target, weights)
    return learner._replace(target=target)


def update(
    learner: Learner,
    batch: Sequences,
    known: ScoreContexts,
    command_words: Int[Array, "commands words"],
    learning: Learning,
) -> tuple[Learner, Told]:
    """One gradient step on L(θ)."""
    working, settings = learner.working.weights, learning.settings

    def objective(network: Network) -> tuple[Array, tuple[Told, Array]]:
        return loss(network, working, learner.target, batch, known, command_words, learning)

    slope, (told, used) = eqx.filter_grad(objective, has_aux=True)(learner.network)
    with jax.named_scope("optimise"):
        network, state, working = optimiser.update(
            learner.network,
            slope,
            learner.optimiser,
            used,
            working,
            optimiser.learning_rate(settings, learner.optimiser.count),
            settings.gradient_clip,
            settings.adam_by_head,
        )
    after = derived(network, working, command_words)
    return Learner(network, after, learner.target, state), told


def loss(
    network: Network,
    working: Weights | None,
    target: Network,
    batch: Sequences,
    known: ScoreContexts,
    command_words: Int[Array, "commands words"],
    learning: Learning,
) -> tuple[Float[Array, ""], tuple[Told, Bool[Array, " heads"]]]:
    """L(θ): the mean of (y - Q)² and, for learned gates, of the BCE.

    The first n states of a sequence are history only and have no loss, unless ``first_steps`` is
    on and they are the first of their episode. Also returns the parts of the loss, and which heads
    were used.
    """
    settings, parameters = learning.settings, learning.parameters
    n = 0 if settings.first_steps else settings.minimum_history
    heads = jax.vmap(jax.vmap(lambda score: contexts.head(known, score, parameters.heads)))(
        batch.rows.score
    ).T
    order = select.side_by_side(heads)
    if order is not None:
        batch, heads = jax.tree.map(lambda field: field[order], batch), heads[:, order]
    with jax.named_scope("sample"):
        texts = distinct_texts(batch, command_words, learning.look, network.scorer.reads_commands)
    rows, valid = jax.tree.map(lambda field: field.swapaxes(0, 1)[n:], (batch.rows, batch.valid))

    ours = run(network, working, texts, heads if settings.double else heads[:-1], n)
    chooser = jax.lax.stop_gradient(ours.values[1:]) if settings.double else None
    y = sequence_targets(run(target, None, texts, heads, n), rows, valid, learning, chooser)
    if batch.returns is not None:
        y = jnp.maximum(y, batch.returns.T[n:])
    rows = jax.tree.map(lambda field: field[:-1], rows)
    ours = jax.tree.map(lambda field: field[: len(y)], ours)
    q_t = targets.of_action(ours.values, rows.action)
    logit = targets.of_action(ours.logits, rows.action)
    error = targets.huber_error(y, q_t) if settings.huber else targets.squared_error(y, q_t)
    entropy = targets.bandit_cross_entropy(logit, rows.admissible)
    counts = with_history(batch, settings.minimum_history) if settings.first_steps else valid
    q, classifier = _mean(error, counts), _mean(entropy, counts)
    right = ((logit >= 0) == rows.admissible).astype(jnp.float32)
    told = {"q_loss": q, "classifier_loss": classifier, "classifier_accuracy": _mean(right, counts)}
    used = (heads[:-1, :, None] == jnp.arange(len(network.context.weights))).any((0, 1))
    return q + learning.gates.uses_classifier(parameters.gate) * classifier, (told, used)


def with_history(batch: Sequences, least: int) -> Bool[Array, "steps batch"]:
    """Which steps have a loss: their history is long enough, or complete."""
    begins = batch.previous[:, :1] < 0
    long_enough = jnp.arange(batch.valid.shape[1]) >= least
    return (batch.valid & (begins | long_enough)).T


def sequence_targets(
    theirs: Outputs,
    rows: ReplayStep,
    valid: Bool[Array, "steps batch"],
    learning: Learning,
    chooser: Float[Array, "steps batch commands"] | None = None,
) -> Float[Array, "steps batch"]:
    """TARGETS of Algorithm 1: y for every step but the last, from the target network's outputs.

    ``chooser``: the values of θ after each step, with double Q-learning.
    """
    settings = learning.settings
    possible = rows.admissible_set if settings.oracle_in_targets else None
    following = None if possible is None else possible[1:]
    sets = learning.command_sets
    # A sequence lies within an episode, so the game is the same after the step.
    exists = None if sets is None else sets[rows.fields[GAME][1:].astype(jnp.int32)]
    rows = jax.tree.map(lambda field: field[:-1], rows)
    q_next = theirs.values[1:]
    same = q_next if settings.consistent_with_next else theirs.values[:-1]
    admissibility = jax.nn.sigmoid(targets.of_action(theirs.logits[:-1], rows.action))
    value = targets.next_value(
        learning.gates,
        learning.parameters.gate,
        q_next,
        targets.of_action(same, rows.action),
        admissibility,
        following,
        exists,
        jax.nn.sigmoid(theirs.logits[1:]),
        chooser,
    )
    if settings.trace == 0:
        return targets.q_target(rows.reward, rows.terminated, value, settings.discount)
    goes_on = jnp.concatenate([valid[1:], jnp.zeros_like(valid[:1])])
    return targets.traced_target(
        rows.reward, rows.terminated, value, goes_on, settings.discount, settings.trace
    )


class BatchTexts(NamedTuple):
    """The distinct texts of a batch, and the index of each step's two texts."""

    pool: Pool
    seen: Int[Array, "rows batch"]
    """o_t"""
    said: Int[Array, "rows batch"]
    """a_{t-1}"""
    commands: Int[Array, " commands"]
    """All commands. Arbitrary if the commands were not requested."""


def distinct_texts(
    batch: Sequences,
    command_words: Int[Array, "commands words"],
    look: int,
    all_commands: bool = False,
) -> BatchTexts:
    """The observations and previous commands of a batch, or all commands, each text once."""
    previous = jnp.where(batch.previous < 0, look, batch.previous).T
    observations = batch.rows.observation.swapaxes(0, 1)
    steps, size, length = observations.shape
    length = max(length, command_words.shape[1])
    texts = jnp.concatenate(
        [padded(observations.reshape(steps * size, -1), length), padded(command_words, length)]
    )
    commands = len(command_words)
    spoken = (previous.reshape(-1)[:, None] == jnp.arange(commands)).any(0)
    used = jnp.concatenate([jnp.ones(steps * size, bool), spoken | all_commands])
    found, place = pool(texts, used)
    seen, known = place[: steps * size].reshape(steps, size), place[steps * size :]
    return BatchTexts(found, seen, known[previous], known)


def run(
    network: Network,
    working: Weights | None,
    texts: BatchTexts,
    heads: Int[Array, "rows batch"],
    first: int,
) -> Outputs:
    """Runs the network along sequences from h_0 = 0. Returns the outputs from step ``first`` on."""
    steps = len(heads)
    with jax.named_scope("encode"):
        vectors = network.encoder.read(texts.pool)
        both = [rows_of(vectors, place[:steps]) for place in (texts.seen, texts.said)]
    with jax.named_scope("context"):
        states = network.states(heads, jnp.concatenate(both, axis=-1), working)[first:]
    with jax.named_scope("score"):
        commands = None
        if network.scorer.reads_commands:
            commands = network.of_commands(rows_of(vectors, texts.commands))
        return network.outputs(heads[first:], states, commands)


def _mean(
    values: Float[Array, "steps batch"], counts: Bool[Array, "steps batch"]
) -> Float[Array, ""]:
    return jnp.where(counts, values, 0.0).sum() / jnp.maximum(counts.sum(), 1)
