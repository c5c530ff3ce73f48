"""What an agent is: eight pure functions, the same for every run of a program.

``AgentState`` has two parts. ``learned`` is what an update changes (weights, moments); ``kept`` is
what only play changes (the replay memory, the scores seen). An update reads both and returns the
first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from grue.engine.step import Step

Told = dict[str, Float[Array, "*runs"]]
"""Values of the metric columns that an agent has declared, by name."""


class RunParameters(NamedTuple):
    """What may differ between the runs of one program: numbers, not branches."""

    gate: Int[Array, ""]
    """Its place among the gates that the program was built with."""
    heads: Int[Array, ""]
    positive_fraction: Float[Array, ""]
    negative_fraction: Float[Array, ""]
    look_every: Int[Array, ""]
    """0: never."""
    softness: Float[Array, ""]
    """ε₁ of the gate; 0 in greedy play."""
    explorer: Any = 0
    """Its place among the program's explorers."""


class AgentState(NamedTuple):
    learned: Any
    kept: Any


class Episode(NamedTuple):
    """Where an episode stands: what the agent may know before its next command."""

    game: Any
    """The state of the game."""
    seen: Step
    """o_t, u_t and the rest of the last step."""
    previous: Int[Array, ""]
    """a_{t-1}; -1 before the first command."""
    time: Int[Array, ""]
    """Commands so far."""
    memory: Any
    """The agent's own: h_{t-1}."""


class Decision(NamedTuple):
    """A command, and what the agent computed for all of them."""

    action: Int[Array, ""]
    memory: Any
    """h_t"""
    head: Int[Array, ""]
    candidates: Bool[Array, " commands"]
    values: Float[Array, " commands"]
    admissibility: Float[Array, " commands"] | None
    """ξ̂; None for an agent that does not estimate it."""


class Agent(ABC):
    """Eight pure functions; four of them have a default."""

    heads: int = 1
    """The most heads that a run of the program has."""

    @abstractmethod
    def init(self, key: PRNGKeyArray) -> AgentState:
        """Initial weights from the key, an empty memory."""

    @abstractmethod
    def start(self, state: AgentState) -> Any:
        """The agent's memory at the start of an episode: h_0."""

    def epsilon(
        self,
        state: AgentState,
        episode: Episode,
        parameters: RunParameters,
        epsilon: Float[Array, ""],
    ) -> Float[Array, ""]:
        """ε of this step in training: the annealed one, or what an explorer makes of it."""
        return epsilon

    @abstractmethod
    def act(
        self,
        state: AgentState,
        episode: Episode,
        parameters: RunParameters,
        epsilon: Float[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[AgentState, Decision]:
        """ACT of Algorithm 1."""

    def perceive(self, memory: Any, game: Any, seen: Step) -> Any:
        """The memory that ``act`` returned, updated with the step that followed."""
        return memory

    @abstractmethod
    def observe(
        self,
        state: AgentState,
        before: Episode,
        action: Int[Array, ""],
        after: Episode,
        parameters: RunParameters,
    ) -> tuple[AgentState, Told]:
        """Stores a step, or learns from it at once; returns the step's declared metrics."""

    def update(
        self, state: AgentState, parameters: RunParameters, key: PRNGKeyArray
    ) -> tuple[Any, Told]:
        """``learned`` after one update, and the update's declared metrics."""
        return state.learned, {}

    def copy_to_target(self, learned: Any) -> Any:
        """θ⁻ ← θ"""
        return learned
