"""``grue report``: reads runs and records, draws figures, tests the claims, writes one page."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from grue.errors import GrueError, UsageError
from grue.experiments.figures import FIGURES
from grue.experiments.records import Record, read_records
from grue.experiments.scales import SCALES
from grue.experiments.wishes import Wish, tell_missing
from grue.files import check_is_file, read_plain, write_atomically
from grue.reports.claims import judge, read_claims
from grue.reports.claims_page import claims_page
from grue.reports.drawings import drawings
from grue.reports.page import Picture, page
from grue.reports.paper_figures import Drawn, draw_figure
from grue.reports.results_page import (
    RUNS,
    between_markers,
    results_csv,
    results_page,
    runs_table,
    study_cells,
)
from grue.reports.splits import GAPS, draw_gaps, draw_splits, numbers_of, split_curves
from grue.reports.summary import Named, named, table
from grue.training.runs import run_folders

EPISODE = "episode.html"
"""A page that ``grue watch --export`` has written into a run folder."""

CSV = ".csv"


def write_report(
    paths: Sequence[Path],
    output: Path | None,
    claims: Path | None = None,
    figures: Path | None = None,
    claims_from: Path | None = None,
    results: Path | None = None,
    runs: Path | None = None,
) -> list[Path]:
    """Writes the requested files and returns their paths.

    ``output`` is the HTML page, ``claims`` a Markdown page of the claims alone, ``figures`` a
    folder for the pictures and their numbers. ``claims_from`` is a TOML file of your own claims.
    ``results`` is a Markdown page of the paper's study, with a CSV file beside it. ``runs`` is a
    page whose table of runs is replaced.
    """
    for path in (output, claims, results):
        if path is not None:
            check_is_file(path)
    if results is not None and results.suffix == CSV:
        raise UsageError(f"--results is a page, and its {CSV} file goes beside it; not {results}")
    listed = None if runs is None else _read_page(runs)
    if figures is not None and figures.exists() and not figures.is_dir():
        raise UsageError(f"{figures} is not a folder; give another --figures")
    tested = read_claims(claims_from)
    records = read_records(paths)
    entries = named(records)
    judged = judge(records, tested)
    written = []
    if claims is not None:
        command = f"grue report {' '.join(map(str, paths))} --claims {claims}"
        if claims_from is not None:
            command += f" --claims-from {claims_from}"
        written.append(_write(claims, claims_page(judged, command)))
    if results is not None or runs is not None:
        written += _write_study(records, paths, results, runs, listed)
    if output is not None or figures is not None:
        with _folder(figures) as folder:
            paper, more = paper_figures(records, folder), more_figures(entries, folder)
            more += split_figures(paths, folder)
            if figures is not None:
                written.append(figures)
            if output is not None:
                found = episode_pages(paths, output)
                text = page(table(entries), judged, paper, more, entries, found)
                written.append(_write(output, text))
    return written


def _write_study(
    records: Sequence[Record],
    paths: Sequence[Path],
    results: Path | None,
    runs: Path | None,
    listed: str | None,
) -> list[Path]:
    """The page of results and its CSV file; the page ``runs``, whose text is ``listed``."""
    cells, written = study_cells(records), []
    if runs is not None and listed is not None:
        written.append(_write(runs, between_markers(listed, RUNS, runs_table(cells), str(runs))))
    if results is not None:
        command = f"grue report {' '.join(map(str, paths))} --results {results}"
        numbers = results.with_suffix(CSV)
        written.append(_write(results, results_page(cells, command, numbers.name)))
        written.append(_write(numbers, results_csv(cells)))
    return written


def _read_page(path: Path) -> str:
    """A page with a place for the table of runs."""
    try:
        text = read_plain(path).decode()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error}); --runs takes a page") from None
    between_markers(text, RUNS, "", str(path))
    return text


def episode_pages(paths: Sequence[Path], output: Path) -> list[tuple[str, str]]:
    """The exported episodes in run folders: the run's name, and the address from the report."""
    folders = [folder for path in paths if path.is_dir() for folder in run_folders(path)]
    return [
        (folder.name, os.path.relpath(folder / EPISODE, output.parent))
        for folder in folders
        if (folder / EPISODE).is_file()
    ]


def more_figures(entries: Sequence[Named], folder: Path) -> list[Picture]:
    """Draws the figures beyond the paper's, and writes their numbers beside them."""
    made = []
    for drawing in drawings(entries):
        path = drawing.draw(folder / f"{drawing.name}.png")
        _write(path.with_suffix(".json"), json.dumps(drawing.numbers, allow_nan=False) + "\n")
        made.append(Picture(drawing.title, drawing.caption, path.read_bytes()))
    return made


def split_figures(paths: Sequence[Path], folder: Path) -> list[Picture]:
    """Draws the scores of runs on folders of games, with those on unseen games, and the numbers."""
    runs = split_curves(paths)
    if not runs:
        return []
    _write(folder / "splits.json", json.dumps(numbers_of(runs), allow_nan=False) + "\n")
    told = "Each game played once, greedily; a score is divided by the largest of its game"
    path = draw_splits(runs, folder / "splits.png")
    made = [Picture("Training, validation and test games", f"{told}.", path.read_bytes())]
    unseen = any(np.isfinite(run.metrics[name]).any() for run in runs for name in GAPS)
    if unseen:
        gap = "How much better the games of the training are played than unseen ones"
        path = draw_gaps(runs, folder / "gaps.png")
        made.append(Picture("The generalisation gap", f"{gap}. {told}.", path.read_bytes()))
    return made


def paper_figures(records: Sequence[Record], folder: Path) -> list[Picture]:
    """Draws the paper's figures that have runs, each at the first scale with any."""
    wishes = [Wish(tuple(f for f in FIGURES.values() if f.conditions), s) for s in SCALES.values()]
    found = []
    for figure in wishes[0].figures:
        for wish in wishes:
            # If only one of several conditions has runs, there is nothing to compare.
            drawn = draw_figure(figure, wish, records, folder, least=2)
            if drawn.path is not None:
                found.append(_picture(drawn, drawn.path, wish))
                break
    return found


def _picture(drawn: Drawn, path: Path, wish: Wish) -> Picture:
    figure, scale = drawn.figure, wish.scale.name
    size = "" if scale == "paper" else f" At the {scale} scale."
    left = tell_missing(drawn.missing, wish.all_seeds)
    said = f"{figure.paper}. The paper: {figure.caption}" if figure.paper else figure.caption
    caption = f"{said}.{size}" + (f" Not yet run: {left}." if left else "")
    return Picture(f"Figure {figure.name}", caption, path.read_bytes())


@contextmanager
def _folder(figures: Path | None) -> Iterator[Path]:
    """The given folder, or a temporary one."""
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
        yield figures
        return
    with TemporaryDirectory() as name:
        yield Path(name)


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: file.write(text.encode(errors="replace")))
    except OSError as error:
        raise GrueError(f"cannot write {path}: {error.strerror}") from None
    return path
