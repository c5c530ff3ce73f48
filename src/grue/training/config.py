"""The configuration of training: game, agent, gate, explorer, seeds and all their settings.

Agents, gates and explorers declare their own settings (``agents/settings.py``). A config takes them
all by name, and stores them in the fields ``PARTS``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from grue.agents.catalogue import AGENTS, EXPLORERS, GATES, AgentKind, ExplorerKind, Gate
from grue.agents.exploring import ChosenExplorer
from grue.agents.registry import Metric, nearest
from grue.agents.settings import (
    LARGEST,
    AgentSettings,
    NoSettings,
    as_kind,
    check_limits,
    from_text,
    names_of,
    setting,
    small_values,
    typed,
)
from grue.errors import UsageError
from grue.games.playable import Playable
from grue.games.registry import game_settings, known_names

PRESETS = ("paper", "small")
"""The presets: the defaults, and the values declared as ``small`` (minutes on a laptop)."""
MOST_SEEDS = 10_000
PARTS = ("settings", "gate_settings", "explorer_settings")
"""Fields with the settings of the agent, the gate and the explorer; flat in files."""


@dataclass(frozen=True, kw_only=True, init=False)
class TrainConfig:
    """One condition and its seeds. The defaults are the paper's for the game."""

    game: str = setting("saladworld-1", "name of a game, or the path of a file or of a folder")
    valid: str | None = setting(
        None, "folder of unseen games; the agent that is best on them is kept"
    )
    test: str | None = setting(None, "folder of unseen games that are only measured")
    valid_every: int = setting(
        10_000,
        "with a folder of games: steps between two evaluations on all games",
        above=0,
        small=2_000,
    )
    leave_out: bool = setting(
        False, "games of a folder that are damaged or cannot be compiled are left out"
    )
    story: str | None = setting(
        None, "the story file of zork1; by default it is searched in the usual places"
    )
    commands: str | None = setting(None, "file with the commands of a story, one per line")
    game_seed: int | None = setting(
        None, "the game's random seed in all episodes; by default each episode has its own", least=0
    )
    agent: str = setting("sc", "the agent; see above")
    gate: str = setting("none", "the gate: which commands may be tried")
    explore: str = setting("none", "the explorer: what earns a bonus")
    steps: int = setting(1_300_000, "steps of the run", above=0, small=20_000)
    seeds: tuple[int, ...] = (0,)
    episode_steps: int | None = setting(
        None, "T; by default the game's: 100 for level 1, else 200", above=0
    )
    priority: bool = setting(
        True, "off: all episodes are replayed with equal probability, the paper's ablation"
    )
    metrics_every: int = setting(1_000, "steps per row of metrics", above=0)
    average_over: int = setting(20_000, "steps of the moving average", above=0)
    settings: AgentSettings = dataclasses.field(default_factory=AgentSettings)
    gate_settings: Any = dataclasses.field(default_factory=NoSettings)
    explorer_settings: Any = dataclasses.field(default_factory=NoSettings)

    def __init__(self, **values: Any) -> None:
        _check_game(values.get("game"))
        own = [name for name in names_of(TrainConfig) if name not in PARTS]
        inherited = {}
        # Given by dataclasses.replace.
        for part in PARTS:
            inherited |= dataclasses.asdict(values.pop(part, NoSettings()))
        defaults = dict(game_settings(str(values.get("game", TrainConfig.game))))
        for name in own:
            default = defaults.get(name, getattr(TrainConfig, name))
            object.__setattr__(self, name, _typed(name, values.get(name, default)))
        for name in values:
            _check_known(name, self)
        chosen = {**defaults, **inherited, **values}
        for part, kind in zip(PARTS, self.kinds(), strict=True):
            names = [name for name in names_of(kind) if name in chosen]
            made = kind(**{name: typed(kind, name, chosen[name]) for name in names})
            object.__setattr__(self, part, made)
        _check(self)

    def __getattr__(self, name: str) -> Any:
        """Settings of the agent, the gate and the explorer are attributes too."""
        for part in PARTS:
            found = self.__dict__.get(part)
            if found is not None and name in names_of(type(found)):
                return getattr(found, name)
        raise AttributeError(f"this config has no setting {name!r}")

    @property
    def kind(self) -> AgentKind:
        return AGENTS.find(self.agent)

    @property
    def gate_kind(self) -> Gate:
        return GATES.find(self.gate)

    @property
    def explorer(self) -> ChosenExplorer:
        return ChosenExplorer(EXPLORERS.find(self.explore), self.explorer_settings)

    def kinds(self) -> tuple[type, ...]:
        """The dataclasses of ``PARTS``."""
        return kinds_of(self.agent, self.gate, self.explore)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The declared columns of the agent and the explorer."""
        return (*self.kind.metrics, *EXPLORERS.find(self.explore).metrics)

    @property
    def heads_in_use(self) -> int:
        """K."""
        given = getattr(self.settings, "heads", None)
        return self.kind.heads if given is None else given

    @classmethod
    def preset(cls, name: str, **values: Any) -> TrainConfig:
        """Given values override those of the preset, which override those of the game."""
        if name not in PRESETS:
            raise UsageError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
        small = {} if name == "paper" else _small_settings(values)
        return cls(**{**small, **values})

    def of_seed(self, seed: int) -> TrainConfig:
        return dataclasses.replace(self, seeds=(seed,))

    def flat(self) -> dict[str, Any]:
        """Every setting by name."""
        values = {name: getattr(self, name) for name in names_of(TrainConfig) if name not in PARTS}
        for part in PARTS:
            values |= dataclasses.asdict(getattr(self, part))
        return values

    def to_json(self) -> dict[str, Any]:
        return {**self.flat(), "seeds": list(self.seeds)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TrainConfig:
        return cls(**{n: tuple(v) if isinstance(v, list) else v for n, v in values.items()})


def kinds_of(agent: str, gate: str, explore: str) -> tuple[type, ...]:
    """The settings dataclasses of an agent, a gate and an explorer."""
    parts = AGENTS.find(agent), GATES.find(gate), EXPLORERS.find(explore)
    return tuple(part.settings for part in parts)


def _parts_of(chosen: Mapping[str, Any]) -> list[str]:
    return [chosen.get(name, getattr(TrainConfig, name)) for name in ("agent", "gate", "explore")]


def _small_settings(chosen: Mapping[str, Any]) -> dict[str, Any]:
    kinds = TrainConfig, *kinds_of(*_parts_of(chosen))
    return {name: value for kind in kinds for name, value in small_values(kind).items()}


def names_for(chosen: Mapping[str, Any]) -> list[str]:
    """All settings of a config with this agent, gate and explorer."""
    parts = _parts_of(chosen)
    kinds = TrainConfig, *kinds_of(*parts)
    names = [name for kind in kinds for name in names_of(kind) if name not in PARTS]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two of {', '.join(parts)} have a setting {name!r}; rename one")
    return names


def known_to(chosen: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Only those values that are settings of a config with this agent, gate and explorer."""
    names = names_for(chosen)
    return {name: value for name, value in values.items() if name in names}


