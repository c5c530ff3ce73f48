"""Explorers: bonus rewards for new behaviour, and an ε that may depend on the score.

An explorer keeps counts over a run and stores extra fields in the replay memory. It computes the
bonus when sequences are sampled, so the bonus falls as the counts grow. ``register`` adds custom
explorers (docs/extending.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grue.agents import contexts
from grue.agents.agent import Episode, Told
from grue.agents.contexts import ScoreContexts
from grue.agents.registry import Metric, Registry
from grue.agents.replay import Fields, ReplayStep
from grue.agents.settings import NoSettings, setting
from grue.engine.environment import Environment


class Explorer:
    """The base class: no bonus, ε unchanged."""

    def __init__(self, env: Environment, settings: Any) -> None:
        self.settings = settings
        self.commands = len(env.commands)

    def init(self) -> Any:
        """The initial state."""
        return ()

    def fields(self) -> Mapping[str, jax.ShapeDtypeStruct]:
        """Extra fields of a step in the replay memory: shape and type of each."""
        return {}

    def notice(
        self, known: Any, before: Episode, action: Int[Array, ""], after: Episode
    ) -> tuple[Any, Fields, Told]:
        """The state after a step, the step's fields, and declared metrics."""
        return known, {}, {}

    def bonus(self, known: Any, steps: ReplayStep) -> Float[Array, "*batch"]:
        """The bonus rewards of some steps."""
        return jnp.zeros_like(steps.reward)

    def epsilon(
        self, known: Any, epsilon: Float[Array, ""], score: Int[Array, ""]
    ) -> Float[Array, ""]:
        return epsilon


@dataclass(frozen=True)
class ExplorerKind:
    """The declaration of an explorer."""

    make: Callable[[Environment, Any], Explorer] = Explorer
    settings: type = NoSettings
    metrics: tuple[Metric, ...] = ()
    """Its own columns, returned by ``notice``."""
    summary: str = ""
    """One line for ``grue agents``."""


EXPLORERS: Registry[ExplorerKind] = Registry("explorer")


def register(name: str, built_in: bool = False, **declared: Any) -> Callable[[Any], Any]:
    """Registers the decorated class; ``declared`` are fields of ``ExplorerKind``."""

    def add(make: Any) -> Any:
        EXPLORERS.add(name, ExplorerKind(make, **declared), built_in)
        return make

    return add


class ChosenExplorer(NamedTuple):
    kind: ExplorerKind
    settings: Any


class ExplorerSet:
    """The explorers of a program. All see every step; each run uses its own."""

    def __init__(self, env: Environment, chosen: Sequence[ChosenExplorer]) -> None:
        self.explorers = tuple(kind.make(env, settings) for kind, settings in chosen)
        self.plain = all(type(explorer) is Explorer for explorer in self.explorers)

    def init(self) -> tuple[Any, ...]:
        return tuple(explorer.init() for explorer in self.explorers)

    def fields(self) -> dict[str, jax.ShapeDtypeStruct]:
        return {n: of for explorer in self.explorers for n, of in explorer.fields().items()}

    def notice(
        self,
        known: tuple[Any, ...],
        before: Episode,
        action: Int[Array, ""],
        after: Episode,
        number: Int[Array, ""],
    ) -> tuple[tuple[Any, ...], Fields, Told]:
        states, fields, told = [], {}, {}
        for i, explorer in enumerate(self.explorers):
            state, own, metrics = explorer.notice(known[i], before, action, after)
            states.append(state)
            fields |= own
            told |= {name: jnp.where(number == i, value, 0.0) for name, value in metrics.items()}
        return tuple(states), fields, told

    def rewards(
        self, known: tuple[Any, ...], steps: ReplayStep, number: Int[Array, ""]
    ) -> Float[Array, "batch steps"]:
        """The game's rewards plus the bonus of the run's explorer."""
        if self.plain:
            return steps.reward
        bonuses = [e.bonus(own, steps) for e, own in zip(self.explorers, known, strict=True)]
        return steps.reward + jnp.stack(bonuses)[number]

    def epsilon(
        self,
        known: tuple[Any, ...],
        epsilon: Float[Array, ""],
        score: Int[Array, ""],
        number: Int[Array, ""],
    ) -> Float[Array, ""]:
        if self.plain:
            return epsilon
        own = [e.epsilon(k, epsilon, score) for e, k in zip(self.explorers, known, strict=True)]
        return jnp.stack(own)[number]


