"""Sets of TextWorld games: making them, and compiling all of a folder."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from grue.errors import CannotCompileError, GrueError, UsageError
from grue.games.game import Game
from grue.games.gamefile import CompiledGame, compiled_path
from grue.games.registry import load_textworld


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)


def make_set(
    kind: str,
    level: str | None,
    count: int,
    seed: int,
    folder: Path,
    split: str | None,
    jobs: int | None,
) -> None:
    from grue.games.makers import check, make_games

    shares = None if split is None else _percent(split)
    check(kind, level, count, folder, shares)
    with _progress() as progress:
        task = progress.add_task(f"{kind} games", total=count)
        made = make_games(
            kind, level, count, seed, folder, shares, jobs, lambda: progress.advance(task)
        )
    replaced = f", {len(made.failed)} seeds gave no game and were replaced" if made.failed else ""
    print(f"{folder}: {len(made.games)} games{replaced}")


def _percent(split: str) -> list[int]:
    try:
        return [int(part) for part in split.split(",")]
    except ValueError:
        raise UsageError(f"--split is {split!r}; give whole percents such as 80,10,10") from None


def compile_one(game: Game, path: Path, near: bool) -> CompiledGame:
    from grue.engine.compiler.build import compile_game
    from grue.engine.make import refusal

    try:
        made = compile_game(game, near)
    except CannotCompileError as error:
        raise CannotCompileError(refusal(game, error)) from None
    made.save(path)
    return made


def compile_folder(folder: Path, near: bool) -> None:
    """Compiles every game to a file beside its story, and reports those that are refused."""
    from grue.games.makers import games_in

    stories = list(games_in(folder))
    if not stories:
        raise UsageError(f"{folder} holds no TextWorld game: no .z8 with its .json beside it")
    counts: Counter[str] = Counter()
    with _progress() as progress:
        for story in progress.track(stories, description="compiling"):
            game = load_textworld(story)
            try:
                made = compile_one(game, compiled_path(game), near)
                counts["near" if made.header.get("near") else "exact"] += 1
            except CannotCompileError as error:
                print(f"{story}: {error}", file=sys.stderr)
                counts["refused"] += 1
    told = [f"{counts[name]} {name}" for name in ("exact", "near", "refused")]
    print(f"{folder}: {len(stories)} games: {', '.join(told)}")
    if counts["refused"] == len(stories):
        raise GrueError(f"no game of {folder} could be compiled")
