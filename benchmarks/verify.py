"""Compares the compiled levels with the real ones over a million steps each, in pieces.

    python benchmarks/verify.py --steps 1000000 --pieces 1
    python benchmarks/verify.py --steps 1000000 --jobs 2
    python benchmarks/verify.py --docs

Each piece is one ``grue verify`` with a seed of its own, and is written down as soon as it is done:
the same command goes on where the last one stopped. ``--jobs`` pieces are under way at a time, each
in a process of its own. ``--pieces`` ends after so many of them. ``--docs`` compares nothing and
writes the table in docs/engine.md.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from env import _replace

from grue.engine.bench import device_name
from grue.engine.verify import verify
from grue.experiments.local_processes import free_cores
from grue.files import write_atomically
from grue.games.registry import game_names
from grue.training.provenance import about

OUT = Path("results/verify/saladworld-pieces.json")
PIECE = 50_000
PAGE = Path(__file__).resolve().parent.parent / "docs" / "engine.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--pieces", type=int, help="end after so many; by default all")
    parser.add_argument("--jobs", type=int, default=len(free_cores()))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--docs", action="store_true")
    chosen = parser.parse_args()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    done = json.loads(chosen.out.read_text())["pieces"] if chosen.out.exists() else []
    if chosen.docs:
        _replace(PAGE, "verify", page(done))
        return
    wanted = missing(done, chosen.steps)[: chosen.pieces]
    with ProcessPoolExecutor(chosen.jobs, get_context("spawn")) as pool:
        for ended in as_completed([pool.submit(piece, *one) for one in wanted]):
            done.append(ended.result())
            write(done, chosen.out)
            print(f"{told(done[-1])}, {len(missing(done, chosen.steps))} to go", flush=True)


def missing(done: list[dict[str, Any]], steps: int) -> list[tuple[str, int]]:
    """Games and seeds of the pieces that are not done, all levels growing alike."""
    there = {(one["game"], one["seed"]) for one in done}
    wanted = [
        (game, 10_000 * level + 100 * number)
        for number in range(-(-steps // PIECE))
        for level, game in enumerate(game_names(), 1)
    ]
    return [one for one in wanted if one not in there]


def piece(game: str, seed: int) -> dict[str, Any]:
    begun = time.perf_counter()
    report = verify(game, PIECE, seed)
    here = about()
    return {
        "game": game,
        "steps": report.steps,
        "mismatches": report.mismatches,
        "first": None if report.first is None else str(report.first),
        "seed": seed,
        "seconds": round(time.perf_counter() - begun, 1),
        "commit": here["commit"],
        "changed_tree": here["changed_tree"],
        "device": device_name(),
        "command": f"grue verify {game} --steps {PIECE} --seed {seed}",
    }


def write(done: list[dict[str, Any]], out: Path) -> None:
    """The sums of each level, then every piece on a line of its own."""
    games = [game for game in game_names() if any(one["game"] == game for one in done)]
    rows = [
        {
            "game": game,
            "steps": sum(one["steps"] for one in done if one["game"] == game),
            "mismatches": sum(one["mismatches"] for one in done if one["game"] == game),
        }
        for game in games
    ]
    lines = [",\n  ".join(json.dumps(one) for one in some) for some in (rows, done)]
    text = f'{{"rows": [\n  {lines[0]}\n ],\n "pieces": [\n  {lines[1]}\n ]}}\n'
    write_atomically(out, lambda file: file.write(text.encode()))


def page(done: list[dict[str, Any]]) -> str:
    """The table of all levels, and what made it."""
    lines = ["| game | steps | mismatches | pieces, each with a seed of its own | commits |"]
    lines.append("|---|---|---|---|---|")
    for game in game_names():
        own = [one for one in done if one["game"] == game]
        steps, wrong = (sum(one[name] for one in own) for name in ("steps", "mismatches"))
        commits = ", ".join(sorted({one["commit"][:7] for one in own}))
        lines.append(f"| {game} | {steps:,} | {wrong} | {len(own)} | {commits} |")
    devices = " and ".join(sorted({one["device"] for one in done}))
    lines += ["", f"`python benchmarks/verify.py --steps 1000000`, on {devices}."]
    return "\n".join(lines)


def told(one: dict[str, Any]) -> str:
    return f"{one['game']} seed {one['seed']}: {one['steps']} steps, {one['mismatches']} mismatches"


if __name__ == "__main__":
    main()
