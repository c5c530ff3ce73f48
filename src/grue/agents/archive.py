"""An archive of ways: the shortest way to each command of use at each score.

An entry is a score and a command: the command was admissible and did not end the game, and the
score after it was this one. Its way is the shortest sequence of admissible commands, from the start
of the game, that ended so. An episode that goes back to an entry plays its way and explores from
there:

- A score is drawn first, each ``lower`` times as often as the next higher one; then one of its
  entries, those that were drawn less often before other ones (in proportion to 1/√(1 + how often)).
- Some of these episodes leave out a part of the way, drawn at random. If such an episode reaches
  an entry with fewer commands, the shorter way is kept. So ways lose their detours.
- The share ``joined`` of these episodes then plays the way of a second entry, from a place drawn at
  random. What is not admissible there changes nothing. So what was done on two ways is done in one
  episode.

Nothing is saved or restored: the commands are played from the start of the game. The idea is that
of Go-Explore (Ecoffet et al. 2021), with the cells told by the score and by e_t.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from grue.agents import contexts
from grue.agents.contexts import ScoreContexts

SHORTENED = 0.5
"""The share of the episodes that go back which leave out a part of the way."""


class Draws(NamedTuple):
    """How the entries of an episode are drawn."""

    lower: float = 0.5
    """How often a score is drawn, against the next higher one."""
    joined: float = 0.0
    """The share of the episodes that go back which play a second way after the first."""


class Trip(NamedTuple):
    """What an episode repeats."""

    goal: Int[Array, ""]
    """The entry to which it goes back; -1: none."""
    then: Int[Array, ""]
    """The entry whose way is played after that; -1: none."""
    start: Int[Array, ""]
    """Its first command."""
    repeated: Int[Array, ""]
    """The number of its commands."""
    place: Int[Array, ""]
    """The next of them to play."""
    cut: Int[Array, "2"]
    """They are left out from the first place up to the second."""


class Archive(NamedTuple):
    played: Int[Array, " steps"]
    """The admissible commands of this episode."""
    count: Int[Array, ""]
    """Their number."""
    scores: ScoreContexts
    ways: Int[Array, "rows steps"]
    """One for each entry; the last row is spare."""
    length: Int[Array, " entries"]
    """The number of commands; 0: there is no such entry."""
    drawn: Int[Array, " entries"]
    """How many episodes went back there."""
    episode: UInt[Array, ""]
    """The number of this episode."""
    trip: Trip
    command: Int[Array, ""]
    """The next command to repeat; -1: the agent plays."""


def init(episode_steps: int, commands: int) -> Archive:
    zero, entries = jnp.int32(0), jnp.zeros(contexts.CAPACITY * commands, jnp.int32)
    played = jnp.zeros(episode_steps, jnp.int16 if commands < 2**15 else jnp.int32)
    ways = jnp.zeros((len(entries) + 1, episode_steps), played.dtype)
    none = jnp.int32(-1)
    trip = Trip(none, none, zero, zero, zero, jnp.zeros(2, jnp.int32))
    return Archive(played, zero, contexts.init(), ways, entries, entries, jnp.uint32(0), trip, none)


def override(archive: Archive, action: Int[Array, ""]) -> Int[Array, ""]:
    """The next command of the way as long as this episode goes back, else the agent's."""
    return jnp.where(archive.command >= 0, archive.command, action)


def ready(archive: Archive) -> Archive:
    """Looks up the next command.

    It is a field because ``ways`` must not be read between a step's other changes: XLA would copy
    all of them.
    """
    trip, (first, end) = archive.trip, archive.trip.cut
    place = jnp.where((trip.place >= first) & (trip.place < end), end, trip.place)
    joins = (trip.then >= 0) & (place >= trip.repeated)
    none = jnp.int32(-1)
    second = Trip(trip.then, none, trip.start, archive.length[trip.then], trip.start, trip.cut * 0)
    trip = jax.tree.map(partial(jnp.where, joins), second, trip._replace(place=place))
    repeats = (trip.goal >= 0) & (trip.place < trip.repeated)
    command = jnp.where(repeats, archive.ways[trip.goal, trip.place].astype(jnp.int32), -1)
    return archive._replace(trip=trip, command=command)


