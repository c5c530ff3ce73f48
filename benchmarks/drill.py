"""Kills, damages and fills up: nothing is lost, nothing hangs.

    python benchmarks/drill.py --kills 100 --files 1000 --minutes 60
    python benchmarks/drill.py --kills 4 --files 40 --minutes 2 --seed 1 --out /tmp/drill.json
    python benchmarks/drill.py --docs results/drill.json

Trainings are killed at random times and resumed until they end; the run folder must then be that of
a training that was never killed, byte for byte. Copies of every kind of file that grue reads are
damaged at random; the command that reads one must end with one line and the right code, change
nothing, and take less than 10 s of processor time and 1 GB. The last form writes the tables of
docs/reliability.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grue
from grue.files import write_atomically
from grue.games.gamefile import compiled_path
from grue.training.provenance import about

DOCS = Path("docs/reliability.md")
MOST_SECONDS, MOST_BYTES = 10.0, 10**9
COMMON = ["--set", "metrics_every=200", "--set", "learning_starts=200", "--set", "target_every=200"]
SMALL = [f"--set={name}={size}" for name, size in (
    ("encoder", 6), ("context", 8), ("hidden", 8), ("batch_size", 4), ("replay_steps", 2000),
    ("embedding", 4))]  # fmt: skip
TRAININGS = {
    "tabular": ["--agent", "tabular", "--steps", "200000"],
    "compiled": ["--agent", "sc", "--gate", "masking", *SMALL, "--steps", "6000"],
    "side by side": [
        *("--agent", "tabular", "--seeds", "0-3", "--together", "--steps", "100000"),
    ],
    "hosted": ["--agent", "tabular", "--steps", "4000"],
}
"""``hosted`` plays Zork I in emulators, where its story is found."""


class Ended(NamedTuple):
    code: int
    lines: list[str]
    seconds: float
    bytes: int


def call(arguments: Sequence[str], timeout: float = 600.0) -> Ended:
    """A real process of grue, its processor time, and the most memory that it had.

    Processor time, because a busy machine does not lengthen it.
    """
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "grue.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=told,
        )
        until, hangs, most = time.monotonic() + timeout, False, 0
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            if time.monotonic() > until and not hangs:
                process.kill()
                hangs = True
            most = max(most, _most_memory(process.pid))
            time.sleep(0.01)
        told.seek(0)
        lines = told.read().decode(errors="replace").splitlines() + ["hangs"] * hangs
    _, status, used = ended
    # The process has been waited for already.
    process.returncode = os.waitstatus_to_exitcode(status)
    spent = used.ru_utime + used.ru_stime
    return Ended(process.returncode, lines, spent, most)


def _most_memory(pid: int) -> int:
    """In bytes so far. wait4 would count the memory of the process that started it too."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


# Kills


