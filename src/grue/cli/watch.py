"""grue watch: the page to play games and watch agents."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grue.cli.options import CommandsPath, StoryPath
from grue.errors import GrueError, UsageError

if TYPE_CHECKING:
    from grue.training.config import TrainConfig

NEEDED = ("starlette", "uvicorn")


def watch(
    what: Annotated[
        list[str],
        typer.Argument(metavar="RUNS|GAME...", help="Run folders, folders of them, or games."),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any free port.")] = 8484,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; one that others can reach needs the printed token."
        ),
    ] = "127.0.0.1",
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    story: StoryPath = None,
    commands: CommandsPath = None,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the greedy episode of a run to one HTML file instead."
        ),
    ] = None,
) -> None:
    """Open a page to play games and to watch and understand agents."""
    from grue.watch.subjects import find_subjects

    subjects = find_subjects(what, story, commands)
    if export is not None:
        from grue.watch.export import export_episode

        if len(subjects) != 1:
            raise UsageError(f"--export takes one run, not {len(subjects)}")
        print(export_episode(subjects[0], export))
        return
    _check_installed()
    from grue.watch.serve import address, listen, serve, token_for

    token = token_for(host)
    listening = listen(host, port)
    place = address(host, listening, token)
    print(f"{place}\nCtrl-C ends it.", flush=True)
    if open_:
        import webbrowser

        webbrowser.open(place)
    try:
        serve(subjects, listening, token)
    except KeyboardInterrupt:
        print()


@contextmanager
def watched(configs: Sequence[TrainConfig], out: Path, wanted: bool) -> Iterator[None]:
    """Serves the runs while they are trained, if ``--watch`` is given."""
    if not wanted:
        yield
        return
    _check_installed()
    from grue.training.runs import run_name
    from grue.watch.serve import beside

    names = [run_name(config.of_seed(seed)) for config in configs for seed in config.seeds]
    with beside([(out / name).resolve() for name in names]) as place:
        print(f"watch at {place}", file=sys.stderr, flush=True)
        yield
    print(f"grue watch {out} shows the runs again", file=sys.stderr)


def _check_installed() -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise GrueError(f"this needs {' and '.join(missing)}: pip install 'grue[watch]'")
