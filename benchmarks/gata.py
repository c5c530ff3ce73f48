"""Measures both engines on games of GATA's level 4: compile time, file size, steps per second.

    python benchmarks/gata.py --out results/bench/gata-cpu.json

Makes the games with TextWorld's generator, compiles them, and plays one of them at random: compiled
in batches, with full observations and admissible sets, and on TextWorld itself, in the same run.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import grue
from grue.engine.bench import bench_env, device_name
from grue.engine.compiler.build import compile_game
from grue.games.gamefile import compiled_path
from grue.games.makers import games_in, make_games
from grue.games.registry import load_textworld

ROOT = Path(__file__).resolve().parent.parent


def compiled_games(folder: Path) -> list[dict[str, Any]]:
    rows = []
    for story in games_in(folder):
        game = load_textworld(story)
        start = time.process_time()  # Others may share the cores.
        commands = len(game.commands)
        made = compile_game(game)
        seconds = round(time.process_time() - start, 2)
        made.save(compiled_path(game))
        size = compiled_path(game).stat().st_size
        near = len(made.header.get("near", ()))
        rows.append(
            {
                "game": story.name,
                "commands": commands,
                "near": near,
                "cpu_s": seconds,
                "bytes": size,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--games", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--keep", type=Path, help="keep the games here, and take those there are")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench" / "gata-cpu.json")
    given = parser.parse_args()
    git = ["git", "-C", str(ROOT)]
    at = subprocess.run(
        [*git, "describe", "--always", "--abbrev=40", "--dirty"], capture_output=True
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary) / "games"
        if not folder.exists():
            make_games("cooking", "gata-4", given.games, given.seed, folder)
        compiled = compiled_games(folder)
        first = str(next(games_in(folder)))
        rows = [row._asdict() for row in bench_env([first], (1, 1024), given.seconds)]
    import jax

    record = {
        "command": shlex.join(["python", "benchmarks/gata.py", *sys.argv[1:]]),
        "commit": at.stdout.decode().strip(),
        "seed": given.seed,
        "device": device_name(),
        "processor": platform.processor() or platform.machine(),
        "versions": {"grue": grue.__version__, "jax": jax.__version__},
        "median_compile_cpu_s": median(row["cpu_s"] for row in compiled),
        "median_bytes": median(row["bytes"] for row in compiled),
        "compiled": compiled,
        "rows": rows,
    }
    given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: record[name] for name in ("median_compile_cpu_s", "median_bytes")}))
    for row in rows:
        print(f"{row['engine']:32} {row['batch']:>6} {row['steps_per_s']:>12,.0f}")


if __name__ == "__main__":
    main()
