"""What a compiled game prints: frames of guarded pieces, and the things that they list."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from grue.engine.compiler.pieces import FLOOR_HOLDER
from grue.engine.tables import take


def printed(
    t: Any, sizes: Any, state: Any, frame: Array, points: Array | int, ending: Array | int
) -> Array:
    """A frame with the things it lists, then the score and the end, as one run of tokens."""
    points = jnp.where(points < 0, points + len(t.score_start), points)
    number = jnp.arange(sizes.most_pieces)
    (first,) = apart(t["frame_start"][frame])

    def of_pieces(name: str) -> Array:
        return t.run(f"piece_{name}", first, sizes.most_pieces)

    # The rows after the last piece belong to other texts.
    within = number < t["frame_count"][frame]
    values = take(state.variables, of_pieces("guard_variables"))
    cell = of_pieces("guard_offset") + (values * of_pieces("guard_strides")).sum(1)
    (shown,) = apart(within & t["guard_table"][jnp.where(within, cell, 0)])
    word_length = of_pieces("length") * shown
    # Few pieces are lists, so things are looked up only for these.
    lists_at = t["frame_lists"][frame]
    of_list = jnp.where(within, of_pieces("list"), len(lists_at))
    holder = t["piece_holder"][first + lists_at]
    holder = jnp.where(holder == FLOOR_HOLDER, state.room, holder)
    is_one = take(of_list, lists_at) == jnp.arange(len(lists_at))
    lists = (take(shown, lists_at) & is_one)[:, None]
    (lists,) = apart(lists & (holder[:, None] == state.locations))

    listed = lists.any(0)
    items = _items(t, state, listed)
    (list_length,) = apart((lists * items.length).sum(1))
    length = word_length + take(_or_0(list_length), of_list)
    length, end = apart(length, _sums(length))
    start = end - length
    item_at = (lists * take(start, lists_at)[:, None]).sum(0) + (
        items.before * items.length[:, None]
    ).sum(0)

    # Each token's source is its position plus a shift, which changes where a piece begins. An item
    # of a list has its own shift, which ends with the item.
    shift = jnp.where(of_list < len(lists_at), 0, of_pieces("start") - start)
    shift_before = jnp.concatenate([jnp.zeros(1, jnp.int32), shift[:-1]])
    item_shift = (items.start - item_at) * listed

    total, points_length = end[-1], t["score_length"][points]
    score_shift = t["score_start"][points] - total
    end_shift = t["end_start"][ending] - total - points_length
    # With half the width, twice as many numbers are processed at once.
    short = jnp.int16 if sizes.most_tokens < 2**15 else jnp.int32
    behind = jnp.stack([total, total + points_length])
    where = [start, item_at, item_at + items.length, behind]
    change = [
        *(shift - shift_before, item_shift, -item_shift),
        jnp.stack([score_shift - shift[-1], end_shift - score_shift]),
    ]
    (length,) = apart(total + points_length + t["end_length"][ending])
    position = jnp.arange(sizes.observation_length, dtype=short)
    most = sizes.most_tokens + sizes.observation_length
    exact = sum(map(len, change)) * 2 * most < 2**24
    source = position + _up_to_each(position, where, [c.astype(short) for c in change], exact)
    is_printed = position < length.astype(short)
    return t["tokens"][jnp.where(is_printed, source, short(0)).astype(jnp.int32)]


def _up_to_each(
    position: Array, where: Sequence[Array], change: Sequence[Array], exact: bool
) -> Array:
    """For each position the sum of the changes there and before.

    ``exact``: all sums are whole numbers that floats of 32 bits hold.
    """
    fast = _added if exact else _compared
    return jax.lax.platform_dependent(position, where, change, cpu=fast, default=_compared)


def _compared(position: Array, where: Sequence[Array], change: Sequence[Array]) -> Array:
    """Every position with every change: more work than adding, but one kernel on a GPU."""
    at, by = apart(jnp.concatenate(where).astype(position.dtype), jnp.concatenate(change))
    found = jnp.zeros_like(position)
    for i in range(len(at)):
        found = found + jnp.where(position >= at[i], by[i], jnp.zeros_like(by[i]))
    return found


def _added(position: Array, where: Sequence[Array], change: Sequence[Array]) -> Array:
    """Each change is put at its position; small matrix products sum those of a block, and blocks.

    CPUs have fast products of floats alone.
    """
    count = -(-len(position) // BLOCK)
    put = jnp.zeros(count * BLOCK, jnp.float32)
    for at, by in zip(where, change, strict=True):
        put = put.at[at].add(by.astype(jnp.float32), mode="drop")
    before = np.tri(BLOCK, dtype=np.float32).T
    whole = np.tri(count, k=-1, dtype=np.float32).T
    product = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    sums = product(put.reshape(count, BLOCK), before)
    sums = (sums + product(sums[:, -1], whole)[:, None]).reshape(-1)
    # By way of 32 bits, numbers of 16 bits wrap around instead of being clipped.
    return sums[: len(position)].astype(jnp.int32).astype(position.dtype)


BLOCK = 32
"""Positions whose changes are summed in one product."""


def apart(*arrays: Array) -> tuple[Array, ...]:
    """Keeps XLA from computing values again at every place where they are used."""
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
    """For each thing, which things (rows) come before it in its list."""


def _items(t: Any, state: Any, listed: Array) -> _Items:
    """The things as items of the lists they stand in."""
    together = state.locations[:, None] == state.locations
    before = together & (state.recency[:, None] > state.recency)
    # Both sums at once: XLA would compute the second one again at every use.
    (both,) = apart((before + together * 0x10000).sum(0))
    rank, size = both & 0xFFFF, both >> 16
    separator = jnp.where(rank == 0, 0, jnp.where(rank == size - 1, 2, 1))
    things = jnp.arange(len(state.locations))
    status = take(state.statuses, t.movable_status)
    return _Items(
        start=t["item_start"][things, status, separator],
        length=(t["item_length"][things, status] + (rank > 0)) * listed,
        before=before,
    )
