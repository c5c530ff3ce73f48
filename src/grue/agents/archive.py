"""An archive of routes: for each score and cell, the fewest commands that led there.

A cell is the last command, or a hash of the first words of the feedback, as the explorer chooses.
An entry is a pair of a score and a cell: an admissible command that did not end the game left it at
this score and in this cell. Its route is the shortest sequence of admissible commands, from the
start of the game, that has ended so. Some episodes replay the route of an entry and explore from
there:

1. A score is drawn: the highest has the largest probability, each lower one ``lower`` times that
   of the next higher.
2. One of its entries is drawn, in proportion to 1/√(1 + how often it was drawn before).
3. The route is replayed. Half of these episodes leave out a random part of it. If one of them
   still reaches an entry, and in fewer commands, the shorter route is kept.
4. A share ``joined`` of these episodes then replays the route of a second entry, from a random
   command on, so that one episode does what two had done.

Nothing is saved or restored: routes are replayed from the start of the game. The idea is that of
Go-Explore (Ecoffet et al. 2021).
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
"""Share of the replays that leave out a part of the route."""


class Draws(NamedTuple):
    """How the entries of an episode are drawn."""

    lower: float = 0.5
    """Probability of a score, divided by that of the next higher one."""
    joined: float = 0.0
    """Share of the replays that go on with a second route."""


class Trip(NamedTuple):
    """What an episode replays."""

    goal: Int[Array, ""]
    """The entry whose route is replayed; -1: none."""
    then: Int[Array, ""]
    """The entry whose route follows; -1: none."""
    start: Int[Array, ""]
    """The first command of the second route."""
    repeated: Int[Array, ""]
    """The number of commands in the route that is being replayed."""
    place: Int[Array, ""]
    """The next of these commands."""
    cut: Int[Array, "2"]
    """The commands from the first place up to the second are left out."""


class Archive(NamedTuple):
    played: Int[Array, " steps"]
    """The admissible commands of this episode."""
    count: Int[Array, ""]
    """Their number."""
    scores: ScoreContexts
    routes: Int[Array, "rows steps"]
    """One for each entry; the last row is spare."""
    length: Int[Array, " entries"]
    """The number of commands; 0: there is no such entry."""
    drawn: Int[Array, " entries"]
    """How often each entry was drawn."""
    episode: UInt[Array, ""]
    """The number of this episode."""
    trip: Trip
    command: Int[Array, ""]
    """The next command to replay; -1: the agent plays."""


class Odds(NamedTuple):
    """How likely the entries are drawn: first a score, then one of its cells."""

    scores: Float[Array, " scores"]
    cells: Float[Array, "scores cells"]


def init(episode_steps: int, commands: int, cells: int | None = None) -> Archive:
    """``cells``: their number; by default one for each command."""
    slots = contexts.CAPACITY * (commands if cells is None else cells)
    zero, entries = jnp.int32(0), jnp.zeros(slots, jnp.int32)
    played = jnp.zeros(episode_steps, jnp.int16 if commands < 2**15 else jnp.int32)
    routes = jnp.zeros((len(entries) + 1, episode_steps), played.dtype)
    none = jnp.int32(-1)
    trip = Trip(none, none, zero, zero, zero, jnp.zeros(2, jnp.int32))
    return Archive(
        played, zero, contexts.init(), routes, entries, entries, jnp.uint32(0), trip, none
    )


def override(archive: Archive, action: Int[Array, ""]) -> Int[Array, ""]:
    """The next command of the route, or the agent's if nothing is being replayed."""
    return jnp.where(archive.command >= 0, archive.command, action)


def ready(archive: Archive) -> Archive:
    """Looks up the next command.

    It is stored, because reading ``routes`` between a step's other changes makes XLA copy them all.
    """
    trip, (first, end) = archive.trip, archive.trip.cut
    place = jnp.where((trip.place >= first) & (trip.place < end), end, trip.place)
    joins = (trip.then >= 0) & (place >= trip.repeated)
    none = jnp.int32(-1)
    second = Trip(trip.then, none, trip.start, archive.length[trip.then], trip.start, trip.cut * 0)
    trip = jax.tree.map(partial(jnp.where, joins), second, trip._replace(place=place))
    repeats = (trip.goal >= 0) & (trip.place < trip.repeated)
    command = jnp.where(repeats, archive.routes[trip.goal, trip.place].astype(jnp.int32), -1)
    return archive._replace(trip=trip, command=command)


