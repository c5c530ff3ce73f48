"""At which size a figure is reproduced: the paper's, or one that runs in minutes on a laptop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grue.agents.catalogue import AGENTS
from grue.errors import UsageError
from grue.experiments.conditions import Condition
from grue.games.zmachine import zork
from grue.training.config import TrainConfig, known_to, parse_settings

LEVEL = "saladworld-"
CHOSEN = {
    **dict.fromkeys(("agent", "gate", "priority", "look_every"), "--conditions"),
    **{"game": "--levels", "seeds": "--seeds", "story": "--story"},
}
"""Settings that are chosen in another way than by ``--set``."""


@dataclass(frozen=True)
class Scale:
    name: str
    seeds: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    tabular: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of the tabular agents."""
    games: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Further settings of games that are no level of SaladWorld."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """What was asked for on top, for all games and agents."""
    one_program: bool = False
    """Whether compiling takes longer than training, so that drqn had better use sc's program."""

    def config(
        self,
        condition: Condition,
        level: int | str,
        seeds: Sequence[int],
        story: str | None = None,
    ) -> TrainConfig:
        """``level`` is one of SaladWorld or another game, ``story`` the file of Zork's."""
        game = game_name(level)
        own = self.games.get(game, {}) if AGENTS.find(condition.agent).updates else self.tabular
        values = {**self.settings, **own, **self.given}
        return TrainConfig(
            game=game,
            story=story if game == zork.NAME else None,
            seeds=tuple(seeds),
            **known_to(condition.settings, values),
            **condition.settings,
        )


SCALES = {
    "paper": Scale("paper", seeds=(0, 1, 2, 3, 4)),
    # The paper's sizes for a quarter of its steps: where there is not the time for all.
    "short": Scale(
        "short",
        seeds=(0, 1, 2),
        settings={"steps": 325_000, "epsilon_steps": 250_000},
        # ae-dqn is smaller than its authors': at full size it would take three times as long. The
        # others are as in results/zork, from before heads were known to die with relu.
        games={
            zork.NAME: {
                "activation": "relu",
                "adam_by_head": False,
                "steps": 500_000,
                "state_words": 65,
                "word_vector": 50,
                "value_filters": 100,
            }
        },
    ),
    # Real training, too short to learn: nearly all its time goes to compiling.
    "smoke": Scale(
        "smoke",
        seeds=(0, 1),
        settings={
            "steps": 1_600,
            "embedding": 8,
            "encoder": 8,
            "context": 16,
            "hidden": 16,
            "batch_size": 4,
            "sequence_length": 8,
            "minimum_history": 2,
            "epsilon_steps": 1_200,
            "replay_steps": 2_000,
            "target_every": 200,
            "learning_starts": 200,
            "table_rows": 4_096,
            "metrics_every": 200,
            "average_over": 800,
        },
        # They learn as they play: the program with updates would be compiled for nothing.
        tabular={"learning_starts": 1_600},
        games={
            zork.NAME: {
                "word_vector": 8,
                "value_filters": 4,
                "elimination_filters": 4,
                "elimination_rows": 16,
            }
        },
        one_program=True,
    ),
}


def find_scale(name: str, values: Sequence[str] = ()) -> Scale:
    """A scale, changed by the texts of ``--set``."""
    if name not in SCALES:
        raise UsageError(f"there is no scale {name!r}; there are {', '.join(SCALES)}")
    given = parse_settings(values)
    for setting, option in CHOSEN.items():
        if setting in given:
            raise UsageError(f"a figure decides on the {setting}; {option} chooses, --set does not")
    return replace(SCALES[name], given=given)


def game_name(level: int | str) -> str:
    return f"{LEVEL}{level}" if isinstance(level, int) else level


def level_of(game: str) -> int | str:
    """A level of SaladWorld by its number, another game by its name."""
    return int(game.removeprefix(LEVEL)) if game.startswith(LEVEL) else game


def by_level(configs: Iterable[TrainConfig]) -> list[list[TrainConfig]]:
    levels: dict[str, list[TrainConfig]] = {}
    for config in configs:
        levels.setdefault(config.game, []).append(config)
    return list(levels.values())
