"""The tables of a game, as the engine reads them.

``t.name`` is a whole table, and ``t["name"][index]`` reads entries. So the same code plays a single
game (``Tables``) and a game of a set (``TablesOfOne``), whose look-up tables are concatenated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from grue.engine.compiler.pieces import NO_HOLDER


def take(array: Any, index: Any) -> Array:
    """``array[index]`` for indices of tables, which are never negative nor out of range."""
    return jnp.asarray(array).at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


class Tables:
    """A game's tables: NumPy's, or JAX's where they are arguments of a program."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.arrays = arrays

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["arrays"][name]
        except KeyError:
            raise AttributeError(f"the compiled game has no array {name!r}") from None

    def __getitem__(self, name: str) -> Any:
        return jnp.asarray(self.arrays[name])

    def run(self, name: str, start: Array, count: int) -> Array:
        """Consecutive rows. They lie together, so this is faster than one by one."""
        return _run(self.arrays[name], start, count)


class TablesOfOne(Tables):
    """The tables of one game of many, by its number.

    ``arrays`` has a row for each game, and ``ended`` the tables of all games end to end, which
    begin where the table of the same name in ``begins`` says.
    """

    def __init__(
        self,
        arrays: Mapping[str, Any],
        ended: Mapping[str, Any],
        begins: Mapping[str, Any],
        game: Array,
    ) -> None:
        super().__init__(arrays)
        self.ended, self.begins, self.game = ended, begins, game

    def __contains__(self, name: str) -> bool:
        return name in self.arrays or name in self.ended

    def __getattr__(self, name: str) -> Any:
        return _whole(take(super().__getattr__(name), self.game), name)

    def __getitem__(self, name: str) -> Any:
        if name in self.begins and f"{name}_blocks" in self.begins:
            return _InBlocks(self._part(name), self._part(f"{name}_blocks"))
        return self._part(name)

    def _part(self, name: str) -> _From:
        if name in self.ended:
            return _From(name, self.ended[name], (), take(self.begins[name], self.game))
        return _From(name, self.arrays[name], (self.game,), 0)

    def run(self, name: str, start: Array, count: int) -> Array:
        begin = take(self.begins[name], self.game)
        return _whole(_run(self.ended[name], begin + start, count), name)


class _From:
    """A part of a table: indices count from its beginning and are never out of range."""

    def __init__(self, name: str, table: Any, first: tuple[Any, ...], begin: Array | int) -> None:
        self.name, self.table, self.first, self.begin = name, table, first, begin

    def __getitem__(self, index: Any) -> Array:
        first, *rest = index if isinstance(index, tuple) else (index,)
        where = (*self.first, self.begin + first, *rest)
        return _whole(take(self.table, where), self.name)


