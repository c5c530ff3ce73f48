"""What a compiled game must look like: type, shape and range of every table, in one table.

A wrong number in a file would otherwise be played as something else: JAX moves an index that is out
of range to the nearest end. ``docs/engine.md`` says what each table holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

WHOLE, TRUTH, BITS = "i", "b", "u"
REACHES, COUNTS, EXITS, INGREDIENTS = 3, 3, 3, 4
"""Values of a variable: of reach before the places, of counts, exits and ingredients."""


class TableRule(NamedTuple):
    kind: str
    shape: str
    """Sizes by name or number; a name stands for the same size everywhere, or one less with +1."""
    least: int = 0
    below: str | None = None
    """All numbers are less than this size; None: whatever the type holds."""


def whole(shape: str, below: str | None = None, least: int = 0) -> TableRule:
    return TableRule(WHOLE, shape, least, below)


TABLES: dict[str, TableRule] = {
    # The map and the things
    "exit_to": whole("rooms 4", "rooms", -1),
    "exit_door": whole("rooms 4", "doors+1"),
    "door_rooms": whole("doors 2", "rooms", -1),
    "place_room": whole("places", "rooms"),
    "openable_status": whole("openables", "statuses+1"),
    "lets_through": TableRule(TRUTH, "openables+1 values"),
    "movable_status": whole("things", "statuses+1"),
    "ingredient_movable": whole("ingredients", "things"),
    "ingredient_table": whole("ingredients values", "ingredient_states"),
    "start_room": whole("", "rooms"),
    "start_location": whole("things", "locations"),
    "status_count": whole("", "statuses+1"),
    "status_start": whole("statuses", "status_rows"),
    "location_count": whole("", "locations+1"),
    # Commands and what they do
    "command_variables": whole("sentences command_width", "variables"),
    "command_strides": whole("sentences command_width"),
    "command_offset": whole("sentences", "decisions"),
    "decision_table": whole("decisions", "outcomes"),
    "outcome_frame": whole("outcomes", "frames"),
    "outcome_changes": TableRule(TRUTH, "outcomes"),
    "outcome_room": whole("outcomes", "rooms", -1),
    "outcome_moved": whole("outcomes moves", "things+1"),
    "outcome_moved_to": whole("outcomes moves", "locations", -1),
    "outcome_turned": whole("outcomes turns", "statuses+1"),
    "outcome_operation": whole("outcomes turns", "operations"),
    "operations": whole("operations statuses+1 values", "values"),
    # What is possible, and the quests
    "mask_variables": whole("masked", "variables"),
    "mask_offset": whole("masked", "mask_rows"),
    "masks": TableRule(BITS, "mask_rows planes command_words"),
    "mask_possible": TableRule(BITS, "planes command_words"),
    "event_masks": TableRule(BITS, "event_rows event_words"),
    "quest_wins": TableRule(TRUTH, "quests event_bits"),
    "quest_fails": TableRule(TRUTH, "quests event_bits"),
    "quest_reward": whole("quests", "scores", -1_000_000),
    "quest_needed": TableRule(TRUTH, "quests"),
    "quest_is_subtask": TableRule(TRUTH, "quests"),
    # Texts
    "room_frame": whole("rooms", "frames"),
    "inventory_frame": whole("", "frames"),
    "opening_frame": whole("", "frames"),
    "frame_start": whole("frames", "pieces"),
    "frame_count": whole("frames", "most_pieces+1"),
    "piece_start": whole("pieces", "tokens"),
    "piece_length": whole("pieces", "tokens"),
    "piece_holder": whole("pieces", "locations", -2),
    "piece_guard": whole("pieces", "guards"),
    "guard_variables": whole("guards guard_width", "variables"),
    "guard_strides": whole("guards guard_width"),
    "guard_offset": whole("guards", "guard_rows"),
    "guard_table": TableRule(TRUTH, "guard_rows"),
    "item_start": whole("things phrases 3", "tokens"),
    "item_length": whole("things phrases", "tokens"),
    "score_start": whole("scores", "tokens"),
    "score_length": whole("scores", "tokens"),
    "end_start": whole("3", "tokens"),
    "end_length": whole("3", "tokens"),
    "tokens": whole("tokens", "words+1"),
}
HEADER: dict[str, type] = {
    **{"name": str, "game_hash": str, "commands": list, "words": list, "subtasks": list},
    **{"max_score": int, "episode_steps": int, "observation_length": int, "most_pieces": int},
}


def check(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Raises a ValueError that names the first entry that is wrong."""
    _check_header(header)
    for name in TABLES:
        if name not in arrays:
            raise ValueError(f"{name} is missing")
    sizes = _sizes(header, arrays)
    for name, table in TABLES.items():
        _check_shape(name, table, arrays[name], sizes)
    for name, table in TABLES.items():
        _check_range(name, table, arrays[name], sizes)
    _check_sums(arrays, sizes)
    for name in ("command", "guard"):
        _check_lookup(name, arrays, sizes)
    ends = arrays["mask_offset"] + _domains(arrays, sizes)[arrays["mask_variables"]]
    if (ends > sizes["mask_rows"]).any():
        raise ValueError("mask_offset points past the end of masks")


