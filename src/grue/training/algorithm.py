"""Algorithm 1 of Jain et al. (2020), as one scanned program; vmapped over several runs.

ACT is the agent's ``act`` (``agents/deep.py``), TARGETS and the loss are in ``agents/learner.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from grue.agents.agent import Agent, AgentState, Decision, Episode, RunParameters, Told
from grue.agents.gating import annealed
from grue.agents.kernels.select import compilation
from grue.agents.registry import Metric
from grue.agents.settings import AgentSettings
from grue.engine.environment import GAME_STREAM, Environment
from grue.engine.step import Step
from grue.errors import UsageError
from grue.training.jitted import jitted


class Run(NamedTuple):
    """The state of a run between two steps."""

    parameters: RunParameters
    play_key: PRNGKeyArray
    replay_key: PRNGKeyArray
    agent: AgentState
    episode: Episode


Sums = dict[str, Float[Array, "..."]]
"""Sums over the steps of a row of metrics (``training/metrics.py``), by name."""


class PartOfRow(NamedTuple):
    """A run within a row of metrics: the fields of ``Run``, and the sums so far."""

    parameters: RunParameters
    play_key: PRNGKeyArray
    replay_key: PRNGKeyArray
    agent: AgentState
    episode: Episode
    sums: Sums


class Program(NamedTuple):
    """Compiled: the functions of ``Algorithm`` with these names."""

    init: Callable[[Int[Array, "*runs"], RunParameters], Run]
    advance: Callable[..., tuple[Run, Sums]]
    no_sums: Callable[[Run], Sums]


@dataclass(frozen=True)
class Algorithm:
    """Algorithm 1 for one run, or for a batch of runs: pure functions on ``Run``."""

    env: Environment
    agent: Agent
    settings: AgentSettings
    metrics: tuple[Metric, ...]
    """The declared columns of the agent and the explorers."""
    many: bool

    def init(self, seed: Int[Array, ""], parameters: RunParameters) -> Run:
        key = jax.random.key(seed)
        weights, play, replay = jax.random.split(key, 3)
        state = self.agent.init(weights)
        game = self.env.reset(jax.random.fold_in(key, GAME_STREAM))
        return Run(parameters, play, replay, state, self.begin(state, *game))

    def begin(self, state: AgentState, world: Any, seen: Step) -> Episode:
        """o_1, u_1 = 0, h_0 = 0, and no previous command (-1)."""
        return Episode(world, seen, jnp.int32(-1), jnp.int32(0), self.agent.start(state))

    def step(self, run: Run, number: Int[Array, ""]) -> tuple[Run, Sums]:
        """Plays one command. ``number`` is G, the number of steps so far."""
        env, agent, settings, before = self.env, self.agent, self.settings, run.episode
        epsilon = annealed(
            number, settings.epsilon_start, settings.epsilon_end, settings.epsilon_steps
        )
        epsilon = agent.epsilon(run.agent, before, run.parameters, epsilon)
        key = jax.random.fold_in(run.play_key, number)
        # a_t, h_t ← ACT(o_t, a_{t-1}, u_t, h_{t-1}, J, ε, ε₁, c, θ)
        with jax.named_scope("act"):
            state, decision = agent.act(run.agent, before, run.parameters, epsilon, key)
        action = agent.override(state, before, run.parameters, decision.action)
        counts = agent.counts(state, run.parameters)
        # a_t ← 'look' if t mod I_look = 0
        time, look = before.time + 1, env.commands.index("look")
        action = jnp.where(look_is_forced(run.parameters, time), look, action)
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
        counted = _count(decision, before, after, counts, agent, env)
        sums = counted | _declared(told, self.metrics, over & counts)
        return run._replace(agent=state, episode=episode), sums

    def update(self, run: Run, number: Int[Array, ""]) -> tuple[Run, Told]:
        """Samples sequences, computes TARGETS, and does gradient descent on L(θ)."""
        key = jax.random.fold_in(run.replay_key, number)
        learned, told = self.agent.update(run.agent, run.parameters, key)
        _check_declared(told, self.metrics)
        return run._replace(agent=run.agent._replace(learned=learned)), told

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
        self,
        run: Run,
        number: Int[Array, ""],
        learn: bool,
        steps: int | Int[Array, ""],
        sums: Sums | None = None,
    ) -> tuple[Run, Sums]:
        """``steps`` steps within a target period, and θ⁻ ← θ where they end one.

        The metrics of each step are added to ``sums``, so that a row may be cut after any step.
        """
        every = self.settings.update_every

        def cycle(at: Int[Array, ""], before: tuple[Run, Sums]) -> tuple[Run, Sums]:
            run, counted = self.cycle(before[0], number + at * every, learn)
            return run, jax.tree.map(jnp.add, before[1], counted)

        start = run, self.no_sums(run) if sums is None else sums
        run, counted = jax.lax.fori_loop(0, steps // every, cycle, start)
        if not learn or not jax.tree.leaves(run.agent.learned):
            return run, counted
        # θ⁻ ← θ
        ends = (number + steps) % self.settings.target_every == 0
        copy, learned = self._each(self.agent.copy_to_target), run.agent.learned
        learned = jax.lax.cond(ends, copy, lambda own: own, learned)
        return run._replace(agent=run.agent._replace(learned=learned)), counted

    def no_sums(self, run: Run) -> Sums:
        """The sums before a row's first step: zeros."""
        shapes = jax.eval_shape(lambda run: self.cycle(run, jnp.int32(0), False)[1], run)
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def _each(self, function: Callable) -> Callable:
        """Maps a function over the runs; the number of the step is the same for all."""
        if not self.many:
            return function
        return lambda run, *number: jax.vmap(lambda one: function(one, *number))(run)

    def program(self) -> Program:
        def init(env: Environment, *start: Any) -> Run:
            of = replace(self, env=env)
            return jax.vmap(of.init)(*start) if self.many else of.init(*start)

        def advance(env: Environment, *given: Any) -> tuple[Run, Sums]:
            return replace(self, env=env).advance(*given)

        chosen = compilation()
        static = (2, 3) if chosen.fixed_lengths else (2,)
        compiled = jitted(advance, self.env, static, (0,), compiler_options=chosen.options)
        # Compiled only so that the shapes are found once: that traces a whole cycle.
        no_sums = jax.jit(self.no_sums)
        return Program(jitted(init, self.env), compiled, no_sums)


