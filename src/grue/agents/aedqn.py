"""AE-DQN (Zahavy et al. 2018, Learn What Not to Learn): Q-learning with action elimination.

A state is the output of look and inventory at the last few steps. One convolutional network learns
Q from single steps. Another, E, learns which commands do nothing. Linear bandits on E's features
decide which commands are eliminated, in play and in the targets (``elimination.py``).

The bandits are solved when the target network is copied. In between, each update adds some steps of
the replay memory to the next bandits' sums, spread evenly over the memory. Their features are those
of E at the last solution.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from grue.agents import elimination, gating, replay, targets
from grue.agents.agent import Agent, AgentState, Decision, Episode, RunParameters, Told
from grue.agents.convolution import ConvolutionNetwork, ConvolutionSizes, TextConvolution
from grue.agents.elimination import Bandit, Tally, with_constant
from grue.agents.kernels.adam import moved, moved_all, rates
from grue.agents.optimiser import clip_factor, learning_rate
from grue.agents.registry import Metric, Setup, register
from grue.agents.replay import EpisodicReplay, ReplayStep
from grue.agents.settings import ReplaySettings, setting
from grue.engine.step import Step
from grue.games.tokens import PADDING

NO_STEP = -1
"""The command of the row after the last step of an episode."""

State = Int[Array, "history words"]
"""The texts of the last states, the newest last; padding before the first."""


@dataclass(frozen=True, kw_only=True)
class EliminationSettings(ReplaySettings):
    """The defaults are those of the authors' program (docs/agents.md)."""

    state_words: int = setting(128, "words of look and inventory; the rest is cut off", above=0)
    state_history: int = setting(4, "last states that it sees", above=0)
    word_vector: int = setting(300, "size of a word's embedding", above=0, small=20)
    value_filters: int = setting(500, "filters of Q, for each height", above=0, small=32)
    elimination_filters: int = setting(100, "filters of E, for each height", above=0, small=10)
    elimination_dropout: float = setting(0.0, "share of E's features left out", least=0, most=0.99)
    elimination_threshold: float = setting(0.6, "ℓ: commands above it are eliminated", above=0)
    elimination_confidence: float = setting(2.0, "β: width of the confidence interval", above=0)
    elimination_ridge: float = setting(0.1, "λ of the linear bandits", above=0)
    elimination_rows: int = setting(
        256, "steps that each update adds to the bandits", above=0, small=64
    )
    lowest_reward: float = setting(0.0, "lower rewards count as this one")
    highest_reward: float = setting(20.0, "higher rewards count as this one")
    learning_starts: int = setting(50_000, "steps before the first update", least=0, small=1_000)


class Moments(NamedTuple):
    """The state of Adam."""

    count: Int[Array, ""]
    first: ConvolutionNetwork
    second: ConvolutionNetwork


class Study(NamedTuple):
    """The sums of the next bandits."""

    encoder: TextConvolution
    """Computes their features."""
    tally: Tally
    done: Int[Array, ""]
    """Updates that have added to the sums."""


class Learned(NamedTuple):
    values: ConvolutionNetwork
    """Q"""
    target: ConvolutionNetwork
    """Q⁻"""
    eliminator: ConvolutionNetwork
    """E"""
    value_moments: Moments
    eliminator_moments: Moments
    study: Study
    encoder: TextConvolution
    """Of E⁻, whose last layer is the bandit."""
    bandit: Bandit


class Batch(NamedTuple):
    """Single steps."""

    state: Int[Array, "batch history words"]
    action: Int[Array, " batch"]
    reward: Float[Array, " batch"]
    admissible: Bool[Array, " batch"]
    terminated: Bool[Array, " batch"]
    following: Int[Array, "batch history words"]


