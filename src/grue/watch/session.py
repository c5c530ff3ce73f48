"""A session: a tree of moments, each a command after another. Branches are its leaves.

A moment depends only on the stage, the seed, the episode and the commands before it. So states may
be forgotten and played again, and a page can restore its session from the commands.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from grue.agents.agent import Episode
from grue.engine.step import Step
from grue.errors import UsageError
from grue.games.logic import Facts
from grue.training.player import Player, programs
from grue.training.playing import episode_key, parameters_at
from grue.watch.stage import StageView

KEPT_STATES = 400
"""States that a session holds; a snapshot of a story may have some 100 kB."""
KEPT_MINDS = 6
MOST_MOMENTS = 50_000


@dataclass(frozen=True)
class Moment:
    number: int
    parent: int | None
    command: str
    """What led here; empty for the first moment."""
    by: str
    """Who gave it: agent, forced or you."""
    depth: int
    step: Step
    facts: Facts | None

    @property
    def over(self) -> str:
        """How the episode has ended: won, lost or limit; empty if it goes on."""
        if self.step.terminated:
            return "won" if np.asarray(self.step.subtasks).all() else "lost"
        return "limit" if self.step.truncated else ""


class Decided(NamedTuple):
    """An agent's decision at a moment, in NumPy arrays."""

    action: int
    forced: bool
    head: int
    candidates: np.ndarray
    values: np.ndarray
    admissibility: np.ndarray | None
    memory: Any


class Mind:
    """A trained agent as a function of the moments so far."""

    def __init__(self, player: Player, key: tuple[int, int]) -> None:
        self.player, self.key = player, key
        env, self._agent, self._state, self._parameters, self.steps = player.trained
        _, self._decide, _, self._perceive = programs(env, self._agent)
        self.judges = player.config.gate_kind.classifier
        """Whether ξ̂ is trained."""

    def decide(
        self, before: Decided | None, moment: Moment, state: Any, chance: SessionSeed, action: int
    ) -> Decided:
        """The decision at a moment, given that at the moment before and the command since."""
        seen = moment.step._replace(text=None)
        if before is None:
            memory = self._agent.start(self._state)
        else:
            memory = self._perceive(before.memory, state, seen)
        now = Episode(state, seen, jnp.int32(action), jnp.int32(moment.depth), memory)
        decision, chosen, forced = self._decide(
            self._state,
            parameters_at(chance.epsilon, self._parameters),
            jnp.float32(chance.epsilon),
            episode_key(chance.seed, chance.episode),
            now,
        )
        told = jax.device_get((chosen, forced, decision._replace(memory=None)))
        one = told[2]
        estimates = one.admissibility if self.judges else None
        return Decided(
            int(told[0]), bool(told[1]), int(one.head), one.candidates, one.values, estimates,
            decision.memory,
        )  # fmt: skip


class SessionSeed(NamedTuple):
    """What an episode is drawn with."""

    seed: int = 0
    episode: int = 0
    epsilon: float = 0.0


class Session:
    def __init__(self, stage: StageView, chance: SessionSeed) -> None:
        self.stage, self.chance = stage, chance
        self.moments: list[Moment] = []
        self._children: dict[tuple[int, str], int] = {}
        self._states: OrderedDict[int, Any] = OrderedDict()
        self._decided: OrderedDict[tuple[int, int], dict[int, Decided]] = OrderedDict()
        state, step = stage.begin(chance.seed, chance.episode)
        facts = None if stage.world is None else stage.world.initial
        self._add(Moment(0, None, "", "start", 0, step, facts), state)

    def play(self, at: int, text: str, by: str = "you") -> Moment:
        """The moment after a command; the one that is there if it was given there before."""
        before = self.moment(at)
        command = self.stage.checked(text)
        known = self._children.get((at, command))
        if known is not None:
            return self.moments[known]
        if before.over:
            raise UsageError("the episode is over here; go back to an earlier step")
        if len(self.moments) >= MOST_MOMENTS:
            raise UsageError(f"a session has at most {MOST_MOMENTS} moments; begin a new episode")
        state, step = self.stage.step(self.state(at), command)
        world, facts = self.stage.world, before.facts
        if world is not None and facts is not None:
            facts = world.after(facts, command, state, bool(step.admissible))
        number, depth = len(self.moments), before.depth + 1
        return self._add(Moment(number, at, command, by, depth, step, facts), state)

    def play_agent(self, at: int, mind: Mind) -> Moment:
        """The moment after the agent's command."""
        decided = self.decided(at, mind)
        command = self.stage.env.commands[decided.action]
        return self.play(at, command, "forced" if decided.forced else "agent")

    def decided(self, at: int, mind: Mind) -> Decided:
        """What an agent decides at a moment. It has seen all moments before it."""
        known = self._decided.setdefault(mind.key, {})
        self._decided.move_to_end(mind.key)
        while len(self._decided) > KEPT_MINDS:
            self._decided.popitem(last=False)
        for number in self._since(at, known):
            moment = self.moments[number]
            before = None if moment.parent is None else known[moment.parent]
            action = -1 if moment.parent is None else self.stage.number(moment.command)
            if action is None:
                raise UsageError(f"the agent does not know the command {moment.command!r}")
            known[number] = mind.decide(before, moment, self.state(number), self.chance, action)
        return known[at]

    def moment(self, number: int) -> Moment:
        if not 0 <= number < len(self.moments):
            raise UsageError(
                f"a moment is a number from 0 to {len(self.moments) - 1}, not {number}"
            )
        return self.moments[number]

    def line(self, number: int) -> list[int]:
        """The moments from the first to this one."""
        found = [number]
        while (parent := self.moments[found[-1]].parent) is not None:
            found.append(parent)
        return found[::-1]

    def state(self, number: int) -> Any:
        """The game's state at a moment, played again from an earlier one if it was forgotten."""
        since = self._since(number, self._states)
        for missing in since:
            moment = self.moments[missing]
            assert moment.parent is not None
            state, _ = self.stage.step(self._states[moment.parent], moment.command)
            self._keep(missing, state)
        self._states.move_to_end(number)
        return self._states[number]

    def _since(self, number: int, known: Any) -> list[int]:
        """The moments up to this one that follow the last known one."""
        missing: list[int] = []
        at: int | None = number
        while at is not None and at not in known:
            missing.append(at)
            at = self.moments[at].parent
        return missing[::-1]

    def _add(self, moment: Moment, state: Any) -> Moment:
        self.moments.append(moment)
        if moment.parent is not None:
            self._children[moment.parent, moment.command] = moment.number
        self._keep(moment.number, state)
        return moment

    def _keep(self, number: int, state: Any) -> None:
        self._states[number] = state
        if len(self._states) > KEPT_STATES:
            self._states.move_to_end(0)
            self._states.popitem(last=False)
