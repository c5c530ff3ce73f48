"""Return, then explore: some episodes begin with the commands of the best episode so far.

The best episode is the one with the highest score; if two tie, the one with fewer commands. As long
as its last reward is rare, an episode repeats all its commands except the last few. How many are
left out is uniform on a logarithmic scale: in half of these episodes at most the square root of
their total number, in some episodes many more. Once the reward is not rare, all commands are
repeated, and the episode explores from the highest score. If that score ends the game, nothing is
repeated any more.

Nothing is saved or restored: the commands are played from the start of the game. Episodes with
repeated commands do not count in the score, the fraction and the wins of a run.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

GOLDEN = 2_654_435_769
"""2³² divided by the golden ratio: multiples of it modulo 2³² are spread evenly."""


class Returns(NamedTuple):
    played: Int[Array, " steps"]
    """The commands of this episode."""
    peak: Int[Array, ""]
    """The highest score of this episode."""
    peak_length: Int[Array, ""]
    """The commands up to it."""
    before_peak: Int[Array, ""]
    """The score before its last reward."""
    best: Int[Array, " steps"]
    """The commands of the best episode."""
    score: Int[Array, ""]
    """Its highest score; 0: there is no best episode yet."""
    length: Int[Array, ""]
    """The commands up to it."""
    last_score: Int[Array, ""]
    """The score before its last reward."""
    ended: Bool[Array, ""]
    """Whether its highest score ended the game."""
    repeated: Int[Array, ""]
    """The number of commands that this episode repeats."""


def init(episode_steps: int) -> Returns:
    commands = jnp.zeros(episode_steps, jnp.int32)
    zero = jnp.int32(0)
    return Returns(
        commands, zero, zero, zero, commands, zero, zero, zero, jnp.bool_(False), repeated=zero
    )


def override(returns: Returns, time: Int[Array, ""], action: Int[Array, ""]) -> Int[Array, ""]:
    """The command of the best episode as long as this one repeats it, else the agent's."""
    return jnp.where(time < returns.repeated, returns.best[time], action)


def notice(
    returns: Returns,
    time: Int[Array, ""],
    action: Int[Array, ""],
    score: Int[Array, ""],
    reward: Int[Array, ""],
    terminated: Bool[Array, ""],
) -> Returns:
    """Records a command, the ``time``-th from 0 on; ``score`` is the one after it."""
    higher = score > returns.peak
    now = returns._replace(
        played=returns.played.at[time].set(action),
        peak=jnp.where(higher, score, returns.peak),
        peak_length=jnp.where(higher, time + 1, returns.peak_length),
        before_peak=jnp.where(higher, score - reward, returns.before_peak),
    )
    shorter = (now.peak == now.score) & (now.peak_length < now.length)
    better = higher & ((now.peak > now.score) | shorter)
    return now._replace(
        best=jnp.where(better, now.played, now.best),
        score=jnp.where(better, now.peak, now.score),
        length=jnp.where(better, now.peak_length, now.length),
        last_score=jnp.where(better, now.before_peak, now.last_score),
        ended=jnp.where(better, terminated, now.ended),
    )


def next_episode(
    returns: Returns, episode: Int[Array, ""], share: float, rare: Bool[Array, ""]
) -> Returns:
    """Decides how much the next episode repeats. ``rare``: whether the last reward of the best
    episode is rare.

    ``episode`` is the number of the episode that has ended, and ``share`` the share of episodes
    that repeat something.
    """
    chosen = jnp.floor((episode + 1) * share) > jnp.floor(episode * share)
    spread = (episode.astype(jnp.uint32) * jnp.uint32(GOLDEN)).astype(jnp.float32) / 2.0**32
    left_out = jnp.floor((returns.length + 1.0) ** spread).astype(jnp.int32)
    part = jnp.maximum(returns.length - left_out, 0)
    whole = jnp.where(returns.ended, 0, returns.length)
    zero = jnp.int32(0)
    return returns._replace(
        peak=zero,
        peak_length=zero,
        before_peak=zero,
        repeated=jnp.where(chosen, jnp.where(rare, part, whole), 0),
    )
