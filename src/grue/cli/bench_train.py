"""What ``grue bench train`` makes of its options."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import jax

from grue.agents.catalogue import GATES
from grue.errors import UsageError
from grue.games.registry import load
from grue.games.zmachine import zork
from grue.training.bench import (
    Bench,
    TrainSpeed,
    check_timed,
    floors,
    measure_in_turn,
    row_of,
)
from grue.training.config import TrainConfig, check_used, known_to, parse_settings

ROWS_OF_METRICS = {"cpu": 40, "gpu": 200}
"""Steps that are timed at once: a few seconds."""


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
    """A row for every game and number of runs; with one run, for every agent and gate too."""
    names, who, how = (text.split(",") for text in (games, agents, gates))
    counts = [_count(text) for text in runs.split(",")]
    for name in names:
        load(name, story if name == zork.NAME else None)
    for agent in who:
        check_timed(agent)
    for gate in how:
        GATES.find(gate)
    backend = jax.default_backend()
    if parts and backend == "cpu":
        raise UsageError("--parts reads a GPU's profile, and there is no GPU here")
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


def table(found: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows for people."""
    columns = list(TrainSpeed._fields)
    extra = ("parts_ms", "floors_ms", "hosting_ms")
    names = list(
        dict.fromkeys((part, name) for row in found for part in extra for name in row.get(part, ()))
    )
    rows = [
        [
            *(
                f"{row[name]:,}" if isinstance(row[name], int | float) else row[name]
                for name in columns
            )
        ]
        + [f"{row[part][name]:,}" if part in row else "-" for part, name in names]
        for row in found
    ]
    return columns + [f"{name} ms" for _, name in names], rows
