"""The interface of an agent: pure functions, the same for every run of a program.

``AgentState`` has two parts: updates change ``learned`` (weights, moments), playing changes
``kept`` (the replay memory, the scores seen).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from grue.engine.step import Step

Told = dict[str, Float[Array, "*runs"]]
"""Values of declared metrics, by name."""


class RunParameters(NamedTuple):
    """What may differ between the runs of one program."""

    gate: Int[Array, ""]
    """Its index in the program's gates."""
    heads: Int[Array, ""]
    positive_fraction: Float[Array, ""]
    negative_fraction: Float[Array, ""]
    look_every: Int[Array, ""]
    """0: never."""
    softness: Float[Array, ""]
    """ε₁ of the gate; 0 in greedy play."""
    explorer: Any = 0
    """Its index in the program's explorers."""


class AgentState(NamedTuple):
    learned: Any
    kept: Any


class Episode(NamedTuple):
    """The state of an episode before the next command."""

    game: Any
    seen: Step
    """o_t, u_t and the rest of the last step."""
    previous: Int[Array, ""]
    """a_{t-1}; -1 before the first command."""
    time: Int[Array, ""]
    """Commands so far."""
    memory: Any
    """The agent's memory: h_{t-1}."""


class Decision(NamedTuple):
    """The chosen command, and the agent's estimates for all commands."""

    action: Int[Array, ""]
    memory: Any
    """h_t"""
    head: Int[Array, ""]
    candidates: Bool[Array, " commands"]
    values: Float[Array, " commands"]
    admissibility: Float[Array, " commands"] | None
    """ξ̂; None if the agent does not estimate it."""


class Agent(ABC):
    heads: int = 1
    """The largest number of heads of a run of the program."""

    @abstractmethod
    def init(self, key: PRNGKeyArray) -> AgentState:
        """Initial weights and an empty replay memory."""

    def for_play(self, state: AgentState) -> AgentState:
        """The state for playing this environment, where it was learned on other games, too."""
        return state

    def without_explorer(self, state: AgentState) -> AgentState:
        """The state for play outside training: exploratory commands are drawn uniformly."""
        return state

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
        """ε of this training step, given the annealed one."""
        return epsilon

    def override(
        self,
        state: AgentState,
        episode: Episode,
        parameters: RunParameters,
        action: Int[Array, ""],
    ) -> Int[Array, ""]:
        """The command of this training step, given the one from ``act``."""
        return action

    def counts(self, state: AgentState, parameters: RunParameters) -> bool | Bool[Array, ""]:
        """Whether this training episode counts in the score, the fraction and the wins."""
        return True

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
        """Updates the memory from ``act`` with the step that followed."""
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
        """Stores a step or learns from it; returns declared metrics of the step."""

    def update(
        self, state: AgentState, parameters: RunParameters, key: PRNGKeyArray
    ) -> tuple[Any, Told]:
        """``learned`` after one update, and declared metrics of the update."""
        return state.learned, {}

    def copy_to_target(self, learned: Any) -> Any:
        """θ⁻ ← θ"""
        return learned