def all_parts() -> Iterator[tuple[str, str, AgentKind | Gate | ExplorerKind]]:
    """Every agent, gate and explorer: kind of part, name and declaration."""
    for registry in (AGENTS, GATES, EXPLORERS):
        for name, part in registry.items():
            yield registry.kind, name, part


def all_settings() -> dict[str, type]:
    """Every setting of any part, and the dataclass that declares it."""
    found: dict[str, type] = {}
    for kind in (TrainConfig, *(part.settings for _, _, part in all_parts())):
        for name in names_of(kind):
            found.setdefault(name, kind)
    return {name: kind for name, kind in found.items() if name not in PARTS}


def parse_settings(given: Iterable[str]) -> dict[str, Any]:
    """Parses ``name=value`` texts, as in the option ``--set``."""
    values: dict[str, Any] = {}
    known = all_settings()
    for text in given:
        name, equals, value = text.partition("=")
        name, value = name.strip().replace("-", "_"), value.strip()
        if not equals:
            raise UsageError(f"--set takes name=value, not {text!r}")
        if name not in known:
            raise _unknown(name, list(known))
        values[name] = (
            parse_seeds(value) if name == "seeds" else from_text(known[name], name, value)
        )
    return values


def check_used(values: Mapping[str, Any], configs: Iterable[TrainConfig]) -> None:
    """Every setting must be one of at least one config."""
    configs = list(configs)
    for name in values:
        if not any(name in names_for(config.flat()) for config in configs):
            _check_known(name, configs[0])


