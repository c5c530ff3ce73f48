"""A short tour that checks the installation: ``python -m grue.cli.demo [--out FOLDER]``.

Plays the walkthrough of every level on the real game and draws every map. Then trains an agent on
the first level, shows its play, and draws its learning curve. Fails if a level is not won.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from grue.cli.entry import replace_unreadable, whole_process
from grue.cli.play import follow_walkthrough
from grue.cli.transcript import print_lines, tell_briefly
from grue.engine.hosted_textworld import HostedEnv
from grue.errors import INTERRUPTED, GrueError, UsageError
from grue.games.game import Game
from grue.games.registry import game_names, load_textworld
from grue.reports.curves import draw_curves
from grue.reports.game_map import draw_map
from grue.training.config import TrainConfig
from grue.training.evaluate import Evaluation, evaluate
from grue.training.progress import Display
from grue.training.runs import read_config, run_name
from grue.training.train import RunResult, train

CONFIG = TrainConfig.preset(
    "small", game="saladworld-1", agent="sc", gate="masking", steps=15_000, average_over=2_000
)
RUNS = "runs"


@dataclass(frozen=True)
class LevelPlayed:
    game: Game
    commands: int
    score: int
    subtasks: int
    over: bool
    seconds: float

    @property
    def won(self) -> bool:
        return self.over and self.score == self.game.max_score


def play_walkthrough(game: Game) -> LevelPlayed:
    env = HostedEnv(game)
    begin = time.perf_counter()
    turns = list(follow_walkthrough(env))
    seconds = time.perf_counter() - begin
    env.close()
    last = turns[-1].step
    return LevelPlayed(
        game, len(turns), last.score, int(sum(last.subtasks)), bool(last.terminated), seconds
    )


def results_table(results: Sequence[LevelPlayed]) -> Table:
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


def tour(folder: Path, console: Console) -> None:
    """Plays all walkthroughs and draws all maps."""
    results = []
    with Progress(console=console, transient=True) as progress:
        for name in progress.track(game_names(), description="Playing and drawing"):
            game = load_textworld(name)
            draw_map(game, folder / f"{name}.png")
            results.append(play_walkthrough(game))
    console.print(results_table(results))
    console.print(f"The maps are in {folder}.\n", highlight=False)
    lost = [result.game.name for result in results if not result.won]
    if lost:
        raise GrueError(f"not won: {', '.join(lost)}")


def learn(folder: Path, config: TrainConfig, console: Console) -> RunResult:
    """Trains an agent and draws its learning curve."""
    what = f"{config.agent} with {config.gate} on {config.game}, {config.steps:,} steps"
    console.print(f"Training {what}", highlight=False)
    with Display() as display:
        run = train(config, folder / RUNS, progress=display).runs[0]
    curve = draw_curves([run], folder / "curve.png")
    told = f"with an ε of {config.epsilon_end:g}: {run.final['fraction']:.2f}"
    over = f"{config.average_over:,} steps"
    console.print(f"\nFraction of subtasks over the last {over}, {told}", highlight=False)
    console.print(f"The learning curve is {curve}, the run {run.folder}.\n", highlight=False)
    return run


def show(played: Evaluation, run: Path | None, console: Console) -> None:
    """Shows the greedy play of a run. Fails if it does not win."""
    if not played.won[0]:
        raise GrueError(
            f"the trained agent does not win: its score is {played.score[0]} of "
            f"{played.max_score}; grue eval {run} --transcript shows its play"
        )
    console.print("What it has learned, played greedily:", highlight=False)
    print_lines(tell_briefly(played), console)


def make_room(out: Path, config: TrainConfig) -> None:
    """Removes the run of an earlier demo; refuses to remove any other."""
    folder = out / RUNS / run_name(config)
    if not folder.exists():
        return
    there, _ = read_config(folder)
    if replace(there, steps=config.steps) != config:
        raise UsageError(f"{folder} is not a run of the demo; give another --out")
    shutil.rmtree(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m grue.cli.demo", description="A short tour.")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for all results")
    parser.add_argument("--steps", type=int, default=CONFIG.steps, help="steps of training")
    given = parser.parse_args(arguments)
    replace_unreadable(sys.stdout)
    console = Console(emoji=False)
    try:
        config = replace(CONFIG, steps=given.steps)
        make_room(given.out, config)
        tour(given.out, console)
        run = learn(given.out, config, console)
        show(evaluate(run), run.folder, console)
    except GrueError as error:
        print(f"grue: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("grue: interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(whole_process(main))
