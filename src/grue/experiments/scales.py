"""At which size a figure is reproduced: the paper's, or one that runs in minutes on a laptop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grue.errors import UsageError
from grue.experiments.figures import Condition, Figure
from grue.experiments.records import label_of
from grue.training.config import WITHOUT_CLASSIFIER, TrainConfig

LEVEL = "saladworld-"


@dataclass(frozen=True)
class Scale:
    name: str
    seeds: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    tabular: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of the tabular agents."""
    one_program: bool = False
    """Whether compiling takes longer than training, so that drqn had better use sc's program."""

    def config(self, condition: Condition, level: int, seeds: Sequence[int]) -> TrainConfig:
        own = self.tabular if condition.agent in WITHOUT_CLASSIFIER else {}
        return TrainConfig(
            game=f"{LEVEL}{level}",
            agent=condition.agent,
            gate=condition.gate,
            seeds=tuple(seeds),
            **{**self.settings, **own},
        )


SCALES = {
    "paper": Scale("paper", seeds=(0, 1, 2, 3, 4)),
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
        one_program=True,
    ),
}


def find_scale(name: str) -> Scale:
    if name not in SCALES:
        raise UsageError(f"there is no scale {name!r}; there are {' and '.join(SCALES)}")
    return SCALES[name]


@dataclass(frozen=True)
class Wish:
    """What is asked of some figures: all of them, or some levels, conditions or seeds."""

    figures: tuple[Figure, ...]
    scale: Scale
    levels: tuple[int, ...] | None = None
    conditions: tuple[Condition, ...] | None = None
    seeds: tuple[int, ...] | None = None

    @property
    def all_seeds(self) -> tuple[int, ...]:
        return self.scale.seeds if self.seeds is None else self.seeds

    def configs(self) -> list[TrainConfig]:
        """The runs to make, level by level; what several figures share is there once."""
        pairs = dict.fromkeys(
            (level, condition)
            for figure in self.figures
            for condition in figure.conditions
            for level in figure.levels
            if (self.levels is None or level in self.levels)
            and (self.conditions is None or condition in self.conditions)
        )
        ordered = sorted(pairs, key=lambda pair: pair[0])
        return [self.scale.config(condition, level, self.all_seeds) for level, condition in ordered]

    def command(self, config: TrainConfig) -> str:
        """What makes the runs of a config again."""
        condition = label_of(config.agent, config.gate).replace(" ", "")
        seeds = ",".join(map(str, config.seeds))
        return (
            f"grue reproduce all --scale {self.scale.name} --levels {level_of(config)} "
            f"--conditions {condition} --seeds {seeds}"
        )

    def configs_of(self, figure: Figure) -> list[TrainConfig]:
        """All that a figure shows, asked for or not."""
        return [
            self.scale.config(condition, level, self.all_seeds)
            for level in figure.levels
            for condition in figure.conditions
        ]


def level_of(config: TrainConfig) -> int:
    return int(config.game.removeprefix(LEVEL))


def by_level(configs: Iterable[TrainConfig]) -> list[list[TrainConfig]]:
    levels: dict[int, list[TrainConfig]] = {}
    for config in configs:
        levels.setdefault(level_of(config), []).append(config)
    return list(levels.values())
