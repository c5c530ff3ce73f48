"""Generates games with TextWorld's own generators, compiles them and compares both engines.

Six kinds; the settings of "tw-cooking-gata" are those of GATA's four levels, and those of
"tw-cooking-ftwp" combine skills as the First TextWorld Problems do.

python benchmarks/generality.py                     # every kind, into results/generality/
python benchmarks/generality.py --kinds custom tw-cooking-gata --games 5
python benchmarks/generality.py --first-seed 2001   # other games
python benchmarks/generality.py --keep DIR          # keeps games and results there, and goes on
python benchmarks/generality.py --docs              # only rewrites the table in the docs

Each game is made from a fixed seed in a temporary folder, compiled (or refused with a reason),
played at random on the compiled and the real engine side by side, and won by its walkthrough on
both. Ctrl-C, a game's time limit and the limit of the whole run all leave what there is. With
--keep, a later run measures only the games that are missing or were measured with other code.
Seeds from which tw-make builds no game are replaced by the next ones after the others.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from multiprocessing import TimeoutError, get_context
from pathlib import Path
from statistics import median
from typing import Any

import grue
from grue.errors import CannotCompileError, GrueError

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "generality"
PAGE = ROOT / "docs" / "what-compiles.md"
BEGIN, END = "<!-- generality: begin -->", "<!-- generality: end -->"
GENERATION_LIMIT_S = 150
"""The generators search for a world, and sometimes do not find one."""
QUICKLY = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
"""A game's programs run for seconds, and XLA would take longer to optimise them."""

Row = dict[str, Any]


# The games


def _custom(i: int) -> list[str]:
    parts = [
        f"--world-size {(1, 2, 3, 5, 8, 12)[i % 6]}",
        f"--nb-objects {(6, 10, 15, 22, 30)[i % 5]}",
        f"--quest-length {(1, 2, 3, 5)[i % 4]}",
        f"--theme {'basic' if i % 7 == 6 else 'house'}",
        "--nb-parallel-quests 2" if i % 8 == 3 else "",
        "--include-adj" if i % 3 == 2 else "",
        "--blend-descriptions" if i % 5 == 4 else "",
    ]
    return shlex.split(" ".join(parts))


