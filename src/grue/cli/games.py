"""The commands for games: games, play, walkthrough, map, make-games, compile, verify."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from grue.cli.options import AsJson, GameName, StoryPath, TextWorldName, print_table
from grue.errors import GrueError, UsageError
from grue.files import expanded
from grue.games.game import Game
from grue.games.playable import Playable
from grue.games.registry import game_names, load, load_textworld
from grue.games.zmachine import zork


def games(
    as_json: AsJson = False,
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


def play_command(
    game: GameName,
    hints: Annotated[bool, typer.Option("--hints", help="Show the admissible commands.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the game's random numbers.")] = 0,
    transcript: Annotated[
        Path | None, typer.Option(help="Write the transcript to this file, which must not exist.")
    ] = None,
    story: StoryPath = None,
) -> None:
    """Play a game in the terminal."""
    from grue.cli.play import play

    play(load(game, story), hints, seed, transcript)


def walkthrough_command(
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


def map_(
    game: TextWorldName,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help=".png, .svg or .pdf; by default the game's name.png."),
    ] = None,
) -> None:
    """Draw a game's rooms, ways, doors and things."""
    from grue.reports.game_map import draw_map

    loaded = load_textworld(game)
    print(draw_map(loaded, output or Path(f"{loaded.name}.png")))


def compile_(
    game: TextWorldName,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="By default beside the story.")
    ] = None,
    near: Annotated[
        bool,
        typer.Option(
            "--near/--exact-only",
            help="Whether some commands may be exact only while their things are in sight.",
        ),
    ] = True,
) -> None:
    """Compile a game, or all TextWorld games of a folder, to files that need no TextWorld."""
    from grue.cli.sets import compile_folder, compile_one
    from grue.games.gamefile import compiled_path

    if expanded(game).is_dir():
        if output is not None:
            raise UsageError(f"{game} is a folder: its games are compiled beside their stories")
        compile_folder(expanded(game), near)
        return
    loaded = load_textworld(game)
    path = output or compiled_path(loaded)
    made = compile_one(loaded, path, near)
    only_seen = made.header.get("near")
    told = f", near: {len(only_seen)} of {len(made.commands)} commands" if only_seen else ""
    print(f"{path}{told}")


def make_games(
    kind: Annotated[str, typer.Argument(help="cooking, custom, simple, coin or hunter.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A new folder for the games.")],
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many games.")] = 100,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the first game; each further game adds 1.")
    ] = 0,
    level: Annotated[
        str | None, typer.Option(help="Settings of the games; docs/textworld.md lists them.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Percent of train, valid and test games, as 80,10,10.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="How many processes; by default one per core.")
    ] = None,
) -> None:
    """Make TextWorld games with its own generators and settings from the literature."""
    from grue.cli.sets import make_set

    make_set(kind, level, count, seed, expanded(output), split, jobs)


def verify_command(
    game: TextWorldName,
    steps: Annotated[int, typer.Option(min=1, help="How many steps to compare.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the episodes.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="How many processes play.")] = 1,
) -> None:
    """Play the compiled and the real game side by side, and compare every step."""
    from rich.console import Console
    from rich.progress import Progress

    from grue.engine.verify import check_jobs, verify

    check_jobs(jobs)
    load_textworld(game)  # Refuses a wrong name before any process starts.
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(game, total=steps)
        report = verify(game, steps, seed, jobs, lambda n: progress.advance(task, n))
    skipped = f", {report.skipped} commands out of sight not compared" if report.skipped else ""
    print(f"{game}: {report.steps} steps, {report.mismatches} mismatches{skipped}")
    if report.first is not None:
        print(report.first)
        raise GrueError(f"the compiled {game} differs from the real game")
