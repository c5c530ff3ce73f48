"""Return, then explore: some episodes begin with the commands of the best episode so far.

The best episode is the one with the highest score; of two, the one that reached it in fewer
commands. There are two ways to repeat it:

- **In part.** As long as its last reward is rare, all of its commands but the last few: the number
  left out at the end is spread evenly on a logarithmic scale, so half of these episodes play on
  from within the square root of all commands before the reward, and some from far away. Later all
  of them: the episode explores from the highest score.
- **Thinned.** All of its commands, but some of them, drawn at random, are left out. Most of a best
  episode's commands are of no use. If a thinned one reaches the highest score nevertheless, it is
  the new best episode. So the way to the highest score gets short, and most of an episode remains
  for exploring from there.

Nothing is repeated once the highest score ends the game and is not rare any more. Nothing is saved
or restored: the commands are played from the start of the game. Episodes with repeated commands do
not count in the score, the fraction and the wins of a run.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

GOLDEN = 2_654_435_769
"""2³² divided by the golden ratio: multiples of it modulo 2³² are spread evenly."""
PLASTIC = 3_242_174_889
"""2³² divided by the plastic ratio: spread evenly, and independent of the other."""


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
    episode: UInt[Array, ""]
    """The number of this episode."""
    repeated: Int[Array, ""]
    """This episode repeats commands of the best one up to this place; 0: none."""
    place: Int[Array, ""]
    """The first command that has not been repeated yet."""
    omitted: Float[Array, ""]
    """The probability that a command is left out; 0: not thinned."""


def init(episode_steps: int) -> Returns:
    commands, zero = jnp.zeros(episode_steps, jnp.int32), jnp.int32(0)
    best = (commands, zero, zero, zero, jnp.bool_(False))
    return Returns(commands, zero, zero, zero, *best, jnp.uint32(1), zero, zero, jnp.float32(0))


def following(returns: Returns, look: int) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """The place of the next command to repeat, and whether there is one.

    A thinned episode leaves out every 'look', because the forced ones come by themselves.
    """
    places = jnp.arange(len(returns.best))
    draws = jax.random.uniform(jax.random.key(returns.episode), places.shape)
    thin = (returns.omitted > 0) & ((draws < returns.omitted) | (returns.best == look))
    left = (places >= returns.place) & (places < returns.repeated) & ~thin
    return left.argmax(), left.any()


def override(returns: Returns, look: int, action: Int[Array, ""]) -> Int[Array, ""]:
    """The next command of the best episode as long as this one repeats it, else the agent's."""
    place, repeats = following(returns, look)
    return jnp.where(repeats, returns.best[place], action)


def notice(
    returns: Returns,
    look: int,
    time: Int[Array, ""],
    action: Int[Array, ""],
    score: Int[Array, ""],
    reward: Int[Array, ""],
    terminated: Bool[Array, ""],
) -> Returns:
    """Records a command, the ``time``-th from 0 on; ``score`` is the one after it."""
    higher = score > returns.peak
    place, repeats = following(returns, look)
    # A forced 'look' came between: the command is still to be repeated.
    done = repeats & (action == returns.best[place])
    now = returns._replace(
        played=returns.played.at[time].set(action),
        peak=jnp.where(higher, score, returns.peak),
        peak_length=jnp.where(higher, time + 1, returns.peak_length),
        before_peak=jnp.where(higher, score - reward, returns.before_peak),
        place=jnp.where(done, place + 1, returns.place),
    )
    shorter = (now.peak == now.score) & (now.peak_length < now.length)
    better = higher & ((now.peak > now.score) | shorter)
    return now._replace(
        best=jnp.where(better, now.played, now.best),
        score=jnp.where(better, now.peak, now.score),
        length=jnp.where(better, now.peak_length, now.length),
        last_score=jnp.where(better, now.before_peak, now.last_score),
        ended=jnp.where(better, terminated, now.ended),
        # The rest of the old one is of no use any more.
        place=jnp.where(better, now.repeated, now.place),
    )


def next_episode(returns: Returns, share: float, thinned: float, rare: Bool[Array, ""]) -> Returns:
    """Decides what the next episode repeats. ``rare``: the best episode's last reward is.

    ``share`` of the episodes repeat something, and ``thinned`` of these are thinned.
    """
    number = returns.episode
    chosen = _is_one_of(number, share)
    thin = _is_one_of(jnp.floor(number * share), thinned)
    left_out = jnp.floor((returns.length + 1.0) ** _spread(number, GOLDEN)).astype(jnp.int32)
    part = jnp.where(rare & ~thin, jnp.maximum(returns.length - left_out, 0), returns.length)
    useful = chosen & (rare | ~returns.ended)
    # On average 1 to L/4 commands are left out, spread evenly on a logarithmic scale.
    length = jnp.maximum(returns.length, 1).astype(jnp.float32)
    omitted = jnp.maximum(length / 4, 1) ** _spread(number, PLASTIC) / length
    zero = jnp.int32(0)
    return returns._replace(
        peak=zero,
        peak_length=zero,
        before_peak=zero,
        episode=number + 1,
        repeated=jnp.where(useful, part, 0),
        place=zero,
        omitted=jnp.where(useful & thin, omitted, 0.0),
    )


def _is_one_of(number: Array, share: float) -> Bool[Array, ""]:
    """Whether the ``number``-th, from 0 on, is one of a share of all that is spread evenly."""
    return jnp.floor((number + 1.0) * share) > jnp.floor(number * share)


def _spread(number: UInt[Array, ""], factor: int) -> Float[Array, ""]:
    """From 0 to 1."""
    return (number * jnp.uint32(factor)).astype(jnp.float32) / 2.0**32
