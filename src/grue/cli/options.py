"""Options that several commands share, and printed tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

GameName = Annotated[
    str,
    typer.Argument(
        metavar="GAME", help="saladworld-1 to saladworld-7, zork1, or the path of a story file."
    ),
]
TextWorldName = Annotated[
    str,
    typer.Argument(
        metavar="GAME",
        help="saladworld-1 to saladworld-7, or the path of a TextWorld story with its .json.",
    ),
]
GameOrConfig = Annotated[
    str | None,
    typer.Argument(
        metavar="GAME",
        help="As for grue play, or a folder of games; may be given in the --config file instead.",
    ),
]
ValidFolder = Annotated[
    Path | None,
    typer.Option(
        "--valid", metavar="FOLDER", help="Unseen games; the agent that is best on them is kept."
    ),
]
TestFolder = Annotated[
    Path | None,
    typer.Option("--test", metavar="FOLDER", help="Unseen games that are only measured."),
]
ConfigPath = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings: a .toml, or a run's config.json."),
]
RunSteps = Annotated[int | None, typer.Option(help="Steps of each run; by default the preset's.")]
RunSeeds = Annotated[
    str | None, typer.Option(help="One run for each seed, as in 0,1,2 or 0-4; by default 0.")
]
PresetName = Annotated[
    str, typer.Option(help="small: level 1 in minutes on a CPU; paper: the paper's sizes.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the existing runs.")]
Together = Annotated[
    bool | None,
    typer.Option(
        "--together/--one-by-one",
        help="Train runs side by side in one program; by default on an accelerator only.",
        show_default=False,
    ),
]
StoryPath = Annotated[
    Path | None,
    typer.Option(
        "--story", metavar="PATH", help="The story file of zork1; by default $GRUE_ZORK1."
    ),
]
CommandsPath = Annotated[
    Path | None,
    typer.Option(
        "--commands", metavar="FILE", help="The commands of a Z-machine story, one on each line."
    ),
]
SettingTexts = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting; may be given several times."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
RunsPlace = Annotated[
    Path, typer.Option(help="Where the run folders go; also an address such as s3://BUCKET.")
]
CheckpointSeconds = Annotated[float, typer.Option(min=0, help="Seconds between two checkpoints.")]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Use a Ray cluster: auto, HOST:PORT, or nothing to start one on this machine.",
    ),
]
CoresPerGroup = Annotated[
    int | None,
    typer.Option(
        min=1, help="Cores for each group of runs; by default 1, on a GPU its share of the cores."
    ),
]
GpusPerGroup = Annotated[
    float | None,
    typer.Option(
        min=0, max=1, help="GPUs for each group of runs, as in 0.5; by default 1 if there are any."
    ),
]
KeepEvery = Annotated[
    int,
    typer.Option(min=0, metavar="STEPS", help="Also keep the agent every so many steps; 0: never."),
]
WandbProject = Annotated[
    str | None,
    typer.Option(
        "--wandb",
        metavar="PROJECT",
        help="Log to a project of Weights & Biases; WANDB_MODE=offline writes files only.",
    ),
]
Watch = Annotated[
    bool, typer.Option("--watch", help="Show the runs in a browser; prints the address.")
]


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for i, column in enumerate(columns):
        numeric = all(str(row[i])[:1].isdigit() for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*map(str, row))
    # A pipe has no width that the table must fit into.
    Console(width=None if sys.stdout.isatty() else 1000).print(table)
