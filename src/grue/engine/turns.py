"""A turn of a compiled game, as pure functions of its tables.

``step`` reads as the turn of a story: find the outcome, change the world, look at the quests, see
what is possible now, print. Every table comes from ``grue.engine.compiler``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from grue.engine.compiler.model import FIRST_PLACE, FLOOR, HELD, HERE, HIDDEN, NO_EXIT
from grue.engine.printing import apart, guards, printed
from grue.engine.sight import plural, question, sights
from grue.engine.step import Step
from grue.engine.tables import Tables, take

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


class Sizes(NamedTuple):
    """Sizes on which the shapes of results depend, besides the tables."""

    commands: int
    observation_length: int
    most_pieces: int
    """Of a text."""
    most_tokens: int
    """In the table of tokens."""
    episode_steps: int
    """Unless there is a table of this name."""


class Turns:
    """The functions of one game."""

    def __init__(self, table: Tables, sizes: Sizes) -> None:
        self._table = table
        self._sizes = sizes

    def reset(self) -> tuple[State, Step]:
        """Starts an episode."""
        t = self._table
        things = len(t.start_location)
        state = State(
            room=jnp.asarray(t.start_room, jnp.int32),
            locations=jnp.asarray(t.start_location, jnp.int32),
            recency=-jnp.arange(things, dtype=jnp.int32),
            statuses=jnp.zeros(len(t.status_rows) + 1, jnp.int32),
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
        words = self._print(state, jnp.asarray(t.opening_frame, jnp.int32))
        if "opening_plural" in t:
            state = self._remember(state, jnp.asarray(t.opening_plural, jnp.int32))
        nothing = jnp.int32(0)
        return state, self._report(state, words, nothing, jnp.bool_(False))

    def step(self, state: State, action: Array | int) -> tuple[State, Step]:
        """Takes a command by its number. A game that is over stays as it is."""
        (outcome,) = apart(self._decide(state, action))
        moved = State(*apart(*self._change(state, outcome)))
        moved = State(*apart(*moved._replace(variables=self._variables(moved, outcome))))
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
        return self._print(state, self._table["room_frame"][state.room])

    def inventory(self, state: State) -> Array:
        """The words of taking inventory now, without spending a step."""
        return self._print(state, jnp.asarray(self._table.inventory_frame, jnp.int32))

    # The phases of a turn

    def _decide(self, state: State, action: Array | int) -> Array:
        """The outcome of a command: its variables index its decision table."""
        if "own_command" in self._table:  # In a set: the number of the command in this game.
            action = self._table["own_command"][action]
        if (
            "reading_table" in self._table
        ):  # Names share words: find the sentence that the command means now.
            action = self._look_up(state, "reading_table", "reading", action)
        return self._look_up(state, "decision_table", "command", action)

    def _look_up(self, state: State, table: str, name: str, row: Array | int) -> Array:
        t = self._table
        values = take(state.variables, t[f"{name}_variables"][row])
        index = t[f"{name}_offset"][row] + (values * t[f"{name}_strides"][row]).sum()
        return t[table][index].astype(jnp.int32)

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
        after = t["operations"][operation, turned, take(state.statuses, turned)]
        (after,) = apart(after)
        hits = turned[:, None] == jnp.arange(len(state.statuses))
        statuses = jnp.where(hits.any(0), (hits * after[:, None]).sum(0), state.statuses)
        return state._replace(room=room, locations=locations, recency=recency, statuses=statuses)

    def _variables(self, state: State, outcome: Array | None = None) -> Array:
        """Everything that guards and decision tables ask about; ``outcome`` is the last."""
        t = self._table
        here = t.place_room == state.room
        through = t["lets_through"][
            jnp.arange(len(t.openable_status)), take(state.statuses, t.openable_status)
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
        reach = take(reach_by_location, state.locations)

        door_open = jnp.concatenate([through[places:], jnp.array([True])])
        free = take(door_open, t["exit_door"][state.room])
        leads = t["exit_to"][state.room] >= 0
        exits = jnp.where(leads, 1 + free.astype(jnp.int32), NO_EXIT)

        first_place = len(t.exit_to) + 1
        held = (state.locations[:, None] == first_place + jnp.arange(places)).sum(0)
        lying = (reach == FLOOR).sum()
        carried = (reach == HELD).sum()
        counts = jnp.minimum(jnp.concatenate([held, jnp.stack([lying, carried])]), MANY)

        foods = t.ingredient_movable
        known = t["ingredient_table"][
            jnp.arange(len(foods)), take(state.statuses, take(t.movable_status, foods))
        ]
        ingredients = jnp.where(take(reach, foods) == HELD, known, 0)
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
        (values,) = apart(values)
        agreeing = _all_bits(t["event_masks"], values)
        wins = (t.quest_win_bits & agreeing).any(1)
        fails = (t.quest_fail_bits & agreeing).any(1)
        lost = (~state.quests & fails).any()
        new = ~state.quests & ~fails & wins
        quests = state.quests | new
        reward = (t.quest_reward * new).sum()
        won = (quests | ~t.quest_needed).all() & t.quest_needed.any()
        return quests, reward, lost, won

    def admissible_set(self, state: State) -> Array:
        """For each command, whether it would change the state."""
        t = self._table
        (values,) = apart(take(state.variables, t.mask_variables) + t.mask_offset)
        possible = _all_bits(t["masks"], values) & t.mask_possible
        joined = possible[0]
        for plane in range(1, len(t.mask_possible)):
            joined = joined | possible[plane]
        return _bits(joined)[: self._sizes.commands] & ~state.over

    def _report(self, state: State, words: Array, reward: Array, admissible: Array) -> Step:
        t = self._table
        limit = t.episode_steps if "episode_steps" in t else self._sizes.episode_steps
        return Step(
            observation=words,
            text=None,
            reward=reward,
            score=state.score,
            terminated=state.over,
            truncated=~state.over & (state.steps >= limit),
            admissible=admissible,
            admissible_set=self.admissible_set(state),
            subtasks=take(state.quests, t.subtask_quest),
        )

    def _print(
        self, state: State, frame: Array, points: Array | int = 0, ending: Array | int = 0
    ) -> Array:
        return printed(self._table, self._sizes, state, frame, points, ending)

    def _remember(self, state: State, guard: Array) -> State:
        """Stores whether the last list had several things."""
        plural = guards(self._table, state, guard[None])[0].astype(jnp.int32)
        return state._replace(variables=state.variables.at[-1].set(plural))


def _all_bits(table: Any, numbers: Array) -> Array:
    """The bits that are set in all rows of these numbers.

    A few rows at once: XLA does longer reductions in two parts, which takes longer on a CPU.
    """
    every, few = np.uint32(0xFFFFFFFF), 16
    joined = every
    for begin in range(0, len(numbers), few):
        rows = table[numbers[begin : begin + few]]
        joined = joined & jax.lax.reduce(rows, every, jax.lax.bitwise_and, (0,))
    return jnp.asarray(joined)


def _bits(words: Array) -> Array:
    """Words of 32 bits as truth values, lowest bit first."""
    return ((words[:, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1).astype(bool).reshape(-1)
