"""The recurrent Q-learning agents of the paper: drqn with one head, sc with several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from grue.agents import contexts, gating, learner, replay
from grue.agents.agent import Agent, AgentState, Decision, Episode, RunParameters, Told
from grue.agents.contexts import ScoreContexts
from grue.agents.exploring import Candidates, ExplorerSet
from grue.agents.kernels.select import PRECISIONS
from grue.agents.learner import Learner, Learning
from grue.agents.network import ACTIVATIONS, Memory, Network, NetworkSizes
from grue.agents.registry import Metric, Setup, register
from grue.agents.replay import EpisodicReplay, Fields, ReplayStep, Sequences
from grue.agents.settings import ReplaySettings, setting


@dataclass(frozen=True, kw_only=True)
class DeepSettings(ReplaySettings):
    embedding: int = setting(20, "size of a word's embedding", above=0)
    encoder: int = setting(64, "units of the text encoder Φ_R", above=0, small=32)
    context: int = setting(512, "units of the context LSTM H", above=0, small=64)
    hidden: int = setting(128, "hidden units of Φ_A and Φ_C", above=0, small=64)
    activation: str = setting(
        "elu", "activation of the hidden units; with relu heads die", choices=ACTIVATIONS
    )
    heads: int | None = setting(
        None,
        "K, the number of heads; by default what the agent declares",
        above=0,
        most=contexts.CAPACITY,
    )
    positive_fraction: float = setting(
        0.25, "τ_p: share of the batch from episodes with a positive reward", least=0, most=1
    )
    negative_fraction: float = setting(
        0.25, "τ_n: share of the batch from episodes with a negative reward", least=0, most=1
    )
    sequence_length: int = setting(15, "l: steps of a sequence", above=0)
    minimum_history: int = setting(6, "n: first steps of a sequence without an error", least=0)
    past_end: bool = setting(
        False,
        "sequences may run past the episode's end, so that its last steps are sampled as often",
    )
    first_steps: bool = setting(
        False, "the first n steps of an episode have an error too: their history is complete"
    )
    balance: str = setting(
        "reward",
        "reward: τ_p, τ_n by the sign of rewards; score: τ_p equally from all final scores, no τ_n",
        choices=("reward", "score"),
    )
    trace: float = setting(0.0, "λ of Q(λ) targets; 0: one step, as in the paper", least=0, most=1)
    double: bool = setting(
        False, "double Q-learning: θ chooses the command of the maximum in a target, θ⁻ values it"
    )
    lower_bound: bool = setting(
        False, "a target is at least the discounted reward that followed in the episode"
    )
    adam_by_head: bool = setting(True, "a separate Adam for each head; otherwise one for all heads")
    consistent_with_next: bool = setting(
        True, "CQLH with Q(h_{t+1}, a_t), as in the appendix; else Q(h_t, a_t), as in equation (4)"
    )
    oracle_in_targets: bool = setting(
        True, "with the oracle the maximum in a target is over the admissible commands"
    )
    precision: str = setting(
        "auto",
        "number type of the context LSTM's products; auto: bfloat16 on a GPU",
        choices=PRECISIONS,
    )

    def conflict(self) -> str | None:
        if self.positive_fraction + self.negative_fraction > 1:
            return "positive_fraction and negative_fraction are at most 1 together"
        if self.minimum_history >= self.sequence_length:
            return (
                f"minimum_history must be less than sequence_length, {self.sequence_length}, "
                f"not {self.minimum_history}"
            )
        return None


METRICS = (
    Metric("q_loss", "the mean of (y - Q)²"),
    Metric("classifier_loss", "the cross-entropy of ξ̂ and e_t"),
    Metric("classifier_accuracy", "how often ξ̂ ≥ 1/2 agrees with e_t on the commands taken"),
)


class Kept(NamedTuple):
    replay: EpisodicReplay
    contexts: ScoreContexts
    explorers: tuple[Any, ...]
    own: Any
    """From ``own_state``."""


class DeepAgent(Agent):
    """Custom agents may override the methods before ``init``."""

    def __init__(self, setup: Setup) -> None:
        env, settings = setup.env, setup.settings
        self.settings: DeepSettings = settings
        self.gates, self.heads = setup.gates, setup.heads
        self.explorers = ExplorerSet(env, setup.explorers)
        self.look = env.commands.index("look")
        self.observation_length = env.observation_length
        self.episode_steps = env.episode_steps
        self.command_words = np.asarray(env.vocabulary.table(env.commands))
        self.command_sets = env.command_sets
        self.sizes = NetworkSizes(
            words=len(env.vocabulary),
            commands=len(env.commands),
            heads=setup.heads,
            embedding=settings.embedding,
            encoder=settings.encoder,
            context=settings.context,
            hidden=settings.hidden,
            activation=settings.activation,
        )

    # For custom agents

    def make_network(self, key: PRNGKeyArray) -> Network:
        """θ"""
        return Network(self.sizes, key)

    def own_state(self) -> Any:
        """State of a run besides the replay memory."""
        return ()

    def fields(self) -> Mapping[str, jax.ShapeDtypeStruct]:
        """Extra fields of a step in the replay memory: shape and type of each."""
        return {}

    def notice(
        self, own: Any, before: Episode, action: Int[Array, ""], after: Episode
    ) -> tuple[Any, Fields, Told]:
        """The own state after a step, the step's extra fields, and declared metrics."""
        return own, {}, {}

    def rewards(self, own: Any, steps: ReplayStep) -> Float[Array, "batch steps"]:
        """The rewards to learn from. The replay memory is balanced by the game's rewards."""
        return steps.reward

    # The functions of ``Agent``

    def init(self, key: PRNGKeyArray) -> AgentState:
        """θ, θ⁻ ← θ, D = {}, J = {}"""
        network = self.make_network(key)
        settings, sizes = self.settings, self.sizes
        memory = replay.init(
            settings.replay_steps,
            self.observation_length,
            sizes.words,
            commands=sizes.commands if settings.oracle_in_targets else 0,
            fields={**self._game_field(), **self.fields(), **self.explorers.fields()},
            scores=settings.balance == "score",
        )
        kept = Kept(memory, contexts.init(), self.explorers.init(), self.own_state())
        words = jnp.asarray(self.command_words)
        return AgentState(learner.init(network, settings.precision, words), kept)

    def _game_field(self) -> dict[str, jax.ShapeDtypeStruct]:
        if self.command_sets is None:
            return {}
        kind = np.min_scalar_type(len(self.command_sets))
        return {replay.GAME: jax.ShapeDtypeStruct((), kind)}

    def exists(self, game: Any) -> Bool[Array, " commands"] | None:
        """The commands of the game that is played; None if there is only one game."""
        return None if self.command_sets is None else jnp.asarray(self.command_sets)[game.game]

    def for_play(self, state: AgentState) -> AgentState:
        """The state for playing this environment, where it was learned on other games, too."""
        learned: Learner = state.learned
        words, weights = jnp.asarray(self.command_words), learned.working.weights
        working = learner.derived(learned.network, weights, words)
        return state._replace(learned=learned._replace(working=working))

    def without_explorer(self, state: AgentState) -> AgentState:
        return state._replace(kept=state.kept._replace(explorers=()))

    def start(self, state: AgentState) -> Memory:
        return state.learned.network.memory()

    def epsilon(
        self,
        state: AgentState,
        episode: Episode,
        parameters: RunParameters,
        epsilon: Float[Array, ""],
    ) -> Float[Array, ""]:
        known, score = state.kept.explorers, episode.seen.score
        return self.explorers.epsilon(known, epsilon, score, parameters.explorer)

    def override(
        self,
        state: AgentState,
        episode: Episode,
        parameters: RunParameters,
        action: Int[Array, ""],
    ) -> Int[Array, ""]:
        known = state.kept.explorers
        return self.explorers.override(known, episode, action, parameters.explorer)

    def counts(self, state: AgentState, parameters: RunParameters) -> Bool[Array, ""]:
        return self.explorers.counts(state.kept.explorers, parameters.explorer)

    def act(
        self,
        state: AgentState,
        episode: Episode,
        parameters: RunParameters,
        epsilon: Float[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[AgentState, Decision]:
        network: Network = state.learned.network
        gate_key, choice_key = jax.random.split(key)
        # k = J(u_t)
        known, head = contexts.assign(state.kept.contexts, episode.seen.score, parameters.heads)
        # h_t = H(k)[w_t, h_{t-1}], then Q(h_t, ·, u_t) = Φ_A(k)(h_t) and ξ̂(h_t, ·) = Φ_C(h_t)
        previous = jnp.where(episode.previous < 0, self.look, episode.previous)
        words = jnp.asarray(self.command_words)[previous]
        working = state.learned.working
        inputs = network.inputs(episode.seen.observation, words, working.table)
        memory, outputs = network.step(
            head, episode.memory, inputs, working.weights, working.commands
        )
        admissibility = jax.nn.sigmoid(outputs.logits)
        # Â_t, then ε-greedy on it
        possible = episode.seen.admissible_set
        exists = self.exists(episode.game)
        candidates = self.gates.candidates(gate_key, parameters, admissibility, possible, exists)
        allowed = Candidates(candidates, admissibility, exists)
        odds = self.explorers.exploratory(
            state.kept.explorers, episode, allowed, parameters.explorer
        )
        action = gating.choose(choice_key, outputs.values, candidates, epsilon, odds)
        decision = Decision(action, memory, head, candidates, outputs.values, admissibility)
        return state._replace(kept=state.kept._replace(contexts=known)), decision

    def observe(
        self,
        state: AgentState,
        before: Episode,
        action: Int[Array, ""],
        after: Episode,
        parameters: RunParameters,
    ) -> tuple[AgentState, Told]:
        """Stores the step in D."""
        seen, step = before.seen, after.seen
        stored = self.settings.oracle_in_targets
        now, then = (each.admissible_set if stored else None for each in (seen, step))
        own, fields, told = self.notice(state.kept.own, before, action, after)
        if self.command_sets is not None:
            fields = {replay.GAME: before.game.game, **fields}
        known, more, bonus = self.explorers.notice(
            state.kept.explorers, before, action, after, parameters.explorer
        )
        row = ReplayStep(
            seen.observation,
            seen.score,
            action,
            step.reward.astype(jnp.float32),
            step.admissible,
            step.terminated,
            now,
            fields | more,
        )
        last = row._replace(observation=step.observation, score=step.score, admissible_set=then)
        over = step.terminated | step.truncated
        memory = replay.add(state.kept.replay, row, last, over)
        kept = state.kept._replace(replay=memory, explorers=known, own=own)
        return state._replace(kept=kept), told | bonus

    def update(
        self, state: AgentState, parameters: RunParameters, key: PRNGKeyArray
    ) -> tuple[Learner, Told]:
        """Samples a batch from D, and does gradient descent on L(θ)."""
        with jax.named_scope("sample"):
            batch = self.sample(state, parameters, key)
        kept, words = state.kept, jnp.asarray(self.command_words)
        rows = batch.rows._replace(reward=self.rewards(kept.own, batch.rows))
        reward = self.explorers.rewards(kept.explorers, rows, parameters.explorer)
        batch = batch._replace(rows=rows._replace(reward=reward))
        sets = None if self.command_sets is None else jnp.asarray(self.command_sets)
        learning = Learning(self.settings, self.gates, parameters, self.look, sets)
        return learner.update(state.learned, batch, kept.contexts, words, learning)

    def sample(self, state: AgentState, parameters: RunParameters, key: PRNGKeyArray) -> Sequences:
        settings = self.settings
        return replay.sample(
            key,
            state.kept.replay,
            settings.batch_size,
            settings.sequence_length,
            parameters.positive_fraction,
            parameters.negative_fraction,
            settings.minimum_history + 1 if settings.past_end else None,
            settings.discount if settings.lower_bound else None,
            self.episode_steps,
        )

    def copy_to_target(self, learned: Learner) -> Learner:
        return learner.copy_to_target(learned)


DEEP: dict[str, Any] = {
    "settings": DeepSettings,
    "metrics": METRICS,
    "explores": True,
    "classifier": True,
    "estimates": True,
    "sets": True,
}
"""The declaration of agents with this network."""
register("drqn", True, summary="the baseline: one head (K = 1) for all scores", **DEEP)(DeepAgent)
register(
    "sc",
    True,
    heads=5,
    summary="score contextualisation: the score selects one of the heads (K = 5)",
    **DEEP,
)(DeepAgent)