def contents(folder: Path) -> dict[str, bytes]:
    """All that a training must reproduce: not the times in TensorBoard's events."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in paths
        if not path.name.startswith("events.")
    }


def killed(command: Sequence[str], out: Path, kills: int, chance: random.Random) -> int:
    """Trains, with so many kills at random times, and returns how many of them hit."""
    hit, before = 0, time.perf_counter()
    whole = 0.0
    while hit < kills:
        process = subprocess.Popen(
            [sys.executable, "-m", "grue.cli", *command, "--out", str(out), "--resume"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            process.wait(chance.uniform(0.5, whole or 12.0))
        except subprocess.TimeoutExpired:
            process.send_signal(chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
            process.wait()
            hit += 1
            continue
        # It ended before it was hit: the next ones begin anew.
        whole = max(time.perf_counter() - before, 1.0)
        shutil.rmtree(out, ignore_errors=True)
        before = time.perf_counter()
    ended = call([*command, "--out", str(out), "--resume"])
    if ended.code:
        raise SystemExit(f"a resumed training failed: {ended.lines[-1:]}")
    return hit


def outcome(folder: Path) -> dict[str, bytes]:
    """What a training ends with. The checkpoint before the last one depends on the time."""
    found = contents(folder)
    last: dict[str, str] = {}
    for name in sorted(name for name in found if name.endswith(".npz")):
        last[str(Path(name).parent)] = name
    return {n: d for n, d in found.items() if not n.endswith(".npz") or n in last.values()}


def drill_kills(kills: int, folder: Path, chance: random.Random, until: float) -> dict[str, Any]:
    rows = {}
    for number, (name, options) in enumerate(TRAININGS.items()):
        share = kills // len(TRAININGS) + (number < kills % len(TRAININGS))
        game = "saladworld-1"
        if name == "hosted":
            from grue.games.zmachine import zork

            if not zork.is_there():
                continue
            game = zork.NAME
        command = ["train", game, *options, *COMMON, "--checkpoint-seconds", "0.5"]
        straight = folder / f"straight {name}"
        if call([*command, "--out", str(straight)]).code:
            raise SystemExit(f"the training {name} failed")
        hit = same = 0
        while hit < share and time.monotonic() < until:
            out = folder / f"killed {name}"
            shutil.rmtree(out, ignore_errors=True)
            now = killed(command, out, min(5, share - hit), chance)
            hit += now
            same += now * (outcome(out) == outcome(straight))
        rows[name] = {"kills": hit, "identical": same}
        print(f"{name}: {hit} kills, {same} in runs that ended byte-identical", flush=True)
    return rows


# Damaged files


class Kind(NamedTuple):
    """A kind of file: where it lies in the folder, and the command that reads it."""

    path: str
    command: list[str]


def prepare(folder: Path) -> dict[str, Kind]:
    """A folder with every kind of file that grue reads."""
    level = grue.load("saladworld-1")
    shutil.copy(level.story, folder / "game.z8")
    shutil.copy(level.story.with_suffix(".json"), folder / "game.json")
    shutil.copy(compiled_path(level), folder / "one.grue.npz")
    train = ["train", "saladworld-1", "--agent", "tabular", *COMMON, "--steps"]
    if call([*train, "400", "--out", str(folder / "runs")]).code:
        raise SystemExit("a training failed")
    run = "runs/saladworld-1-tabular-none-seed0"
    record = next(Path("results/saladworld").rglob("*.json"), None)
    kinds = {
        "story": Kind("game.z8", ["walkthrough", "game.z8", "--run"]),
        "game file": Kind("game.json", ["walkthrough", "game.z8", "--run"]),
        "compiled game": Kind(
            "one.grue.npz",
            ["train", "one.grue.npz", "--agent", "tabular", "--steps", "1000", "--out", "new"],
        ),
        "config": Kind(f"{run}/config.json", [*train, "600", "--resume", "--out", "runs"]),
        "metrics": Kind(f"{run}/metrics.jsonl", [*train, "600", "--resume", "--out", "runs"]),
        "checkpoint": Kind(
            f"{run}/checkpoint/step-000000400.npz", [*train, "600", "--resume", "--out", "runs"]
        ),
    }
    if record is not None:
        shutil.copy(record, folder / "record.json")
        kinds["record"] = Kind("record.json", ["report", "record.json", "--claims", "claims.md"])
    return kinds


def damage(data: bytes, chance: random.Random) -> bytes:
    """Another content: cut, flipped, overwritten, doubled, emptied or of another kind."""
    at = chance.randrange(max(len(data), 1))
    how = chance.randrange(6)
    if how == 0:
        return data[:at]
    if how == 1:
        return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
    if how == 2:
        some = chance.randbytes(chance.randint(1, 64))
        return data[:at] + some + data[at + len(some) :]
    if how == 3:
        return data[:at] + data[at // 2 :]
    if how == 4:
        return chance.choice((b"", b"{}", b"[" * 100_000, b"null", b"\xff\xfe" * 99, b"PK\3\4"))
    return data[:at] + data[at + chance.randint(1, 64) :]


def drill_files(files: int, folder: Path, chance: random.Random, until: float) -> dict[str, Any]:
    kinds = prepare(folder)
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    before = os.getcwd()
    rows = {name: {"damaged": 0, "refused": 0, "accepted": 0, "wrong": 0} for name in kinds}
    wrong: list[dict[str, Any]] = []
    slowest = largest = 0.0
    os.chdir(folder)
    try:
        for number in range(files):
            if time.monotonic() > until:
                break
            name = list(kinds)[number % len(kinds)]
            path = folder / kinds[name].path
            path.write_bytes(damage(kept[path], chance))
            as_it_was = contents(folder)
            ended = call(kinds[name].command, 6 * MOST_SECONDS)
            slowest, largest = max(slowest, ended.seconds), max(largest, ended.bytes)
            row = rows[name]
            row["damaged"] += 1
            fits = ended.seconds < MOST_SECONDS and ended.bytes < MOST_BYTES
            one_line = len(ended.lines) == 1 and ended.lines[0].startswith("grue: ")
            if (
                ended.code == 0 and fits
            ):  # The change is in what is not read, or makes another valid file.
                row["accepted"] += 1
            elif ended.code in (1, 2) and one_line and fits and contents(folder) == as_it_was:
                row["refused"] += 1
            else:
                row["wrong"] += 1
                wrong.append({"kind": name, **ended._asdict(), "lines": ended.lines[-3:]})
            _restore(folder, kept)
    finally:
        os.chdir(before)
    print(rows, flush=True)
    return {"kinds": rows, "wrong": wrong, "slowest_s": slowest, "largest_bytes": largest}


def _restore(folder: Path, kept: dict[Path, bytes]) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and path not in kept:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    for path, data in kept.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


# Writers, and memory


def drill_writers(folder: Path) -> dict[str, Any]:
    """Two trainings in one folder: one trains, the other is refused."""
    command = ["train", "saladworld-1", *TRAININGS["tabular"], *COMMON, "--resume", "--out"]
    words = [sys.executable, "-m", "grue.cli", *command, str(folder / "both")]
    pipes: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    both: list[Any] = [subprocess.Popen(words, **pipes) for _ in range(2)]
    errors = [process.communicate()[1].decode().splitlines()[-1:] for process in both]
    codes = [process.returncode for process in both]
    straight = call([*command, str(folder / "alone")])
    same = outcome(folder / "both") == outcome(folder / "alone")
    return {
        "codes": sorted(codes),
        "said": [line for line in errors if line],
        "identical": same and straight.code == 0,
    }


def drill_memory(steps: int) -> dict[str, Any]:
    """The memory of a process that steps a compiled game, in the course of it."""
    import jax
    import jax.numpy as jnp

    env = grue.make("saladworld-3", "compiled")
    each, batch = 100, 1000

    def episode(key: Any) -> Any:
        actions = jax.random.randint(key, (each,), 0, len(env.commands))
        return jax.lax.scan(lambda s, a: (env.step(s, a)[0], None), env.reset()[0], actions)[
            0
        ].score

    play = jax.jit(lambda key: jax.vmap(episode)(jax.random.split(key, batch)).sum())
    sizes = []
    for number in range(max(steps // (each * batch), 10)):
        play(jax.random.key(number)).block_until_ready()
        sizes.append(_resident())
    tenth = len(sizes) // 10
    return {
        "steps": len(sizes) * each * batch,
        "after_a_tenth_bytes": sizes[tenth],
        "at_the_end_bytes": sizes[-1],
        "score": float(play(jnp.asarray(jax.random.key(0)))),
    }


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


# What comes out


def documented(found: dict[str, Any]) -> str:
    """The tables of docs/reliability.md."""
    here = found["about"]
    kills = [[n, r["kills"], r["identical"]] for n, r in found["kills"].items()]
    files = [[n, *r.values()] for n, r in found["files"]["kinds"].items()]
    memory = found["memory"]
    return "\n".join(
        [
            *_table(["training", "kills", "in runs that ended byte-identical"], kills),
            "",
            *_table(["file", "damaged", "refused by the rule", "accepted", "wrong"], files),
            "",
            f"The slowest of these commands took {found['files']['slowest_s']:.1f} s, the largest "
            f"{found['files']['largest_bytes'] / 1e6:.0f} MB. Two trainings in one folder ended "
            f"with the codes {found['writers']['codes']}, and the run was "
            f"{'' if found['writers']['identical'] else 'not '}that of one alone. A process had "
            f"{memory['after_a_tenth_bytes'] / 1e6:.0f} MB after a tenth of {memory['steps']:,} "
            f"steps of the compiled level 3, and {memory['at_the_end_bytes'] / 1e6:.0f} MB at the "
            "end.",
            "",
            f"`{found['command']}`, commit {str(here['commit'])[:10]}, seed {found['seed']}, "
            f"{here['device']}, {found['minutes']:.0f} minutes.",
        ]
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines]


def write_docs(found: dict[str, Any], path: Path = DOCS) -> None:
    head, _, rest = path.read_text().partition("<!-- drill -->\n")
    tail = rest.partition("<!-- /drill -->")[2]
    path.write_text(f"{head}<!-- drill -->\n{documented(found)}\n<!-- /drill -->{tail}")


def drill(kills: int, files: int, minutes: float, seed: int, steps: int) -> dict[str, Any]:
    begun, chance = time.monotonic(), random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        places: list[Path] = [Path(name) / part for part in ("kills", "files", "writers")]
        for place in places:
            place.mkdir()
        half = begun + 30 * minutes
        parts: dict[str, Callable[[], Any]] = {
            "files": lambda: drill_files(files, places[1], chance, half),
            "kills": lambda: drill_kills(kills, places[0], chance, begun + 60 * minutes),
            "writers": lambda: drill_writers(places[2]),
            "memory": lambda: drill_memory(steps),
        }
        found = {part: run() for part, run in parts.items()}
    return {
        "command": " ".join(["python", "benchmarks/drill.py", *sys.argv[1:]]),
        "seed": seed,
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "about": about(),
        **found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--steps", type=int, default=10_000_000, help="of the compiled game")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/drill.json"))
    parser.add_argument("--docs", type=Path, help="write the tables of docs/reliability.md")
    chosen = parser.parse_args()
    if chosen.docs is not None:
        write_docs(json.loads(chosen.docs.read_text()))
        return
    found = drill(chosen.kills, chosen.files, chosen.minutes, chosen.seed, chosen.steps)
    text = json.dumps(found, indent=1) + "\n"
    write_atomically(chosen.out, lambda file: file.write(text.encode()))


if __name__ == "__main__":
    main()
