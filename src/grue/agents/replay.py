"""Balanced episodic replay memory, sampled as sequences within an episode.

A fraction of the sequences comes from episodes with a positive reward, a fraction from episodes
with a negative one, the rest from all. Alternatively, a fraction comes from episodes balanced by
their final score: every final score is equally likely, however rare.

The rows are a ring buffer: the oldest episodes are overwritten. An episode of n steps takes n + 1
rows, the last for what followed its last step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

Fields = dict[str, Any]
"""Arrays by name, with a value for every step."""
GAME = "game"
"""The field with the number of the game, where a set of games is played."""
ACTION, REWARD = 1, 2
"""Columns of ``Stored.facts``."""


class ReplayStep(NamedTuple):
    """A stored step: o_t, u_t, a_t, r_{t+1}, e_{t+1} and whether the game ended."""

    observation: Int[Array, "*rows length"]
    score: Int[Array, "*rows"]
    action: Int[Array, "*rows"]
    reward: Float[Array, "*rows"]
    admissible: Bool[Array, "*rows"]
    terminated: Bool[Array, "*rows"]
    admissible_set: Bool[Array, "*rows commands"] | None = None
    """At o_t, if the memory stores it."""
    fields: Fields = {}  # noqa: RUF012
    """Extra fields of the agent and the explorers."""


class Ring(NamedTuple):
    """A ring buffer of episodes: their first rows and lengths."""

    first: Int[Array, " episodes"]
    length: Int[Array, " episodes"]
    """Lengths in steps; an episode has one row more."""
    oldest: Int[Array, ""]
    count: Int[Array, ""]
    """The number of episodes ever added."""


class Stored(NamedTuple):
    """The packed rows: tokens in one or two bytes, score, action, reward and flags in one array."""

    observation: Int[Array, "capacity length"]
    facts: Int[Array, "capacity facts"]
    admissible_set: Int[Array, "capacity bytes"] | None
    """Admissible sets, eight commands to a byte."""
    fields: Fields


class EpisodicReplay(NamedTuple):
    stored: Stored
    written: Int[Array, ""]
    """The number of rows ever written. Row n is stored at n modulo the capacity."""
    began: Int[Array, ""]
    """The first row of the current episode."""
    rewards: Bool[Array, "2"]
    """Whether it has had a positive reward, and a negative one."""
    whole: Ring
    positive: Ring
    negative: Ring
    ended: Int[Array, " episodes"] | None = None
    """The final score of each episode in ``whole``, if the memory stores it."""


class Sequences(NamedTuple):
    """Sampled sequences of steps, and one more row for what followed the last step."""

    rows: ReplayStep
    previous: Int[Array, "batch rows"]
    """a_{t-1}; -1 before the first step of an episode."""
    valid: Bool[Array, "batch steps"]
    """False for steps past the end of the episode."""
    returns: Float[Array, "batch steps"] | None = None
    """The discounted rewards from each step to the end of its episode, if asked for."""


def init(
    capacity: int,
    observation_length: int,
    words: int,
    shortest_episode: int = 4,
    commands: int = 0,
    fields: Mapping[str, jax.ShapeDtypeStruct] | None = None,
    scores: bool = False,
) -> EpisodicReplay:
    """An empty memory for ``capacity`` rows and a vocabulary of ``words``.

    With ``commands`` (their number) it stores the admissible commands too. ``fields`` are the
    shapes and types of extra fields. With ``scores`` it stores the final score of every episode.
    """
    episodes = max(1, capacity // shortest_episode)

    def ring() -> Ring:
        places = jnp.zeros(episodes, jnp.int32)
        return Ring(places, places, jnp.int32(0), jnp.int32(0))

    token = jnp.uint8 if words <= 256 else jnp.uint16
    stored = Stored(
        jnp.zeros((capacity, observation_length), token),
        jnp.zeros((capacity, 4), jnp.int32),
        jnp.zeros((capacity, -(-commands // 8)), jnp.uint8) if commands else None,
        {name: jnp.zeros((capacity, *of.shape), of.dtype) for name, of in (fields or {}).items()},
    )
    zero = jnp.int32(0)
    ended = jnp.zeros(episodes, jnp.int32) if scores else None
    return EpisodicReplay(stored, zero, zero, jnp.zeros(2, bool), ring(), ring(), ring(), ended)


def add(
    replay: EpisodicReplay, row: ReplayStep, last: ReplayStep, over: Bool[Array, ""]
) -> EpisodicReplay:
    """Adds a step to the current episode.

    ``last`` is the row for what followed. Unless the episode is over, the next step overwrites it.
    """
    replay = _write(replay, row, last)
    rewards = replay.rewards | jnp.stack([row.reward > 0, row.reward < 0])
    length = replay.written + 1 - replay.began
    if replay.ended is not None:
        # The place that ``whole`` appends to.
        place = replay.whole.count % len(replay.ended)
        ended = jnp.where(over, last.score, replay.ended[place])
        replay = replay._replace(ended=replay.ended.at[place].set(ended))
    replay = replay._replace(
        written=replay.written + 1 + over,
        whole=_append(replay.whole, replay.began, length, over),
        positive=_append(replay.positive, replay.began, length, over & rewards[0]),
        negative=_append(replay.negative, replay.began, length, over & rewards[1]),
        began=jnp.where(over, replay.written + 2, replay.began),
        rewards=rewards & ~over,
    )
    # ``last`` has been written too.
    return _forget(replay, replay.written + ~over)


def can_sample(replay: EpisodicReplay) -> Bool[Array, ""]:
    return replay.whole.count > replay.whole.oldest


def sample(
    key: PRNGKeyArray,
    replay: EpisodicReplay,
    batch: int,
    length: int,
    positive_fraction: float | Float[Array, ""] = 0.25,
    negative_fraction: float | Float[Array, ""] = 0.25,
    shortest: int | None = None,
    discount: float | None = None,
    longest: int = 0,
) -> Sequences:
    """Samples sequences of steps.

    The first τ_p of the batch come from episodes with a positive reward, the next τ_n from those
    with a negative one (from all if there is none), the rest from all. If the memory stores final
    scores, the first τ_p come from each of them with the same probability, and the rest from all.
    A sequence has at least ``shortest`` steps of its episode (by default ``length``). Steps past
    the end are masked. With a ``discount`` the returns are sampled too, for episodes of at most
    ``longest`` steps.
    """
    by_episode, by_start = jax.random.split(key)
    number = jnp.arange(batch)
    wants_positive = number < positive_fraction * batch
    wants_negative = ~wants_positive & (number < (positive_fraction + negative_fraction) * batch)

    draws = jax.random.uniform(by_episode, (batch,))
    first, steps = draw(replay.whole, draws)
    if replay.ended is None:
        rings = ((replay.positive, wants_positive), (replay.negative, wants_negative))
        chosen = [
            (draw(ring, draws), wanted & (ring.count > ring.oldest)) for ring, wanted in rings
        ]
    else:
        chosen = [(draw_by_score(replay.whole, replay.ended, draws), wants_positive)]
    for (own_first, own_steps), use in chosen:
        first, steps = jnp.where(use, own_first, first), jnp.where(use, own_steps, steps)

    starts = jnp.maximum(steps - (length if shortest is None else shortest) + 1, 1)
    offset = (jax.random.uniform(by_start, (batch,)) * starts).astype(jnp.int32)
    at = offset[:, None] + jnp.arange(length + 1)
    # Past the end the last row is repeated; these steps are masked.
    numbers = first[:, None] + jnp.minimum(at, steps[:, None])
    capacity = len(replay.stored.facts)
    before = replay.stored.facts[(numbers - 1) % capacity, ACTION]
    previous = jnp.where(numbers == first[:, None], -1, before).astype(jnp.int32)
    returns = None
    if discount is not None:
        returns = _returns(replay, first, steps, offset, (length, longest), discount)
    return Sequences(rows(replay, numbers), previous, at[:, :-1] < steps[:, None], returns)


def _returns(
    replay: EpisodicReplay,
    first: Int[Array, " batch"],
    steps: Int[Array, " batch"],
    offset: Int[Array, " batch"],
    lengths: tuple[int, int],
    discount: float,
) -> Float[Array, "batch steps"]:
    """Σ γ^k r_{t+k} from each step of the sequences to the end of the episode."""
    length, longest = lengths
    ahead = jnp.arange(max(length, longest))
    at = offset[:, None] + ahead
    places = (first[:, None] + at) % len(replay.stored.facts)
    packed = replay.stored.facts[places, REWARD]
    rewards = jax.lax.bitcast_convert_type(packed, jnp.float32)
    rewards = jnp.where(at < steps[:, None], rewards, 0.0)
    power = ahead[:, None] - jnp.arange(length)
    weights = jnp.where(power >= 0, discount ** jnp.maximum(power, 0).astype(jnp.float32), 0.0)
    return jnp.matmul(rewards, weights, precision=jax.lax.Precision.HIGHEST)


def rows(replay: EpisodicReplay, numbers: Int[Array, "*rows"]) -> ReplayStep:
    """The rows with these numbers, which must not have been overwritten."""
    places = numbers % len(replay.stored.facts)
    return _unpack(jax.tree.map(lambda field: field[places], replay.stored))


def _pack(row: ReplayStep) -> Stored:
    reward = jax.lax.bitcast_convert_type(jnp.asarray(row.reward, jnp.float32), jnp.int32)
    flags = row.admissible + 2 * row.terminated.astype(jnp.int32)
    facts = jnp.stack([row.score, row.action, reward, flags], axis=-1)
    possible = row.admissible_set
    packed = None if possible is None else jnp.packbits(possible, axis=-1)
    return Stored(row.observation, facts, packed, row.fields)


def _unpack(stored: Stored) -> ReplayStep:
    score, action, reward, flags = jnp.moveaxis(stored.facts, -1, 0)
    packed = stored.admissible_set
    return ReplayStep(
        stored.observation.astype(jnp.int32),
        score,
        action,
        jax.lax.bitcast_convert_type(reward, jnp.float32),
        flags % 2 == 1,
        flags >= 2,
        # Padded to whole bytes.
        None if packed is None else jnp.unpackbits(packed, axis=-1).astype(bool),
        stored.fields,
    )


def _write(replay: EpisodicReplay, row: ReplayStep, following: ReplayStep) -> EpisodicReplay:
    """Writes two rows. The second is not counted in ``written``."""
    places = (replay.written + jnp.arange(2)) % len(replay.stored.facts)
    both = jax.tree.map(lambda *fields: jnp.stack(fields), _pack(row), _pack(following))
    stored = jax.tree.map(
        lambda field, values: field.at[places].set(values.astype(field.dtype)), replay.stored, both
    )
    return replay._replace(stored=stored)


def _append(
    ring: Ring, first: Int[Array, ""], length: Int[Array, ""], wanted: Bool[Array, ""]
) -> Ring:
    size = len(ring.first)
    place = ring.count % size
    return ring._replace(
        first=ring.first.at[place].set(jnp.where(wanted, first, ring.first[place])),
        length=ring.length.at[place].set(jnp.where(wanted, length, ring.length[place])),
        count=ring.count + wanted,
        oldest=jnp.maximum(ring.oldest, ring.count + wanted - size),
    )


def _forget(replay: EpisodicReplay, written: Int[Array, ""]) -> EpisodicReplay:
    """Drops episodes whose first row has been overwritten."""
    gone_before = written - len(replay.stored.facts)

    def forget(ring: Ring) -> Ring:
        oldest = ring.oldest
        # A step writes at most two rows, and every episode has at least two.
        for _ in range(2):
            first = ring.first[oldest % len(ring.first)]
            oldest = oldest + ((oldest < ring.count) & (first < gone_before))
        return ring._replace(oldest=oldest)

    whole, positive, negative = map(forget, (replay.whole, replay.positive, replay.negative))
    return replay._replace(whole=whole, positive=positive, negative=negative)


def draw(
    ring: Ring, draws: Float[Array, " batch"]
) -> tuple[Int[Array, " batch"], Int[Array, " batch"]]:
    """Picks episodes uniformly, from uniform numbers; returns first rows and lengths."""
    known = ring.count - ring.oldest
    which = jnp.minimum((draws * known).astype(jnp.int32), jnp.maximum(known - 1, 0))
    place = (ring.oldest + which) % len(ring.first)
    return ring.first[place], ring.length[place]


def draw_by_score(
    ring: Ring, ended: Int[Array, " episodes"], draws: Float[Array, " batch"]
) -> tuple[Int[Array, " batch"], Int[Array, " batch"]]:
    """Picks final scores uniformly, and for each an episode that ended with it."""
    # Scores that differ by a multiple of this are counted as one.
    classes = ended % 512
    age = (jnp.arange(len(ended)) - ring.oldest) % len(ended)
    known = age < ring.count - ring.oldest
    counts = jnp.zeros(512).at[classes].add(known)
    upto = jnp.cumsum(jnp.where(known, 1 / jnp.maximum(counts[classes], 1), 0.0))
    place = jnp.searchsorted(upto, draws * upto[-1], side="right")
    # Rounding may point past the last episode.
    place = jnp.where(known[jnp.minimum(place, len(ended) - 1)], place, ring.oldest % len(ended))
    return ring.first[place], ring.length[place]


def with_replay(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The tree with every array of its replay memories changed."""

    def is_replay(node: Any) -> bool:
        return isinstance(node, EpisodicReplay)

    def changed(node: Any) -> Any:
        return jax.tree.map(change, node) if is_replay(node) else node

    return jax.tree.map(changed, tree, is_leaf=is_replay)


def lighter(tree: Any) -> Any:
    """The tree without the rows of its replay memories, which are not needed to play."""
    # The first axis may be that of the runs.
    return with_replay(tree, lambda leaf: jnp.zeros((*leaf.shape[:1], 0), leaf.dtype))
