"""Algorithm 1 of Jain et al. (2020), as one scanned program.

ACT is the agent's ``act`` (``agents/deep.py``), TARGETS and the loss are in ``agents/learner.py``.
``make_program`` returns the rest: everything a run carries, and the function that takes it on by
some thousand steps. Many runs are the same program, vmapped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from grue.agents.agent import Agent, AgentState, Condition, Decision, Episode, Losses
from grue.agents.gating import annealed_epsilon
from grue.agents.kernels.select import compilation
from grue.agents.settings import Settings
from grue.engine.environment import GAME_STREAM, Environment
from grue.engine.step import Step


class Run(NamedTuple):
    """All that a run is between two steps."""

    condition: Condition
    play_key: PRNGKeyArray
    replay_key: PRNGKeyArray
    agent: AgentState
    episode: Episode


class Sums(NamedTuple):
    """What is counted over the steps of a row of metrics."""

    episodes: Float[Array, ""]
    """Episodes that ended; the next four are sums over them."""
    failures: Float[Array, ""]
    """Of these, cut short because a hosted game's emulator failed."""
    wins: Float[Array, ""]
    score: Float[Array, ""]
    fraction: Float[Array, ""]
    """Of the subtasks that were done."""
    admissible: Float[Array, ""]
    """Steps that changed the game."""
    candidates: Float[Array, ""]
    """Sizes of the candidate sets."""
    admissible_commands: Float[Array, ""]
    """Sizes of the true admissible sets."""
    rightly_admitted: Float[Array, ""]
    """Commands with ξ̂ ≥ 1/2 that are admissible; the next two are the two ways to be wrong."""
    wrongly_admitted: Float[Array, ""]
    wrongly_rejected: Float[Array, ""]
    heads: Float[Array, " heads"]
    """Steps of each head."""
    updates: Float[Array, ""]
    losses: Losses
    """Sums over the updates."""


class Program(NamedTuple):
    init: Callable[[Int[Array, "*runs"], Condition], Run]
    """From seeds and conditions."""
    advance: Callable[[Run, Int[Array, ""], bool, int], tuple[Run, Sums]]
    """``advance(run, step, learn, steps)``: the run after so many more steps, and their sums."""
    copy_to_target: Callable[[Run], Run]