def notice(
    archive: Archive,
    action: Int[Array, ""],
    score: Int[Array, ""],
    admissible: Bool[Array, ""],
    cell: Int[Array, ""],
) -> Archive:
    """Records a command, the score after it, and the cell.

    ``admissible``: whether it makes an entry.
    """
    trip, cells = archive.trip, len(archive.length) // contexts.CAPACITY
    # Otherwise a forced 'look' took its turn, and the command is still to be replayed.
    done = action == archive.command
    scores, of_score = contexts.assign(archive.scores, score, contexts.CAPACITY)
    entry = of_score * cells + cell
    count, known = archive.count + admissible, archive.length[entry]
    # An inadmissible command is overwritten by the next one.
    played = archive.played.at[archive.count].set(action.astype(archive.played.dtype))
    shorter = admissible & ((known == 0) | (count < known))
    # Arriving ends the replay, also if a shorter route was stored just now.
    there = admissible & (entry == trip.goal)
    place = jnp.where(there, trip.repeated, trip.place + done)
    now = archive._replace(
        played=played,
        count=count,
        scores=scores,
        # Writes the spare row instead of reading the old one, for the same reason.
        routes=archive.routes.at[jnp.where(shorter, entry, len(archive.length))].set(played),
        length=archive.length.at[entry].set(jnp.where(shorter, count, known)),
        trip=trip._replace(place=place),
    )
    return ready(now)


def next_episode(
    archive: Archive, over: Bool[Array, ""], goes_back: Bool[Array, ""], how: Draws
) -> Archive:
    """At the end of an episode, decides what the next one replays."""
    draws = jax.random.uniform(jax.random.key(archive.episode), (7,))
    goes_back = over & goes_back & (archive.length > 0).any()
    joins = goes_back & (draws[4] < how.joined)
    none = jnp.int32(-1)
    back, second = partial(chances, archive, how.lower), partial(alike, archive)
    entry = jax.lax.cond(goes_back, lambda: draw(back(), draws[0]), lambda: none)
    then = jax.lax.cond(joins, lambda: draw(second(), draws[5]), lambda: none)
    length = jnp.where(goes_back, archive.length[entry], 0)
    # Between one command and half of them, log-uniform.
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


def draw(odds: Odds, at: Float[Array, ""]) -> Int[Array, ""]:
    """An entry; ``at`` is drawn between 0 and 1."""
    score, within = _place(odds.scores, at)
    cell, _ = _place(odds.cells[score], within)
    return score * odds.cells.shape[1] + cell


def _place(odds: Float[Array, " n"], at: Float[Array, ""]) -> tuple[Int[Array, ""], Array]:
    """Where ``at`` is, as a share of all odds, and how far within that place, from 0 to 1."""
    up_to = odds.cumsum()
    amount = at * up_to[-1]
    # Never a place after the last one with odds, also if ``at`` is 1 or rounded up.
    place = jnp.searchsorted(
        up_to, jnp.minimum(amount, jnp.nextafter(up_to[-1], 0.0)), side="right"
    )
    within = (amount - up_to[place] + odds[place]) / odds[place]
    return place.astype(jnp.int32), jnp.clip(within, 0.0, 1.0)


def alike(archive: Archive) -> Odds:
    """Every entry with the same probability."""
    each = (archive.length > 0).reshape(contexts.CAPACITY, -1).astype(jnp.float32)
    return Odds(each.sum(1), each)


def chances(archive: Archive, lower: float) -> Odds:
    """How likely each score and each of its entries is drawn, up to a factor."""
    each = jnp.where(archive.length > 0, 1 / jnp.sqrt(1.0 + archive.drawn), 0.0)
    each = each.reshape(contexts.CAPACITY, -1)
    exists, seen = (each > 0).any(1), archive.scores.seen
    higher = ((seen[None, :] > seen[:, None]) & exists).sum(1)
    return Odds(jnp.where(exists, lower**higher, 0.0), each)
