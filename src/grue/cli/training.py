"""The commands that train agents: agents, train."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grue.cli.options import (
    CheckpointSeconds,
    CommandsPath,
    ConfigPath,
    CoresPerGroup,
    GameOrConfig,
    GpusPerGroup,
    KeepEvery,
    PresetName,
    RayAddress,
    Resume,
    RunSeeds,
    RunsPlace,
    RunSteps,
    SettingTexts,
    StoryPath,
    TestFolder,
    Together,
    ValidFolder,
    WandbProject,
    Watch,
    print_table,
)
from grue.cli.watch import watched
from grue.errors import GrueError, StoppedError, UsageError
from grue.experiments.storage import placed, sending

if TYPE_CHECKING:
    from grue.training.config import TrainConfig
    from grue.training.runs import StoredRun
    from grue.training.train import RunResult
    from grue.training.trainer import Progress

SETTING = ("setting", "default", "description")
COLUMNS = ("run", "steps", "episodes", "score", "fraction_of_subtasks", "folder")


def train_command(
    game: GameOrConfig = None,
    config: ConfigPath = None,
    valid: ValidFolder = None,
    test: TestFolder = None,
    agent: Annotated[
        str | None, typer.Option(help="The agent, by default sc; grue agents lists them.")
    ] = None,
    gate: Annotated[
        str | None, typer.Option(help="The gate, by default none; grue agents lists them.")
    ] = None,
    explore: Annotated[
        str | None, typer.Option(help="Explorers, as in none,counts; grue agents lists them.")
    ] = None,
    agents: Annotated[str | None, typer.Option(help="Several agents, as in drqn,sc.")] = None,
    gates: Annotated[str | None, typer.Option(help="Several gates, as in none,masking.")] = None,
    steps: RunSteps = None,
    seeds: RunSeeds = None,
    preset: PresetName = "small",
    values: SettingTexts = None,
    no_priority: Annotated[
        bool, typer.Option("--no-priority", help="Replay all episodes with equal probability.")
    ] = False,
    no_look: Annotated[bool, typer.Option("--no-look", help="Never force a look.")] = False,
    story: StoryPath = None,
    commands: CommandsPath = None,
    out: RunsPlace = Path("runs"),
    resume: Resume = False,
    together: Together = None,
    ray: RayAddress = None,
    cores_per_group: CoresPerGroup = None,
    gpus_per_group: GpusPerGroup = None,
    checkpoint_seconds: CheckpointSeconds = 60.0,
    keep_every: KeepEvery = 0,
    watch: Watch = False,
    wandb: WandbProject = None,
) -> None:
    """Train agents on a game or a folder of games; every agent, gate and seed gets a run folder."""
    options = {
        "agent": one_of(agent, agents, "agent"),
        "gate": one_of(gate, gates, "gate"),
        "explore": explore,
        "steps": steps,
        "seeds": seeds,
        "priority": False if no_priority else None,
        "look_every": 0 if no_look else None,
        **_texts(story=story, commands=commands, valid=valid, test=test),
    }
    if game is None and config is None:
        raise UsageError("give a GAME, or a --config file that names one")
    check_for_ray(ray, {"--keep-every": keep_every, "--wandb": wandb})
    configs = conditions(game, preset, values or (), options, read_settings(config))
    with placed(out) as folder, watched(configs, folder, watch):
        if ray is None:
            often = checkpoint_seconds, keep_every
            rows = _trained(configs, folder, resume, together, often, wandb)
        else:
            shares = cores_per_group, gpus_per_group, checkpoint_seconds
            rows = _trained_on_ray(configs, folder, resume, together, ray, shares)
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


# The options of grue train


def conditions(
    game: str | None,
    preset: str,
    values: Sequence[str],
    options: Mapping[str, Any],
    base: Mapping[str, Any] | None = None,
) -> list[TrainConfig]:
    """The configs of a command line: every combination of agent, gate and explorer.

    ``values`` are the texts of ``--set``. ``options`` are the options that name a setting, None
    where one is not given. ``agent``, ``gate``, ``explore`` and ``seeds`` are texts with commas.
    ``base`` are the settings of a file, which both override.
    """
    from grue.training.config import TrainConfig, check_used, known_to, parse_seeds, parse_settings

    settings = parse_settings(values)
    for name, value in {"game": game, **options}.items():
        if value is None:
            continue
        if name in settings:
            raise UsageError(f"{name} is given twice, once by --set; give it once")
        settings[name] = parse_seeds(value) if name == "seeds" else value
    settings = {**(base or {}), **settings}
    parts = ("agent", "gate", "explore")
    listed = [_listed(settings, part) for part in parts]
    chosen: list[dict[str, str]] = [
        dict(zip(parts, names, strict=True)) for names in product(*listed)
    ]
    configs = [TrainConfig.preset(preset, **one, **known_to(one, settings)) for one in chosen]
    check_used(settings, configs)
    return configs


def read_settings(path: Path | None) -> dict[str, Any]:
    """The settings of a .toml file, or of the config.json of a run folder."""
    from grue.experiments.data_files import read_toml
    from grue.files import read_plain
    from grue.training.config import parse_settings

    if path is None:
        return {}
    if path.suffix == ".toml":
        found: Any = read_toml(path)
    else:
        try:
            found = json.loads(read_plain(path))
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(f"{path} cannot be read as TOML or JSON ({error})") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path} holds no settings; give lines such as steps = 20000")
    found.pop("about", None)
    parse_settings(f"{name}={0 if name == 'seeds' else value}" for name, value in found.items())
    return {n: tuple(v) if isinstance(v, list) else v for n, v in found.items()}


def _listed(settings: dict[str, Any], name: str) -> list[str]:
    """The agents, gates or explorers in a comma-separated list."""
    from grue.training.config import TrainConfig

    text = settings.pop(name, getattr(TrainConfig, name))
    listed = [part.strip() for part in text.split(",")]
    if len(set(listed)) < len(listed):
        raise UsageError(f"give each {name} only once, not {text!r}")
    return listed


def _texts(**paths: Path | None) -> dict[str, str | None]:
    return {name: None if path is None else str(path) for name, path in paths.items()}


def one_of(single: str | None, several: str | None, name: str) -> str | None:
    """The value of an option that has a singular and a plural form."""
    if single is not None and several is not None:
        raise UsageError(f"give --{name} or --{name}s, not both")
    if single is not None and "," in single:
        raise UsageError(f"--{name} takes one {name}; for several use --{name}s {single}")
    return several if single is None else single


def _trained(
    configs: Sequence[TrainConfig],
    out: Path,
    resume: bool,
    together: bool | None,
    often: tuple[float, int],
    wandb: str | None,
) -> list[list[str]]:
    """Trains with a display on stderr, and returns the rows of the final table.

    ``often``: seconds between checkpoints, steps between kept agents.
    """
    from grue.training.progress import Display
    from grue.training.runs import run_name
    from grue.training.train import Interrupted, train_all

    names = [run_name(config.of_seed(seed)) for config in configs for seed in config.seeds]
    try:
        with (
            Display() as display,
            sending(out, names),
            logged(display, wandb, configs, out) as progress,
        ):
            result = train_all(
                configs, out, resume, together, progress, often[0], keep_every=often[1]
            )
    except Interrupted as stopped:
        raise StoppedError(
            f"interrupted at step {stopped.step} of {stopped.steps}; "
            "the same command with --resume goes on"
        ) from None
    return [_told(run) for run in result.runs]


def logged(
    display: Progress, project: str | None, configs: Sequence[TrainConfig], out: Path
) -> AbstractContextManager[Progress]:
    """The display; if a project is given, it also logs to Weights & Biases."""
    if project is None:
        return nullcontext(display)
    from grue.training.wandb_log import WandbLog

    return WandbLog(project, configs, out, display)


def check_for_ray(ray: str | None, here_only: Mapping[str, object]) -> None:
    for name in (name for name, value in here_only.items() if value and ray is not None):
        raise UsageError(f"{name} does not work with --ray; leave one of them out")


def _trained_on_ray(
    configs: Sequence[TrainConfig],
    out: Path,
    resume: bool,
    together: bool | None,
    address: str,
    shares: tuple[int | None, float | None, float],
) -> list[list[str]]:
    """As ``_trained``, on the nodes of a cluster. ``shares``: cores, GPUs, checkpoint seconds."""
    from grue.experiments.conductor import told_failures
    from grue.experiments.study import PlannedStudy, Where, tell_failures
    from grue.training.progress import Display
    from grue.training.runs import read_run

    cores, gpus, seconds = shares
    where = Where(ray=address, cores=cores, gpus=gpus, checkpoint_seconds=seconds)
    with Display() as display:
        study = PlannedStudy(configs, out, out, where, display, together=together, resume=resume)
        outcome = study.carry_out()
        if outcome.stopped:
            raise StoppedError("interrupted; the same command with --resume goes on")
        if outcome.failures:
            tell_failures(outcome.failures, display)
            told = told_failures(outcome, len(study.by_name))
            raise GrueError(f"{told}; the same command with --resume goes on")
    return [_told(read_run(out / name)) for name in study.by_name]


def _told(run: RunResult | StoredRun) -> list[str]:
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
