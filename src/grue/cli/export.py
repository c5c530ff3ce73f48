"""The command export: the metrics of runs as one table for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grue.errors import GrueError, UsageError

if TYPE_CHECKING:
    from grue.training.runs import StoredRun

SUFFIXES = (".csv", ".parquet")
ABOUT = ("game", "agent", "gate", "explore", "steps")


def export(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUNS...", help="Run folders, or folders of them.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The table: .csv, or .parquet with pandas.")
    ],
) -> None:
    """Write the metrics of runs to one table: a line for every row of metrics of every run."""
    from grue.files import check_is_file, write_atomically
    from grue.training.runs import read_runs

    check_is_file(output)
    if output.suffix not in SUFFIXES:
        raise UsageError(f"the table is a {' or '.join(SUFFIXES)} file, not {output.name}")
    rows = [row for run in read_runs(folders) for row in table_rows(run)]
    # Agents have columns of their own: in the order in which they appear.
    names = list(dict.fromkeys(name for row in rows for name in row))
    data = _csv(names, rows) if output.suffix == ".csv" else _parquet(names, rows)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(output, lambda file: file.write(data))
    except OSError as error:
        raise GrueError(f"cannot write {output}: {error.strerror}") from None
    print(output)


def table_rows(run: StoredRun) -> Iterator[dict[str, Any]]:
    """The rows of a run, with its name and settings; of lists a column for each part, from 1 on."""
    from grue.training.metrics import part_name

    first = {"run": run.folder.name, **{name: getattr(run.config, name) for name in ABOUT}}
    # Its steps are those to come; the column step is those so far.
    first["of_steps"] = first.pop("steps")
    columns = {name: column for name, column in run.metrics.items() if column.ndim == 1}
    for name, column in run.metrics.items():
        if column.ndim > 1:
            columns |= {part_name(name, i): part for i, part in enumerate(column.T, 1)}
    for at in range(len(run.metrics["step"])):
        numbers = {name: column[at].item() for name, column in columns.items()}
        yield first | {n: None if value != value else value for n, value in numbers.items()}


def _csv(names: list[str], rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _parquet(names: list[str], rows: list[dict[str, Any]]) -> bytes:
    try:
        import pandas  # pyright: ignore[reportMissingImports]
        import pyarrow  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise GrueError(
            f"a .parquet file needs pandas and pyarrow ({error}); install them, or give a .csv"
        ) from None
    file = io.BytesIO()
    pandas.DataFrame(rows, columns=names).to_parquet(file)
    return file.getvalue()