def _check_header(header: Mapping[str, Any]) -> None:
    for name, kind in HEADER.items():
        value = header.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"its header has {name} {str(value)[:40]!r}")
    for name in ("commands", "words"):
        texts = header[name]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"its header's {name} are not some texts")
        if len(set(texts)) < len(texts):
            raise ValueError(f"its header has some of the {name} twice")
    for one in header["subtasks"]:
        if not isinstance(one, list) or [type(part) for part in one] != [str, int]:
            raise ValueError(f"its header has a subtask {str(one)[:40]}")
    if header["max_score"] < 0:
        raise ValueError(f"its header has max_score {header['max_score']}")
    for name in ("episode_steps", "observation_length", "most_pieces"):
        if not 0 < header[name] < 2**20:
            raise ValueError(f"its header has {name} {header[name]}")


def _sizes(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The sizes that others follow from. The rest are what they are where they first appear."""

    def length(name: str) -> int:
        return len(arrays[name]) if arrays[name].ndim else 0

    rooms, places, doors = length("exit_to"), length("place_room"), length("door_rooms")
    things, statuses = length("start_location"), length("status_start")
    more = sum(length(name) for name in ("sight_movable", "before_first", "asked_values")
               if name in arrays)  # fmt: skip
    own = 1 + things + places + doors + 4 + statuses + places + 2 + length("ingredient_movable")
    locations = rooms + 1 + places + 1
    return {
        "rooms": rooms,
        "places": places,
        "doors": doors,
        "things": things,
        "statuses": statuses,
        "openables": places + doors,
        "locations": locations,
        "variables": own + more + ("capacity" in arrays) + ("outcome_plural" in arrays),
        "commands": len(header["commands"]),
        "command_words": -(-len(header["commands"]) // 32),
        "event_bits": 32 * (arrays["event_masks"].shape[-1] if arrays["event_masks"].ndim else 0),
        "status_rows": max(length("event_masks") - rooms - things * locations, 0),
        "ingredient_states": INGREDIENTS,
        "most_pieces": header["most_pieces"],
        "words": len(header["words"]),
        "subtasks": len(header["subtasks"]),
    }


def _check_shape(name: str, table: TableRule, array: np.ndarray, sizes: dict[str, int]) -> None:
    if array.dtype.kind != table.kind or array.dtype.itemsize > 4:
        raise ValueError(f"{name} has the type {array.dtype}")
    wanted = table.shape.split()
    if array.ndim != len(wanted):
        raise ValueError(f"{name} has {array.ndim} axes, not {len(wanted)}")
    for word, size in zip(wanted, array.shape, strict=True):
        base, plus, _ = word.partition("+")
        is_wanted = int(base) if base.isdigit() else sizes.setdefault(base, size - bool(plus))
        if size != is_wanted + bool(plus):
            raise ValueError(f"{name} has the shape {list(array.shape)}, its {word} are wrong")


def _check_range(name: str, table: TableRule, array: np.ndarray, sizes: Mapping[str, int]) -> None:
    if table.kind != WHOLE or not array.size:
        return
    base, plus, _ = (table.below or "").partition("+")
    below = sizes[base] + bool(plus) if table.below else 2**31
    if array.min() < table.least or array.max() >= below:
        raise ValueError(
            f"{name} has numbers from {array.min()} to {array.max()}, "
            f"not from {table.least} to {below - 1}"
        )


def _check_sums(arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> None:
    """Sizes that are stored too, and texts and frames that would end behind the last."""
    for name, size in (("status_count", "statuses"), ("location_count", "locations")):
        if arrays[name] != sizes[size]:
            raise ValueError(f"{name} is {arrays[name]}, not {sizes[size]}")
    if arrays["quest_is_subtask"].sum() != sizes["subtasks"]:
        raise ValueError(f"its header has {sizes['subtasks']} subtasks, not those of the quests")
    if sizes["sentences"] < sizes["commands"]:
        raise ValueError(f"it decides {sizes['sentences']} of {sizes['commands']} commands")
    if arrays["frame_count"].max(initial=0) != sizes["most_pieces"]:
        raise ValueError("its header's most_pieces is not the largest frame_count")
    for name, end in (("frame", "pieces"), ("piece", "tokens"), ("score", "tokens"),
                      ("end", "tokens")):  # fmt: skip
        size = arrays[f"{name}_count" if name == "frame" else f"{name}_length"]
        if (arrays[f"{name}_start"] + size > sizes[end]).any():
            raise ValueError(f"{name}_start points past the end of the {end}")
    items = arrays["item_start"] + arrays["item_length"][..., None] + np.array([0, 1, 1])
    if (items > sizes["tokens"]).any():
        raise ValueError("item_start points past the end of the tokens")


def _check_lookup(name: str, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> None:
    """No values of the variables may lead past the end of the table."""
    table = {"command": "decision_table", "guard": "guard_table"}[name]
    largest = _domains(arrays, sizes)[arrays[f"{name}_variables"]] - 1
    last = arrays[f"{name}_offset"] + (largest * arrays[f"{name}_strides"].astype(np.int64)).sum(1)
    if (last >= len(arrays[table])).any():
        raise ValueError(f"{name}_strides lead past the end of {table}")


def _domains(arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> np.ndarray:
    """How many values each variable has, in the order of the variables."""
    ends = np.append(arrays["status_start"], sizes["status_rows"])
    found: list[Sequence[int]] = [
        [sizes["rooms"]],
        [REACHES + sizes["places"]] * sizes["things"],
        [2] * sizes["openables"],
        [EXITS] * 4,
        np.diff(ends).tolist(),
        [COUNTS] * (sizes["places"] + 2),
        [INGREDIENTS] * sizes["ingredients"],
    ]
    flat = [size for some in found for size in some]
    # Variables of games whose names share words are not known here.
    return np.array([*flat, *[1] * (sizes["variables"] - len(flat))], np.int64)
