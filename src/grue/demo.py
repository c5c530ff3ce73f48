"""Shows that all is well: ``python -m grue.demo [--out FOLDER]``.

Plays the walkthrough of every level on the real game, draws every map, and fails if a level is
not won.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from grue.engine.hosted import HostedEnv
from grue.errors import GrueError
from grue.games.game import Game
from grue.games.registry import game_names, load
from grue.play import follow_walkthrough
from grue.reports.map import draw_map


@dataclass(frozen=True)
class Result:
    game: Game
    commands: int
    score: int
    subtasks: int
    over: bool
    seconds: float

    @property
    def won(self) -> bool:
        return self.over and self.score == self.game.max_score


def play_walkthrough(game: Game) -> Result:
    env = HostedEnv(game)
    begin = time.perf_counter()
    turns = list(follow_walkthrough(env))
    seconds = time.perf_counter() - begin
    env.close()
    last = turns[-1].step
    return Result(
        game, len(turns), last.score, int(sum(last.subtasks)), bool(last.terminated), seconds
    )


def results_table(results: Sequence[Result]) -> Table:
    table = Table(title="Walkthroughs on the real games")
    table.add_column("game")
    for column in ("commands", "score", "max", "subtasks", "over", "steps/s"):
        table.add_column(column, justify="right")
    for result in results:
        table.add_row(
            result.game.name,
            str(result.commands),
            str(result.score),
            str(result.game.max_score),
            f"{result.subtasks}/{len(result.game.subtasks)}",
            "yes" if result.over else "no",
            f"{result.commands / result.seconds:,.0f}",
        )
    return table


def demonstrate(folder: Path, console: Console) -> bool:
    """Plays and draws; whether every level was won."""
    results = []
    with Progress(console=console, transient=True) as progress:
        for name in progress.track(game_names(), description="Playing and drawing"):
            game = load(name)
            draw_map(game, folder / f"{name}.png")
            results.append(play_walkthrough(game))
    console.print(results_table(results))
    console.print(f"The maps are in {folder}.", highlight=False)
    lost = [result.game.name for result in results if not result.won]
    if lost:
        console.print(f"Not won: {', '.join(lost)}.", highlight=False)
    return not lost


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m grue.demo", description="A short tour.")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the maps")
    try:
        return 0 if demonstrate(parser.parse_args(arguments).out, Console()) else 1
    except GrueError as error:
        print(f"grue: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("grue: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
