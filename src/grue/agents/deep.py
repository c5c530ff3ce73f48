"""The recurrent Q-learner of the paper: drqn with one head, sc with several."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from grue.agents import contexts, gating, learner, replay
from grue.agents.agent import AgentState, Condition, Decision, Episode, Losses
from grue.agents.contexts import ScoreContexts
from grue.agents.gating import GateSettings
from grue.agents.learner import Learner, LearnerSettings
from grue.agents.network import Memory, Network, NetworkSizes
from grue.agents.replay import EpisodicReplay, Row, Sequences
from grue.agents.settings import Settings
from grue.engine.environment import Environment
from grue.engine.step import Step


class Kept(NamedTuple):
    replay: EpisodicReplay
    contexts: ScoreContexts


class DeepAgent:
    def __init__(self, env: Environment, settings: Settings, heads: int) -> None:
        self.heads = heads
        self.settings = settings
        self.look = env.commands.index("look")
        self.observation_length = env.observation_length
        self.command_words = np.asarray(env.vocabulary.table(env.commands))
        self.sizes = NetworkSizes(
            words=len(env.vocabulary),
            commands=len(env.commands),
            heads=heads,
            embedding=settings.embedding,
            encoder=settings.encoder,
            context=settings.context,
            hidden=settings.hidden,
            activation=settings.activation,
        )

    def init(self, key: PRNGKeyArray) -> AgentState:
        """θ, θ⁻ ← θ, D = {}, J = {}"""
        network = self.make_network(key)
        memory = replay.init(
            self.settings.replay_steps,
            self.observation_length,
            self.sizes.words,
            commands=self.sizes.commands if self.settings.oracle_in_targets else 0,
        )
        return AgentState(
            learner.init(network, self._learner_settings()), Kept(memory, contexts.init())
        )

    def make_network(self, key: PRNGKeyArray) -> Network:
        """θ. An agent with another part overrides this."""
        return Network(self.sizes, key)

    def start(self, state: AgentState) -> Memory:
        return state.learned.network.memory()

    def act(
        self,
        state: AgentState,
        episode: Episode,
        condition: Condition,
        epsilon: Float[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[AgentState, Decision]:
        network: Network = state.learned.network
        gate_key, choice_key = jax.random.split(key)
        # k = J(u_t)
        known, head = contexts.assign(state.kept.contexts, episode.seen.score, condition.heads)
        # h_t = H(k)[w_t, h_{t-1}], then Q(h_t, ·, u_t) = Φ_A(k)(h_t) and ξ̂(h_t, ·) = Φ_C(h_t)
        previous = jnp.where(episode.previous < 0, self.look, episode.previous)
        words = jnp.asarray(self.command_words)[previous]
        working = state.learned.working
        inputs = network.inputs(episode.seen.observation, words, working.table)
        memory, outputs = network.step(head, episode.memory, inputs, working.weights)
        admissibility = jax.nn.sigmoid(outputs.logits)
        # Â_t, then ε-greedy on it
        candidates = gating.candidate_set(
            gate_key,
            GateSettings(condition.gate, self.settings.threshold, self.settings.softness),
            admissibility,
            episode.seen.admissible_set,
        )
        action = gating.choose(choice_key, outputs.values, candidates, epsilon)
        decision = Decision(action, memory, head, candidates, outputs.values, admissibility)
        return state._replace(kept=state.kept._replace(contexts=known)), decision

    def perceive(self, memory: Memory, game: Any, seen: Step) -> Memory:
        """Nothing more: the step is read when the agent acts next."""
        return memory

    def observe(
        self,
        state: AgentState,
        before: Episode,
        action: Int[Array, ""],
        after: Episode,
        condition: Condition,
    ) -> AgentState:
        """Stores the step in D."""
        seen, step = before.seen, after.seen
        now, then = (
            each.admissible_set if self.settings.oracle_in_targets else None
            for each in (seen, step)
        )
        row = Row(
            seen.observation,
            seen.score,
            action,
            step.reward.astype(jnp.float32),
            step.admissible,
            step.terminated,
            now,
        )
        last = row._replace(observation=step.observation, score=step.score, admissible_set=then)
        over = step.terminated | step.truncated
        memory = replay.add(state.kept.replay, row, last, over)
        return state._replace(kept=state.kept._replace(replay=memory))

    def update(
        self, state: AgentState, condition: Condition, key: PRNGKeyArray
    ) -> tuple[Learner, Losses]:
        """A minibatch from D, then gradient descent on L(θ)."""
        with jax.named_scope("sample"):
            batch = self.sample(state, condition, key)
        settings = self._learner_settings(condition)
        return learner.update(
            state.learned, batch, state.kept.contexts, jnp.asarray(self.command_words), settings
        )

    def sample(self, state: AgentState, condition: Condition, key: PRNGKeyArray) -> Sequences:
        return replay.sample(
            key,
            state.kept.replay,
            self.settings.batch_size,
            self.settings.sequence_length,
            condition.positive_fraction,
            condition.negative_fraction,
        )

    def copy_to_target(self, learned: Learner) -> Learner:
        return learner.copy_to_target(learned)

    def _learner_settings(self, condition: Condition | None = None) -> LearnerSettings:
        settings = self.settings
        return LearnerSettings(
            gate=gating.NONE if condition is None else condition.gate,
            look=self.look,
            heads=self.heads if condition is None else condition.heads,
            discount=settings.discount,
            learning_rate=settings.learning_rate,
            gradient_clip=settings.gradient_clip,
            minimum_history=settings.minimum_history,
            consistent_with_next=settings.consistent_with_next,
            oracle_in_targets=settings.oracle_in_targets,
            huber=settings.huber,
            adam_by_head=settings.adam_by_head,
            precision=settings.precision,
        )
