"""The scales at which figures are reproduced, from docs/figures.toml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grue.agents.catalogue import AGENTS, EXPLORERS
from grue.errors import UsageError
from grue.experiments.conditions import Condition
from grue.experiments.data_files import check_known, read_toml
from grue.experiments.figures import FILE, STAGES
from grue.games.zmachine import zork
from grue.training.config import TrainConfig, all_settings, known_to, parse_settings

LEVEL = "saladworld-"
CHOSEN = {
    **dict.fromkeys(("agent", "gate", "explore", "priority", "look_every"), "--conditions"),
    **{"game": "--levels", "seeds": "--seeds", "story": "--story"},
}
"""Settings that have an option of their own instead of ``--set``."""


@dataclass(frozen=True)
class Scale:
    name: str
    seeds: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    tabular: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of the tabular agents."""
    games: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Further settings of games other than SaladWorld."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Settings from ``--set``, for all games and agents."""
    one_program: bool = False
    """Whether drqn uses sc's program, because compiling another takes longer than training."""

    def config(
        self,
        condition: Condition,
        level: int | str,
        seeds: Sequence[int],
        story: str | None = None,
    ) -> TrainConfig:
        """``level`` is one of SaladWorld or another game, ``story`` Zork's story file."""
        game = game_name(level)
        own = self.games.get(game, {}) if AGENTS.find(condition.agent).updates else self.tabular
        recipe = RECIPES.get(condition.explore, {})
        values = {**recipe, **self.settings, **own, **self.given}
        return TrainConfig(
            game=game,
            story=story if game == zork.NAME else None,
            seeds=tuple(seeds),
            **known_to(condition.settings, values),
            **condition.settings,
        )


def read_recipes(table: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The settings of all conditions with an explorer, by its name."""
    recipes = table.get("recipe", {})
    for name, settings in recipes.items():
        check_known(name, EXPLORERS, "explorer")
        for setting in settings:
            check_known(setting, all_settings(), "setting")
    return recipes


def read_scale(name: str, table: Mapping[str, Any]) -> Scale:
    try:
        if "seeds" not in table:
            raise UsageError("'seeds' is missing; give seeds = [0, 1]")
        scale = Scale(name, **{**table, "seeds": tuple(table["seeds"])})
        for settings in (scale.settings, scale.tabular, *scale.games.values()):
            for setting in settings:
                check_known(setting, all_settings(), "setting")
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"{FILE}, scale {name}: {error}") from None
    return scale


RECIPES: Mapping[str, Mapping[str, Any]] = read_recipes(read_toml(FILE))
SCALES = {name: read_scale(name, table) for name, table in read_toml(FILE).get("scale", {}).items()}


def find_scale(name: str, values: Sequence[str] = ()) -> Scale:
    """A scale with the settings of ``--set``."""
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


def stage_of(config: TrainConfig) -> int:
    """The number of the stage that a run, a config with one seed, belongs to."""
    place = level_of(config.game), Condition.of(config), config.seeds[0]
    found = (number for number, stage in enumerate(STAGES) if stage.has(*place))
    return next(found, len(STAGES))