class EliminationAgent(Agent):
    """Its memory in an episode is the current state."""

    def __init__(self, setup: Setup) -> None:
        env, settings = setup.env, setup.settings
        self.settings: EliminationSettings = settings
        self.env, self.gates = env, setup.gates
        self.length = min(settings.state_words, 2 * env.observation_length)
        self.value_sizes = ConvolutionSizes(
            words=len(env.vocabulary),
            commands=len(env.commands),
            history=settings.state_history,
            vector=settings.word_vector,
            filters=settings.value_filters,
        )
        self.elimination_sizes = self.value_sizes._replace(filters=settings.elimination_filters)
        first = np.asarray(jax.jit(lambda: self.describe(env.reset()[0]))())
        empty = np.full((settings.state_history - 1, self.length), PADDING, np.int32)
        self.first_state = np.concatenate([empty, first[None]])

    def describe(self, game: Any) -> Int[Array, " words"]:
        """The output of look and inventory as one text, without padding inside, cut to length."""
        words = jnp.concatenate([self.env.look(game), self.env.inventory(game)])
        place = jnp.where(words == PADDING, self.length, jnp.cumsum(words != PADDING) - 1)
        text = jnp.full(self.length, PADDING, jnp.int32)
        return text.at[place].set(words.astype(jnp.int32), mode="drop")

    def init(self, key: PRNGKeyArray) -> AgentState:
        settings, sizes = self.settings, self.elimination_sizes
        for_values, for_eliminator = jax.random.split(key)
        values = ConvolutionNetwork(self.value_sizes, for_values)
        eliminator = ConvolutionNetwork(sizes, for_eliminator)
        shape = sizes.commands, sizes.features + 1
        learned = Learned(
            values=values,
            target=values,
            eliminator=eliminator,
            value_moments=_moments(values),
            eliminator_moments=_moments(eliminator),
            study=Study(eliminator.encoder, elimination.empty_tally(*shape), jnp.int32(0)),
            encoder=eliminator.encoder,
            bandit=elimination.unsolved(*shape, settings.elimination_ridge),
        )
        return AgentState(learned, replay.init(settings.replay_steps, self.length, sizes.words))

    def start(self, state: AgentState) -> State:
        return jnp.asarray(self.first_state)

    def act(
        self,
        state: AgentState,
        episode: Episode,
        parameters: RunParameters,
        epsilon: Float[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[AgentState, Decision]:
        """ε-greedy on the commands that the gate allows and that are not eliminated."""
        learned: Learned = state.learned
        gate_key, choice_key = jax.random.split(key)
        now = episode.memory[None]
        values = learned.values(now)[0]
        middle, kept = self.judge(learned, now)
        belief, possible = 1.0 - jnp.clip(middle[0], 0.0, 1.0), episode.seen.admissible_set
        gated = self.gates.candidates(gate_key, parameters, belief, possible)
        both = gated & kept[0]
        candidates = jnp.where(both.any(), both, gated)
        action = gating.choose(choice_key, values, candidates, epsilon)
        return state, Decision(action, episode.memory, jnp.int32(0), candidates, values, belief)

    def judge(
        self, learned: Learned, states: Int[Array, "rows history words"]
    ) -> tuple[Float[Array, "rows commands"], Bool[Array, "rows commands"]]:
        """E⁻: the expected signal of each command, and which are not eliminated."""
        features = with_constant(learned.encoder(states))
        confidence = self.settings.elimination_confidence
        middle, half_width = elimination.interval(learned.bandit, features, confidence)
        return middle, elimination.allowed(middle, half_width, self.settings.elimination_threshold)

    def perceive(self, memory: State, game: Any, seen: Step) -> State:
        """The state after the step."""
        return jnp.concatenate([memory[1:], self.describe(game)[None]])

    def observe(
        self,
        state: AgentState,
        before: Episode,
        action: Int[Array, ""],
        after: Episode,
        parameters: RunParameters,
    ) -> tuple[AgentState, Told]:
        """Stores the step."""
        step = after.seen
        row = ReplayStep(
            before.memory[-1],
            before.seen.score,
            action,
            step.reward.astype(jnp.float32),
            step.admissible,
            step.terminated,
        )
        last = row._replace(
            observation=after.memory[-1], score=step.score, action=jnp.full_like(action, NO_STEP)
        )
        over = step.terminated | step.truncated
        return state._replace(kept=replay.add(state.kept, row, last, over)), {}

    def update(
        self, state: AgentState, parameters: RunParameters, key: PRNGKeyArray
    ) -> tuple[Learned, Told]:
        """Learns Q and E from a batch, and adds steps to the sums of the bandits."""
        for_batch, for_dropout = jax.random.split(key)
        with jax.named_scope("sample"):
            batch = self.sample(state.kept, for_batch)
        learned, told = self.learn(state.learned, batch, for_dropout)
        with jax.named_scope("study"):
            return learned._replace(study=self.study(learned.study, state.kept)), told

    def sample(self, memory: EpisodicReplay, key: PRNGKeyArray) -> Batch:
        """Samples an episode uniformly, then one of its steps."""
        draws = jax.random.uniform(key, (2, self.settings.batch_size))
        first, steps = replay.draw(memory.whole, draws[0])
        number = first + (draws[1] * steps).astype(jnp.int32)
        step = replay.rows(memory, number)
        return Batch(
            self.recall(memory, number),
            step.action,
            step.reward,
            step.admissible,
            step.terminated,
            self.recall(memory, number + 1),
        )

    def recall(
        self, memory: EpisodicReplay, numbers: Int[Array, " rows"]
    ) -> Int[Array, "rows history words"]:
        """The states of some rows, with their history."""
        back = jnp.arange(self.settings.state_history)[::-1]
        earlier = numbers[:, None] - back
        rows = replay.rows(memory, earlier)
        # A row without a command ends the previous episode.
        same = (back == 0) | ((rows.action != NO_STEP) & (earlier >= _oldest(memory)))
        same = jnp.cumprod(same[:, ::-1], axis=1)[:, ::-1] == 1
        return jnp.where(same[..., None], rows.observation, PADDING)

    def learn(self, learned: Learned, batch: Batch, key: PRNGKeyArray) -> tuple[Learned, Told]:
        """One step of gradient descent on (y - Q)² and one on (e - E)²."""
        y = self.targets(learned, batch)

        def value_loss(network: ConvolutionNetwork) -> Float[Array, ""]:
            q_t = targets.of_action(network(batch.state), batch.action)
            error = targets.huber_error if self.settings.huber else targets.squared_error
            return error(y, q_t).mean()

        def signal_loss(network: ConvolutionNetwork) -> tuple[Array, Array]:
            features = network.encoder(batch.state)
            features = eqx.nn.Dropout(self.settings.elimination_dropout)(features, key=key)
            signal = targets.of_action(network.above(features), batch.action)
            error = targets.squared_error(1.0 - batch.admissible, signal).mean()
            right = (signal < 0.5) == batch.admissible
            return error, right.astype(jnp.float32).mean()

        q, value_slope = eqx.filter_value_and_grad(value_loss)(learned.values)
        (e, accuracy), signal_slope = eqx.filter_value_and_grad(signal_loss, has_aux=True)(
            learned.eliminator
        )
        values, value_moments = self.descend(learned.values, value_slope, learned.value_moments)
        eliminator, eliminator_moments = self.descend(
            learned.eliminator, signal_slope, learned.eliminator_moments
        )
        after = learned._replace(
            values=values,
            value_moments=value_moments,
            eliminator=eliminator,
            eliminator_moments=eliminator_moments,
        )
        return after, {"q_loss": q, "classifier_loss": e, "classifier_accuracy": accuracy}

    def targets(self, learned: Learned, batch: Batch) -> Float[Array, " batch"]:
        """y = r + γ max Q⁻ over the commands that are not eliminated after the step."""
        settings, (_, kept) = self.settings, self.judge(learned, batch.following)
        best = jnp.where(kept, learned.target(batch.following), -jnp.inf).max(1)
        reward = batch.reward.clip(settings.lowest_reward, settings.highest_reward)
        return targets.q_target(reward, batch.terminated, best, settings.discount)

    def descend(
        self, network: ConvolutionNetwork, slope: ConvolutionNetwork, moments: Moments
    ) -> tuple[ConvolutionNetwork, Moments]:
        """Adam on the clipped gradient."""
        squares = sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(slope))
        number, (_, first, second) = moments.count + 1, moments
        scale = clip_factor(squares, self.settings.gradient_clip)
        now = rates(number, scale, learning_rate(self.settings, moments.count))
        theta, *after = moved_all(partial(moved, now=now), network, first, second, slope)
        return theta, Moments(number, *after)

    def study(self, study: Study, memory: EpisodicReplay) -> Study:
        """Adds the next steps of the replay memory to the sums."""
        settings, rows = self.settings, self.settings.elimination_rows
        # If there are too many steps until the next solution, every n-th counts n times.
        most = rows * (settings.target_every // settings.update_every)
        oldest = _oldest(memory)
        known = memory.written - oldest
        stride = jnp.maximum(known / most, 1.0)
        turn = study.done * rows + jnp.arange(rows)
        number = (turn * stride).astype(jnp.int32)
        row = replay.rows(memory, oldest + number)
        there = (number < known) & (row.action != NO_STEP)
        tally = elimination.count(
            study.tally,
            with_constant(study.encoder(self.recall(memory, oldest + number))),
            row.action,
            ~row.admissible,
            jnp.where(there, stride, 0.0),
        )
        return Study(study.encoder, tally, study.done + 1)

    def copy_to_target(self, learned: Learned) -> Learned:
        """Q⁻ ← Q; solves the bandits of E⁻, and starts new sums with the features of E."""
        study = learned.study
        empty = jax.tree.map(jnp.zeros_like, study.tally)
        return learned._replace(
            target=learned.values,
            encoder=study.encoder,
            bandit=elimination.solve(study.tally, self.settings.elimination_ridge),
            study=Study(learned.eliminator.encoder, empty, jnp.int32(0)),
        )


def _oldest(memory: EpisodicReplay) -> Int[Array, ""]:
    """The first row that has not been overwritten."""
    return jnp.maximum(memory.written - len(memory.stored.facts) + 1, 0)


def _moments(network: ConvolutionNetwork) -> Moments:
    zeros = jax.tree.map(jnp.zeros_like, network)
    return Moments(jnp.int32(0), zeros, zeros)


register(
    "ae-dqn",
    True,
    settings=EliminationSettings,
    metrics=(
        Metric("q_loss", "the mean of (y - Q)²"),
        Metric("classifier_loss", "the mean of (1 - e_t - E)²"),
        Metric("classifier_accuracy", "how often E < 1/2 agrees with e_t on the commands taken"),
    ),
    estimates=True,
    look_and_inventory=True,
    summary="action elimination (Zahavy et al. 2018), which is told look and inventory",
)(EliminationAgent)
