"""Gives compiled games common sizes, words and commands, so that one program can step them all.

Games are padded: missing things and rooms are added after the game's own, as things that are
nowhere and rooms without exits. No table of the game refers to them, so it plays as before.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from grue.engine.compiler.pieces import NO_HOLDER
from grue.engine.layout import EXTRAS, NOT_HERE, VARIABLES, Layout, sizes_of
from grue.engine.tables import packed
from grue.games.gamefile import CompiledGame

ONES = 0xFFFFFFFF
Arrays = dict[str, np.ndarray]


class Aligned:
    """A game whose arrays are converted to the layout of its set."""

    def __init__(self, game: CompiledGame, layout: Layout) -> None:
        self.game, self.layout = game, layout
        self.own = sizes_of(game)
        self.sizes = layout.sizes
        self.a = game.arrays

    # New numbers for the things of a game

    @cached_property
    def locations(self) -> np.ndarray:
        """The new number of each location: rooms, hands, places, nowhere."""
        rooms, places = self.own["rooms"], self.own["places"]
        first = self.sizes["rooms"]
        last = self.layout.locations - 1
        found = [*range(rooms), first, *range(first + 1, first + 1 + places), last]
        return np.array(found, np.int32)

    @cached_property
    def variables(self) -> np.ndarray:
        """The new number of each variable."""
        found, begin = [], 0
        for block in VARIABLES:
            if isinstance(block, int):  # The size of this block is the same in every game.
                own = most = block
            elif block in EXTRAS:
                own, most = int(block in self.a), int(block in self.layout.extras)
            else:
                own, most = self.own[block], self.sizes[block]
            found += range(begin, begin + own)
            begin += most
        return np.array(found, np.int32)

    @cached_property
    def own_command(self) -> np.ndarray:
        """For each command of the set, its number in this game; the last stands for other texts."""
        numbers = {command: i for i, command in enumerate(self.game.commands)}
        found = [numbers.get(command, self.layout.lacking) for command in self.layout.commands]
        return np.array([*found, self.layout.lacking], np.int32)

    # The tables, by topic

    @cached_property
    def arrays(self) -> Arrays:
        """Whole tables have the same shape in all games; look-up tables may differ in length."""
        found = {
            **self._world(),
            **self._statuses(),
            **self._commands(),
            **self._outcomes(),
            **self._possible(),
            **self._quests(),
            **self._texts(),
            **self._guards(),
        }
        if "reading_table" in self.layout.extras:
            found |= self._readings()
        if "capacity" in self.layout.extras:
            found["capacity"] = self.a.get("capacity", np.array(2**30, np.int32))
        # NumPy's append widens the number type.
        return {n: a.astype(np.int32) if a.dtype == np.int64 else a for n, a in found.items()}

    def _world(self) -> Arrays:
        a, s = self.a, self.sizes
        doors = np.where(a["exit_door"] == self.own["doors"], s["doors"], a["exit_door"])
        return {
            "own_command": self.own_command,
            "exit_to": widened(a["exit_to"], (s["rooms"], 4), -1),
            "exit_door": widened(doors, (s["rooms"], 4), s["doors"]),
            "door_rooms": widened(a["door_rooms"], (s["doors"], 2), -1),
            "place_room": widened(a["place_room"], (s["places"],), -1),
            "start_room": a["start_room"],
            "start_location": widened(
                self.locations[a["start_location"]], (s["things"],), self.layout.locations - 1
            ),
            "location_count": np.array(self.layout.locations, np.int32),
            "room_frame": widened(a["room_frame"], (s["rooms"],)),
            "inventory_frame": a["inventory_frame"],
            "opening_frame": a["opening_frame"],
        }

    def _status(self, numbers: np.ndarray) -> np.ndarray:
        """The number after the last status stands for things whose state never changes."""
        return np.where(numbers == self.own["statuses"], self.sizes["statuses"], numbers)

    def _statuses(self) -> Arrays:
        a, s = self.a, self.sizes
        never = s["statuses"]
        places, values = self.own["places"], s["values"]

        def openables(table: np.ndarray, shape: tuple[int, ...], fill: int) -> np.ndarray:
            first = widened(table[:places], (s["places"], *shape), fill)
            return np.concatenate([first, widened(table[places:], (s["doors"], *shape), fill)])

        same = np.arange(values, dtype=np.int32)
        operations = np.broadcast_to(same, (len(a["operations"]), never + 1, values)).copy()
        known = a["operations"]
        operations[:, : known.shape[1] - 1, : known.shape[2]] = known[:, :-1]
        return {
            "openable_status": openables(self._status(a["openable_status"]), (), never),
            "lets_through": np.concatenate(
                [openables(a["lets_through"][:-1], (values,), 0), np.ones((1, values), bool)]
            ),
            "movable_status": widened(self._status(a["movable_status"]), (s["things"],), never),
            "ingredient_movable": widened(a["ingredient_movable"], (s["ingredients"],)),
            "ingredient_table": widened(a["ingredient_table"], (s["ingredients"], values)),
            "operations": operations,
        }

    def _commands(self) -> Arrays:
        """The last command stands for commands that the game lacks; then come the sentences."""
        a, lacking = self.a, self.layout.lacking
        count, width = self.own["commands"], self.sizes["command_width"]
        parted = {}
        for name, table in (
            ("command_variables", self.variables[a["command_variables"]]),
            ("command_strides", a["command_strides"]),
        ):
            wide = widened(table, (len(table), width))
            parted[name] = np.concatenate(
                [widened(wide[:count], (lacking + 1, width)), wide[count:]]
            )
        offset = widened(a["command_offset"][:count], (lacking + 1,))
        offset[lacking] = len(a["decision_table"])
        return {
            **parted,
            "command_offset": np.concatenate([offset, a["command_offset"][count:]]),
            "decision_table": _short(np.append(a["decision_table"], len(a["outcome_frame"]))),
        }

    def _readings(self) -> Arrays:
        a, s, lacking, count = self.a, self.sizes, self.layout.lacking, self.own["commands"]
        width = s["reading_width"]
        reaches = 3 + s["places"]
        if "reading_table" in a:
            table = a["reading_table"]
            table = np.where(table >= count, table + lacking + 1 - count, table)
            which, strides = self.variables[a["reading_variables"]], a["reading_strides"]
            offset = a["reading_offset"]
        else:
            table = offset = np.arange(count, dtype=np.int32)
            which = strides = np.zeros((count, width), np.int32)
        offset = widened(offset, (lacking + 1,))
        offset[lacking] = len(table)

        def things(table: np.ndarray) -> np.ndarray:
            """For movable things, then for places."""
            more = s["things"] - self.own["things"]
            return np.where(table >= self.own["things"], table + more, table)

        none = np.zeros(0, np.int32)
        own = self.own["things"]
        rank = a.get("thing_rank", none)
        return {
            "reading_table": _short(np.append(table, lacking)),
            "reading_variables": widened(which, (lacking + 1, width)),
            "reading_strides": widened(strides, (lacking + 1, width)),
            "reading_offset": offset,
            "sight_movable": widened(a.get("sight_movable", none), (s["sights"],)),
            "sight_values": widened(a.get("sight_values", none[:, None]), (s["sights"], reaches)),
            "before_first": widened(things(a.get("before_first", none)), (s["befores"],)),
            "before_second": widened(things(a.get("before_second", none)), (s["befores"],)),
            "before_carried": widened(a.get("before_carried", none.astype(bool)), (s["befores"],)),
            "thing_rank": np.concatenate(
                [widened(rank[:own], (s["things"],)), widened(rank[own:], (s["places"],))]
            ),
        }

    def _outcomes(self) -> Arrays:
        """Adds an outcome: the answer that the thing is not here."""
        a, s, extras = self.a, self.sizes, self.layout.extras
        count = len(a["outcome_frame"])
        moved = np.where(a["outcome_moved"] == self.own["things"], s["things"], a["outcome_moved"])
        goal = a["outcome_moved_to"]
        goal = np.where(goal < 0, goal, self.locations[goal])
        moves, turns = (count + 1, s["moves"]), (count + 1, s["turns"])
        found = {
            "outcome_frame": np.append(a["outcome_frame"], len(a["frame_start"])),
            "outcome_changes": np.append(a["outcome_changes"], False),
            "outcome_room": np.append(a["outcome_room"], -1),
            "outcome_moved": widened(moved, moves, s["things"]),
            "outcome_moved_to": widened(goal, moves),
            "outcome_turned": widened(self._status(a["outcome_turned"]), turns, s["statuses"]),
            "outcome_operation": widened(a["outcome_operation"], turns),
        }
        none = np.zeros(0, np.int32)
        if "outcome_question" in extras:
            known = a.get("asked_values", none[:, None])
            found["outcome_question"] = widened(a.get("outcome_question", none), (count + 1,))
            found["asked_values"] = widened(known, (s["asked"], s["questions"]))
        if "outcome_plural" in extras:
            kept = len(a["guard_offset"]) + 1  # The status stays as it was.
            found["outcome_plural"] = widened(a.get("outcome_plural", none), (count + 1,), kept)
            found["opening_plural"] = a.get("opening_plural", np.array(kept, np.int32))
        return found

    def _possible(self) -> Arrays:
        """In the order of the set's commands; those that the game lacks are never admissible."""
        a, s = self.a, self.sizes
        which, offset, masks = self.variables[a["mask_variables"]], a["mask_offset"], a["masks"]
        if not len(which):  # No room rules the command out.
            which = offset = np.zeros(1, np.int32)
            masks = np.full((self.own["rooms"], *masks.shape[1:]), ONES, np.uint32)

        def of_set(words: np.ndarray) -> np.ndarray:
            little = np.ascontiguousarray(words, "<u4").view(np.uint8)
            bits = np.unpackbits(little, axis=-1, bitorder="little").astype(bool)
            own = np.append(
                bits[..., : self.own["commands"]], np.zeros((*bits.shape[:-1], 1), bool), -1
            )
            here = np.minimum(self.own_command[:-1], self.own["commands"])
            return packed(own[..., here])

        words = -(-len(self.layout.commands) // 32)
        # Using a variable twice changes nothing.
        return {
            "mask_variables": widened(which, (s["masked"],), which[0]),
            "mask_offset": widened(offset, (s["masked"],), offset[0]),
            "masks": widened(of_set(masks), (len(masks), s["planes"], words)),
            "mask_possible": widened(of_set(a["mask_possible"]), (s["planes"], words)),
        }

    def _quests(self) -> Arrays:
        a, s = self.a, self.sizes
        rooms, things, words = self.own["rooms"], self.own["things"], s["events"]
        count, known = (
            len(self.locations),
            widened(a["event_masks"], (len(a["event_masks"]), words)),
        )
        by_room = widened(known[:rooms], (s["rooms"], words), ONES)
        by_thing = np.full((s["things"], self.layout.locations, words), ONES, np.uint32)
        of_things = known[rooms : rooms + things * count].reshape(things, count, words)
        by_thing[:things, self.locations] = of_things
        by_status = known[rooms + things * count :]
        agrees = np.full((1, words), ONES, np.uint32)  # For statuses that the game lacks.
        is_subtask = widened(a["quest_is_subtask"], (s["quests"],))
        return {
            "event_masks": np.concatenate(
                [by_room, by_thing.reshape(-1, words), by_status, agrees]
            ),
            "status_start": widened(a["status_start"], (s["statuses"],), len(by_status)),
            "quest_wins": widened(a["quest_wins"], (s["quests"], 32 * words)),
            "quest_fails": widened(a["quest_fails"], (s["quests"], 32 * words)),
            "quest_reward": widened(a["quest_reward"], (s["quests"],)),
            "quest_needed": widened(a["quest_needed"], (s["quests"],)),
            "subtask_quest": widened(
                np.flatnonzero(is_subtask).astype(np.int32), (s["subtasks"],), s["quests"] - 1
            ),
        }

    def _texts(self) -> Arrays:
        a, s = self.a, self.sizes
        number = self.layout.vocabulary.number
        words = np.array([0, *map(number, self.game.vocabulary.words)], np.int32)
        answer = self.layout.vocabulary.encode(NOT_HERE)
        holder = a["piece_holder"]
        points = {}
        for name in ("score_start", "score_length"):
            table, above = np.zeros(s["points"] + s["points_below"], np.int32), self.own["points"]
            table[:above] = a[name][:above]
            if self.own["points_below"]:
                table[-self.own["points_below"] :] = a[name][above:]
            points[name] = table
        return {
            **points,
            "frame_start": np.append(a["frame_start"], len(a["piece_start"])),
            "frame_count": np.append(a["frame_count"], 1),
            "piece_start": np.append(a["piece_start"], len(a["tokens"])),
            "piece_length": np.append(a["piece_length"], len(answer)),
            "piece_holder": np.append(
                np.where(holder < 0, holder, self.locations[holder]), NO_HOLDER
            ),
            "piece_guard": np.append(a["piece_guard"], len(a["guard_offset"])),
            "item_start": widened(a["item_start"], (s["things"], s["phrases"], 3)),
            "item_length": widened(a["item_length"], (s["things"], s["phrases"])),
            "end_start": a["end_start"],
            "end_length": a["end_length"],
            "tokens": _short(np.append(words[a["tokens"]], answer)),
        }

    def _guards(self) -> Arrays:
        """Adds two guards: one always holds, the other if the last list had several things."""
        a, width = self.a, self.sizes["guard_width"]
        rows, cells = len(a["guard_offset"]), len(a["guard_table"])
        which = widened(self.variables[a["guard_variables"]], (rows + 2, width))
        strides = widened(a["guard_strides"], (rows + 2, width))
        if "outcome_plural" in self.layout.extras:
            which[rows + 1, 0], strides[rows + 1, 0] = self.layout.plural, 1
        return {
            "guard_variables": which,
            "guard_strides": strides,
            "guard_offset": np.append(a["guard_offset"], [cells, cells + 1]),
            "guard_table": np.append(a["guard_table"], [True, False, True]),
        }


def widened(table: np.ndarray, shape: tuple[int, ...], fill: Any = 0) -> np.ndarray:
    """A larger table, with this table in its corner."""
    wide = np.full(shape, fill, table.dtype)
    wide[tuple(slice(size) for size in table.shape)] = table
    return wide


def _short(table: np.ndarray) -> np.ndarray:
    """With a number type of half the width, if the numbers allow it."""
    return table.astype(np.int16 if table.max(initial=0) < 2**15 else np.int32)
