"""Explorers that pay a bonus β/√N for a feedback text.

episodic      a text is seen at a score for the first time in the episode
counts        a text is seen at a score, any time
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from grue.agents.agent import Episode
from grue.agents.explorers import METRICS, BonusExplorer, BonusSettings
from grue.agents.exploring import register
from grue.agents.settings import setting
from grue.agents.textkey import text_key


@dataclass(frozen=True, kw_only=True)
class TextSettings(BonusSettings):
    text_slots: int = setting(65_536, "texts that are counted apart", above=0)


class TextExplorer(BonusExplorer):
    """Counts the feedback after the command, with the score before it, in a hash table."""

    def slots(self) -> int:
        return self.settings.text_slots

    def event(
        self, before: Episode, action: Int[Array, ""], after: Episode, place: Int[Array, ""]
    ) -> tuple[Int[Array, ""], Bool[Array, ""]]:
        key = text_key(after.seen.observation)[0] + place.astype(jnp.uint32) * jnp.uint32(
            0x9E3779B1
        )
        return (key % jnp.uint32(self.slots())).astype(jnp.int32), jnp.bool_(True)


@register(
    "episodic",
    True,
    settings=TextSettings,
    metrics=METRICS,
    summary="a bonus for feedback that is seen for the first time in an episode",
)
class EpisodicExplorer(TextExplorer):
    """N is the number of episodes in which the text was seen at the score."""


@register(
    "counts",
    True,
    settings=TextSettings,
    metrics=METRICS,
    summary="a bonus for feedback that was seldom seen in the run",
)
class CountExplorer(TextExplorer):
    """N is how often the text was seen at the score."""

    once = False