class _InBlocks:
    """A table stored as distinct blocks, and for each part of the table the number of its block."""

    def __init__(self, which: _From, blocks: _From) -> None:
        self.which, self.blocks = which, blocks

    def __getitem__(self, index: Array) -> Array:
        return self.blocks[self.which[index // BLOCK], index % BLOCK]


BLOCK = 16
IN_BLOCKS = ("decision_table", "reading_table")
"""Long tables in which the same blocks occur many times."""


def in_blocks(game: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A game's tables, with equal blocks of long ones stored once."""
    found = dict(game)
    for name in IN_BLOCKS:
        if name in game:
            missing = -len(game[name]) % BLOCK
            stretches = np.append(game[name], np.zeros(missing, game[name].dtype))
            blocks, which = np.unique(stretches.reshape(-1, BLOCK), axis=0, return_inverse=True)
            found |= {name: which.reshape(-1).astype(np.int32), f"{name}_blocks": blocks}
    return found


def _run(table: Any, start: Array, count: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(
        jnp.asarray(table), start, count, allow_negative_indices=False
    )


TEXT = "tokens"
"""The table whose numbers are returned in the type in which they are stored."""


def narrow(table: np.ndarray, name: str) -> np.ndarray:
    """The same numbers in the smallest type, so that more tables fit into the caches."""
    if name == TEXT or table.dtype != np.int32 or not table.size:
        return table
    kinds = (np.uint8, np.int8, np.int16, np.uint16)
    low, high = table.min(), table.max()
    fits = [kind for kind in kinds if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max]
    return table.astype(fits[0]) if fits else table


def _whole(found: Array, name: str) -> Array:
    """Converts narrow numbers to 32 bits for computing."""
    if name == TEXT or found.dtype in (jnp.bool_, jnp.uint32):
        return found
    return found.astype(jnp.int32)


class Most(NamedTuple):
    """The largest size of a text: in a game, or in any game of a set."""

    lists: int
    pieces: int

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> Most:
        ends = np.cumsum(np.append(0, arrays["piece_holder"] != NO_HOLDER))
        starts, counts = arrays["frame_start"], arrays["frame_count"]
        lists = (ends[starts + counts] - ends[starts]).max(initial=0)
        return cls(int(lists), int(counts.max(initial=0)))

    @classmethod
    def of_all(cls, games: Iterable[Mapping[str, np.ndarray]]) -> Most:
        return cls(*map(max, zip(*map(cls.of, games), strict=True)))


def derived(arrays: Mapping[str, np.ndarray], most: Most | None = None) -> dict[str, np.ndarray]:
    """A game's tables, and tables that are derived from them."""
    most = most or Most.of(arrays)
    things = len(arrays["start_location"])
    rooms, locations = len(arrays["exit_to"]), int(arrays["location_count"])
    # A game of a set has them already.
    subtasks = np.flatnonzero(arrays["quest_is_subtask"]) if "quest_is_subtask" in arrays else []
    quests = {
        "quest_win_bits": packed(arrays["quest_wins"]),
        "quest_fail_bits": packed(arrays["quest_fails"]),
        "subtask_quest": np.array(subtasks, np.int32),
    }
    return {
        **quests,
        **{name: array for name, array in arrays.items() if name not in REPLACED},
        "location_rows": rooms + np.arange(things, dtype=np.int32) * locations,
        "status_rows": rooms + things * locations + arrays["status_start"],
        **_pieces({**arrays, **_lists(arrays, most.lists)}, most.pieces),
    }


REPLACED = ("quest_wins", "quest_fails", "quest_is_subtask", "piece_guard")
"""Tables that the engine reads in another form."""


def packed(truths: np.ndarray) -> np.ndarray:
    """Truth values as words of 32 bits, lowest bit first; those that are missing are false."""
    short = -truths.shape[-1] % 32
    wide = np.concatenate([truths, np.zeros((*truths.shape[:-1], short), bool)], axis=-1)
    octets = np.ascontiguousarray(np.packbits(wide, axis=-1, bitorder="little"))
    return octets.view("<u4").astype(np.uint32)


def _pieces(arrays: Mapping[str, np.ndarray], most: int) -> dict[str, np.ndarray]:
    """The data of pieces and of their guards, so that the rows of a text lie together.

    Behind the last piece there are rows of nothing: a run of ``most`` never leads out of a table.
    """
    own = {name: arrays[name] for name in ("piece_start", "piece_length", "piece_list")}
    guards = {f"piece_{name}": arrays[name][arrays["piece_guard"]] for name in GUARDS}
    behind = {
        name: np.concatenate([table, np.zeros((most, *table.shape[1:]), table.dtype)])
        for name, table in {**own, **guards}.items()
    }
    return {**behind, "frame_lists": arrays["frame_lists"]}


GUARDS = ("guard_offset", "guard_variables", "guard_strides")


def _lists(arrays: Mapping[str, np.ndarray], most: int) -> dict[str, np.ndarray]:
    """For each frame, which of its pieces are lists; for each piece, which list it is.

    Pieces that are not lists have the number ``most``.
    """
    is_list = arrays["piece_holder"] != NO_HOLDER
    of_piece = np.full(len(is_list), most, np.int32)
    of_frame = np.zeros((len(arrays["frame_start"]), most), np.int32)
    spans = zip(arrays["frame_start"], arrays["frame_count"], strict=True)
    for frame, (start, count) in enumerate(spans):
        found = np.flatnonzero(is_list[start : start + count])
        of_frame[frame, : len(found)] = found
        of_piece[start + found] = np.arange(len(found))
    return {"frame_lists": of_frame, "piece_list": of_piece}
