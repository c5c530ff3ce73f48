"""What an agent is: seven pure functions, the same for every run of a program.

``AgentState`` has two parts. ``learned`` is what an update changes (weights, moments); ``kept`` is
what only play changes (the memory, the scores seen). An update reads both and returns the first.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from grue.engine.step import Step


class Condition(NamedTuple):
    """What may differ between the runs of one program: numbers, not branches."""

    gate: Int[Array, ""]
    heads: Int[Array, ""]
    positive_fraction: Float[Array, ""]
    negative_fraction: Float[Array, ""]
    look_every: Int[Array, ""]
    """0: never."""


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
    """A command, and what was thought of all of them."""

    action: Int[Array, ""]
    memory: Any
    """h_t"""
    head: Int[Array, ""]
    candidates: Bool[Array, " commands"]
    values: Float[Array, " commands"]
    admissibility: Float[Array, " commands"]
    """ξ̂; zeros for an agent without a classifier."""


class Losses(NamedTuple):
    q: Float[Array, ""]
    classifier: Float[Array, ""]
    accuracy: Float[Array, ""]
    """How often ξ̂ ≥ 1/2 agrees with e_t on the commands that were taken."""


@runtime_checkable
class Agent(Protocol):
    heads: int
    """The most heads that a run of the program has."""

    def init(self, key: PRNGKeyArray) -> AgentState:
        """Weights from the key, nothing seen."""
        ...

    def start(self, state: AgentState) -> Any:
        """The agent's memory at the start of an episode: h_0."""
        ...

    def act(
        self,
        state: AgentState,
        episode: Episode,
        condition: Condition,
        epsilon: Float[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[AgentState, Decision]:
        """ACT of Algorithm 1."""
        ...

    def perceive(self, memory: Any, game: Any, seen: Step) -> Any:
        """The memory of ``act`` once the step is seen: for what is known before the next one."""
        ...

    def observe(
        self,
        state: AgentState,
        before: Episode,
        action: Int[Array, ""],
        after: Episode,
        condition: Condition,
    ) -> AgentState:
        """Takes in a step: remembers it, or learns from it at once."""
        ...

    def update(
        self, state: AgentState, condition: Condition, key: PRNGKeyArray
    ) -> tuple[Any, Losses]:
        """``learned`` after one update."""
        ...

    def copy_to_target(self, learned: Any) -> Any:
        """θ⁻ ← θ"""
        ...