def make_program(env: Environment, agent: Agent, settings: Settings, many: bool) -> Program:
    """The training program of one run, or of many runs side by side."""
    look, machine = env.commands.index("look"), compilation()
    each: Callable = jax.vmap if many else (lambda function: function)
    shared: Callable = (lambda function: jax.vmap(function, in_axes=(0, None))) if many else each

    def begin(state: AgentState, world: Any, seen: Step) -> Episode:
        """o_1, u_1 = 0, h_0 = 0; the command before the first is 'look'."""
        return Episode(world, seen, jnp.int32(-1), jnp.int32(0), agent.start(state))

    def init(seed: Int[Array, ""], condition: Condition) -> Run:
        key = jax.random.key(seed)
        weights, play, replay = jax.random.split(key, 3)
        state = agent.init(weights)
        game = env.reset(jax.random.fold_in(key, GAME_STREAM))
        return Run(condition, play, replay, state, begin(state, *game))

    def step(run: Run, number: Int[Array, ""]) -> tuple[Run, Sums]:
        """Plays one command. ``number`` is G, the steps of the run so far."""
        before = run.episode
        epsilon = annealed_epsilon(
            number, settings.epsilon_start, settings.epsilon_end, settings.epsilon_steps
        )
        key = jax.random.fold_in(run.play_key, number)
        # a_t, h_t ← ACT(o_t, a_{t-1}, u_t, h_{t-1}, J, ε, ε₁, c, θ)
        with jax.named_scope("act"):
            state, decision = agent.act(run.agent, before, run.condition, epsilon, key)
        # a_t ← 'look' if t mod I_look = 0
        time = before.time + 1
        action = jnp.where(look_is_forced(run.condition, time), look, decision.action)
        # Execute a_t, observe r_{t+1}, o_{t+1}, e_{t+1}
        with jax.named_scope("env"):
            world, seen = env.step(before.game, action)
            memory = agent.perceive(decision.memory, world, seen)
        after = Episode(world, seen, action, time, memory)
        with jax.named_scope("remember"):
            state = agent.observe(state, before, action, after, run.condition)
        # The episode ends with the game, or after T steps
        over = seen.terminated | seen.truncated
        episode = jax.tree.map(
            lambda fresh, going: jnp.where(over, fresh, going),
            begin(state, *env.restart(world)),
            after,
        )
        sums = _count(decision, before, after, agent, env)
        return run._replace(agent=state, episode=episode), sums

    def update(run: Run, number: Int[Array, ""]) -> tuple[Run, Losses]:
        """Samples sequences, TARGETS, gradient descent on L(θ)."""
        key = jax.random.fold_in(run.replay_key, number)
        learned, losses = agent.update(run.agent, run.condition, key)
        return run._replace(agent=run.agent._replace(learned=learned)), losses

    def copy(run: Run) -> Run:
        """θ⁻ ← θ"""
        learned = agent.copy_to_target(run.agent.learned)
        return run._replace(agent=run.agent._replace(learned=learned))

    def cycle(run: Run, number: Int[Array, ""], learn: bool) -> tuple[Run, Sums]:
        """``update_every`` steps, then one update."""
        numbers = number + jnp.arange(settings.update_every)
        run, sums = jax.lax.scan(shared(step), run, numbers, unroll=machine.unroll)
        sums = _total(sums)
        if learn:
            run, losses = shared(update)(run, number)
            sums = sums._replace(losses=losses, updates=sums.updates + 1)
        return run, sums

    def advance(run: Run, number: Int[Array, ""], learn: bool, steps: int) -> tuple[Run, Sums]:
        """Some thousand steps. The target network is copied after every I_target of them."""
        period = math.gcd(settings.target_every, steps)
        copies = learn and period == settings.target_every

        def target_period(run: Run, first: Int[Array, ""]) -> tuple[Run, Sums]:
            numbers = first + jnp.arange(0, period, settings.update_every)
            run, sums = jax.lax.scan(lambda run, at: cycle(run, at, learn), run, numbers)
            return each(copy)(run) if copies else run, _total(sums)

        run, sums = jax.lax.scan(target_period, run, number + jnp.arange(0, steps, period))
        return run, _total(sums)

    return Program(
        init=jax.jit(each(init)),
        advance=jax.jit(
            advance, static_argnums=(2, 3), donate_argnums=0, compiler_options=machine.options
        ),
        copy_to_target=jax.jit(each(copy), donate_argnums=0),
    )


def look_is_forced(condition: Condition, time: Int[Array, ""]) -> Bool[Array, ""]:
    """t mod I_look = 0"""
    every = condition.look_every
    return (every > 0) & (time % jnp.maximum(every, 1) == 0)


def _count(
    decision: Decision, before: Episode, after: Episode, agent: Agent, env: Environment
) -> Sums:
    """What one step adds to the metrics; where admissible sets are not known, no number."""
    seen = after.seen
    over = seen.terminated | seen.truncated
    possible = before.seen.admissible_set
    believed = decision.admissibility >= 0.5
    zero = jnp.float32(0)
    known = 1.0 if env.knows.admissible else jnp.nan
    counted = Sums(
        episodes=over,
        failures=seen.truncated & (after.time < env.episode_steps),
        wins=over & seen.subtasks.all(),
        score=over * seen.score,
        fraction=over * seen.subtasks.mean(dtype=jnp.float32),
        admissible=seen.admissible,
        candidates=decision.candidates.sum(),
        admissible_commands=possible.sum() * known,
        rightly_admitted=(believed & possible).sum() * known,
        wrongly_admitted=(believed & ~possible).sum() * known,
        wrongly_rejected=(~believed & possible).sum() * known,
        heads=jnp.arange(agent.heads) == decision.head,
        updates=zero,
        losses=Losses(zero, zero, zero),
    )
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), counted)


def _total(sums: Sums) -> Sums:
    return jax.tree.map(lambda leaf: leaf.sum(0), sums)
