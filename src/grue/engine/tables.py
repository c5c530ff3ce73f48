"""The tables of a game, as the engine reads them.

``t.name`` is a whole table, and ``t["name"][index]`` looks into one. The same code so plays one
game (``Tables``) and one of many (``TablesOfOne``), whose look-up tables lie end to end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
        return take(super().__getattr__(name), self.game)

    def __getitem__(self, name: str) -> Any:
        if name in self.ended:
            return _From(jnp.asarray(self.ended[name]), (), take(self.begins[name], self.game))
        return _From(jnp.asarray(self.arrays[name]), (self.game,), 0)


class _From:
    """A part of a table: indices count from its beginning and are never out of range."""

    def __init__(self, table: Array, first: tuple[Any, ...], begin: Array | int) -> None:
        self.table, self.first, self.begin = table, first, begin

    def __getitem__(self, index: Any) -> Array:
        first, *rest = index if isinstance(index, tuple) else (index,)
        where = (*self.first, self.begin + first, *rest)
        return take(self.table, where)


def derived(
    arrays: Mapping[str, np.ndarray], most_lists: int | None = None
) -> dict[str, np.ndarray]:
    """A game's tables, and those that follow from them."""
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
        **_lists(arrays, lists_of_frames(arrays) if most_lists is None else most_lists),
    }


REPLACED = ("quest_wins", "quest_fails", "quest_is_subtask")
"""Tables that the engine reads in another form."""


def packed(truths: np.ndarray) -> np.ndarray:
    """Truth values as words of 32 bits, lowest bit first; those that are missing are false."""
    short = -truths.shape[-1] % 32
    wide = np.concatenate([truths, np.zeros((*truths.shape[:-1], short), bool)], axis=-1)
    octets = np.ascontiguousarray(np.packbits(wide, axis=-1, bitorder="little"))
    return octets.view("<u4").astype(np.uint32)


def lists_of_frames(arrays: Mapping[str, np.ndarray]) -> int:
    """How many lists a text has at most."""
    ends = np.cumsum(np.append(0, arrays["piece_holder"] != NO_HOLDER))
    starts = arrays["frame_start"]
    return int((ends[starts + arrays["frame_count"]] - ends[starts]).max(initial=0))


def _lists(arrays: Mapping[str, np.ndarray], most: int) -> dict[str, np.ndarray]:
    """For each frame which of its pieces are lists, and for each piece which list it is.

    Pieces that are none have the number ``most``.
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
