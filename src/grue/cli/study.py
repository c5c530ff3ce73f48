"""The commands for the paper's study: reproduce trains and draws, report reads and draws."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grue.cli.options import CheckpointSeconds, SettingTexts, StoryPath, print_table

if TYPE_CHECKING:
    from grue.experiments.runner import Places
    from grue.experiments.wishes import Wish
    from grue.reports.paper_figures import Drawn


def reproduce(
    figure: Annotated[
        str, typer.Argument(metavar="FIGURE", help="A figure's name, all, or list to see them.")
    ],
    scale: Annotated[
        str,
        typer.Option(
            help="smoke: minutes on a CPU, learns nothing; short: a quarter of the steps; paper"
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
        bool, typer.Option("--draw-only", help="Train nothing; draw the runs that are done.")
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
    """Train the missing runs of a figure of the paper, and draw it."""
    from grue.experiments import wishes
    from grue.experiments.runner import Places
    from grue.experiments.scales import find_scale
    from grue.reports.paper_figures import COLUMNS, check_drawn

    if figure == "list":
        find_scale(scale, values or ())
        print_table(wishes.LISTED, wishes.table_of_figures())
        return
    wish = wishes.make_wish(
        figure, scale, levels, conditions, seeds, story, draw_only, values or ()
    )
    places = Places(out or Path("reproduce") / scale, tuple(data or ()))
    drawn = train_and_draw(wish, places, draw_only, jobs, checkpoint_seconds)
    check_drawn(drawn, scale)
    print_table(COLUMNS, [one.row() for one in drawn])


def train_and_draw(
    wish: Wish, places: Places, draw_only: bool, jobs: int | None, checkpoint_seconds: float
) -> list[Drawn]:
    """Trains the missing runs and draws all figures."""
    from grue.experiments.runner import run_missing
    from grue.reports.paper_figures import draw_figure
    from grue.training.progress import Display

    with Display() as display:
        if wish.left_out and wish.levels is None:
            names = ", ".join(figure.name for figure in wish.left_out)
            display.say(f"left out, because they need a story file (--story PATH): {names}")
        if draw_only or not wish.configs():
            records = places.read()
        else:
            records = run_missing(wish, places, display, jobs, checkpoint_seconds)
    folder = places.out / "figures"
    drawn = [draw_figure(figure, wish, records, folder) for figure in wish.figures]
    # Nothing was run for these, but there may be records of them.
    more = [draw_figure(figure, wish, records, folder) for figure in wish.left_out]
    return drawn + [one for one in more if one.path is not None]


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
