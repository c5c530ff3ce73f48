"""Algorithm 1 of Jain et al. (2020), as one scanned program.

ACT is the agent's ``act`` (``agents/deep.py``), TARGETS and the loss are in ``agents/learner.py``.
The rest is here: all that a run carries, and the function that advances it by some thousand steps.
Many runs are the same program, vmapped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from grue.agents.agent import Agent, AgentState, Decision, Episode, RunParameters, Told
from grue.agents.gating import annealed_epsilon
from grue.agents.kernels.select import compilation
from grue.agents.registry import Metric
from grue.agents.settings import AgentSettings
from grue.engine.environment import GAME_STREAM, Environment
from grue.engine.step import Step
from grue.errors import UsageError


class Run(NamedTuple):
    """All that a run is between two steps."""

    parameters: RunParameters
    play_key: PRNGKeyArray
    replay_key: PRNGKeyArray
    agent: AgentState
    episode: Episode


Sums = dict[str, Float[Array, "..."]]
"""What is added up over the steps of a row of metrics (``training/metrics.py``), by name."""


class Program(NamedTuple):
    init: Callable[[Int[Array, "*runs"], RunParameters], Run]
    """From seeds and parameters."""
    advance: Callable[[Run, Int[Array, ""], bool, int], tuple[Run, Sums]]
    """``advance(run, step, learn, steps)``: the run after so many more steps, and their sums."""
    copy_to_target: Callable[[Run], Run]


@dataclass(frozen=True)
class Algorithm:
    """Algorithm 1 of one run, or of many runs side by side: pure functions on ``Run``."""

    env: Environment
    agent: Agent
    settings: AgentSettings
    metrics: tuple[Metric, ...]
    """The columns that the agent has declared."""
    many: bool

    def init(self, seed: Int[Array, ""], parameters: RunParameters) -> Run:
        key = jax.random.key(seed)
        weights, play, replay = jax.random.split(key, 3)
        state = self.agent.init(weights)
        game = self.env.reset(jax.random.fold_in(key, GAME_STREAM))
        return Run(parameters, play, replay, state, self.begin(state, *game))

    def begin(self, state: AgentState, world: Any, seen: Step) -> Episode:
        """o_1, u_1 = 0, h_0 = 0; the command before the first is 'look'."""
        return Episode(world, seen, jnp.int32(-1), jnp.int32(0), self.agent.start(state))

    def step(self, run: Run, number: Int[Array, ""]) -> tuple[Run, Sums]:
        """Plays one command. ``number`` is G, the steps of the run so far."""
        env, agent, settings, before = self.env, self.agent, self.settings, run.episode
        epsilon = annealed_epsilon(
            number, settings.epsilon_start, settings.epsilon_end, settings.epsilon_steps
        )
        epsilon = agent.epsilon(run.agent, before, run.parameters, epsilon)
        key = jax.random.fold_in(run.play_key, number)
        # a_t, h_t ← ACT(o_t, a_{t-1}, u_t, h_{t-1}, J, ε, ε₁, c, θ)
        with jax.named_scope("act"):
            state, decision = agent.act(run.agent, before, run.parameters, epsilon, key)
        # a_t ← 'look' if t mod I_look = 0
        time, look = before.time + 1, env.commands.index("look")
        action = jnp.where(look_is_forced(run.parameters, time), look, decision.action)
        # Execute a_t, observe r_{t+1}, o_{t+1}, e_{t+1}
        with jax.named_scope("env"):
            world, seen = env.step(before.game, action)
            memory = agent.perceive(decision.memory, world, seen)
        after = Episode(world, seen, action, time, memory)
        with jax.named_scope("remember"):
            state, told = agent.observe(state, before, action, after, run.parameters)
        # The episode ends with the game, or after T steps
        over = seen.terminated | seen.truncated
        episode = jax.tree.map(
            lambda fresh, going: jnp.where(over, fresh, going),
            self.begin(state, *env.restart(world)),
            after,
        )
        sums = _count(decision, before, after, agent, env) | _declared(told, self.metrics, over)
        return run._replace(agent=state, episode=episode), sums

    def update(self, run: Run, number: Int[Array, ""]) -> tuple[Run, Told]:
        """Samples sequences, TARGETS, gradient descent on L(θ)."""
        key = jax.random.fold_in(run.replay_key, number)
        learned, told = self.agent.update(run.agent, run.parameters, key)
        _check_declared(told, self.metrics)
        return run._replace(agent=run.agent._replace(learned=learned)), told

    def copy(self, run: Run) -> Run:
        """θ⁻ ← θ"""
        learned = self.agent.copy_to_target(run.agent.learned)
        return run._replace(agent=run.agent._replace(learned=learned))

    def cycle(self, run: Run, number: Int[Array, ""], learn: bool) -> tuple[Run, Sums]:
        """``update_every`` steps, then one update."""
        numbers = number + jnp.arange(self.settings.update_every)
        run, sums = jax.lax.scan(self._each(self.step), run, numbers, unroll=compilation().unroll)
        sums = _total(sums)
        if learn:
            run, told = self._each(self.update)(run, number)
            sums = sums | told | {"updates": sums["updates"] + 1}
        return run, sums

    def advance(
        self, run: Run, number: Int[Array, ""], learn: bool, steps: int
    ) -> tuple[Run, Sums]:
        """Some thousand steps. The target network is copied after every I_target of them."""
        every = self.settings.target_every
        period = math.gcd(every, steps)
        copies = learn and period == every

        def target_period(run: Run, first: Int[Array, ""]) -> tuple[Run, Sums]:
            numbers = first + jnp.arange(0, period, self.settings.update_every)
            run, sums = jax.lax.scan(lambda run, at: self.cycle(run, at, learn), run, numbers)
            return self._each(self.copy)(run) if copies else run, _total(sums)

        run, sums = jax.lax.scan(target_period, run, number + jnp.arange(0, steps, period))
        return run, _total(sums)

    def _each(self, function: Callable) -> Callable:
        """Over all runs; the number of the step is the same for all."""
        if not self.many:
            return function
        return lambda run, *number: jax.vmap(function, in_axes=(0, *(None for _ in number)))(
            run, *number
        )

    def program(self) -> Program:
        init = jax.vmap(self.init) if self.many else self.init
        return Program(
            init=jax.jit(init),
            advance=jax.jit(
                self.advance,
                static_argnums=(2, 3),
                donate_argnums=0,
                compiler_options=compilation().options,
            ),
            copy_to_target=jax.jit(self._each(self.copy), donate_argnums=0),
        )


def look_is_forced(parameters: RunParameters, time: Int[Array, ""]) -> Bool[Array, ""]:
    """t mod I_look = 0"""
    every = parameters.look_every
    return (every > 0) & (time % jnp.maximum(every, 1) == 0)


def _count(
    decision: Decision, before: Episode, after: Episode, agent: Agent, env: Environment
) -> Sums:
    """What one step adds to the metrics; nan where the admissible commands are not known."""
    seen = after.seen
    over = seen.terminated | seen.truncated
    possible = before.seen.admissible_set
    known = 1.0 if env.knows.admissible else jnp.nan
    counted = {
        "episodes": over,
        # Cut short because a hosted game's emulator failed.
        "failures": seen.truncated & (after.time < env.episode_steps),
        "wins": over & seen.subtasks.all(),
        "score": over * seen.score,
        "fraction": over * seen.subtasks.mean(dtype=jnp.float32),
        "admissible": seen.admissible,
        "candidates": decision.candidates.sum(),
        "admissible_commands": possible.sum() * known,
        "heads": jnp.arange(agent.heads) == decision.head,
        "updates": jnp.float32(0),
    }
    if decision.admissibility is not None:
        believed = decision.admissibility >= 0.5
        counted |= {
            "rightly_admitted": (believed & possible).sum() * known,
            "wrongly_admitted": (believed & ~possible).sum() * known,
            "wrongly_rejected": (~believed & possible).sum() * known,
        }
    return {name: value.astype(jnp.float32) for name, value in counted.items()}


def _declared(told: Told, metrics: tuple[Metric, ...], over: Bool[Array, ""]) -> Sums:
    """The agent's own columns: what ``observe`` told of this step, 0 for those of updates."""
    _check_declared(told, metrics)
    zero = jnp.float32(0)
    values = {metric.name: told.get(metric.name, zero) for metric in metrics}
    ended = {metric.name for metric in metrics if metric.per == "episode"}
    return {
        name: jnp.asarray(value, jnp.float32) * (over if name in ended else 1)
        for name, value in values.items()
    }


def _check_declared(told: Told, metrics: tuple[Metric, ...]) -> None:
    declared = [metric.name for metric in metrics]
    for name in told.keys() - set(declared):
        raise UsageError(
            f"the agent returned the metric {name!r}, which it has not declared; "
            f"its columns are {', '.join(declared) or 'none'}"
        )


def _total(sums: Sums) -> Sums:
    return jax.tree.map(lambda leaf: leaf.sum(0), sums)
