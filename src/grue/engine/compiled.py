"""The compiled engine: a game as pure functions on arrays, for jit and vmap, on CPU and GPU.

``step`` reads as the turn of a story: find the outcome, change the world, look at the quests, see
what is possible now, print. Every table comes from ``grue.engine.compiler``.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from grue.engine.compiler.model import FIRST_PLACE, FLOOR, HELD, HERE, HIDDEN, NO_EXIT
from grue.engine.compiler.pieces import FLOOR_HOLDER
from grue.engine.environment import Environment
from grue.engine.infos import Infos, World
from grue.engine.sight import plural, question, sights
from grue.engine.step import Step
from grue.games.game import Game
from grue.games.gamefile import CompiledGame
from grue.games.logic import Facts
from grue.games.playable import Knowledge

MANY = 2
"""Counts of things stop here: texts only tell none, one and more apart."""


class State(NamedTuple):
    room: Array
    locations: Array
    """Where each movable thing is."""
    recency: Array
    """When each thing was last moved: lists name the latest first."""
    statuses: Array
    quests: Array
    """Which quests are done."""
    variables: Array
    """What the decision tables and guards ask about; follows from the fields above."""
    score: Array
    steps: Array
    over: Array


class CompiledEnv(Environment):
    """``env.reset(key) -> state, step`` and ``env.step(state, action) -> state, step``."""

    def __init__(
        self, game: CompiledGame, episode_steps: int | None = None, source: Game | None = None
    ) -> None:
        """``source`` is the game that it was compiled from, for ``facts`` and ``infos``."""
        self.game = game
        self.source = source
        self.commands = game.commands
        self.vocabulary = game.vocabulary
        self.episode_steps = (
            game.header["episode_steps"] if episode_steps is None else episode_steps
        )
        self.observation_length: int = game.header["observation_length"]
        self._most_pieces: int = game.header["most_pieces"]
        # NumPy arrays: they become constants of whatever program they are traced into.
        self._table = _Tables(game.arrays)
        self.max_score: int = game.header["max_score"]
        self.subtask_names = tuple(text for text, _ in game.header["subtasks"])
        self.digest: str = game.header["game_hash"]
        self.knows = Knowledge()
        self.near: dict[str, Any] = game.header.get("near", {})
        """Commands that are exact only while their things are in sight; none if all are exact."""

    # The two pure functions

    def reset(self, key: Any = None) -> tuple[State, Step]:
        """Starts an episode. These games draw no random numbers: the key changes nothing."""
        t = self._table
        things = len(t.start_location)
        state = State(
            room=jnp.int32(t.start_room),
            locations=jnp.asarray(t.start_location, jnp.int32),
            recency=-jnp.arange(things, dtype=jnp.int32),
            statuses=jnp.zeros(int(t.status_count) + 1, jnp.int32),
            quests=jnp.zeros(len(t.quest_reward), bool),
            variables=jnp.zeros(0, jnp.int32),
            score=jnp.int32(0),
            steps=jnp.int32(0),
            over=jnp.bool_(False),
        )
        state = state._replace(variables=self._variables(state))
        # Quests that hold at the start are done before the first command.
        quests, score, lost, won = self._judge(state)
        state = state._replace(quests=quests, score=score, over=lost | won)
        words = self._print(state, jnp.int32(t.opening_frame))
        if "opening_plural" in t:
            state = self._remember(state, jnp.int32(t.opening_plural))
        nothing = jnp.int32(0)
        return state, self._report(state, words, nothing, jnp.bool_(False))

    def restart(self, state: State) -> tuple[State, Step]:
        """The next episode, which begins as all do: constants of the program."""
        return jax.tree.map(jnp.asarray, self._start)

    @cached_property
    def _start(self) -> tuple[State, Step]:
        # Compiled by itself, it runs at once also where another program is traced.
        with jax.disable_jit(False):
            return jax.tree.map(np.asarray, jax.jit(self.reset).lower().compile()())

    def step(self, state: State, action: Array | int) -> tuple[State, Step]:
        """Takes a command by its number. A game that is over stays as it is."""
        outcome = self._decide(state, action)
        moved = self._change(state, outcome)
        moved = moved._replace(variables=self._variables(moved, outcome))
        quests, reward, lost, won = self._judge(moved)
        following = moved._replace(
            quests=quests,
            score=state.score + reward,
            steps=state.steps + 1,
            over=lost | won,
        )
        ending = jnp.where(lost, 2, jnp.where(won, 1, 0))
        words = self._print(following, self._table["outcome_frame"][outcome], reward, ending)
        if "outcome_plural" in self._table:
            following = self._remember(following, self._table["outcome_plural"][outcome])
        admissible = self._table["outcome_changes"][outcome]

        after = jax.tree.map(lambda old, new: jnp.where(state.over, old, new), state, following)
        going = ~state.over
        return after, self._report(after, words * going, reward * going, admissible & going)

    def look(self, state: State) -> Array:
        """The words of looking around now, without spending a step."""
        return self._print(state, jnp.asarray(self._table["room_frame"])[state.room])

    def inventory(self, state: State) -> Array:
        """The words of taking inventory now, without spending a step."""
        return self._print(state, jnp.int32(self._table["inventory_frame"]))

    def facts(self, state: State) -> Facts:
        """The facts of the world now, as TextWorld states them, with the identifiers of things."""
        return self._world.facts(state)

    def infos(self, state: State) -> Infos:
        """Everything that TextWorld's EnvInfos tell of one state, by name."""
        return Infos(self._world, self, state)

    @cached_property
    def _world(self) -> World:
        return World(self.game, self.source)

    # The phases of a turn

    def _decide(self, state: State, action: Array | int) -> Array:
        """The outcome of a command: its variables index its decision table."""
        if "reading_table" in self._table:  # Names share words: which sentence is it now?
            action = self._look_up(state, "reading_table", "reading", action)
        return self._look_up(state, "decision_table", "command", action)

    def _look_up(self, state: State, table: str, name: str, row: Array | int) -> Array:
        t = self._table
        values = state.variables[t[f"{name}_variables"][row]]
        index = t[f"{name}_offset"][row] + (values * t[f"{name}_strides"][row]).sum()
        return t[table][index]

    def _change(self, state: State, outcome: Array) -> State:
        """Moves the player and things, and turns statuses, as the outcome says."""
        t = self._table
        goes_to = t["outcome_room"][outcome]
        room = jnp.where(goes_to < 0, state.room, goes_to)

        moved, goal = t["outcome_moved"][outcome], t["outcome_moved_to"][outcome]
        goal = jnp.where(goal == HERE, state.room, goal)
        hits = moved[:, None] == jnp.arange(len(state.locations))
        moves = hits.any(0)
        locations = jnp.where(moves, (hits * goal[:, None]).sum(0), state.locations)
        recency = jnp.where(moves, state.steps + 1, state.recency)

        turned, operation = t["outcome_turned"][outcome], t["outcome_operation"][outcome]
        hits = turned[:, None] == jnp.arange(len(state.statuses))
        which = (hits * operation[:, None]).sum(0)
        entities = jnp.arange(len(state.statuses))
        after = t["operations"][which, entities, state.statuses]
        statuses = jnp.where(hits.any(0), after, state.statuses)
        return state._replace(room=room, locations=locations, recency=recency, statuses=statuses)

    def _variables(self, state: State, outcome: Array | None = None) -> Array:
        """Everything that guards and decision tables ask about; ``outcome`` is the last."""
        t = self._table
        here = t.place_room == state.room
        through = t["lets_through"][
            jnp.arange(len(t.openable_status)), state.statuses[t.openable_status]
        ]
        places, doors = len(t.place_room), len(t.door_rooms)
        shown = here & through[:places]
        reach_by_location = jnp.concatenate(
            [
                jnp.where(jnp.arange(len(t.exit_to)) == state.room, FLOOR, HIDDEN),
                jnp.array([HELD]),
                jnp.where(shown, FIRST_PLACE + jnp.arange(places), HIDDEN),
                jnp.array([HIDDEN]),
            ]
        )
        reach = reach_by_location[state.locations]

        door_open = jnp.concatenate([through[places:], jnp.array([True])])
        free = door_open[t["exit_door"][state.room]]
        leads = t["exit_to"][state.room] >= 0
        exits = jnp.where(leads, 1 + free.astype(jnp.int32), NO_EXIT)

        first_place = len(t.exit_to) + 1
        held = (state.locations[:, None] == first_place + jnp.arange(places)).sum(0)
        lying = (reach == FLOOR).sum()
        carried = (reach == HELD).sum()
        counts = jnp.minimum(jnp.concatenate([held, jnp.stack([lying, carried])]), MANY)

        foods = t.ingredient_movable
        known = t["ingredient_table"][
            jnp.arange(len(foods)), state.statuses[t.movable_status[foods]]
        ]
        ingredients = jnp.where(reach[foods] == HELD, known, 0)
        return jnp.concatenate(
            [
                state.room[None],
                reach,
                here,
                (t.door_rooms == state.room).any(1) if doors else jnp.zeros(0, bool),
                exits,
                state.statuses[:-1],
                counts,
                ingredients,
                *([(carried >= t.capacity)[None]] if "capacity" in t else []),
                *(sights(t, state, reach) if "reading_table" in t else []),
                *(question(t, outcome) if "outcome_question" in t else []),
                *(plural(state) if "outcome_plural" in t else []),
            ]
        ).astype(jnp.int32)

    def _judge(self, state: State) -> tuple[Array, Array, Array, Array]:
        """Quests done so far, the reward of those done now, and whether the game is lost or won."""
        t = self._table
        values = jnp.concatenate(
            [
                state.room[None],
                t.location_rows + state.locations,
                t.status_rows + state.statuses[:-1],
            ]
        )
        agreeing = _all_bits(t["event_masks"][values])
        happened = _bits(agreeing)
        wins = (t.quest_wins & happened).any(1)
        fails = (t.quest_fails & happened).any(1)
        lost = (~state.quests & fails).any()
        new = ~state.quests & ~fails & wins
        quests = state.quests | new
        reward = (t.quest_reward * new).sum()
        won = (quests | ~t.quest_needed).all() & t.quest_needed.any()
        return quests, reward, lost, won

    def admissible_set(self, state: State) -> Array:
        """For each command, whether it would change the state."""
        t = self._table
        values = state.variables[t.mask_variables] + t.mask_offset
        possible = _all_bits(t["masks"][values]) & t.mask_possible
        joined = possible[0]
        for plane in range(1, len(t.mask_possible)):
            joined = joined | possible[plane]
        return _bits(joined)[: len(self.commands)] & ~state.over

    def _report(self, state: State, words: Array, reward: Array, admissible: Array) -> Step:
        return Step(
            observation=words,
            text=None,
            reward=reward,
            score=state.score,
            terminated=state.over,
            truncated=~state.over & (state.steps >= self.episode_steps),
            admissible=admissible,
            admissible_set=self.admissible_set(state),
            subtasks=state.quests[np.flatnonzero(self._table.quest_is_subtask)],
        )

    # Printing

    def _print(
        self,
        state: State,
        frame: Array,
        points: Array | int = 0,
        ending: Array | int = 0,
    ) -> Array:
        """A frame with the things it lists, then the score and the end, as one run of tokens."""
        t = self._table
        number = jnp.arange(self._most_pieces)
        piece = jnp.minimum(t["frame_start"][frame] + number, len(t.piece_start) - 1)
        shown = (number < t["frame_count"][frame]) & self._guards(state, t["piece_guard"][piece])
        holder = t["piece_holder"][piece]
        holder = jnp.where(holder == FLOOR_HOLDER, state.room, holder)
        lists = shown[:, None] & (holder[:, None] == state.locations)

        items = self._items(state, lists.any(0))
        word_length = t["piece_length"][piece] * shown
        length = word_length + (lists * items.length).sum(1)
        end = jnp.cumsum(length)
        start = end - length
        item_at = (lists * start[:, None]).sum(0) + (items.before * items.length).sum(1)

        # Each token's source is its position plus a shift that changes where a piece begins.
        shift = jnp.where(holder >= 0, 0, t["piece_start"][piece] - start)
        item_shift = items.start - item_at
        last_item = (lists * (items.last * item_shift)).sum(1)
        left_at = jnp.where((lists * items.length).sum(1) > 0, last_item, shift)
        left_before = jnp.concatenate([jnp.zeros(1, jnp.int32), left_at[:-1]])
        previous_item = (items.just_before * item_shift).sum(1)

        total, points_length = end[-1], t["score_length"][points]
        score_shift = t["score_start"][points] - total
        end_shift = t["end_start"][ending] - total - points_length
        # Half as wide, twice as many at once.
        short = jnp.int16 if len(t.tokens) < 2**15 else jnp.int32
        where = [start, item_at, jnp.stack([total, total + points_length])]
        change = [
            shift - left_before,
            (item_shift - previous_item) * lists.any(0),
            jnp.stack([score_shift - left_at[-1], end_shift - score_shift]),
        ]
        # The barrier keeps these from being computed again for every position.
        where, change = jax.lax.optimization_barrier(
            (jnp.concatenate(where).astype(short), jnp.concatenate(change).astype(short))
        )
        position = jnp.arange(self.observation_length, dtype=short)
        source = position
        for i in range(len(where)):
            source = source + jnp.where(position >= where[i], change[i], short(0))
        printed = position < (total + points_length + t["end_length"][ending]).astype(short)
        return t["tokens"][jnp.where(printed, source, short(0)).astype(jnp.int32)]

    def _remember(self, state: State, guard: Array) -> State:
        """Keeps whether the last list was of several things."""
        plural = self._guards(state, guard[None])[0].astype(jnp.int32)
        return state._replace(variables=state.variables.at[-1].set(plural))

    def _guards(self, state: State, guard: Array) -> Array:
        t = self._table
        values = state.variables[t["guard_variables"][guard]]
        index = t["guard_offset"][guard] + (values * t["guard_strides"][guard]).sum(1)
        return t["guard_table"][index]

    def _items(self, state: State, listed: Array) -> _Items:
        """The things as items of the lists they stand in."""
        t = self._table
        together = state.locations[:, None] == state.locations
        before = together & (state.recency[:, None] < state.recency)
        rank, size = before.sum(1), together.sum(1)
        separator = jnp.where(rank == 0, 0, jnp.where(rank == size - 1, 2, 1))
        things = jnp.arange(len(state.locations))
        status = state.statuses[t.movable_status]
        return _Items(
            start=t["item_start"][things, status, separator],
            length=(t["item_length"][things, status] + (rank > 0)) * listed,
            before=before,
            just_before=together & (rank[:, None] == rank + 1),
            last=rank == size - 1,
        )


class _Items(NamedTuple):
    """For each movable thing: its words with what separates it from the one before."""

    start: Array
    length: Array
    before: Array
    """Which things stand before it in its list."""
    just_before: Array
    last: Array


class _Tables:
    """The game's arrays: ``t.name`` is NumPy's, ``t["name"]`` can be indexed on the device."""

    def __init__(self, arrays: Any) -> None:
        self.__dict__.update(arrays)
        things = len(self.start_location)
        rooms, locations = len(self.exit_to), int(self.location_count)
        self.location_rows = rooms + np.arange(things, dtype=np.int32) * locations
        self.status_rows = rooms + things * locations + self.status_start

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    def __getattr__(self, name: str) -> np.ndarray:
        raise AttributeError(f"the compiled game has no array {name!r}")

    def __getitem__(self, name: str) -> Array:
        return jnp.asarray(self.__dict__[name])


def _all_bits(rows: Array) -> Array:
    """The bits that are set in every row."""
    return jax.lax.reduce(rows, np.uint32(0xFFFFFFFF), jax.lax.bitwise_and, (0,))


def _bits(words: Array) -> Array:
    """Words of 32 bits as truth values, lowest bit first."""
    return ((words[:, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1).astype(bool).reshape(-1)