def _simple(i: int) -> list[str]:
    rewards = ("dense", "balanced", "sparse")[i % 3]
    goal = ("detailed", "brief", "none")[i // 3 % 3]
    return ["--rewards", rewards, "--goal", goal, *(["--test"] if i % 2 else [])]


def _coin_collector(i: int) -> list[str]:
    # Levels from 101 and 201 on have two and three rooms for each step of the way, up to 100.
    levels = (1, 5, 10, 20, 30, 45, 60, 80, 90, 100, 101, 105, 110, 120, 135, 150)
    levels += (201, 205, 210, 220, 233)
    return ["--level", str(levels[i % len(levels)])]


def _treasure_hunter(i: int) -> list[str]:
    return ["--level", str(1 + i * 29 // 20 % 30)]


def _cooking_gata(i: int) -> list[str]:
    """The four levels of GATA (Adhikari et al. 2020), in turn: the skills of its game files."""
    levels = ("--cut", "--cook --cut", "--go 9", "--recipe 3 --take 3 --go 6 --cook --cut")
    split = ("train", "valid", "test")[i // 4 % 3]
    return shlex.split(f"--recipe 1 --take 1 --open {levels[i % 4]} --split {split}")


def _cooking_ftwp(i: int) -> list[str]:
    """Skills as the First TextWorld Problems combine them (Trischler et al. 2019)."""
    recipe = 1 + i % 3
    take = (recipe, recipe - 1, recipe, 1)[i // 3 % 4]
    parts = [
        f"--recipe {recipe} --take {take} --go {(1, 6, 9, 12)[i // 2 % 4]}",
        f"--recipe-seed {i}" if take else "",
        "--open" if i % 2 else "",
        "--cook" if i % 3 != 1 else "",
        "--cut" if i % 5 < 3 else "",
        "--drop" if i % 4 > 1 else "",
        f"--split {('train', 'valid', 'test')[i % 3]}" if i % 2 else "",
    ]
    return shlex.split(" ".join(parts))


KINDS = {
    "tw-simple": _simple,
    "tw-coin_collector": _coin_collector,
    "tw-treasure_hunter": _treasure_hunter,
    "tw-cooking-gata": _cooking_gata,
    "tw-cooking-ftwp": _cooking_ftwp,
    "custom": _custom,
}


def generate(kind: str, seed: int, folder: Path) -> Path:
    """Builds one game with tw-make, or says why it cannot; an earlier build stays as it is."""
    # Jericho plays files named "tw-…" in another way, without the status line.
    story = folder / f"{kind.removeprefix('tw-')}-{seed}.z8"
    if not story.exists():
        maker = Path(sys.executable).parent / "tw-make"
        settings = KINDS[kind](seed - 1)
        maker_kind = "tw-cooking" if kind.startswith("tw-cooking") else kind
        line = [maker, maker_kind, *settings, "--seed", str(seed), "--output", story, "--silent"]
        try:
            done = subprocess.run(
                list(map(str, line)), capture_output=True, text=True, timeout=GENERATION_LIMIT_S
            )
        except subprocess.TimeoutExpired:
            raise GrueError(f"tw-make: not done after {GENERATION_LIMIT_S} s") from None
        if not story.exists():
            raise GrueError(f"tw-make: {done.stderr.strip().splitlines()[-1]}")
    return story


# One game


class _TooLongError(Exception):
    pass


def measure(kind: str, seed: int, folder: Path, steps: int, limit_s: int) -> Row:
    """Everything there is to say about one game."""

    def stop(*_: object) -> None:
        raise _TooLongError

    row: Row = {"kind": kind, "seed": seed, "settings": shlex.join(KINDS[kind](seed - 1))}
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(limit_s)
    try:
        _measure(row, generate(kind, seed, folder), steps)
    except _TooLongError:
        row["error"] = f"not done after {limit_s} s"
    except GrueError as error:
        row["error"] = str(error)
    finally:
        signal.alarm(0)
    return row


def _measure(row: Row, story: Path, steps: int) -> None:
    from grue.engine.compiler.build import compile_game
    from grue.engine.verify import Verifier
    from grue.games.gamefile import compiled_path

    game = grue.load(str(story))
    start = time.process_time()  # Others may share the cores.
    row |= {"rooms": len(game.rooms), "commands": len(game.commands), "compiled": False}
    try:
        arrays = compile_game(game)
    except CannotCompileError as error:
        row["reason"] = str(error)
        return
    finally:
        row["compile_s"] = round(time.process_time() - start, 2)
    arrays.save(compiled_path(game))
    near = len(arrays.header.get("near", ()))
    row |= {"compiled": True, "near": near, "bytes": compiled_path(game).stat().st_size}

    verifier = Verifier(game)
    report = verifier.run(steps, row["seed"])
    row |= {
        "steps": report.steps,
        "not_compared": report.skipped,
        "mismatches": report.mismatches,
        "first_difference": str(report.first) if report.first else None,
    }
    row["walkthrough"] = _walk(verifier)


def _walk(verifier: Any) -> str:
    """Plays the walkthrough on both engines: "won", or what went wrong."""
    import numpy as np

    from grue.games.tokens import squeeze

    game = verifier.game
    real_state, real = verifier.real.reset()
    state, step = verifier._reset()
    if not game.walkthrough:
        return "none"
    for command in game.walkthrough:
        if command not in game.commands:
            return f"{command!r} is not a command of the set"
        action = game.commands.index(command)
        real_state, real = verifier.real.step(real_state, action)
        state, step = verifier._step(state, action)
        text = verifier.compiled.decode(np.asarray(step.observation))
        if squeeze(text) != squeeze(real.text or "") or int(step.score) != real.score:
            return f"differs at {command!r}: {text!r} for {real.text!r}"
    ended = bool(step.terminated), bool(real.terminated)
    return {(True, True): "won", (False, False): "not finished"}.get(ended, f"ends: {ended}")


# All of them


Task = tuple[str, int, Path, int, int]


class StoppedError(Exception):
    """The time is up, or Ctrl-C."""


def measure_all(options: argparse.Namespace, folder: Path, commit: str) -> Iterator[Row]:
    """Rows as they are done; first those that an earlier run has left in the folder.

    Each carries the commit at which it was measured.
    """
    until = time.monotonic() + options.limit
    source = f"{_source_digest()} {options.steps}"
    first, games = int(options.first_seed), int(options.games)
    following = dict.fromkeys(options.kinds, first)
    missing = dict.fromkeys(options.kinds, games)
    os.environ.setdefault("XLA_FLAGS", QUICKLY)
    # A forked process would share locks that JAX's threads hold; old programs go with theirs.
    with get_context("spawn").Pool(options.jobs, maxtasksperchild=8) as pool:
        while any(missing.values()):
            tasks = []
            for kind, count in missing.items():
                for seed in range(following[kind], following[kind] + count):
                    tasks.append((kind, seed, folder, options.steps, options.game_limit))
                following[kind] += count
            tasks.sort(key=lambda task: task[1])
            missing = dict.fromkeys(options.kinds, 0)
            for row in _rows(pool, tasks, source, commit, until):
                missing[row["kind"]] += not was_made(row)
                yield row


def _rows(
    pool: Any, tasks: Sequence[Task], source: str, commit: str, until: float
) -> Iterator[Row]:
    """Rows of tasks: those that are kept, then those that are measured now."""
    left = []
    for task in tasks:
        kept = _kept(*task[:3])
        row = json.loads(kept.read_text()) if kept.exists() else {}
        if row.pop("source", None) == source:
            yield row
        else:
            left.append(task)
    rows = pool.imap_unordered(_measure_task, left)
    try:
        for _ in left:
            row = rows.next(max(until - time.monotonic(), 1))
            row["commit"] = commit
            text = json.dumps({"source": source, **row})
            _kept(row["kind"], row["seed"], left[0][2]).write_text(text, encoding="utf-8")
            yield row
    except (KeyboardInterrupt, TimeoutError) as stopped:
        print(f"stopped early: {type(stopped).__name__}", file=sys.stderr)
        raise StoppedError from None


def _kept(kind: str, seed: int, folder: Path) -> Path:
    return folder / f"{kind}-{seed}.row.json"


def was_made(row: Row) -> bool:
    """What tw-make itself could not make is no game."""
    return not str(row.get("error")).startswith("tw-make")


def _source_digest() -> str:
    """Of all code that a game's row depends on."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for package in ("games", "engine"):
        for path in sorted((ROOT / "src" / "grue" / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _measure_task(task: Task) -> Row:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that collects.
    return measure(*task)


def provenance(options: argparse.Namespace) -> dict[str, Any]:
    from grue.engine.bench import device_name

    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", "src", __file__], capture_output=True, text=True
    ).stdout
    places = {str(options.keep): "KEEP", str(options.out): "OUT"}  # Names for this machine's paths.
    given = [places.get(word, word) for word in sys.argv[1:]]
    return {
        "grue": grue.__version__,
        "commit": commit.strip() + ("+changes" if changed else ""),
        "textworld": version("textworld"),
        "device": device_name(),
        "command": shlex.join(["python", "benchmarks/generality.py", *given]),
        "seeds": f"from {options.first_seed} on",
    }


def summary(kind: str, rows: Sequence[Row]) -> list[str]:
    """The cells of one line of the table."""
    rows = [row for row in rows if was_made(row)]
    compiled = [row for row in rows if row.get("compiled")]
    refused = Counter(_why(row["reason"]) for row in rows if row.get("reason"))
    failed = Counter(row["error"] for row in rows if row.get("error"))
    near = sum(bool(row.get("near")) for row in compiled)
    seconds = [row["compile_s"] for row in compiled]
    sizes = [row["bytes"] for row in compiled]
    return [
        kind,
        str(len(rows)),
        f"{len(compiled)} ({100 * len(compiled) / max(len(rows), 1):.0f}%)",
        str(len(compiled) - near),
        str(near),
        "; ".join(f"{n}: {why}" for why, n in (refused + failed).most_common()) or "none",
        str(sum(row.get("steps", 0) for row in compiled)),
        str(sum(row.get("mismatches", 0) for row in compiled)),
        str(sum(row.get("walkthrough") == "won" for row in compiled)),
        f"{median(seconds or [0]):.1f} s",
        f"{median(sizes or [0]) / 1000:.0f} kB",
    ]


COLUMNS = (
    *("kind", "games", "compiled", "exact", "near", "refused", "steps compared", "mismatches"),
    *("won by walkthrough", "median CPU time of the compiler", "median file"),
)


def _why(reason: str) -> str:
    """A reason without the names of one game."""
    names = r"(?:(?:'[^']*'|\"[^\"]*\")(?:, (?!by)| or )?)+"
    return re.sub(r"\b[a-z]+_\d+\b", "…", re.sub(names, "…", reason))


def write_docs() -> None:
    """Puts the table of the stored results between the page's markers."""
    stored = {path.stem: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}
    lines = [_line(COLUMNS), _line(["---"] * len(COLUMNS))]
    lines += [_line(summary(kind, stored[kind]["games"])) for kind in KINDS if kind in stored]
    runs = {(run["command"], run["commit"]): run for run in stored.values()}
    for run in runs.values():
        commits = sorted({row.get("commit", run["commit"])[:12] for row in run["games"]})
        lines += [
            "",
            f"Made by `{run['command']}` (seeds {run['seeds']}) with grue {run['grue']}, commit "
            f"`{'`, `'.join(commits)}`, TextWorld {run['textworld']}, {run['device']}.",
        ]
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    table = "\n".join(lines)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}", encoding="utf-8")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def store(rows: Mapping[str, list[Row]], head: Mapping[str, Any], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for kind, found in rows.items():
        path = out / f"{kind}.json"
        found.sort(key=lambda row: row["seed"])
        path.write_text(json.dumps({**head, "games": found}, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--games", type=int, default=41, help="of each kind")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1500, help="steps compared in each game")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=5400, help="seconds for the whole run")
    parser.add_argument("--game-limit", type=int, default=240, help="seconds for one game")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--keep", type=Path, help="keep the games here, and take those there are")
    parser.add_argument("--docs", action="store_true", help="only rewrite the table in the docs")
    options = parser.parse_args()
    if options.docs:
        write_docs()
        return
    rows: dict[str, list[Row]] = {kind: [] for kind in options.kinds}
    head = provenance(options)  # Before the run: what is checked out may change meanwhile.
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(StoppedError):
            for row in measure_all(options, folder, head["commit"]):
                rows[row["kind"]].append(row)
                said = row.get("reason") or row.get("error") or f"{row['mismatches']} mismatches"
                print(f"{row['kind']} {row['seed']}: {said}", file=sys.stderr, flush=True)
    store(rows, head, options.out)
    print(_line(COLUMNS))
    for kind, found in rows.items():
        print(_line(summary(kind, found)))


if __name__ == "__main__":
    main()
