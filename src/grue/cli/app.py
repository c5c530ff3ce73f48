"""The command line. Each command imports what it needs when it runs, so help comes at once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from grue import __version__
from grue.cli.bench import bench
from grue.cli.entry import replace_unreadable
from grue.cli.options import (
    CheckpointSeconds,
    CommandsPath,
    GameName,
    SettingTexts,
    StoryPath,
    print_table,
)
from grue.cli.own import import_own
from grue.errors import GrueError
from grue.games.game import Game
from grue.games.playable import Playable
from grue.games.registry import game_names, load, load_textworld
from grue.games.zmachine import zork

app = typer.Typer(
    name="grue",
    help="Trains, studies and plays text games.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        print(f"grue {__version__}")
        raise typer.Exit()
    import_own()


@app.command()
def games(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the games: those that come with grue, and the one that needs a story file."""
    rows = [_describe(load_textworld(name)) for name in game_names()]
    rows.append({**dict.fromkeys(rows[0]), "name": zork.NAME, "max_score": zork.MAX_SCORE})
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    told = [["-" if value is None else value for value in row.values()] for row in rows]
    print_table(list(rows[0]), told)


def _describe(game: Game) -> dict[str, str | int | None]:
    return {
        "name": game.name,
        "rooms": len(game.rooms),
        "objects": len(game.objects),
        "subtasks": len(game.subtasks),
        "commands": len(game.commands),
        "max_score": game.max_score,
    }


@app.command()
def play(
    game: GameName,
    hints: Annotated[
        bool, typer.Option("--hints", help="Show the commands that would change something.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the game's chance.")] = 0,
    transcript: Annotated[
        Path | None, typer.Option(help="Write the game to this file, which must not exist.")
    ] = None,
    story: StoryPath = None,
) -> None:
    """Play a game in the terminal."""
    from grue.cli.play import play as play_game

    play_game(load(game, story), hints, seed, transcript)


@app.command()
def walkthrough(
    game: GameName,
    run: Annotated[
        bool, typer.Option("--run", help="Play it on the real game and show the score.")
    ] = False,
    story: StoryPath = None,
) -> None:
    """Print commands that finish a game with the full score."""
    from grue.cli.play import run_walkthrough

    loaded: Playable = load(game, story)
    if not loaded.walkthrough:
        raise GrueError(f"{loaded.name} comes with no walkthrough")
    if run:
        run_walkthrough(loaded)
    else:
        print("\n".join(loaded.walkthrough))


@app.command("map")
def map_(
    game: GameName,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help=".png, .svg or .pdf; by default the game's name.png."),
    ] = None,
) -> None:
    """Draw a game's rooms, ways, doors and things."""
    from grue.reports.game_map import draw_map

    loaded = load_textworld(game)
    print(draw_map(loaded, output or Path(f"{loaded.name}.png")))


@app.command("compile")
def compile_(
    game: GameName,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="By default beside the story.")
    ] = None,
) -> None:
    """Compile a game to arrays, in a file that needs no TextWorld to be played."""
    from grue.engine.compiler.build import compile_game
    from grue.games.gamefile import compiled_path

    loaded = load_textworld(game)
    path = output or compiled_path(loaded)
    compile_game(loaded).save(path)
    print(path)


