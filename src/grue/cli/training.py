"""The commands that train agents and evaluate them: agents, train, eval."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grue.cli.entry import replace_unreadable
from grue.cli.options import (
    AsJson,
    CheckpointSeconds,
    CommandsPath,
    GameName,
    KeepEvery,
    SettingTexts,
    StoryPath,
    Together,
    Watch,
    print_table,
)
from grue.cli.watch import watched
from grue.errors import StoppedError, UsageError

if TYPE_CHECKING:
    from grue.training.config import TrainConfig
    from grue.training.train import RunResult

SETTING = ("setting", "default", "description")
COLUMNS = ("run", "steps", "episodes", "score", "fraction_of_subtasks", "folder")


def train(
    game: GameName,
    agent: Annotated[
        str | None, typer.Option(help="By default sc; grue agents lists them.")
    ] = None,
    gate: Annotated[
        str | None, typer.Option(help="By default none; grue agents lists them.")
    ] = None,
    explore: Annotated[
        str | None,
        typer.Option(help="One or several, as in none,achievements; grue agents lists them."),
    ] = None,
    agents: Annotated[str | None, typer.Option(help="Several agents, as in drqn,sc.")] = None,
    gates: Annotated[str | None, typer.Option(help="Several gates, as in none,masking.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps of each run; by default the preset's.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="As in 0,1,2 or 0-4, a run for each; by default 0.")
    ] = None,
    preset: Annotated[
        str,
        typer.Option(help="small: level 1 in minutes on a CPU; paper: the paper's sizes."),
    ] = "small",
    values: SettingTexts = None,
    no_priority: Annotated[
        bool, typer.Option("--no-priority", help="Replay all episodes alike.")
    ] = False,
    no_look: Annotated[bool, typer.Option("--no-look", help="Never force a look.")] = False,
    story: StoryPath = None,
    commands: CommandsPath = None,
    out: Annotated[Path, typer.Option(help="Where the run folders go.")] = Path("runs"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the runs that are there.")
    ] = False,
    together: Together = None,
    checkpoint_seconds: CheckpointSeconds = 60.0,
    keep_every: KeepEvery = 0,
    watch: Watch = False,
) -> None:
    """Train agents on a game, with a run folder for every agent, gate and seed."""
    options = {
        "agent": one_of(agent, agents, "agent"),
        "gate": one_of(gate, gates, "gate"),
        "explore": explore,
        "steps": steps,
        "seeds": seeds,
        "priority": False if no_priority else None,
        "look_every": 0 if no_look else None,
        "story": None if story is None else str(story),
        "commands": None if commands is None else str(commands),
    }
    configs = conditions(game, preset, values or (), options)
    with watched(configs, out, watch):
        rows = _trained(configs, out, resume, together, checkpoint_seconds, keep_every)
    print_table(COLUMNS, rows)


def agents(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """List agents, gates and explorers with their settings, and the settings of every run."""
    from grue.agents.settings import described
    from grue.training.config import PARTS, TrainConfig, all_parts

    found = [
        {
            "kind": kind,
            "name": name,
            "summary": part.summary,
            "settings": [dict(zip(SETTING, row, strict=True)) for row in described(part.settings)],
        }
        for kind, name, part in all_parts()
    ]
    own = [row for row in described(TrainConfig) if row[0] not in PARTS and row[0] != "seeds"]
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print_table(
        ("kind", "name", "what it is"), [(p["kind"], p["name"], p["summary"]) for p in found]
    )
    print_table(("setting of every run", *SETTING[1:]), own)
    shown: set[tuple[str, ...]] = set()
    for part in found:
        rows = [tuple(setting.values()) for setting in part["settings"]]
        names = [p["name"] for p in found if p["settings"] == part["settings"]]
        if rows and tuple(names) not in shown:
            shown.add(tuple(names))
            print_table((f"setting of {', '.join(names)}", *SETTING[1:]), rows)


def eval_(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run folder, or one that holds some.")
    ],
    episodes: Annotated[int, typer.Option(min=1, help="Episodes at the final ε.")] = 100,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of the play.")] = 0,
    transcript: Annotated[
        bool, typer.Option("--transcript", help="Show the greedy episode of each run.")
    ] = False,
    as_json: AsJson = False,
    greedy: Annotated[
        bool, typer.Option("--greedy/--both", help="Only the greedy play, or that at the ε too.")
    ] = False,
) -> None:
    """Play with trained agents: greedily, and with the ε that training ended on."""
    from rich.console import Console

    from grue.cli.transcript import print_lines, tell
    from grue.training import evaluate

    with Console(stderr=True).status("Playing"):
        played = list(evaluate.evaluate_runs(folder, episodes, seed, greedy))
    for note in (note for run in played for note in run.notes):
        print(note, file=sys.stderr)
    if as_json:
        print(json.dumps([run.to_json(transcript) for run in played], indent=2))
        return
    if transcript:
        replace_unreadable(sys.stdout)
        for run in played:
            print_lines([(run.name, "bold"), *tell(run.greedy), ("", None)], Console(emoji=False))
    print_table(evaluate.COLUMNS, [row for run in played for row in run.rows()])


# The options of grue train


def conditions(
    game: str, preset: str, values: Sequence[str], options: Mapping[str, Any]
) -> list[TrainConfig]:
    """The configs of a command line: every combination of agent, gate and explorer.

    ``values`` are the texts of ``--set``. ``options`` are the options that name a setting, None
    where one is not given. ``agent``, ``gate``, ``explore`` and ``seeds`` are texts with commas.
    """
    from grue.training.config import TrainConfig, check_used, known_to, parse_seeds, parse_settings

    settings = parse_settings(values)
    for name, value in {"game": game, **options}.items():
        if value is None:
            continue
        if name in settings:
            raise UsageError(f"{name} is given twice, once by --set; give it once")
        settings[name] = parse_seeds(value) if name == "seeds" else value
    parts = ("agent", "gate", "explore")
    listed = [_listed(settings, part) for part in parts]
    chosen: list[dict[str, str]] = [
        dict(zip(parts, names, strict=True)) for names in product(*listed)
    ]
    configs = [TrainConfig.preset(preset, **one, **known_to(one, settings)) for one in chosen]
    check_used(settings, configs)
    return configs


def _listed(settings: dict[str, Any], name: str) -> list[str]:
    """The agents, gates or explorers of a list with commas."""
    from grue.training.config import TrainConfig

    text = settings.pop(name, getattr(TrainConfig, name))
    listed = [part.strip() for part in text.split(",")]
    if len(set(listed)) < len(listed):
        raise UsageError(f"each {name} is given once, not {text!r}")
    return listed


def one_of(single: str | None, several: str | None, name: str) -> str | None:
    """The value of an option that has a singular and a plural form."""
    if single is not None and several is not None:
        raise UsageError(f"give --{name} or --{name}s, not both")
    if single is not None and "," in single:
        raise UsageError(f"--{name} takes one, --{name}s takes several: {single!r}")
    return several if single is None else single


def _trained(
    configs: Sequence[TrainConfig],
    out: Path,
    resume: bool,
    together: bool | None,
    checkpoint_seconds: float,
    keep_every: int,
) -> list[list[str]]:
    """Trains with a display on stderr, and returns the rows of the final table."""
    from grue.training.progress import Display
    from grue.training.train import Interrupted, train_all

    try:
        with Display() as display:
            result = train_all(
                configs, out, resume, together, display, checkpoint_seconds, keep_every=keep_every
            )
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
