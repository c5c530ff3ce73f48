"""What ``grue train`` makes of its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from grue.errors import StoppedError, UsageError
from grue.training.config import (
    TrainConfig,
    check_used,
    known_to,
    parse_seeds,
    parse_settings,
)
from grue.training.progress import Display
from grue.training.train import Interrupted, RunResult, train_all

COLUMNS = ("run", "steps", "episodes", "score", "fraction_of_subtasks", "folder")


def conditions(
    game: str,
    preset: str,
    values: Sequence[str],
    options: Mapping[str, Any],
) -> list[TrainConfig]:
    """The configs of a command line, one for every agent with every gate.

    ``values`` are the texts of ``--set``; ``options`` holds the options that name a setting, None
    where one is not given. ``agent``, ``gate`` and ``seeds`` are texts.
    """
    settings = parse_settings(values)
    for name, value in {"game": game, **options}.items():
        if value is None:
            continue
        if name in settings:
            raise UsageError(f"{name} is given twice, once by --set; give it once")
        settings[name] = parse_seeds(value) if name == "seeds" else value
    agents = _listed(settings, "agent")
    gates = _listed(settings, "gate")
    explorers = _listed(settings, "explore")
    chosen = [
        {"agent": agent, "gate": gate, "explore": explore}
        for agent, gate, explore in product(agents, gates, explorers)
    ]
    configs = [TrainConfig.preset(preset, **one, **known_to(one, settings)) for one in chosen]
    check_used(settings, configs)
    return configs


def _listed(settings: dict[str, Any], name: str) -> list[str]:
    """The agents or gates of a list with commas."""
    text = settings.pop(name, getattr(TrainConfig, name))
    listed = [part.strip() for part in text.split(",")]
    if len(set(listed)) < len(listed):
        raise UsageError(f"each {name} is given once, not {text!r}")
    return listed


def one_of(single: str | None, several: str | None, name: str) -> str | None:
    """An option that exists in the singular and in the plural."""
    if single is not None and several is not None:
        raise UsageError(f"give --{name} or --{name}s, not both")
    if single is not None and "," in single:
        raise UsageError(f"--{name} takes one, --{name}s takes several: {single!r}")
    return several if single is None else single


def train(
    configs: Sequence[TrainConfig],
    out: Path,
    resume: bool,
    together: bool | None,
    checkpoint_seconds: float,
) -> list[list[str]]:
    """Trains with a display on stderr; the rows of the table at the end."""
    try:
        with Display() as display:
            result = train_all(configs, out, resume, together, display, checkpoint_seconds)
    except Interrupted as stopped:
        raise StoppedError(
            f"interrupted at step {stopped.step} of {stopped.steps}; "
            "the same command with --resume goes on"
        ) from None
    return [_told(run) for run in result.runs]


def _told(run: RunResult) -> list[str]:
    assert run.folder is not None
    final = run.final
    return [
        run.folder.name,
        str(run.config.steps),
        str(run.metrics["episodes"].sum()),
        f"{final['score']:.2f}",
        f"{final['fraction']:.3f}",
        str(run.folder),
    ]
