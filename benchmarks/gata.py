"""Measures both engines on games of GATA's level 4: compile time, file size, steps per second.

    python benchmarks/gata.py --docs                    # into results/bench/gata-cpu.json
    python benchmarks/gata.py --from results/bench/gata-cpu.json --docs

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
sys.path.insert(0, str(Path(__file__).resolve().parent))
from env import _replace  # noqa: E402


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


def measure(given: argparse.Namespace) -> dict[str, Any]:
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

    return {
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


def told(record: dict[str, Any]) -> str:
    """For docs/textworld.md."""
    speed = {(row["engine"], row["batch"]): f"{row['steps_per_s']:,.0f}" for row in record["rows"]}
    compiled = record["compiled"]
    near = sum(bool(row["near"]) for row in compiled)
    return "\n".join(
        [
            "| GATA's level 4, steps a second | |",
            "|---|---|",
            "| grue compiled, batch 1,024, full texts and admissible sets "
            f"| {speed['grue compiled', 1024]} |",
            f"| grue compiled, batch 1 | {speed['grue compiled', 1]} |",
            f"| TextWorld | {speed['textworld', 1]} |",
            "| TextWorld, with admissible commands "
            f"| {speed['textworld, admissible commands', 1]} |",
            "",
            f"Compiling takes {record['median_compile_cpu_s']} s of CPU time and "
            f"{record['median_bytes'] / 1000:.0f} kB at the median of {len(compiled)} games, of "
            f"which {near} are compiled near; the first is the one that is played, with "
            f"{compiled[0]['commands']} commands. `{record['command']}`, commit "
            f"`{record['commit'][:10]}`, seed {record['seed']}, {record['device']}, "
            f"JAX {record['versions']['jax']}.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--games", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--keep", type=Path, help="keep the games here, and take those there are")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench" / "gata-cpu.json")
    parser.add_argument("--from", type=Path, dest="source", help="do not measure; read this")
    parser.add_argument("--docs", action="store_true", help="rewrite docs/textworld.md")
    given = parser.parse_args()
    if given.source is not None:
        record = json.loads(given.source.read_text())
    else:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        record = measure(given)
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if given.docs:
        _replace(ROOT / "docs" / "textworld.md", "speed", told(record))
    print(told(record))


if __name__ == "__main__":
    main()
