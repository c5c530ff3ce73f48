"""Plays the games of all splits while a run is trained: one program for each split."""

from __future__ import annotations

from collections.abc import Sequence

from grue.agents.agent import AgentState, RunParameters
from grue.training.config import TrainConfig
from grue.training.playing import play_each_game
from grue.training.programs import Explorers, agent_for
from grue.training.sets import sets_of
from grue.training.splits import SplitRow, make_split_row


class SplitPlay:
    """The games of each split, and the agent for them."""

    def __init__(self, config: TrainConfig, heads: int, explorers: Explorers) -> None:
        self._splits = {
            name: (env, agent_for(env, config, heads, explorers))
            for name, env in sets_of(config).items()
        }

    def play(
        self, step: int, seed: int, state: AgentState, parameters: RunParameters
    ) -> list[SplitRow]:
        """A row for each split: how one run plays its games now."""
        return [
            make_split_row(step, seed, name, play_each_game(*split, state, parameters), split[0])
            for name, split in self._splits.items()
        ]


def told_rows(run: str, rows: Sequence[SplitRow]) -> str:
    """One line about the rows of a step."""
    told = ", ".join(f"{row['split']} {row['normalised']:.3f}" for row in rows)
    return f"{run} at step {rows[0]['step']:,}, normalised scores: {told}"
