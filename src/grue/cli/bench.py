"""``grue bench``: measures throughput on this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from grue.cli.options import AsJson, StoryPath, print_table
from grue.errors import UsageError
from grue.files import expanded
from grue.games.registry import game_names, load
from grue.games.zmachine import zork

ROWS_OF_METRICS = {"cpu": 40, "gpu": 200}
"""The steps of one timed piece, which takes a few seconds."""

bench = typer.Typer(help="Measure throughput on this machine.", no_args_is_help=True)


@bench.command("env")
def bench_env_command(
    game: Annotated[
        list[str] | None, typer.Option(help="A game to measure; may be given again.")
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="A batch size; may be given again.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.01, max=3600, help="Seconds for each measurement.")
    ] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Steps a second of the compiled engine and of real TextWorld, for every level."""
    from grue.engine.bench import BATCHES, EnvSpeed, bench_env

    check_batches(game or game_names(), batch or ())
    rows = list(bench_env(game or game_names(), batch or BATCHES, seconds))
    if as_json:
        print(json.dumps([row._asdict() for row in rows], indent=2))
        return
    print_table(
        EnvSpeed._fields, [(*row[:3], f"{row.steps_per_s:,.0f}", row.device) for row in rows]
    )


def check_batches(games: Sequence[str], batches: Sequence[int]) -> None:
    """Refuses a batch that needs more memory than the device has."""
    from grue.engine.bench import bytes_of_games
    from grue.games.registry import load_textworld
    from grue.training.memory import free_bytes, told

    free = free_bytes()
    for name, batch in product(games, batches):
        needed = bytes_of_games(load_textworld(name), batch)
        if free is not None and needed > free:
            raise UsageError(
                f"a batch of {batch} games of {name} needs more than {told(needed)} of memory, and "
                f"{told(free)} are free; give a smaller --batch"
            )


@bench.command("train")
def bench_train_command(
    game: Annotated[
        str | None,
        typer.Argument(metavar="[GAME]", help="A game or a folder of games, in place of --games."),
    ] = None,
    games: Annotated[
        str, typer.Option(help="Games, separated by commas.")
    ] = "saladworld-1,saladworld-3,saladworld-7",
    story: StoryPath = None,
    agents: Annotated[
        str, typer.Option(help="Agents with the recurrent network, separated by commas.")
    ] = "drqn,sc",
    gates: Annotated[str, typer.Option(help="Gates, separated by commas.")] = "masking",
    runs: Annotated[
        str,
        typer.Option(
            help="Numbers of runs side by side, as in 1,5; 1 measures each agent and gate alone."
        ),
    ] = "1",
    preset: Annotated[str, typer.Option(help="paper or small: the sizes.")] = "paper",
    values: Annotated[
        list[str] | None, typer.Option("--set", help="name=value; may be given again.")
    ] = None,
    parts: Annotated[
        bool,
        typer.Option("--parts", help="Also show where the time goes, and lower bounds (on a GPU)."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Milliseconds of an update, training steps a second, and the machine's matrix rate."""
    chosen = games if game is None else game
    found = measure(chosen, agents, gates, runs, preset, values or (), parts, story)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print_table(*_table(found))


# Training


def measure(
    games: str,
    agents: str,
    gates: str,
    runs: str,
    preset: str,
    values: Sequence[str],
    parts: bool,
    story: Path | None = None,
) -> list[dict[str, Any]]:
    """A row for every game and number of runs; with one run, for every agent and gate, too."""
    import jax

    from grue.agents.catalogue import GATES
    from grue.training.bench import Bench, check_timed, floors, measure_in_turn, row_of
    from grue.training.config import TrainConfig, check_used, known_to, parse_settings

    names, who, how = (text.split(",") for text in (games, agents, gates))
    counts = [_count(text) for text in runs.split(",")]
    for name in names:
        if not expanded(name).is_dir():
            load(name, story if name == zork.NAME else None)
    for agent in who:
        check_timed(agent)
    for gate in how:
        GATES.find(gate)
    backend = jax.default_backend()
    if parts and backend == "cpu":
        raise UsageError("--parts needs a GPU, and there is none; leave --parts out")
    given = parse_settings(values)
    every = given.get("metrics_every", ROWS_OF_METRICS.get(backend, 200))
    short = dict.fromkeys(("metrics_every", "target_every", "average_over", "steps"), every)
    short |= {"learning_starts": 5 * every, **given}
    found = []
    for name in names:
        own = {**short, "game": name} | ({"story": story} if name == zork.NAME else {})
        pairs = [{"agent": agent, "gate": gate} for agent, gate in product(who, how)]
        conditions = [TrainConfig.preset(preset, **pair, **known_to(pair, own)) for pair in pairs]
        check_used(given, conditions)
        for count in counts:
            groups = [[one] for one in conditions] if count == 1 else [conditions]
            benches = [Bench(group, count) for group in groups]
            timed, rate = measure_in_turn(benches)
            for bench, seconds in zip(benches, timed, strict=True):
                row: dict[str, Any] = row_of(bench, seconds, rate)._asdict()
                if parts:
                    from grue.training.breakdown import breakdown

                    row |= {"parts_ms": breakdown(bench), "floors_ms": floors(bench, rate)}
                if bench.hosting is not None:
                    row["hosting_ms"] = bench.hosting
                bench.env.close()
                found.append(row)
    return found


def _count(text: str) -> int:
    if not text.strip().isdigit() or int(text) < 1:
        raise UsageError(f"--runs takes numbers from 1 on, as in 1,5,20, not {text!r}")
    return int(text)


def _table(found: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The columns and rows of the printed table."""
    from grue.training.bench import TrainSpeed

    columns = list(TrainSpeed._fields)
    extra = ("parts_ms", "floors_ms", "hosting_ms")
    names = list(
        dict.fromkeys((part, name) for row in found for part in extra for name in row.get(part, ()))
    )
    rows = [
        [_spoken(row[name]) for name in columns]
        + [_spoken(row[part][name]) if part in row else "-" for part, name in names]
        for row in found
    ]
    return columns + [f"{name} ms" for _, name in names], rows


def _spoken(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)
