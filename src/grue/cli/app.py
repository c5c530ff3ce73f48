"""The commands. Each imports what it needs when it runs, so that help is fast."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

from grue import __version__
from grue.cli import evaluating, games, study, training
from grue.cli.bench import bench
from grue.cli.export import export
from grue.cli.watch import watch

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
    if os.environ.get("GRUE_IMPORT"):
        from grue.agents.own import import_own  # Imports JAX.

        import_own()


COMMANDS: dict[str, Callable[..., Any]] = {
    "games": games.games,
    "play": games.play_command,
    "walkthrough": games.walkthrough_command,
    "map": games.map_,
    "make-games": games.make_games,
    "compile": games.compile_,
    "verify": games.verify_command,
    "agents": training.agents,
    "train": training.train_command,
    "eval": evaluating.eval_,
    "reproduce": study.reproduce,
    "report": study.report,
    "status": study.status,
    "export": export,
    "watch": watch,
}
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)
app.add_typer(bench, name="bench")