def notice(
    archive: Archive, action: Int[Array, ""], score: Int[Array, ""], admissible: Bool[Array, ""]
) -> Archive:
    """Records a command. ``score`` is the one after it; ``admissible``: it makes an entry."""
    trip, commands = archive.trip, len(archive.length) // contexts.CAPACITY
    # Else a forced 'look' came between, and the command is still to be repeated.
    done = action == archive.command
    scores, of_score = contexts.assign(archive.scores, score, contexts.CAPACITY)
    entry = of_score * commands + action
    count, known = archive.count + admissible, archive.length[entry]
    # What is not admissible is overwritten by the next command.
    played = archive.played.at[archive.count].set(action.astype(archive.played.dtype))
    shorter = admissible & ((known == 0) | (count < known))
    # Its way may have changed just now.
    there = admissible & (entry == trip.goal)
    place = jnp.where(there, trip.repeated, trip.place + done)
    now = archive._replace(
        played=played,
        count=count,
        scores=scores,
        # Nothing is read here, for the same reason: the spare row is written instead.
        ways=archive.ways.at[jnp.where(shorter, entry, len(archive.length))].set(played),
        length=archive.length.at[entry].set(jnp.where(shorter, count, known)),
        trip=trip._replace(place=place),
    )
    return ready(now)


def next_episode(
    archive: Archive, over: Bool[Array, ""], goes_back: Bool[Array, ""], how: Draws
) -> Archive:
    """If the episode is over, decides where the next one goes back to, if it does."""
    draws = jax.random.uniform(jax.random.key(archive.episode), (7,))
    goes_back = over & goes_back & (archive.length > 0).any()
    joins = goes_back & (draws[4] < how.joined)
    none = jnp.int32(-1)
    odds = partial(chances, archive, how.lower)
    each = (archive.length > 0).astype(jnp.float32)
    entry = jax.lax.cond(goes_back, lambda: draw(odds(), draws[0]), lambda: none)
    then = jax.lax.cond(joins, lambda: draw(each, draws[5]), lambda: none)
    length = jnp.where(goes_back, archive.length[entry], 0)
    # One to half of the commands, spread evenly on a logarithmic scale.
    left_out = jnp.floor((length / 2 + 1.0) ** draws[1]).astype(jnp.int32)
    first = jnp.floor(draws[2] * (length - left_out + 1)).astype(jnp.int32)
    cut = jnp.where(draws[3] < SHORTENED, jnp.stack([first, first + left_out]), 0)
    start = jnp.floor(draws[6] * archive.length[then]).astype(jnp.int32)
    trip = Trip(entry, then, start, length, jnp.int32(0), cut)
    after = archive._replace(
        count=archive.count * ~over,
        drawn=archive.drawn.at[entry].add(goes_back),
        episode=archive.episode + over,
        trip=jax.tree.map(partial(jnp.where, over), trip, archive.trip),
    )
    return ready(after)


def draw(odds: Float[Array, " entries"], at: Float[Array, ""]) -> Int[Array, ""]:
    """An entry; ``at`` is drawn between 0 and 1."""
    up_to = odds.cumsum()
    entry = jnp.searchsorted(up_to, at * up_to[-1], side="right")
    return jnp.minimum(entry, len(up_to) - 1).astype(jnp.int32)


def chances(archive: Archive, lower: float) -> Float[Array, " entries"]:
    """How likely each entry is drawn, up to a factor."""
    each = jnp.where(archive.length > 0, 1 / jnp.sqrt(1.0 + archive.drawn), 0.0)
    each = each.reshape(contexts.CAPACITY, -1)
    of_score = each.sum(1)
    exists, seen = of_score > 0, archive.scores.seen
    higher = ((seen[None, :] > seen[:, None]) & exists).sum(1)
    share = jnp.where(exists, lower**higher / jnp.where(exists, of_score, 1.0), 0.0)
    return (each * share[:, None]).reshape(-1)