register("none", True, summary="no bonus; ε unchanged")(Explorer)


# Achievements


@dataclass(frozen=True, kw_only=True)
class AchievementSettings:
    achievement_bonus: float = setting(1.5, "β of the bonus β/√N", least=0)
    achievement_epsilon: float = setting(0.4, "least ε at scores with few rewards", least=0, most=1)
    achievement_rewards: int = setting(50, "a score with fewer rewards than this has few", least=0)


class Achievements(NamedTuple):
    scores: ScoreContexts
    counts: Int[Array, "scores commands"]
    """N: the number of episodes in which a command was admissible at a score."""
    done: Bool[Array, "scores commands"]
    """In the current episode."""
    rewards: Int[Array, " scores"]
    """The number of positive rewards at a score."""


@register(
    "achievements",
    True,
    settings=AchievementSettings,
    metrics=(
        Metric("bonus", "mean bonus of a step", "step"),
        Metric("achievements", "distinct achievements of an episode", "episode"),
    ),
    summary="a bonus for commands that are admissible for the first time in an episode",
)
class AchievementExplorer(Explorer):
    """A bonus β/√N for a command that is admissible at a score for the first time in an episode.

    N is the number of episodes of the run in which that happened. Only e_t is used, the signal
    that trains the paper's classifier.
    """

    def init(self) -> Achievements:
        shape = contexts.CAPACITY, self.commands
        counts = jnp.zeros(shape, jnp.int32)
        return Achievements(contexts.init(), counts, jnp.zeros(shape, bool), counts[:, 0])

    def fields(self) -> Mapping[str, jax.ShapeDtypeStruct]:
        return {"achievement": jax.ShapeDtypeStruct((), jnp.int32)}

    def notice(
        self, known: Achievements, before: Episode, action: Int[Array, ""], after: Episode
    ) -> tuple[Achievements, Fields, Told]:
        step = after.seen
        scores, place = contexts.assign(known.scores, before.seen.score, contexts.CAPACITY)
        achieved = step.admissible & ~known.done[place, action]
        counts = known.counts.at[place, action].add(achieved)
        done = known.done.at[place, action].max(achieved)
        over = step.terminated | step.truncated
        rewards = known.rewards.at[place].add(step.reward > 0)
        index = jnp.where(achieved, place * self.commands + action, -1).astype(jnp.int32)
        told = {"bonus": self._worth(counts, index), "achievements": done.sum().astype(jnp.float32)}
        following = Achievements(scores, counts, done & ~over, rewards)
        return following, {"achievement": index}, told

    def bonus(self, known: Achievements, steps: ReplayStep) -> Float[Array, "*batch"]:
        return self._worth(known.counts, steps.fields["achievement"])

    def _worth(self, counts: Array, index: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
        count = jnp.maximum(counts.reshape(-1)[jnp.maximum(index, 0)], 1)
        return jnp.where(index >= 0, self.settings.achievement_bonus / jnp.sqrt(count), 0.0)

    def epsilon(
        self, known: Achievements, epsilon: Float[Array, ""], score: Int[Array, ""]
    ) -> Float[Array, ""]:
        """Higher at scores with few rewards so far."""
        place = contexts.head(known.scores, score, contexts.CAPACITY)
        few = known.rewards[place] < self.settings.achievement_rewards
        return jnp.where(few, jnp.maximum(epsilon, self.settings.achievement_epsilon), epsilon)