@app.command()
def verify(
    game: GameName,
    steps: Annotated[int, typer.Option(min=1, help="How many steps to compare.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the play.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="How many processes play.")] = 1,
) -> None:
    """Play the compiled game and the real one side by side and compare all they say."""
    from rich.console import Console
    from rich.progress import Progress

    from grue.engine.verify import verify as compare

    load_textworld(game)  # A wrong name is told before any process starts.
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(game, total=steps)
        report = compare(game, steps, seed, jobs, lambda n: progress.advance(task, n))
    print(f"{game}: {report.steps} steps, {report.mismatches} mismatches")
    if report.first is not None:
        print(report.first)
        raise GrueError(f"the compiled {game} differs from the real game")


@app.command()
def train(
    game: GameName,
    agent: Annotated[
        str | None, typer.Option(help="tabular, li-tabular, drqn, sc or ae-dqn; by default sc.")
    ] = None,
    gate: Annotated[
        str | None,
        typer.Option(help="none, oracle, dropout, masking, cqlh or acqlh; by default none."),
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
    together: Annotated[
        bool | None,
        typer.Option(
            "--together/--one-by-one",
            help="Train runs side by side in one program; by default on an accelerator only.",
            show_default=False,
        ),
    ] = None,
    checkpoint_seconds: CheckpointSeconds = 60.0,
) -> None:
    """Train agents on a game, with a run folder for every agent, gate and seed."""
    from grue.cli import training as command

    options = {
        "agent": command.one_of(agent, agents, "agent"),
        "gate": command.one_of(gate, gates, "gate"),
        "steps": steps,
        "seeds": seeds,
        "priority": False if no_priority else None,
        "look_every": 0 if no_look else None,
        "story": None if story is None else str(story),
        "commands": None if commands is None else str(commands),
    }
    configs = command.conditions(game, preset, values or (), options)
    rows = command.train(configs, out, resume, together, checkpoint_seconds)
    print_table(command.COLUMNS, rows)


@app.command("eval")
def eval_(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run folder, or one that holds some.")
    ],
    episodes: Annotated[int, typer.Option(min=1, help="Episodes at the final ε.")] = 100,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of the play.")] = 0,
    transcript: Annotated[
        bool, typer.Option("--transcript", help="Show the greedy episode of each run.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    greedy: Annotated[
        bool, typer.Option("--greedy/--both", help="Only the greedy play, or that at the ε too.")
    ] = False,
) -> None:
    """Play with trained agents: greedily, and with the ε that training ended on."""
    from rich.console import Console

    from grue.reports.transcript import print_lines, tell
    from grue.training.evaluate import COLUMNS, evaluate_runs

    with Console(stderr=True).status("Playing"):
        played = list(evaluate_runs(folder, episodes, seed, greedy))
    for note in (note for run in played for note in run.notes):
        print(note, file=sys.stderr)
    if as_json:
        print(json.dumps([run.to_json(transcript) for run in played], indent=2))
        return
    if transcript:
        replace_unreadable(sys.stdout)
        for run in played:
            print_lines([(run.name, "bold"), *tell(run.greedy), ("", None)], Console(emoji=False))
    print_table(COLUMNS, [row for run in played for row in run.rows()])


@app.command()
def reproduce(
    figure: Annotated[
        str, typer.Argument(metavar="FIGURE", help="A figure's name, all, or list to see them.")
    ],
    scale: Annotated[
        str,
        typer.Option(
            help="smoke: minutes on a CPU, learns nothing; paper: the paper's; short: a quarter"
        ),
    ] = "smoke",
    out: Annotated[
        Path | None,
        typer.Option(help="Where runs, records and figures go; by default reproduce/SCALE."),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Runs or records that are there already; may be given again."),
    ] = None,
    levels: Annotated[
        str | None, typer.Option(help="Run only these levels, as in 1,3 or 1-3.")
    ] = None,
    conditions: Annotated[
        str | None, typer.Option(help="Run only these, as in drqn,sc+masking.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="As in 0-4; by default the scale's.")] = None,
    values: SettingTexts = None,
    story: StoryPath = None,
    draw_only: Annotated[
        bool, typer.Option("--draw-only", help="Train nothing; draw what there is.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes that train; by default one for each core, and one on an accelerator.",
            show_default=False,
        ),
    ] = None,
    checkpoint_seconds: CheckpointSeconds = 60.0,
) -> None:
    """Run what a figure of the paper needs, go on where it stopped, and draw it."""
    from grue.reports import reproduce as command

    if figure == "list":
        command.find_scale(scale, values or ())
        print_table(command.LISTED, command.table_of_figures())
        return
    wish = command.make_wish(
        figure, scale, levels, conditions, seeds, story, draw_only, values or ()
    )
    places = command.Places(out or Path("reproduce") / scale, tuple(data or ()))
    drawn = command.reproduce(wish, places, draw_only, jobs, checkpoint_seconds)
    command.check_drawn(drawn, scale)
    print_table(command.COLUMNS, [one.row() for one in drawn])


@app.command("report")
def report_(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Run folders, record files, or folders of them."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The page; by default report.html, if nothing else."),
    ] = None,
    claims: Annotated[
        Path | None, typer.Option(help="Write the paper's claims and verdicts to this .md file.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Write every figure and its numbers to this folder.")
    ] = None,
) -> None:
    """Make one page of figures, results, claims and settings from what was trained."""
    from grue.reports.report import report

    if output is None and claims is None and figures is None:
        output = Path("report.html")
    for path in report(folders, output, claims, figures):
        print(path)


app.add_typer(bench, name="bench")
