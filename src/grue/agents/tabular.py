"""The tabular agents of the paper: Q-learning on texts, one value for each text and command.

The state is the last observation for ``tabular``, and the output of look and inventory, without
spending a step, for ``li-tabular``. Every value starts at 0. After each step

    Q(s, a) ← Q(s, a) + α (r + γ max_a' Q(s', a') - Q(s, a))

with the maximum over all commands, or with the oracle over the admissible ones. The value after
the end of the game is 0; a time limit is not an end. There is no replay memory: ``observe`` learns.

A text gets a row when one of its values first becomes nonzero. When all ``table_rows`` are used,
new texts stay at 0, and ``Table.refused`` counts the updates that were lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from grue.agents import targets
from grue.agents.agent import Agent, AgentState, Decision, Episode, RunParameters, Told
from grue.agents.registry import Setup, register
from grue.agents.settings import AgentSettings, setting
from grue.agents.textkey import Key, text_key
from grue.engine.step import Step

WINDOW = 32
"""Slots that are searched for a key."""
SLOTS_PER_ROW = 4
"""Enough that the rows are used up before any window is full."""


@dataclass(frozen=True, kw_only=True)
class TabularSettings(AgentSettings):
    table_rows: int = setting(32_768, "texts that the table has room for", above=0, most=2**28)
    table_learning_rate: float = setting(0.1, "α, the step size of Q-learning", least=0, most=1)
    oracle_in_targets: bool = setting(
        True, "with the oracle the maximum in a target is over the admissible commands"
    )


class Table(NamedTuple):
    """Values by text: a hash table with open addressing on 64-bit keys."""

    slots: UInt32[Array, "slots 3"]
    """A key in two words, and its row; row 0 in an empty slot."""
    values: Float[Array, "rows commands"]
    """Row 0 is always 0, for texts without a row."""
    used: Int[Array, ""]
    """Rows in use."""
    refused: Int[Array, ""]
    """Updates lost because the table was full."""


def empty_table(rows: int, commands: int) -> Table:
    slots = 1 << (SLOTS_PER_ROW * rows - 1).bit_length()
    return Table(
        # The last window extends past the slots.
        jnp.zeros((slots + WINDOW, 3), jnp.uint32),
        jnp.zeros((1 + rows, commands), jnp.float32),
        jnp.int32(0),
        jnp.int32(0),
    )


def find(table: Table, key: Key) -> Int[Array, ""]:
    """The row of a key; 0 if it has none."""
    window = _window(table, key)
    same = (window[:, 0] == key[0]) & (window[:, 1] == key[1])
    return jnp.where(same, window[:, 2], 0).max().astype(jnp.int32)


def add(table: Table, key: Key, action: Int[Array, ""], change: Float[Array, ""]) -> Table:
    """Adds to a value. A new key gets a row if the change is not 0."""
    row = find(table, key)
    free = _window(table, key)[:, 2] == 0
    wanted = (row == 0) & (change != 0)
    added = wanted & free.any() & (table.used < len(table.values) - 1)
    used = table.used + added
    row = jnp.where(added, used, row)
    # Writes past the end are dropped.
    slot = jnp.where(added, _first_slot(table, key) + free.argmax(), len(table.slots))
    slots = table.slots.at[slot].set(jnp.append(key, used.astype(jnp.uint32)), mode="drop")
    target = jnp.where(row > 0, row, len(table.values))
    values = table.values.at[target, action].add(change, mode="drop")
    return Table(slots, values, used, table.refused + (wanted & ~added))


def _window(table: Table, key: Key) -> UInt32[Array, "window 3"]:
    return jax.lax.dynamic_slice_in_dim(table.slots, _first_slot(table, key), WINDOW)


def _first_slot(table: Table, key: Key) -> Int[Array, ""]:
    """From the highest bits of the key, which are the best mixed."""
    bits = (len(table.slots) - WINDOW).bit_length() - 1
    return (key[0] >> (32 - bits)).astype(jnp.int32)


def choose(
    key: PRNGKeyArray,
    values: Float[Array, " commands"],
    candidates: Bool[Array, " commands"],
    epsilon: Float[Array, ""],
) -> Int[Array, ""]:
    """ε-greedy like ``gating.choose``, with random tie-breaking, as most values are 0.

    Draws two random numbers, not one per command, which would take most of a step's time.
    """
    explore, lot = jax.random.uniform(key, (2,))
    best = candidates & (values == jnp.where(candidates, values, -jnp.inf).max())
    pool = jnp.where(explore < epsilon, candidates, best)
    rank = jnp.cumsum(pool)
    return (rank > (lot * rank[-1]).astype(jnp.int32)).argmax()


class TabularAgent(Agent):
    """Its memory in an episode is the key of the current state."""

    def __init__(self, setup: Setup, look_and_inventory: bool = False) -> None:
        self.settings: TabularSettings = setup.settings
        self.env, self.gates = setup.env, setup.gates
        self.look_and_inventory = look_and_inventory
        self.first_key = np.asarray(jax.jit(lambda: self._key(*self.env.reset()))())

    def init(self, key: PRNGKeyArray) -> AgentState:
        return AgentState((), empty_table(self.settings.table_rows, len(self.env.commands)))

    def start(self, state: AgentState) -> Key:
        return jnp.asarray(self.first_key)

    def act(
        self,
        state: AgentState,
        episode: Episode,
        parameters: RunParameters,
        epsilon: Float[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[AgentState, Decision]:
        table: Table = state.kept
        gate_key, choice_key = jax.random.split(key)
        values = table.values[find(table, episode.memory)]
        unknown, possible = jnp.zeros_like(values), episode.seen.admissible_set
        candidates = self.gates.candidates(gate_key, parameters, unknown, possible)
        action = choose(choice_key, values, candidates, epsilon)
        return state, Decision(action, episode.memory, jnp.int32(0), candidates, values, None)

    def perceive(self, memory: Key, game: Any, seen: Step) -> Key:
        return self._key(game, seen)

    def observe(
        self,
        state: AgentState,
        before: Episode,
        action: Int[Array, ""],
        after: Episode,
        parameters: RunParameters,
    ) -> tuple[AgentState, Told]:
        """One step of Q-learning."""
        table, seen = state.kept, after.seen
        values = table.values[find(table, after.memory)]
        possible = seen.admissible_set if self.settings.oracle_in_targets else None
        # There is no classifier: ξ̂ = 1.
        future = targets.next_value(
            self.gates, parameters.gate, values, values[action], jnp.float32(1), possible
        )
        reward = seen.reward.astype(jnp.float32)
        target = targets.q_target(reward, seen.terminated, future, self.settings.discount)
        value = table.values[find(table, before.memory), action]
        change = self.settings.table_learning_rate * (target - value)
        return state._replace(kept=add(table, before.memory, action, change)), {}

    def _key(self, game: Any, seen: Step) -> Key:
        if not self.look_and_inventory:
            return text_key(seen.observation)
        texts = [self.env.look(game), self.env.inventory(game)]
        return text_key(jnp.concatenate(texts))


register(
    "tabular",
    True,
    settings=TabularSettings,
    updates=False,
    summary="Q-learning on the last feedback text, in a table",
)(TabularAgent)
register(
    "li-tabular",
    True,
    settings=TabularSettings,
    updates=False,
    look_and_inventory=True,
    summary="Q-learning on the texts of look and inventory, which it is told, in a table",
)(partial(TabularAgent, look_and_inventory=True))
