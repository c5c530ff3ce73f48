"""What a compiled game prints: frames of guarded pieces, and the things that they list."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from grue.engine.compiler.pieces import FLOOR_HOLDER
from grue.engine.tables import take


def printed(
    t: Any, sizes: Any, state: Any, frame: Array, points: Array | int, ending: Array | int
) -> Array:
    """A frame with the things it lists, then the score and the end, as one run of tokens."""
    points = jnp.where(points < 0, points + len(t.score_start), points)
    number = jnp.arange(sizes.most_pieces)
    first = t["frame_start"][frame]
    (first,) = apart(first)

    def of_pieces(name: str) -> Array:
        return t.run(f"piece_{name}", first, sizes.most_pieces)

    # The rows behind the last piece are of other texts.
    within = number < t["frame_count"][frame]
    values = take(state.variables, of_pieces("guard_variables"))
    cell = of_pieces("guard_offset") + (values * of_pieces("guard_strides")).sum(1)
    (shown,) = apart(within & t["guard_table"][jnp.where(within, cell, 0)])
    word_length = of_pieces("length") * shown
    # Few pieces are lists: what they list is found for them alone.
    lists_at = t["frame_lists"][frame]
    of_list = jnp.where(within, of_pieces("list"), len(lists_at))
    holder = t["piece_holder"][first + lists_at]
    holder = jnp.where(holder == FLOOR_HOLDER, state.room, holder)
    is_one = take(of_list, lists_at) == jnp.arange(len(lists_at))
    lists = (take(shown, lists_at) & is_one)[:, None]
    (lists,) = apart(lists & (holder[:, None] == state.locations))

    items = _items(t, state, lists.any(0))
    (list_length,) = apart((lists * items.length).sum(1))
    length = word_length + take(_or_0(list_length), of_list)
    length, end = apart(length, _sums(length))
    start = end - length
    item_at = (lists * take(start, lists_at)[:, None]).sum(0) + (
        items.before * items.length[:, None]
    ).sum(0)

    # Each token's source is its position plus a shift that changes where a piece begins.
    is_list = of_list < len(lists_at)
    shift = jnp.where(is_list, 0, of_pieces("start") - start)
    item_shift, item_at = apart(items.start - item_at, item_at)
    (last_item,) = apart(jnp.where(list_length > 0, (lists * (items.last * item_shift)).sum(1), 0))
    left_at = jnp.where(is_list, take(_or_0(last_item), of_list), shift)
    left_before = jnp.concatenate([jnp.zeros(1, jnp.int32), left_at[:-1]])
    previous_item = (items.just_before * item_shift[:, None]).sum(0)

    total, points_length = end[-1], t["score_length"][points]
    score_shift = t["score_start"][points] - total
    end_shift = t["end_start"][ending] - total - points_length
    # Half as wide, twice as many at once.
    short = jnp.int16 if sizes.most_tokens < 2**15 else jnp.int32
    all_of_it = total + points_length + t["end_length"][ending]
    where = [start, item_at, jnp.stack([total, total + points_length, all_of_it])]
    change = [
        shift - left_before,
        (item_shift - previous_item) * lists.any(0),
        jnp.stack([score_shift - left_at[-1], end_shift - score_shift]),
    ]
    where, change = apart(
        jnp.concatenate(where).astype(short), jnp.concatenate(change).astype(short)
    )
    position = jnp.arange(sizes.observation_length, dtype=short)
    source = position
    for i in range(len(change)):
        source = source + jnp.where(position >= where[i], change[i], short(0))
    return t["tokens"][jnp.where(position < where[-1], source, short(0)).astype(jnp.int32)]


def apart(*arrays: Array) -> tuple[Array, ...]:
    """Keeps what is used many times from being computed again each time."""
    return jax.lax.optimization_barrier(arrays)


def _sums(numbers: Array) -> Array:
    """The sum of each number and those before it, in few steps."""
    reach = 1
    while reach < len(numbers):
        numbers = numbers + jnp.pad(numbers[:-reach], (reach, 0))
        reach *= 2
    return numbers


def _or_0(numbers: Array) -> Array:
    """With a 0 at the end, for pieces that are no lists."""
    return jnp.append(numbers, 0)


def guards(t: Any, state: Any, guard: Array) -> Array:
    """Whether each of some guards holds."""
    (guard,) = apart(guard)
    values = take(state.variables, t["guard_variables"][guard])
    index = t["guard_offset"][guard] + (values * t["guard_strides"][guard]).sum(1)
    return t["guard_table"][index]


class _Items(NamedTuple):
    """For each movable thing: its words with what separates it from the one before."""

    start: Array
    length: Array
    before: Array
    """Which things (rows) stand before it in its list."""
    just_before: Array
    last: Array


def _items(t: Any, state: Any, listed: Array) -> _Items:
    """The things as items of the lists they stand in."""
    together = state.locations[:, None] == state.locations
    before = together & (state.recency[:, None] > state.recency)
    rank, size = apart(before.sum(0), together.sum(0))
    separator = jnp.where(rank == 0, 0, jnp.where(rank == size - 1, 2, 1))
    things = jnp.arange(len(state.locations))
    status = take(state.statuses, t.movable_status)
    return _Items(
        start=t["item_start"][things, status, separator],
        length=(t["item_length"][things, status] + (rank > 0)) * listed,
        before=before,
        just_before=together & (rank[:, None] + 1 == rank),
        last=rank == size - 1,
    )
