"""Explorers that pay a bonus β/√N for an event that was counted N times in the run.

    achievements  a command is admissible at a score for the first time in the episode

``text_explorers.py`` has the others. All use what the paper's agents use: the feedback, the score,
and whether the command taken was admissible. At the frontier, the scores from which few rewards
were ever had, ε has a least value and the bonus may have one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grue.agents import archive, contexts, returning
from grue.agents.agent import Episode, Told
from grue.agents.archive import Archive, Draws
from grue.agents.contexts import ScoreContexts
from grue.agents.exploring import Candidates, Explorer, register
from grue.agents.registry import Metric
from grue.agents.replay import Fields, ReplayStep
from grue.agents.returning import Returns
from grue.agents.settings import setting
from grue.agents.textkey import text_key
from grue.engine.environment import Environment
from grue.errors import UsageError

VISITS = 16
"""Scores whose visits are counted apart."""
WORD_CELLS = 512
"""Cells of the archive at a score, if they go by the words of the feedback. A power of two."""


@dataclass(frozen=True, kw_only=True)
class BonusSettings:
    bonus: float = setting(1.5, "β of the bonus β/√N", least=0)
    bonus_floor: float = setting(
        0.0, "share of β that the bonus keeps at the frontier", least=0, most=1
    )
    bonus_behind: float = setting(
        1.0, "share of the bonus that is paid at scores that are not the frontier", least=0, most=1
    )
    frontier_rewards: int = setting(
        50, "scores with fewer rewards than this so far are the frontier", least=0
    )
    frontier_epsilon: float = setting(0.4, "least ε at the frontier", least=0, most=1)
    return_share: float = setting(
        0.0, "share of the episodes that begin with commands of the best episode", least=0, most=1
    )
    archive_share: float = setting(
        0.0, "share of these that replay a route of the archive", least=0, most=1
    )
    archive_epsilon: float = setting(1.0, "least ε after such a replay", least=0, most=1)
    archive_lower: float = setting(
        0.5,
        "probability of a score in the archive, divided by that of the next higher one",
        least=0,
        most=1,
    )
    archive_joined: float = setting(
        0.0, "share of these episodes that then replay the route of a second entry", least=0, most=1
    )
    archive_words: int = setting(
        0,
        "entries are by score and this many first words of the feedback; 0: by score and command",
        least=0,
    )

    def conflict(self) -> str | None:
        if self.archive_share and not self.return_share:
            return (
                "archive_share is a share of return_share, which is 0: set that too, "
                f"not archive_share={self.archive_share} alone"
            )
        return None


@dataclass(frozen=True, kw_only=True)
class AchievementSettings(BonusSettings):
    by_score: bool = setting(True, "achievements are counted for each score apart")
    novel_share: float = setting(
        0.0,
        "share of the exploratory commands that are believed admissible, those new in the "
        "episode first",
        least=0,
        most=1,
    )
    rare_share: float = setting(
        0.0,
        "share of the exploratory commands that are drawn by 1/(1 + N), whatever the gate allows",
        least=0,
        most=1,
    )


METRICS = (
    Metric("bonus", "mean bonus of a step", "step"),
    Metric("events", "events of an episode that had a bonus", "episode"),
    Metric("first_events", "events that never happened before in the run", "count"),
    Metric("frontier", "fraction of the steps at scores with few rewards", "step"),
    Metric("repeated", "fraction of the steps that repeat an earlier episode", "step"),
    Metric("best", "highest score so far, with repeated commands or without", "step"),
    Metric(
        "visits",
        f"fraction of the steps at each score, in the order first met; the last of {VISITS} is of "
        "all later scores",
        "step",
        parts=VISITS,
    ),
)


class Counted(NamedTuple):
    """What is known of the run. An event has a slot in ``counts`` and ``last``."""

    scores: ScoreContexts
    rewards: Int[Array, " scores"]
    """The number of positive rewards at each score."""
    counts: Int[Array, " slots"]
    """N"""
    last: Int[Array, " slots"]
    """The episode in which it last happened; 0: never."""
    episode: Int[Array, ""]
    """From 1 on."""
    events: Int[Array, ""]
    """In this episode."""
    best: Int[Array, ""]
    """The highest score so far."""
    returns: Returns | None
    """None: no episode repeats commands."""
    archive: Archive | None
    """None: no episode goes back to an entry."""
    tried: Int[Array, "scores commands"] | None = None
    """How often each command was taken at each score; None: not needed."""


class BonusExplorer(Explorer, ABC):
    """A bonus for events. A subclass says which events there are."""

    once = True
    """Whether an event counts only the first time in an episode."""

    def __init__(self, env: Environment, settings: BonusSettings) -> None:
        super().__init__(env, settings)
        self.episode_steps = env.episode_steps
        if settings.return_share and env.command_sets is not None:
            raise UsageError(
                "return_share repeats the commands of the best episode, and in a set the next "
                f"episode is of another game; leave it at 0, not {settings.return_share}"
            )

    @abstractmethod
    def slots(self) -> int:
        """The number of different events."""

    @abstractmethod
    def event(
        self, before: Episode, action: Int[Array, ""], after: Episode, place: Int[Array, ""]
    ) -> tuple[Int[Array, ""], Bool[Array, ""]]:
        """The slot of a step's event, and whether it happened. ``place`` is the score's."""

    def init(self) -> Counted:
        rewards = jnp.zeros(contexts.CAPACITY, jnp.int32)
        slots = jnp.zeros(self.slots(), jnp.int32)
        own, steps = self.settings, self.episode_steps
        returns = returning.init(steps) if own.return_share else None
        cells = WORD_CELLS if own.archive_words else None
        routes = archive.init(steps, self.commands, cells) if self._goes_back() else None
        zero, one = jnp.int32(0), jnp.int32(1)
        return Counted(contexts.init(), rewards, slots, slots, one, zero, zero, returns, routes)

    @property
    def _draws(self) -> Draws:
        return Draws(self.settings.archive_lower, self.settings.archive_joined)

    def _goes_back(self) -> bool:
        return self.settings.archive_share > 0

    def fields(self) -> Mapping[str, jax.ShapeDtypeStruct]:
        return {"event": jax.ShapeDtypeStruct((), jnp.int32)}

    def notice(
        self, known: Counted, before: Episode, action: Int[Array, ""], after: Episode
    ) -> tuple[Counted, Fields, Told]:
        step, score = after.seen, before.seen.score
        scores, place = contexts.assign(known.scores, score, contexts.CAPACITY)
        slot, happened = self.event(before, action, after, place)
        counted = happened & ((known.last[slot] != known.episode) | (not self.once))
        # What the best episode did says nothing about what the agent can do.
        own = ~self._repeats(known, before.time)
        # A reward that was had with help does not show that the agent can get there.
        alone = (step.reward > 0) & self.counts(known)
        first = counted & own & (known.counts[slot] == 0)
        now = known._replace(
            scores=scores,
            rewards=known.rewards.at[place].add(alone),
            counts=known.counts.at[slot].add(counted & own),
            last=known.last.at[slot].max(jnp.where(counted, known.episode, 0)),
            events=known.events + counted,
            best=jnp.maximum(known.best, step.score),
        )
        event = jnp.where(counted, slot, -1).astype(jnp.int32)
        told = {
            "bonus": self._worth(now, event, score),
            "events": now.events,
            "first_events": first,
            "frontier": self._few(now, score),
            "repeated": ~own,
            "best": now.best,
            "visits": jnp.arange(VISITS) == jnp.minimum(place, VISITS - 1),
        }
        return (
            self._after(now, before, action, after),
            {"event": event},
            {n: v.astype(jnp.float32) for n, v in told.items()},
        )

    def _after(
        self, known: Counted, before: Episode, action: Int[Array, ""], after: Episode
    ) -> Counted:
        """The state before the next step, which may begin an episode."""
        step, returns, routes = after.seen, known.returns, known.archive
        over = step.terminated | step.truncated
        if returns is not None:
            told = step.score, step.reward, step.terminated
            returns = returning.notice(returns, before.time, action, *told)
            rare, share = self._few(known, returns.last_score), self.settings.return_share
            ended = returning.next_episode(returns, known.episode, share, rare)
            if routes is not None:
                goes_on, cell = step.admissible & ~step.terminated, self._cell(action, after)
                routes = archive.notice(routes, action, step.score, goes_on, cell)
                goes_back = self._is_for_archive(known.episode) & (rare | ~returns.ended)
                routes = archive.next_episode(routes, over, goes_back, self._draws)
                ended = ended._replace(repeated=jnp.where(goes_back, 0, ended.repeated))
            returns = jax.tree.map(partial(jnp.where, over), ended, returns)
        return known._replace(
            episode=known.episode + over,
            events=known.events * ~over,
            returns=returns,
            archive=routes,
        )

    def _cell(self, action: Int[Array, ""], after: Episode) -> Int[Array, ""]:
        """The cell of the archive: the command, or a hash of the first words of the feedback."""
        words = self.settings.archive_words
        if not words:
            return action
        key = text_key(after.seen.observation[:words])[0]
        # The high bits, on which all bits of the words bear.
        return (key >> (32 - WORD_CELLS.bit_length() + 1)).astype(jnp.int32)

    def _is_for_archive(self, episode: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the episode after this one goes back to an entry of the archive."""
        share, own = self.settings.return_share, self.settings.archive_share
        repeating = jnp.floor(episode * share)
        one = jnp.floor((episode + 1) * share) > repeating
        return one & (jnp.floor((repeating + 1) * own) > jnp.floor(repeating * own))

    def override(self, known: Counted, episode: Episode, action: Int[Array, ""]) -> Int[Array, ""]:
        if known.returns is not None:
            action = returning.override(known.returns, episode.time, action)
        return action if known.archive is None else archive.override(known.archive, action)

    def _repeats(self, known: Counted, time: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the next command is one of an earlier episode."""
        if known.returns is None:
            return jnp.bool_(False)
        repeats = time < known.returns.repeated
        return repeats if known.archive is None else repeats | (known.archive.command >= 0)

    def counts(self, known: Counted) -> Bool[Array, ""]:
        helped = jnp.bool_(False) if known.returns is None else known.returns.repeated > 0
        return ~helped if known.archive is None else ~helped & (known.archive.trip.goal < 0)

    def bonus(self, known: Counted, steps: ReplayStep) -> Float[Array, "*batch"]:
        return self._worth(known, steps.fields["event"], steps.score)

    def epsilon(
        self, known: Counted, epsilon: Float[Array, ""], score: Int[Array, ""]
    ) -> Float[Array, ""]:
        least = jnp.maximum(epsilon, self.settings.frontier_epsilon)
        least = jnp.where(self._few(known, score), least, epsilon)
        if known.archive is None:
            return least
        there = known.archive.trip.goal >= 0
        return jnp.where(there, jnp.maximum(least, self.settings.archive_epsilon), least)

    def _worth(
        self, known: Counted, event: Int[Array, "*batch"], score: Int[Array, "*batch"]
    ) -> Float[Array, "*batch"]:
        count = jnp.maximum(known.counts[jnp.maximum(event, 0)], 1)
        own, frontier = self.settings, self._few(known, score)
        share = 1 / jnp.sqrt(count)
        share = jnp.where(frontier, jnp.maximum(share, own.bonus_floor), own.bonus_behind * share)
        return jnp.where(event >= 0, own.bonus * share, 0.0)

    def _few(self, known: Counted, score: Int[Array, "*batch"]) -> Bool[Array, "*batch"]:
        """Whether a score belongs to the frontier."""
        mine = known.scores.seen == score[..., None]
        mine = mine & (jnp.arange(len(known.rewards)) < known.scores.count)
        return (mine * known.rewards).sum(-1) < self.settings.frontier_rewards


@register(
    "achievements",
    True,
    settings=AchievementSettings,
    metrics=METRICS,
    summary="a bonus for commands that are admissible for the first time in an episode",
)
class AchievementExplorer(BonusExplorer):
    """N is the number of episodes in which the command was admissible at the score."""

    def slots(self) -> int:
        return self.commands * (contexts.CAPACITY if self.settings.by_score else 1)

    def event(
        self, before: Episode, action: Int[Array, ""], after: Episode, place: Int[Array, ""]
    ) -> tuple[Int[Array, ""], Bool[Array, ""]]:
        return self._first(place) + action, after.seen.admissible

    def _first(self, place: Int[Array, ""]) -> Int[Array, ""]:
        """The slot of a score's first command."""
        return place * (self.commands if self.settings.by_score else 0)

    def init(self) -> Counted:
        if not self.settings.novel_share:
            return super().init()
        tried = jnp.zeros((contexts.CAPACITY, self.commands), jnp.int32)
        return super().init()._replace(tried=tried)

    def notice(
        self, known: Counted, before: Episode, action: Int[Array, ""], after: Episode
    ) -> tuple[Counted, Fields, Told]:
        if known.tried is not None:
            _, place = contexts.assign(known.scores, before.seen.score, contexts.CAPACITY)
            tried = known.tried.at[place, action].add(~self._repeats(known, before.time))
            known = known._replace(tried=tried)
        return super().notice(known, before, action, after)

    def exploratory(
        self, known: Counted, episode: Episode, decided: Candidates
    ) -> Float[Array, " commands"] | None:
        novel_share, rare_share = self.settings.novel_share, self.settings.rare_share
        if not novel_share and not rare_share:
            return None
        _, place = contexts.assign(known.scores, episode.seen.score, contexts.CAPACITY)
        slots = self._first(place) + jnp.arange(self.commands)
        odds = decided.allowed / decided.allowed.sum()
        if known.tried is not None:
            likely = jnp.where(decided.allowed, decided.admissibility, 0.0)
            undone = known.last[slots] != known.episode
            novel = (undone & (likely >= 0.5)) / (known.tried[place] + 1.0)
            odds = mixed(novel_share, jnp.where(novel.any(), novel, likely), odds)
        if rare_share:
            rarity = 1.0 / (self.times_admissible(known, episode) + 1)
            there = True if decided.exists is None else decided.exists
            odds = mixed(rare_share, jnp.where(there, rarity, 0.0), odds)
        return odds

    def times_admissible(self, known: Counted, episode: Episode) -> Int[Array, " commands"]:
        """N of each command at this score."""
        _, place = contexts.assign(known.scores, episode.seen.score, contexts.CAPACITY)
        return known.counts[self._first(place) + jnp.arange(self.commands)]


def mixed(
    share: float, weights: Float[Array, " commands"], others: Float[Array, " commands"]
) -> Float[Array, " commands"]:
    """Probabilities: a share by the weights, the rest, or all without weights, as the others."""
    total = weights.sum()
    by_weight = jnp.where(total > 0, weights / jnp.where(total > 0, total, 1.0), others)
    return share * by_weight + (1 - share) * others
