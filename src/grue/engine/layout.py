"""What the games of a set have in common: sizes that hold every one, words, and commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from grue.games.gamefile import CompiledGame
from grue.games.tokens import SharedVocabulary, tokenize

NOT_HERE = "You can't see any such thing."
"""The answer to a command that a game does not have: Inform's, to a noun that it does not know."""


@dataclass(frozen=True)
class Layout:
    """Sizes that hold every game of a set, and its words and commands."""

    sizes: Mapping[str, int]
    extras: frozenset[str]
    """Arrays that only some games have, of any game of the set."""
    vocabulary: SharedVocabulary
    commands: tuple[str, ...]

    @classmethod
    def of(
        cls, games: Sequence[CompiledGame], vocabulary: SharedVocabulary, commands: tuple[str, ...]
    ) -> Layout:
        found = [sizes_of(game) for game in games]
        sizes = {name: max(one[name] for one in found) for name in found[0]}
        extras = frozenset(name for game in games for name in EXTRAS if name in game.arrays)
        return cls(sizes, extras, vocabulary, commands)

    @property
    def lacking(self) -> int:
        """The number that stands for commands that a game lacks, the same in every game."""
        return self.sizes["commands"]

    @property
    def plural(self) -> int:
        """The number of the last variable."""
        blocks = VARIABLES[:-1]
        counts = (
            int(b in self.extras) if b in EXTRAS else self.sizes.get(str(b), b) for b in blocks
        )
        return sum(map(int, counts))

    @cached_property
    def locations(self) -> int:
        return self.sizes["rooms"] + 1 + self.sizes["places"] + 1


VARIABLES = (
    *(1, "things", "places", "doors", 4, "statuses", "places", 2, "ingredients"),
    *("capacity", "sights", "befores", "asked", "outcome_plural"),
)
"""How many variables there are of each kind, in the order of ``Turns._variables``."""
EXTRAS = ("capacity", "reading_table", "outcome_question", "outcome_plural")


def sizes_of(game: CompiledGame) -> dict[str, int]:
    a = game.arrays
    below = _points_below(a)
    return {
        "commands": len(game.commands),
        "rooms": len(a["exit_to"]),
        "places": len(a["place_room"]),
        "doors": len(a["door_rooms"]),
        "things": len(a["start_location"]),
        "statuses": len(a["status_start"]),
        "values": a["lets_through"].shape[1],
        "phrases": a["item_start"].shape[1],
        "ingredients": len(a["ingredient_movable"]),
        "command_width": a["command_variables"].shape[1],
        "reading_width": a["reading_variables"].shape[1] if "reading_table" in a else 0,
        "guard_width": a["guard_variables"].shape[1],
        "moves": a["outcome_moved"].shape[1],
        "turns": a["outcome_turned"].shape[1],
        "masked": max(len(a["mask_variables"]), 1),
        "planes": a["masks"].shape[1],
        "events": a["event_masks"].shape[1],
        # One more quest, which is never done: games with fewer subtasks point at it.
        "quests": len(a["quest_reward"]) + 1,
        "subtasks": len(game.header["subtasks"]),
        "points": len(a["score_start"]) - below,
        "points_below": below,
        "sights": len(a.get("sight_movable", ())),
        "befores": len(a.get("before_first", ())),
        "asked": len(a.get("asked_values", ())),
        "questions": a["asked_values"].shape[1] if "asked_values" in a else 1,
        "observation_length": game.header["observation_length"],
        "most_pieces": game.header["most_pieces"],
        "most_tokens": len(a["tokens"]) + 16,
    }


def _points_below(arrays: Mapping[str, np.ndarray]) -> int:
    """The number of texts about lost points, which come last."""
    return -int(np.minimum(arrays["quest_reward"], 0).sum())


def shared_words(games: Iterable[Iterable[str]]) -> SharedVocabulary:
    """The words of some games and of ``NOT_HERE``."""
    return SharedVocabulary.of_games([*games, tokenize(NOT_HERE)])
