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
    ConfigPath,
    CoresPerGroup,
    GameOrConfig,
    GpusPerGroup,
    KeepEvery,
    PresetName,
    RayAddress,
    Resume,
    RunSeeds,
    RunSteps,
    SettingTexts,
    StoryPath,
    Together,
    Watch,
    print_table,
)
from grue.cli.watch import watched
from grue.errors import GrueError, NoCheckpointError, StoppedError, UsageError

if TYPE_CHECKING:
    from grue.training.config import TrainConfig
    from grue.training.evaluate import RunEvaluation
    from grue.training.runs import StoredRun
    from grue.training.train import RunResult

SETTING = ("setting", "default", "description")
COLUMNS = ("run", "steps", "episodes", "score", "fraction_of_subtasks", "folder")


def train_command(
    game: GameOrConfig = None,
    config: ConfigPath = None,
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
    steps: RunSteps = None,
    seeds: RunSeeds = None,
    preset: PresetName = "small",
    values: SettingTexts = None,
    no_priority: Annotated[
        bool, typer.Option("--no-priority", help="Replay all episodes alike.")
    ] = False,
    no_look: Annotated[bool, typer.Option("--no-look", help="Never force a look.")] = False,
    story: StoryPath = None,
    commands: CommandsPath = None,
    out: Annotated[Path, typer.Option(help="Where the run folders go.")] = Path("runs"),
    resume: Resume = False,
    together: Together = None,
    ray: RayAddress = None,
    cores_per_group: CoresPerGroup = None,
    gpus_per_group: GpusPerGroup = None,
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
    if game is None and config is None:
        raise UsageError("give a GAME, or a --config file that names one")
    if ray is not None and keep_every:
        raise UsageError("--keep-every is for training on this machine; leave it or --ray out")
    configs = conditions(game, preset, values or (), options, read_settings(config))
    with watched(configs, out, watch):
        if ray is None:
            rows = _trained(configs, out, resume, together, checkpoint_seconds, keep_every)
        else:
            shares = cores_per_group, gpus_per_group, checkpoint_seconds
            rows = _trained_on_ray(configs, out, resume, together, ray, shares)
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
    ray: RayAddress = None,
    cores_per_group: CoresPerGroup = None,
) -> None:
    """Play with trained agents: greedily, and with the ε that training ended on."""
    from rich.console import Console

    from grue.training import evaluate

    if ray is not None:
        asked = {"episodes": episodes, "seed": seed, "greedy": greedy, "transcript": transcript}
        _eval_on_ray(folder, ray, cores_per_group, asked, as_json)
        return

    with Console(stderr=True).status("Playing"):
        found = list(evaluate.evaluate_runs(folder, episodes, seed, greedy))
    played = [one for one in found if not isinstance(one, GrueError)]
    failed = [one for one in found if isinstance(one, GrueError)]
    for error in failed if played else ():
        print(f"grue: left out: {error}", file=sys.stderr)
    for note in (note for run in played for note in run.notes):
        print(note, file=sys.stderr)
    if as_json and played:
        print(json.dumps([run.to_json(transcript) for run in played], indent=2))
    elif played:
        _show(played, transcript)
    # A run that has only begun is no failure.
    broken = [one for one in failed if not isinstance(one, NoCheckpointError) or not played]
    if len(found) == len(broken) == 1:
        raise broken[0]
    if broken:
        raise GrueError(f"{len(broken)} of {len(found)} runs cannot be played: {broken[0]}")


def _show(played: Sequence[RunEvaluation], transcript: bool) -> None:
    from rich.console import Console

    from grue.cli.transcript import print_lines, tell
    from grue.training.evaluate import COLUMNS as PLAYED

    if transcript:
        replace_unreadable(sys.stdout)
        for run in played:
            print_lines([(run.name, "bold"), *tell(run.greedy), ("", None)], Console(emoji=False))
    print_table(PLAYED, [row for run in played for row in run.rows()])


def _eval_on_ray(
    folder: Path, address: str, cores: int | None, asked: Mapping[str, Any], as_json: bool
) -> None:
    from grue.experiments.evaluation import evaluate
    from grue.training.evaluate import COLUMNS
    from grue.training.progress import Display

    if asked["transcript"] and not as_json:
        raise UsageError("--transcript with --ray needs --json; or leave --ray out")
    with Display() as display:
        results = evaluate(folder, address, cores, asked, display)
    for note in (note for result in results for note in result["notes"]):
        print(note, file=sys.stderr)
    if as_json:
        print(json.dumps([result["json"] for result in results], indent=2))
    else:
        print_table(COLUMNS, [row for result in results for row in result["rows"]])


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


def _trained_on_ray(
    configs: Sequence[TrainConfig],
    out: Path,
    resume: bool,
    together: bool | None,
    address: str,
    shares: tuple[int | None, float | None, float],
) -> list[list[str]]:
    """The same on the nodes of a cluster. ``shares``: cores and GPUs of a group, checkpoints."""
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
