"""The commands for the paper's study: reproduce trains and draws, report reads and draws."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grue.cli.options import (
    AsJson,
    CheckpointSeconds,
    CoresPerGroup,
    GpusPerGroup,
    RayAddress,
    SettingTexts,
    StoryPath,
    print_table,
)
from grue.errors import UsageError

if TYPE_CHECKING:
    from grue.experiments.records import Record
    from grue.experiments.runner import Places
    from grue.experiments.study import Where
    from grue.experiments.wishes import Wish

FigureName = Annotated[
    str, typer.Argument(metavar="FIGURE", help="A figure's name, all, or list to see them.")
]
OnlyLevels = Annotated[str | None, typer.Option(help="Run only these levels, as in 1,3 or 1-3.")]
OnlyConditions = Annotated[
    str | None, typer.Option(help="Run only these conditions, as in drqn,sc+masking.")
]
OnlySeeds = Annotated[
    str | None, typer.Option(help="Run only these seeds, as in 0-4; by default those of the scale.")
]
DrawOnly = Annotated[
    bool, typer.Option("--draw-only", help="Train nothing; draw the runs that are done.")
]
NoDraw = Annotated[bool, typer.Option("--no-draw", help="Train; draw nothing.")]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Processes that train; by default one for each core, or one for each GPU.",
        show_default=False,
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(help="Train what can finish in this many minutes, and print what is left."),
]
Slurm = Annotated[
    bool, typer.Option("--slurm", help="Print a Slurm array script with one job for each group.")
]
Plan = Annotated[
    bool, typer.Option("--plan", help="Train nothing; print the groups and how long they take.")
]


def reproduce(
    figure: FigureName,
    scale: Annotated[
        str,
        typer.Option(
            help="smoke: minutes on a CPU, learns nothing; short: a quarter of the steps; paper"
        ),
    ] = "smoke",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where runs, records and figures go, a folder or an address; by default "
            "reproduce/SCALE."
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Folders of existing runs or records; may be given several times."),
    ] = None,
    levels: OnlyLevels = None,
    conditions: OnlyConditions = None,
    seeds: OnlySeeds = None,
    values: SettingTexts = None,
    story: StoryPath = None,
    draw_only: DrawOnly = False,
    no_draw: NoDraw = False,
    jobs: Jobs = None,
    minutes: Minutes = None,
    ray: RayAddress = None,
    cores_per_group: CoresPerGroup = None,
    gpus_per_group: GpusPerGroup = None,
    slurm: Slurm = False,
    plan: Plan = False,
    checkpoint_seconds: CheckpointSeconds = 60.0,
) -> None:
    """Train the missing runs of a figure of the paper, and draw it."""
    from grue.experiments import wishes
    from grue.experiments.runner import Places
    from grue.experiments.scales import find_scale
    from grue.experiments.storage import placed
    from grue.experiments.study import Where

    if figure == "list":
        find_scale(scale, values or ())
        print_table(wishes.LISTED, wishes.table_of_figures())
        return
    wish = wishes.make_wish(
        figure, scale, levels, conditions, seeds, story, draw_only, values or ()
    )
    where = Where(jobs, ray, cores_per_group, gpus_per_group, minutes, checkpoint_seconds)
    check_alone({"--slurm": slurm, "--plan": plan, "--draw-only": draw_only})
    with placed(out or Path("reproduce") / scale) as folder:
        places = Places(folder, tuple(data or ()))
        if slurm or plan:
            print_plan(wish, places, where, slurm)
            return
        records = trained(wish, places, draw_only, where)
        if not no_draw:
            show_drawn(wish, places, records)


def check_alone(options: Mapping[str, bool]) -> None:
    """At most one of these options."""
    given = [name for name, value in options.items() if value]
    if len(given) > 1:
        raise UsageError(f"give {' or '.join(given)}, not both")


def show_drawn(wish: Wish, places: Places, records: Sequence[Record]) -> None:
    """Draws all figures."""
    from grue.reports.paper_figures import COLUMNS, check_drawn, draw_figure

    folder = places.out / "figures"
    drawn = [draw_figure(figure, wish, records, folder) for figure in wish.figures]
    # These were not trained, but there may be records of them.
    more = [draw_figure(figure, wish, records, folder) for figure in wish.left_out]
    drawn += [one for one in more if one.path is not None]
    check_drawn(drawn, wish.scale.name)
    print_table(COLUMNS, [one.row() for one in drawn])


def print_plan(wish: Wish, places: Places, where: Where, slurm: bool) -> None:
    """The groups that are left: as a table, or as a script for Slurm."""
    from grue.experiments.slurm import array_script
    from grue.experiments.wishes import missing
    from grue.training.progress import Display, duration

    wanted = missing(places.read(), wish.configs())
    if slurm:
        print(array_script(wish, places, wanted, where), end="")
        return
    from grue.experiments.runner import study_of

    tasks = study_of(wish, places, wanted, where, Display()).tasks() if wanted else []
    if not tasks:
        print("there is nothing left to train")
        return
    rows = [(task.label, len(task.runs), duration(task.seconds or 0)) for task in tasks]
    print_table(("group", "runs", "estimate"), rows)


def trained(wish: Wish, places: Places, draw_only: bool, where: Where) -> list[Record]:
    """Trains the missing runs, and returns all records."""
    from grue.experiments.runner import run_missing
    from grue.training.progress import Display

    with Display() as display:
        if wish.left_out and wish.levels is None:
            names = ", ".join(figure.name for figure in wish.left_out)
            display.say(f"left out, because they need a story file (--story PATH): {names}")
        if draw_only or not wish.configs():
            return places.read()
        return run_missing(wish, places, display, where=where)


def status(
    folder: Annotated[
        Path, typer.Argument(metavar="OUT", help="The --out of a study, or a folder of runs.")
    ],
    follow: Annotated[
        bool, typer.Option("--follow", help="Show the table until the study is over.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the progress of a study, on whatever machines it runs."""
    from grue.experiments import progress_of
    from grue.experiments.storage import fetched
    from grue.training.progress import Display

    folder = fetched(folder)
    if follow:
        with Display() as display:
            progress_of.follow(folder, display)
    if as_json:
        print(json.dumps(progress_of.values_of(folder), indent=2))
        return
    columns, rows, line = progress_of.table_of(folder)
    print_table(columns, rows)
    print(line)


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Run folders, record files, or folders of them."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="The HTML page; report.html if no other output is given."
        ),
    ] = None,
    claims: Annotated[
        Path | None, typer.Option(help="Write the paper's claims and verdicts to this .md file.")
    ] = None,
    claims_from: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Test these claims; by default the paper's."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Write every figure and its numbers to this folder.")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(help="Write tables of the paper's study to this .md file, and a .csv beside."),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="Replace the table of the study's runs in this page (docs/report.md)."),
    ] = None,
) -> None:
    """Make one page of figures, results, claims and settings from runs and records."""
    from grue.reports.report import write_report

    if all(path is None for path in (output, claims, figures, results, runs)):
        output = Path("report.html")
    for path in write_report(folders, output, claims, figures, claims_from, results, runs):
        print(path)