def _check_known(name: str, config: TrainConfig) -> None:
    chosen = {"agent": config.agent, "gate": config.gate, "explorer": config.explore}
    names = names_for({**chosen, "explore": config.explore})
    if name in names:
        return
    for what in chosen:
        parts = [(n, part.settings) for kind, n, part in all_parts() if kind == what]
        having = [n for n, settings in parts if name in names_of(settings)]
        if having:
            raise UsageError(
                f"{name} is a setting of the {what} {', '.join(having)}, not of {chosen[what]}"
            )
    raise _unknown(name, names)


def _unknown(name: str, known: list[str]) -> UsageError:
    return UsageError(
        f"there is no setting {name!r}; the nearest is {nearest(name, known)!r}; "
        "grue agents lists them all"
    )


def _typed(name: str, value: Any) -> Any:
    if name != "seeds":
        return typed(TrainConfig, name, value)
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise UsageError(f"seeds are some numbers, as in (0, 1, 2), not {value!r}")
    return tuple(as_kind("a seed", seed, (int,)) for seed in value)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from "0,1,2" or "0-4"."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        try:
            ends = range(int(first), int(last if dash else first) + 1)
        except ValueError:
            raise UsageError(
                f"seeds are numbers from 0 on, as in 0,1,2 or 0-4, not {text!r}"
            ) from None
        if not ends or len(ends) > MOST_SEEDS:
            raise UsageError(f"seeds go up, at most {MOST_SEEDS} of them, as in 0-4, not {part!r}")
        seeds += ends
    return tuple(seeds)


def _check(config: TrainConfig) -> None:
    if config.gate_kind.classifier and not config.kind.classifier:
        fitting = [name for name, other in GATES.items() if not other.classifier]
        raise UsageError(
            f"{config.agent} has no classifier: its gate is {' or '.join(fitting)}, "
            f"not {config.gate!r}"
        )
    if config.explore != "none" and not config.kind.explores:
        raise UsageError(f"{config.agent} does not learn from a bonus: its explorer is none")
    if not config.seeds or len(set(config.seeds)) < len(config.seeds):
        raise UsageError(f"seeds must be some different numbers, not {list(config.seeds)}")
    if any(not 0 <= seed <= LARGEST for seed in config.seeds):
        raise UsageError(f"seeds lie from 0 to {LARGEST}, not {list(config.seeds)}")
    for part in (config, *(getattr(config, name) for name in PARTS)):
        check_limits(part)
        conflict = getattr(part, "conflict", None)
        if conflict is not None and (why := conflict()):
            raise UsageError(why)
    for name in ("steps", "target_every", "metrics_every", "average_over", "learning_starts"):
        multiple(config, name, "update_every")
    for name in ("steps", "average_over", "learning_starts"):
        multiple(config, name, "metrics_every")
    if config.metrics_every % config.target_every:
        multiple(config, "target_every", "metrics_every")


def _check_game(game: object) -> None:
    """The game must be a name or a path, which a run folder can store."""
    if isinstance(game, Playable):
        given = game.name if game.name in known_names() else str(game.story)
        raise UsageError(
            f"game is a name or the path of a file, not a {type(game).__name__}: give {given!r}"
        )


def multiple(config: TrainConfig, name: str, of: str) -> None:
    """Refuses a setting that is not a multiple of another."""
    value, unit = getattr(config, name), getattr(config, of)
    if value % unit:
        raise UsageError(f"{name} must be a multiple of {of}, which is {unit}, not {value}")
