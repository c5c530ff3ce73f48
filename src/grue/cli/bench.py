"""``grue bench``: throughput on this machine."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from grue.cli.options import StoryPath, print_table
from grue.games.registry import game_names

bench = typer.Typer(help="Measure throughput on this machine.", no_args_is_help=True)


@bench.command("env")
def bench_env(
    game: Annotated[
        list[str] | None, typer.Option(help="A game to measure; may be given again.")
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="A batch size; may be given again.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.01, max=3600, help="Time for each figure.")] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Steps a second of the compiled engine and of real TextWorld, for every level."""
    from grue.engine.bench import BATCHES, Row
    from grue.engine.bench import bench_env as measure

    rows = list(measure(game or game_names(), batch or BATCHES, seconds))
    if as_json:
        print(json.dumps([row._asdict() for row in rows], indent=2))
        return
    print_table(Row._fields, [(*row[:3], f"{row.steps_per_s:,.0f}", row.device) for row in rows])


@bench.command("train")
def bench_train(
    game: Annotated[
        str | None, typer.Argument(metavar="[GAME]", help="One game, in place of --games.")
    ] = None,
    games: Annotated[
        str, typer.Option(help="Games, with commas.")
    ] = "saladworld-1,saladworld-3,saladworld-7",
    story: StoryPath = None,
    agents: Annotated[str, typer.Option(help="drqn, sc or both.")] = "drqn,sc",
    gates: Annotated[str, typer.Option(help="Gates, with commas.")] = "masking",
    runs: Annotated[
        str, typer.Option(help="Numbers of runs side by side; one run measures each condition.")
    ] = "1",
    preset: Annotated[str, typer.Option(help="paper or small: the sizes.")] = "paper",
    values: Annotated[
        list[str] | None, typer.Option("--set", help="name=value; may be given again.")
    ] = None,
    parts: Annotated[
        bool, typer.Option("--parts", help="Where the time goes, and the floors (on a GPU).")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Milliseconds of an update, training steps a second, and the machine's matrix rate."""
    from grue.cli.bench_train import measure, table

    chosen = games if game is None else game
    found = measure(chosen, agents, gates, runs, preset, values or (), parts, story)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print_table(*table(found))