def look_is_forced(parameters: RunParameters, time: Int[Array, ""]) -> Bool[Array, ""]:
    """t mod I_look = 0"""
    every = parameters.look_every
    return (every > 0) & (time % jnp.maximum(every, 1) == 0)


def _count(
    decision: Decision,
    before: Episode,
    after: Episode,
    counts: bool | Bool[Array, ""],
    agent: Agent,
    env: Environment,
) -> Sums:
    """What a step adds to the metrics; nan if the admissible commands are unknown."""
    seen = after.seen
    over = (seen.terminated | seen.truncated) & counts
    possible = before.seen.admissible_set
    exists = None if env.command_sets is None else env.exists(before.game)
    known = 1.0 if env.knows.admissible else jnp.nan
    counted = {
        "episodes": over,
        # The emulator of a hosted game failed. The games of a set have limits of their own.
        "failures": seen.truncated & (after.time < env.episode_steps) & (exists is None),
        "wins": over & env.won(after.game, seen),
        "score": over * seen.score,
        "fraction": over * env.fraction(after.game, seen),
        "admissible": seen.admissible,
        "candidates": decision.candidates.sum(),
        "admissible_commands": possible.sum() * known,
        "heads": jnp.arange(agent.heads) == decision.head,
        "updates": jnp.float32(0),
    }
    if decision.admissibility is not None:
        believed = decision.admissibility >= 0.5
        others = ~possible if exists is None else ~possible & exists
        counted |= {
            "rightly_admitted": (believed & possible).sum() * known,
            "wrongly_admitted": (believed & others).sum() * known,
            "wrongly_rejected": (~believed & possible).sum() * known,
            "inadmissible_value": jnp.mean(jnp.abs(decision.values), where=others) * known,
        }
    return {name: value.astype(jnp.float32) for name, value in counted.items()}


def _declared(told: Told, metrics: tuple[Metric, ...], over: Bool[Array, ""]) -> Sums:
    """The declared columns: the values from ``observe``, and 0 for those of updates."""
    _check_declared(told, metrics)
    return {
        name: jnp.asarray(told.get(name, jnp.zeros(parts or ())), jnp.float32)
        * (over if per == "episode" else 1)
        for name, _, per, parts in metrics
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
