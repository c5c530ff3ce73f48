"""The command that plays with trained agents: eval."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grue.cli.entry import replace_unreadable
from grue.cli.options import AsJson, CoresPerGroup, RayAddress, print_table
from grue.errors import GrueError, NoCheckpointError, UsageError

if TYPE_CHECKING:
    from grue.training.evaluate_runs import HowToPlay, Played


def eval_(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run folder, or a folder of run folders.")
    ],
    episodes: Annotated[int, typer.Option(min=1, help="Episodes at the final ε.")] = 100,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of the episodes.")] = 0,
    transcript: Annotated[
        bool, typer.Option("--transcript", help="Show the greedy episode of each run.")
    ] = False,
    as_json: AsJson = False,
    greedy: Annotated[
        bool, typer.Option("--greedy/--both", help="Play greedily only, or also with the final ε.")
    ] = False,
    games: Annotated[
        Path | None,
        typer.Option("--games", metavar="FOLDER", help="Play every game of this folder instead."),
    ] = None,
    leave_out: Annotated[
        bool, typer.Option("--leave-out", help="Leave out damaged files of --games.")
    ] = False,
    best: Annotated[
        bool, typer.Option("--best", help="Play the agent that was best on the validation games.")
    ] = False,
    ray: RayAddress = None,
    cores_per_group: CoresPerGroup = None,
) -> None:
    """Play with trained agents: greedily, and with the final ε of training."""
    from rich.console import Console

    from grue.training.evaluate_runs import HowToPlay, evaluate_runs

    if leave_out and games is None:
        raise UsageError("--leave-out is for the files of --games; give --games, or leave it out")
    how = HowToPlay(episodes, seed, greedy, best, games, transcript, leave_out)
    if ray is not None:
        _eval_on_ray(folder, ray, cores_per_group, how, as_json)
        return
    with Console(stderr=True).status("Playing"):
        found = list(evaluate_runs(folder, how))
    played = [one for one in found if not isinstance(one, GrueError)]
    failed = [one for one in found if isinstance(one, GrueError)]
    _tell_left_out(failed if played else ())
    for note in (note for run in played for note in run.notes):
        print(note, file=sys.stderr)
    if as_json and played:
        print(json.dumps([run.to_json(transcript) for run in played], indent=2))
    elif played:
        _show(played, transcript)
    _check_played(failed, len(found))


def _tell_left_out(failed: Iterable[GrueError]) -> None:
    for error in failed:
        print(f"grue: left out: {error}", file=sys.stderr)


def _check_played(failed: Sequence[GrueError], count: int) -> None:
    """An error if some of ``count`` runs could not be played."""
    none = len(failed) == count
    # A run that has only begun is no failure.
    broken = [one for one in failed if not isinstance(one, NoCheckpointError) or none]
    if count == len(broken) == 1:
        raise broken[0]
    if broken:
        raise GrueError(f"{len(broken)} of {count} runs cannot be played: {broken[0]}")


def _show(played: Sequence[Played], transcript: bool) -> None:
    from rich.console import Console

    from grue.cli.transcript import print_lines, tell

    if transcript:
        replace_unreadable(sys.stdout)
        for run in played:
            for title, play, episode in run.transcripts():
                lines = [(title, "bold"), *tell(play, episode), ("", None)]
                print_lines(lines, Console(emoji=False))
    _print_played((run.columns, list(run.rows())) for run in played)


def _print_played(tables: Iterable[tuple[Sequence[str], Sequence[Sequence[str]]]]) -> None:
    """Runs with the same columns in one table."""
    found: dict[tuple[str, ...], list[Sequence[str]]] = {}
    for columns, rows in tables:
        found.setdefault(tuple(columns), []).extend(rows)
    for columns, rows in found.items():
        print_table(columns, rows)


def _eval_on_ray(
    folder: Path, address: str, cores: int | None, how: HowToPlay, as_json: bool
) -> None:
    from grue.experiments.evaluation import evaluate
    from grue.training.progress import Display

    if how.transcript and not as_json:
        raise UsageError("--transcript with --ray needs --json; or leave --ray out")
    with Display() as display:
        results = evaluate(folder, address, cores, how.to_json(), display)
    played = [result for result in results if "why" not in result]
    failed = [_error(result) for result in results if "why" in result]
    _tell_left_out(failed if played else ())
    for note in (note for result in played for note in result["notes"]):
        print(note, file=sys.stderr)
    if as_json and played:
        print(json.dumps([result["json"] for result in played], indent=2))
    elif played:
        _print_played((result["columns"], result["rows"]) for result in played)
    _check_played(failed, len(results))


def _error(result: Mapping[str, Any]) -> GrueError:
    """Why a run could not be played on its node."""
    if result["has_only_begun"]:
        return NoCheckpointError(result["why"])
    return (UsageError if result["code"] == UsageError.exit_code else GrueError)(result["why"])
