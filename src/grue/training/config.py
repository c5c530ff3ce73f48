"""What a training run is: a game, an agent, a gate, a seed and every hyper-parameter."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any, get_args, get_type_hints

from grue.agents.gating import GATES
from grue.agents.kernels.select import PRECISIONS
from grue.agents.network import ACTIVATIONS
from grue.agents.registry import AGENTS
from grue.agents.settings import Settings
from grue.errors import NotRegisteredError, UsageError
from grue.games.playable import Playable
from grue.games.registry import known_names
from grue.games.zmachine import zork

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    # Learns level 1 on a laptop in minutes.
    "small": {
        "steps": 20_000,
        "encoder": 32,
        "context": 64,
        "hidden": 64,
        "batch_size": 16,
        "epsilon_steps": 10_000,
        "replay_steps": 50_000,
        "word_vector": 20,
        "value_filters": 32,
        "elimination_filters": 10,
        "elimination_rows": 64,
    },
}
FRACTIONS = (
    "epsilon_start",
    "epsilon_end",
    "threshold",
    "softness",
    "positive_fraction",
    "negative_fraction",
    "discount",
    "table_learning_rate",
)
WITHOUT_NETWORK = ("tabular", "li-tabular")
EARLIER = {"activation": "relu", "adam_by_head": False}
"""What was so before it was a setting: files of that time do not name it."""
WITHOUT_CLASSIFIER = (*WITHOUT_NETWORK, "ae-dqn")
UNLEARNED_GATES = ("none", "oracle")
MAY_BE_ZERO = (
    *("look_every", "learning_starts", "minimum_history", "learning_rate", "game_seed"),
    *FRACTIONS,
)
CHOICES: dict[str, Collection[str]] = {
    "agent": AGENTS,
    "gate": GATES,
    "activation": ACTIVATIONS,
    "precision": PRECISIONS,
}
"""The words that a setting may be; some join later, by name."""
REGISTERED = ("agent", "gate")
MOST_SEEDS = 10_000
LARGEST = 2**31 - 1
"""Steps are counted in 32 bits."""
MOST = {"table_rows": 2**28}
"""A row has four slots, and their numbers have 32 bits, too."""


GAME_SETTINGS: dict[str, Mapping[str, Any]] = {zork.NAME: zork.SETTINGS}
"""What is otherwise for some games, where it is not given."""


@dataclass(frozen=True, kw_only=True, init=False)
class TrainConfig(Settings):
    """One condition and its seeds. Everything not given is the paper's for the game."""

    game: str = "saladworld-1"
    story: str | None = None
    """The story file of zork1, where it is not found by itself."""
    commands: str | None = None
    """A file with the commands of a Z-machine story, one on each line."""
    game_seed: int | None = None
    """Of the game's own chance, in every episode; by default each episode has its own."""
    agent: str = "sc"
    gate: str = "none"
    steps: int = 1_300_000
    seeds: tuple[int, ...] = (0,)
    priority: bool = True
    """Off: sequences are drawn from all episodes alike, the paper's ablation."""

    def __init__(self, **values: Any) -> None:
        for name in values:
            _known(name)
        _check_game(values.get("game"))
        fields = dataclasses.fields(self)
        chosen = {field.name: field.default for field in fields}
        chosen |= {**GAME_SETTINGS.get(values.get("game", chosen["game"]), {}), **values}
        for name, hint in _hints().items():
            object.__setattr__(self, name, _typed(name, chosen[name], hint))
        _check(self)

    @classmethod
    def preset(cls, name: str, **values: Any) -> TrainConfig:
        """The values of the game, then of a preset, and then the given ones."""
        if name not in PRESETS:
            raise UsageError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
        return cls(**{**PRESETS[name], **values})

    def of_seed(self, seed: int) -> TrainConfig:
        return dataclasses.replace(self, seeds=(seed,))

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "seeds": list(self.seeds)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TrainConfig:
        """Of a run or a record, perhaps of an earlier grue."""
        listed = {name: value for name, value in values.items() if isinstance(value, list)}
        earlier = {} if values.get("agent") in WITHOUT_NETWORK else EARLIER
        return cls(**{**earlier, **values, **{name: tuple(v) for name, v in listed.items()}})


def setting_names() -> list[str]:
    return [field.name for field in dataclasses.fields(TrainConfig)]


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(TrainConfig)


def parse_settings(given: Iterable[str]) -> dict[str, Any]:
    """Values from ``name=value`` texts, as the command line's ``--set`` takes them."""
    values: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise UsageError(f"--set takes name=value, not {text!r}")
        _known(name)
        values[name] = _read(name, value.strip(), _hints()[name])
    return values


