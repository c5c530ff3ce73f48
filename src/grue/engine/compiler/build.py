"""Assembles the arrays of a compiled game from the rule book's replies and texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from grue.engine.compiler.cooking import CookBook
from grue.engine.compiler.inform import Reply, RuleBook
from grue.engine.compiler.masks import admissible_masks
from grue.engine.compiler.model import (
    COOKINGS,
    CUTS,
    DIRECTIONS,
    LOCATING,
    READY,
    SIGHTS,
    WRONG_COOKING,
    WRONG_CUT,
    Effect,
    Model,
    Variable,
)
from grue.engine.compiler.pieces import TextTable
from grue.engine.compiler.sentences import Reading, Sentences, Told
from grue.engine.compiler.text import Texts, Words, objective
from grue.errors import CannotCompileError
from grue.games.compiled_tables import check
from grue.games.game import Fact, Game
from grue.games.gamefile import FORMAT, CompiledGame
from grue.games.logic import ground
from grue.games.tokens import Vocabulary

WON = "*** The End ***"
LOST = "*** You lost! ***"
NUMBERS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def compile_game(game: Game, near: bool = True) -> CompiledGame:
    """The game as arrays, or an error that names the rule or text that stands in the way.

    With ``near``, commands that cannot be followed while their things are out of sight answer
    "You can't see any such thing." then, and the header names them.
    """
    if not game.subtasks:
        raise CannotCompileError("it has no quest that can be won, so there is nothing to learn")
    model = Model(game, ground(game))
    texts = Texts(model)
    rules = CookBook(model, texts)
    sentences = Sentences(model, near)
    outcomes = Outcomes(model)
    commands = outcomes.add_commands(rules, sentences)

    table = TextTable(model, texts)
    arrays = {
        **_world_arrays(model),
        **commands,
        **outcomes.arrays(table),
        **_quest_arrays(model),
        **admissible_masks(model, commands, outcomes.changes),
    }
    arrays["room_frame"] = np.array([table.frame(frame) for frame in rules.rooms], np.int32)
    arrays["inventory_frame"] = np.array(table.frame(rules.carried()), np.int32)
    opening = Words(f"{objective(game.objective)}\n\n"), *rules.rooms[model.start]
    arrays["opening_frame"] = np.array(table.frame(opening), np.int32)
    if model.extra("plural"):
        arrays["opening_plural"] = np.array(table.plural_after(opening), np.int32)
        arrays["outcome_plural"] = np.array(
            [table.plural_after(reply.frame) for reply in outcomes.numbers], np.int32
        )
    sums = _possible_sums([quest.reward for quest in model.logic.quests if quest.wins])
    # The texts of lost points come last: index -1 is the last one.
    points = (*range(1, max(sums, default=0) + 1), *range(min(0, *sums, 0), 0))
    table.add_endings([score_text(n) if n in sums else "" for n in points], (WON, LOST))
    vocabulary = Vocabulary.of([*table.texts(), *game.commands])
    arrays |= table.arrays(vocabulary)
    header = {
        "format": FORMAT,
        "game_hash": game.digest,
        "name": game.name,
        "commands": list(game.commands),
        "words": list(vocabulary.words),
        "max_score": game.max_score,
        "episode_steps": game.episode_steps,
        "observation_length": table.longest(int(arrays["opening_frame"])),
        "most_pieces": table.most_pieces(),
        "subtasks": [[subtask.text, subtask.reward] for subtask in game.subtasks],
    }
    if sentences.near:
        header["near"] = sentences.near
    try:
        check(header, arrays)
    except ValueError as error:
        raise CannotCompileError(f"its tables came out wrong: {error}") from None
    return CompiledGame(header, arrays)


def _possible_sums(rewards: Iterable[int]) -> set[int]:
    """The points that one command can bring, if several quests end with it."""
    sums = {0}
    for reward in rewards:
        sums |= {known + reward for known in sums}
    return sums - {0}


def score_text(points: int) -> str:
    if points < 0:
        gone = score_text(-points).partition(" by ")[2]
        return f"\n\nYour score changed by minus {gone}"
    words = NUMBERS[points] if points < len(NUMBERS) else _large(points)
    return f"\n\nYour score has just gone up by {words} point{'s' if points > 1 else ''}."


def _large(points: int) -> str:
    if points >= 100:
        rest = points % 100
        hundreds = f"{NUMBERS[points // 100]} hundred"
        below = NUMBERS[rest] if rest < len(NUMBERS) else _large(rest)
        return f"{hundreds} and {below}" if rest else hundreds
    tens, ones = TENS[points // 10 - 2], points % 10
    return f"{tens}-{NUMBERS[ones]}" if ones else tens


class Outcomes:
    """Distinct replies, numbered: each command's decision table points at them."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.numbers: dict[Reply, int] = {}
        self.operations: dict[tuple[frozenset[str], frozenset[str]], int] = {}

    @property
    def changes(self) -> np.ndarray:
        """For each outcome, whether it changes the state."""
        return np.array([reply.effect not in (None, Effect()) for reply in self.numbers])

    def add_commands(self, rules: RuleBook, sentences: Sentences) -> dict[str, np.ndarray]:
        """The decision tables: a sentence's variables and, for their values, the outcome."""
        commands = self.model.game.commands
        readings = sentences.readings(commands)
        rows: dict[Told, int] = {}
        for command in commands:
            rows[sentences.itself(command)] = len(rows)
        for reading in readings:
            for sentence in reading.sentences if reading else ():
                rows.setdefault(sentence, len(rows))
        decided, table = [], []
        for sentence in rows:
            variables, replies = rules.replies(sentence)
            decided.append((variables, len(table)))
            for reply in replies:
                table.append(self.numbers.setdefault(reply, len(self.numbers)))
        return {
            **self._indexing("command", decided),
            "decision_table": np.array(table, np.int32),
            **self._reading_arrays(readings, rows),
        }

    def _indexing(
        self, name: str, decided: Sequence[tuple[tuple[Variable, ...], int]]
    ) -> dict[str, np.ndarray]:
        """For each row the variables that index its part of a table, and where that begins."""
        most = max(len(variables) for variables, _ in decided)
        which = np.zeros((len(decided), most), np.int32)
        strides = np.zeros((len(decided), most), np.int32)
        order = {variable: i for i, variable in enumerate(self.model.variables)}
        for row, (variables, _) in enumerate(decided):
            sizes = [self.model.domain(v) for v in variables]
            for column, variable in enumerate(variables):
                which[row, column] = order[variable]
                strides[row, column] = int(np.prod(sizes[column + 1 :], dtype=int))
        return {
            f"{name}_variables": which,
            f"{name}_strides": strides,
            f"{name}_offset": np.array([offset for _, offset in decided], np.int32),
        }

    def _reading_arrays(
        self, readings: Sequence[Reading | None], rows: Mapping[Told, int]
    ) -> dict[str, np.ndarray]:
        """Which sentence each command means, if that depends on the state for any command."""
        if not any(readings):
            return {}
        decided, table = [], []
        for command, reading in enumerate(readings):
            decided.append((reading.variables if reading else (), len(table)))
            table += [rows[s] for s in reading.sentences] if reading else [command]
        return {
            **self._indexing("reading", decided),
            "reading_table": np.array(table, np.int32),
            **_sight_arrays(self.model),
        }

    def arrays(self, table: TextTable) -> dict[str, np.ndarray]:
        effects = [reply.effect or Effect() for reply in self.numbers]
        no_thing, no_status = len(self.model.movables), len(self.model.statuses)
        entities = list(self.model.statuses)
        moves = [effect.moves for effect in effects]
        statuses = [
            [(entities.index(e), self._operation(adds, removes)) for e, adds, removes in x.statuses]
            for x in effects
        ]
        moved, moved_to = _padded_pairs(moves, (no_thing, 0))
        turned, operation = _padded_pairs(statuses, (no_status, 0))
        return {
            "outcome_frame": np.array([table.frame(r.frame) for r in self.numbers], np.int32),
            "outcome_changes": self.changes,
            "outcome_room": np.array([-1 if e.room is None else e.room for e in effects], np.int32),
            "outcome_moved": moved,
            "outcome_moved_to": moved_to,
            "outcome_turned": turned,
            "outcome_operation": operation,
            "operations": self._operation_table(),
            **self._questions(),
        }

    def _questions(self) -> dict[str, np.ndarray]:
        asked = self.model.extra("asked")
        if not asked:
            return {}
        return {
            "outcome_question": np.array([r.question for r in self.numbers], np.int32),
            "asked_values": np.array([self.model.asked(variable) for variable in asked], np.int32),
        }

    def _operation(self, adds: frozenset[str], removes: frozenset[str]) -> int:
        return self.operations.setdefault((adds, removes), len(self.operations))

    def _operation_table(self) -> np.ndarray:
        """For each operation, entity and status: the status after it."""
        widest = max((len(c) for c in self.model.statuses.values()), default=1)
        shape = (max(len(self.operations), 1), len(self.model.statuses) + 1, widest)
        after = np.broadcast_to(np.arange(widest, dtype=np.int32), shape).copy()
        for (adds, removes), operation in self.operations.items():
            for row, combinations in enumerate(self.model.statuses.values()):
                for value, known in enumerate(combinations):
                    result = (known - removes) | adds
                    if result in combinations:
                        after[operation, row, value] = combinations.index(result)
        return after


