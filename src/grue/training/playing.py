"""Whole episodes with a trained agent, as pure functions. Nothing is learned."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from grue.agents.agent import Agent, AgentState, Decision, Episode, RunParameters
from grue.agents.settings import LARGEST
from grue.engine.environment import GAME_STREAM, Environment
from grue.engine.stacked import StackedEnv
from grue.engine.step import Step
from grue.errors import UsageError
from grue.training.algorithm import look_is_forced
from grue.training.jitted import jitted

PLAY_STREAM = 0x706C6179
""""play" in ASCII. Separates these random numbers from those of training with the same seed."""
TOP = 3
"""The number of commands whose estimates a record keeps."""
AT_ONCE = 50
"""Episodes in a batch. Each holds a copy of its head's weights."""


def decide(
    env: Environment,
    agent: Agent,
    state: AgentState,
    parameters: RunParameters,
    epsilon: Float[Array, ""],
    key: PRNGKeyArray,
    now: Episode,
) -> tuple[Decision, Int[Array, ""], Bool[Array, ""]]:
    """The agent's decision, the command to play, and whether that is the forced look."""
    time = now.time + 1
    own = agent.without_explorer(state)
    decision = agent.act(own, now, parameters, epsilon, jax.random.fold_in(key, time))[1]
    forced = look_is_forced(parameters, time)
    return decision, jnp.where(forced, env.commands.index("look"), decision.action), forced


def begin(
    env: Environment, key: PRNGKeyArray, game: Int[Array, ""] | None = None
) -> tuple[Any, Step]:
    """The first state and step of an episode; of a set, that of the game with a number."""
    own = jax.random.fold_in(key, GAME_STREAM)
    if game is None:
        return env.reset(own)
    assert isinstance(env, StackedEnv)
    return env.reset(own, game)


def episode_key(seed: int, number: int | Int[Array, ""]) -> PRNGKeyArray:
    """An episode's key depends only on the seed and the episode's number."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), PLAY_STREAM), number)


def parameters_at(epsilon: float, parameters: RunParameters) -> RunParameters:
    """The parameters for play with this ε. Greedy play sets ε₁ = 0 too."""
    if not 0 <= epsilon <= 1:
        raise UsageError(f"epsilon lies from 0 to 1, not {epsilon}")
    return parameters if epsilon > 0 else parameters._replace(softness=jnp.float32(0))


def check_seed(seed: int) -> None:
    if not 0 <= seed <= LARGEST:
        raise UsageError(f"seed lies from 0 to {LARGEST}, not {seed}")


class Trace(NamedTuple):
    """The steps of some episodes, as arrays."""

    played: Bool[Array, "*episodes"]
    """False after the end of the episode."""
    action: Int[Array, "*episodes"]
    forced: Bool[Array, "*episodes"]
    head: Int[Array, "*episodes"]
    candidates: Int[Array, "*episodes"]
    """Their number."""
    top: Int[Array, "*episodes top"]
    """The candidates with the highest Q; other commands if there are too few."""
    values: Float[Array, "*episodes top"]
    """Their Q; -inf for commands that are not candidates."""
    admissibility: Float[Array, "*episodes top"]
    """ξ̂; nan if the agent does not estimate it."""
    observation: Int[Array, "*episodes length"]
    """o_{t+1}"""
    reward: Int[Array, "*episodes"]
    score: Int[Array, "*episodes"]
    admissible: Bool[Array, "*episodes"]
    subtasks: Bool[Array, "*episodes subtasks"]
    game: Int[Array, "*episodes"]
    """Its number in a set; 0 for one game."""


class Finals(NamedTuple):
    """How some episodes ended."""

    score: Int[Array, "*episodes"]
    fraction: Float[Array, "*episodes"]
    """Of the game's subtasks, those that were completed."""
    won: Bool[Array, "*episodes"]
    steps: Int[Array, "*episodes"]


def episode(
    env: Environment,
    agent: Agent,
    state: AgentState,
    parameters: RunParameters,
    epsilon: Float[Array, ""],
    key: PRNGKeyArray,
    game: Int[Array, ""] | None = None,
) -> tuple[Trace, Finals]:
    """Plays an episode ε-greedily; of a set, that of the game with a number."""
    top = min(TOP, len(env.commands))

    def step(before: Episode, _: None) -> tuple[Episode, tuple[Trace, Finals]]:
        decision, action, forced = decide(env, agent, state, parameters, epsilon, key, before)
        world, seen = env.step(before.game, action)
        allowed = jnp.where(decision.candidates, decision.values, -jnp.inf)
        values, best = jax.lax.top_k(allowed, top)
        going = ~(before.seen.terminated | before.seen.truncated)
        trace = Trace(
            played=going,
            action=action,
            forced=forced,
            head=decision.head,
            candidates=decision.candidates.sum(),
            top=best,
            values=values,
            admissibility=(
                jnp.full(top, jnp.nan)
                if decision.admissibility is None
                else decision.admissibility[best]
            ),
            observation=seen.observation,
            reward=seen.reward,
            score=seen.score,
            admissible=seen.admissible,
            subtasks=seen.subtasks,
            game=jnp.int32(0) if env.command_sets is None else world.game,
        )
        steps = before.time + going
        ended = Finals(seen.score, env.fraction(world, seen), env.won(world, seen), steps)
        memory = agent.perceive(decision.memory, world, seen)
        return Episode(world, seen, action, before.time + 1, memory), (trace, ended)

    start = Episode(*begin(env, key, game), jnp.int32(-1), jnp.int32(0), agent.start(state))
    traces, all_ends = jax.lax.scan(step, start, None, length=env.episode_steps)[1]
    last = traces.played.sum() - 1
    return traces, jax.tree.map(lambda leaf: leaf[last], all_ends)


@lru_cache(maxsize=16)
def traced_play(env: Environment, agent: Agent) -> Callable[..., Trace]:
    """``play(state, parameters, epsilon, keys, games)``: one episode for each key."""

    def play(
        env: Environment, state: AgentState, parameters: RunParameters, epsilon: Any, *each: Any
    ) -> Trace:
        def one(*own: Any) -> Trace:
            return episode(env, agent, state, parameters, epsilon, *own)[0]

        return jax.vmap(one)(*each)

    return jitted(play, env)


@lru_cache(maxsize=16)
def quick_play(env: Environment, agent: Agent) -> Callable[..., Finals]:
    """As ``traced_play``, but returns only how the episodes end. The state may be from training on
    other games."""

    def play(
        env: Environment, state: AgentState, parameters: RunParameters, epsilon: Any, *each: Any
    ) -> Finals:
        able = agent.for_play(state)

        def one(own: Any) -> Finals:
            return episode(env, agent, able, parameters, epsilon, *own)[1]

        if len(each[0]) <= AT_ONCE:
            return jax.vmap(one)(each)
        return jax.lax.map(one, each, batch_size=AT_ONCE)

    return jitted(play, env)


def play_each_game(
    env: Environment,
    agent: Agent,
    state: AgentState,
    parameters: RunParameters,
    epsilon: float = 0.0,
    seed: int = 0,
    time: int = 0,
) -> Finals:
    """Plays every game of a set once. ``time`` counts how often that was done before."""
    assert env.command_sets is not None
    games = jnp.arange(len(env.command_sets))
    keys = jax.vmap(episode_key, (None, 0))(seed, time * len(games) + games)
    given = parameters_at(epsilon, parameters), jnp.float32(epsilon)
    return jax.device_get(quick_play(env, agent)(state, *given, keys, games))