def _known(name: str) -> None:
    if name not in _hints():
        close = difflib.get_close_matches(name, setting_names(), 1, 0.0)
        raise UsageError(f"there is no setting {name!r}; the nearest is {close[0]!r}")


def _read(name: str, value: str, hint: Any) -> Any:
    """A text in the type of its setting."""
    if name == "seeds":
        return parse_seeds(value)
    kinds = get_args(hint) or (hint,)
    if type(None) in kinds and value.lower() == "none":
        return None
    if str in kinds:
        return value
    if bool in kinds:
        answers = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
        if value.lower() in answers:
            return answers[value.lower()]
        raise _wrong_kind(name, value, bool)
    kind = int if int in kinds else float
    try:
        return kind(value)
    except ValueError:
        raise _wrong_kind(name, value, kind) from None


def _typed(name: str, value: Any, hint: Any) -> Any:
    """A value in exactly the type of its setting, so that equal settings are equal in JSON too."""
    kinds = get_args(hint) or (hint,)
    if name == "seeds":
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise UsageError(f"seeds are some numbers, as in (0, 1, 2), not {value!r}")
        return tuple(_typed("a seed", seed, int) for seed in value)
    if value is None and type(None) in kinds:
        return None
    if str in kinds and isinstance(value, str | Path):
        return str(value)
    if isinstance(value, bool):
        if bool in kinds:
            return value
    elif int in kinds and isinstance(value, Integral):
        return int(value)
    elif float in kinds and isinstance(value, Real) and math.isfinite(value):
        return float(value)
    raise _wrong_kind(name, value, kinds[0])


def _wrong_kind(name: str, value: Any, kind: type) -> UsageError:
    kinds = {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}
    return UsageError(f"{name} is {kinds[kind]}, not {value!r}")


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
    """Refuses what cannot be trained, before anything is built."""
    for name, choices in CHOICES.items():
        if (value := getattr(config, name)) not in choices:
            raise _not_there(name, value, choices)
    if config.agent in WITHOUT_CLASSIFIER and config.gate not in UNLEARNED_GATES:
        raise UsageError(
            f"{config.agent} has no classifier: its gate is {' or '.join(UNLEARNED_GATES)}, "
            f"not {config.gate!r}"
        )
    if not config.seeds or len(set(config.seeds)) < len(config.seeds):
        raise UsageError(f"seeds must be some different numbers, not {list(config.seeds)}")
    if any(not 0 <= seed <= LARGEST for seed in config.seeds):
        raise UsageError(f"seeds lie from 0 to {LARGEST}, not {list(config.seeds)}")
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if value < 0 or (value == 0 and field.name not in MAY_BE_ZERO):
            least = "at least 0" if field.name in MAY_BE_ZERO else "more than 0"
            raise UsageError(f"{field.name} must be {least}, not {value}")
        if field.name in FRACTIONS and value > 1:
            raise UsageError(f"{field.name} lies from 0 to 1, not {value}")
        most = MOST.get(field.name, LARGEST)
        if isinstance(value, int) and value > most:
            raise UsageError(f"{field.name} must be at most {most}, not {value}")
    if config.positive_fraction + config.negative_fraction > 1:
        raise UsageError("positive_fraction and negative_fraction are at most 1 together")
    if config.minimum_history >= config.sequence_length:
        raise UsageError(
            f"minimum_history must be less than sequence_length, {config.sequence_length}, "
            f"not {config.minimum_history}"
        )
    for name in ("steps", "target_every", "metrics_every", "average_over", "learning_starts"):
        _multiple(config, name, "update_every")
    for name in ("steps", "average_over", "learning_starts"):
        _multiple(config, name, "metrics_every")
    if config.metrics_every % config.target_every:
        _multiple(config, "target_every", "metrics_every")


def _check_game(game: object) -> None:
    """A run folder keeps the game's name or path, for any process to find it."""
    if isinstance(game, Playable):
        given = game.name if game.name in known_names() else str(game.story)
        raise UsageError(
            f"game is a name or the path of a file, not a {type(game).__name__}: give {given!r}"
        )


def _not_there(name: str, value: str, choices: Collection[str]) -> UsageError:
    message = f"there is no {name} {value!r}; there are {', '.join(choices)}"
    if name not in REGISTERED:
        return UsageError(message)
    return NotRegisteredError(
        f"{message}; if it is your own, name the file that registers it in GRUE_IMPORT "
        "(in Python: import it first)"
    )


def _multiple(config: TrainConfig, name: str, of: str) -> None:
    value, unit = getattr(config, name), getattr(config, of)
    if value % unit:
        raise UsageError(f"{name} must be a multiple of {of}, which is {unit}, not {value}")