def _sight_arrays(model: Model) -> dict[str, np.ndarray]:
    """What the variables of names that share words are about, and the order of things."""
    things = [*model.movables, *model.places]
    sights = model.extra(*SIGHTS)
    pairs = [subject.split() for _, subject in model.extra("before")]
    return {
        "sight_movable": np.array([things.index(x.split()[0]) for _, x in sights], np.int32),
        "sight_values": np.array([model.sight(v) for v in sights], np.int32).reshape(
            len(sights), model.domain(("reach", ""))
        ),
        "before_first": np.array([things.index(x) for x, _, _ in pairs], np.int32),
        "before_second": np.array([things.index(x) for _, x, _ in pairs], np.int32),
        "before_carried": np.array([where == "carried" for _, _, where in pairs], bool),
        "thing_rank": np.array([model.declared.index(x) for x in things], np.int32),
    }


def _padded_pairs(
    rows: Sequence[Sequence[tuple[int, int]]], filler: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    width = max((len(row) for row in rows), default=0) or 1
    padded = [[*row, *[filler] * (width - len(row))] for row in rows]
    pairs = np.array(padded, np.int32).reshape(len(rows), width, 2)
    return pairs[..., 0].copy(), pairs[..., 1].copy()


def _world_arrays(model: Model) -> dict[str, np.ndarray]:
    """The map, the places, and how the game begins."""
    exit_to = np.full((len(model.rooms), len(DIRECTIONS)), -1, np.int32)
    exit_door = np.full((len(model.rooms), len(DIRECTIONS)), len(model.doors), np.int32)
    for (room, direction), (there, door) in model.exits.items():
        exit_to[room, DIRECTIONS.index(direction)] = there
        if door is not None:
            exit_door[room, DIRECTIONS.index(direction)] = model.doors.index(door)
    door_rooms = np.full((len(model.doors), 2), -1, np.int32)
    for (room, _), (there, door) in model.exits.items():
        if door is not None:
            door_rooms[model.doors.index(door)] = sorted((room, there))

    statuses = list(model.statuses)

    def status_index(entities: Iterable[str]) -> np.ndarray:
        # One past the last status stands for things whose state never changes.
        found = [statuses.index(e) if e in statuses else len(statuses) for e in entities]
        return np.array(found, np.int32)

    openables = (*model.places, *model.doors)
    widest = max((len(c) for c in model.statuses.values()), default=1)
    lets_through = np.zeros((len(openables) + 1, widest), bool)
    lets_through[-1] = True
    for row, entity in enumerate(openables):
        for value, known in enumerate(model.combinations(entity)):
            lets_through[row, value] = model.is_a(entity, "s") or "open" in known

    foods = [food for food, _, _ in model.recipe]
    return {
        "exit_to": exit_to,
        "exit_door": exit_door,
        "door_rooms": door_rooms,
        "place_room": np.array([model.room_of(p) for p in model.places], np.int32),
        "openable_status": status_index(openables),
        "lets_through": lets_through,
        "movable_status": status_index(model.movables),
        "ingredient_movable": np.array([model.movables.index(f) for f in foods], np.int32),
        "ingredient_table": _ingredient_table(model, widest),
        "start_room": np.array(model.start, np.int32),
        "start_location": np.array([model.initial_location(x) for x in model.movables], np.int32),
        "status_count": np.array(len(statuses), np.int32),
        "status_start": _status_starts(model),
        "location_count": np.array(model.location_count, np.int32),
        **({"capacity": np.array(len(model.slots), np.int32)} if model.slots else {}),
    }


def _status_starts(model: Model) -> np.ndarray:
    sizes = [len(combinations) for combinations in model.statuses.values()]
    return np.cumsum([0, *sizes])[:-1].astype(np.int32)


def _ingredient_table(model: Model, widest: int) -> np.ndarray:
    """For each ingredient and status of its food: its progress once it is carried."""
    table = np.zeros((len(model.recipe), widest), np.int32)
    for row, (food, cooking, cut) in enumerate(model.recipe):
        for value, known in enumerate(model.combinations(food)):
            is_cooked = next((c for c in COOKINGS[1:] if c in known), "raw") == cooking
            is_cut = next((c for c in CUTS[1:] if c in known), "uncut") == cut
            table[row, value] = READY if is_cooked and is_cut else WRONG_CUT
            if not is_cooked:
                table[row, value] = WRONG_COOKING
    return table


def _quest_arrays(model: Model) -> dict[str, np.ndarray]:
    """Quests as events: bit e of a row is set where the row's value agrees with event e."""
    quests = model.logic.quests
    events = [(q, facts, True) for q, quest in enumerate(quests) for facts in quest.wins]
    events += [(q, facts, False) for q, quest in enumerate(quests) for facts in quest.fails]
    offsets, rows = _value_rows(model)
    words = max(1, -(-len(events) // 32))
    masks = np.full((rows, words), 0xFFFFFFFF, np.uint32)
    for number, (_, facts, _) in enumerate(events):
        for fact in facts:
            for row in _rows_against(model, offsets, fact):
                masks[row, number // 32] &= ~np.uint32(1 << (number % 32))
    wins = np.zeros((len(quests), words * 32), bool)
    fails = np.zeros((len(quests), words * 32), bool)
    for number, (quest, _, is_win) in enumerate(events):
        (wins if is_win else fails)[quest, number] = True
    if any(quest.get("repeatable") for quest in model.game.data["quests"]):
        raise CannotCompileError("a quest can be done again and again")
    return {
        "event_masks": masks,
        "quest_wins": wins,
        "quest_fails": fails,
        "quest_reward": np.array([q.reward if q.wins else 0 for q in quests], np.int32),
        "quest_needed": np.array([bool(q.wins) and not q.optional for q in quests]),
        "quest_is_subtask": np.array([bool(q.wins) for q in quests]),
    }


def _value_rows(model: Model) -> tuple[dict[str, int], int]:
    """Rows for the values of: the room, each movable's location, each status."""
    offsets, row = {"P": 0}, len(model.rooms)
    for movable in model.movables:
        offsets[movable] = row
        row += model.location_count
    for entity, combinations in model.statuses.items():
        offsets[f"status {entity}"] = row
        row += len(combinations)
    return offsets, row


def _rows_against(model: Model, offsets: dict[str, int], fact: Fact) -> list[int]:
    """The rows of the values with which a fact does not hold."""
    subject = fact[1]
    if fact[0] in LOCATING and len(fact) == 3 and subject in ("P", *model.movables):
        count = len(model.rooms) if subject == "P" else model.location_count
        held = model.location(fact[2])
        return [offsets[subject] + value for value in range(count) if value != held]
    if len(fact) == 2 and subject in model.statuses:
        start = offsets[f"status {subject}"]
        combinations = model.statuses[subject]
        return [start + v for v, known in enumerate(combinations) if fact[0] not in known]
    if fact[0] == "free" and len(fact) == 3:  # If there is a door, it must be open.
        doors = [f[2] for f in model.initial if f[0] == "link" and {f[1], f[3]} == {*fact[1:]}]
        return [row for d in doors for row in _rows_against(model, offsets, ("open", d))]
    if fact in model.initial:
        return []
    if len(fact) == 2:  # A property that no command of the set can cause.
        return list(range(len(model.rooms)))
    raise CannotCompileError(f"a quest depends on the fact {fact[0]}({', '.join(fact[1:])})")
