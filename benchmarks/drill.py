"""Kills, damages and fills up: nothing is lost, nothing hangs.

    python benchmarks/drill.py --kills 100 --files 1000 --minutes 60
    python benchmarks/drill.py --only signals
    python benchmarks/drill.py --kills 4 --files 40 --minutes 2 --seed 1 --out /tmp/drill.json
    python benchmarks/drill.py --docs results/drill.json

Trainings are killed at random times and resumed until they end, and must then be those that were
never killed, byte for byte. Copies of every kind of file that grue reads are damaged at random, and
must be refused in one line. Then come a full disk, killed and hung emulators, two writers, memory
and signals. docs/reliability.md says what is compared.

What came out is written down all the time, for each part with its commit. The same command goes on
where the last one ended: a part that is complete stays, one that was begun at another commit begins
anew. ``--piece`` ends after so many minutes. The last form writes the tables of
docs/reliability.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import drill_runs
from drill_calls import Forks
from drill_damage import Damages, counted

from grue.engine.bench import device_name
from grue.files import write_atomically
from grue.training.provenance import about

DOCS = Path("docs/reliability.md")
SAVE_EVERY = 20


class Drill:
    """The parts, each of which goes on from what was found so far."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen = chosen
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        self.found = resumed(chosen.out, chosen.seed)
        self.here = {name: about()[name] for name in ("commit", "changed_tree")}
        self.begun = time.monotonic()
        self.until = self.begun + 60 * min(chosen.minutes - self.found["minutes"], chosen.piece)
        self._before = self.found["minutes"]

    def run(self) -> None:
        for part in self.chosen.only or PARTS:
            if time.monotonic() < self.until and not self.is_complete(part):
                self.begin(part)
                with tempfile.TemporaryDirectory() as name, compiled_once():
                    PARTS[part](self, Path(name))
                self.save()

    def is_complete(self, part: str) -> bool:
        if part == "files":
            return "files" in self.found and counted(self.found["files"]) >= self.chosen.files
        if part == "kills":
            rows = self.found.get("kills", {})
            return sum(row["kills"] for row in rows.values()) >= self.chosen.kills
        return all(name in self.found for name in NAMES.get(part, (part,)))

    def begin(self, part: str) -> None:
        """Forgets what was found by other code."""
        if self.found["made"].get(part) != self.here:
            for name in NAMES.get(part, (part,)):
                self.found.pop(name, None)
            self.found["made"][part] = self.here

    def save(self) -> None:
        spent = (time.monotonic() - self.begun) / 60
        self.found["minutes"] = round(self._before + spent, 1)
        text = json.dumps(self.found, indent=1) + "\n"
        write_atomically(self.chosen.out, lambda file: file.write(text.encode()))

    def files(self, folder: Path) -> None:
        found = self.found.setdefault("files", {})
        with Forks() as forks:
            damages = Damages(folder, forks, self.chosen.seed, found)
            while damages.counted < self.chosen.files and time.monotonic() < self.until:
                damages.one()
                if damages.done % SAVE_EVERY == 0:
                    self.save()
        print(dict(found["kinds"].items()), flush=True)

    def kills(self, folder: Path) -> None:
        rows = self.found.setdefault("kills", {})
        names = list(drill_runs.killed())
        for number, name in enumerate(names):
            row = rows.setdefault(name, {})
            share = self.chosen.kills // len(names) + (number < self.chosen.kills % len(names))
            (folder / name).mkdir()
            killed = drill_runs.Kills(name, folder / name, self.chosen.seed, row)
            while row["kills"] < share and time.monotonic() < self.until:
                killed.run(share - row["kills"])
                self.save()
            print(name, row, flush=True)

    def writers(self, folder: Path) -> None:
        self._once("writers", lambda: drill_runs.drill_writers(folder))

    def disk(self, folder: Path) -> None:
        self._once("disk", lambda: drill_runs.drill_disk(folder, self.chosen.seed))

    def emulators(self, folder: Path) -> None:
        self._once("emulators", lambda: drill_runs.drill_emulators(folder, self.chosen.seed))

    def memory(self, folder: Path) -> None:
        program = [sys.executable, drill_runs.__file__ or "", str(self.chosen.steps)]
        self._once("compiled_memory", lambda: json.loads(subprocess.check_output(program)))
        hosted = self.chosen.hosted_steps
        self._once("hosted_memory", lambda: drill_runs.hosted_memory(folder, hosted))

    def signals(self, folder: Path) -> None:
        """With the load of the machine at its begin: the promise is for a quiet one."""
        load = round(os.getloadavg()[0], 2)
        self._once(
            "signals", lambda: {"load": load, **drill_runs.drill_signals(folder, self.chosen.seed)}
        )

    def _once(self, name: str, run: Any) -> None:
        if name not in self.found:
            self.found[name] = run()
            print(name, self.found[name], flush=True)
            self.save()


PARTS = {
    part.__name__: part
    for part in (
        *(Drill.files, Drill.kills, Drill.writers, Drill.disk, Drill.emulators),
        *(Drill.memory, Drill.signals),
    )
}


NAMES = {"memory": ("compiled_memory", "hosted_memory")}
"""What a part finds, if it is not one thing of its name."""


@contextmanager
def compiled_once() -> Iterator[None]:
    """Programs are compiled by the first process and read by the others: more is trained."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = cache
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
        yield


def resumed(out: Path, seed: int) -> dict[str, Any]:
    """What was found so far with the same seed."""
    new = {
        "command": " ".join(["python", "benchmarks/drill.py", *sys.argv[1:]]),
        "seed": seed,
        "minutes": 0.0,
        "device": device_name(),
        "made": {},
    }
    found = json.loads(out.read_text()) if out.exists() else new
    return found if found["seed"] == seed and found["device"] == new["device"] else new


# What comes out


def documented(found: dict[str, Any]) -> str:
    """The tables of docs/reliability.md; parts that have not been run are named."""
    kills = [[name, *row.values()] for name, row in found.get("kills", {}).items()]
    files = [[name, *row.values()] for name, row in found["files"]["kinds"].items()]
    totals = [sum(row[column] for row in files) for column in range(1, len(files[0]))]
    return "\n".join(
        [
            *_table(
                ["training", "kills", "of them in runs that ended byte-identical", "runs",
                 "earlier checkpoints tried", "of them byte-identical in the end"],
                kills,
            ),
            "",
            *_table(
                ["file", "damaged", "refused by the rule", "not read, same result",
                 "another valid file", "wrong"],
                [*files, ["**all**", *totals]],
            ),
            "",
            *_told(found),
            "",
            f"`{found['command']}`, seed {found['seed']}, {found['device']}, "
            f"{found['minutes']:.0f} minutes in all. {_commits(found['made'])}.",
        ]
    )  # fmt: skip


def _commits(made: dict[str, dict[str, Any]]) -> str:
    at: dict[str, list[str]] = {}
    for part, here in made.items():
        commit = str(here["commit"])[:10] + (" with changes" if here["changed_tree"] else "")
        at.setdefault(commit, []).append(part)
    return "; ".join(f"Commit {commit}: {', '.join(parts)}" for commit, parts in at.items())


def _told(found: dict[str, Any]) -> list[str]:
    files = found["files"]
    lines = [
        f"- Damaged files: the slowest refusal took {files['slowest_s']:.1f} s, the largest had "
        f"{files['largest_bytes'] / 1e6:.0f} MB. {files['real']} of the refusals were made by a "
        f"real process as well, {files['real_alike']} of them with the same code and line."
    ]
    for name, told in TOLD.items():
        part = found.get(name, {"skipped": "not run yet"})
        lines += [f"- {told[0]}: {part.get('skipped') or told[1](part)}."]
    if "signals" in found:
        rows = {name: row for name, row in found["signals"].items() if name != "load"}
        lines += [
            "",
            *_table(
                ["training, rows of 100,000 steps", "s from SIGTERM to the end", "from Ctrl-C"],
                [[name, row["SIGTERM"], row["SIGINT"]] for name, row in rows.items()],
            ),
        ]
    return lines


def _of_writers(row: dict[str, Any]) -> str:
    alike = "" if row["identical"] else "not "
    return f"exit codes {row['codes']}, and the run was {alike}that of one alone"


def _of_emulators(rows: dict[str, Any]) -> str:
    return "; ".join(
        f"{name} in {row['tries']} trainings, of which {row['went_on']} went on to their end with "
        f"one failed episode counted, within {row['slowest_s']:.0f} s"
        for name, row in rows.items()
    )


def _of_disk(row: dict[str, Any]) -> str:
    return (
        f"it was full in {row['tries']} trainings, {row['told']} said so in their last line with "
        f"exit code 1, and {row['identical']} ended byte-identical once there was space"
    )


def _of_memory(row: dict[str, Any]) -> str:
    sizes = [row[name] / 1e6 for name in ("after_a_tenth_bytes", "at_half_bytes")]
    last = row["at_the_end_bytes"] / 1e6
    return (
        f"{sizes[0]:.0f} MB after a tenth of {row['steps']:,}, {sizes[1]:.0f} MB at half, "
        f"{last:.0f} MB at the end"
    )


TOLD = {
    "writers": ("Two writers", _of_writers),
    "disk": ("Full disk", _of_disk),
    "emulators": ("Emulators", _of_emulators),
    "compiled_memory": ("Memory over steps of the compiled level 3", _of_memory),
    "hosted_memory": ("Memory over steps of Zork I with its emulators", _of_memory),
}


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines]


def write_docs(found: dict[str, Any], path: Path = DOCS) -> None:
    head, _, rest = path.read_text().partition("<!-- drill -->\n")
    tail = rest.partition("<!-- /drill -->")[2]
    path.write_text(f"{head}<!-- drill -->\n{documented(found)}\n<!-- /drill -->{tail}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=60.0, help="of all pieces together")
    parser.add_argument("--piece", type=float, default=1e9, help="minutes of this one")
    parser.add_argument("--steps", type=int, default=10_000_000, help="of the compiled game")
    parser.add_argument("--hosted-steps", type=int, default=200_000)
    parser.add_argument("--only", nargs="*", choices=list(PARTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/drill.json"))
    parser.add_argument("--docs", type=Path, help="write the tables of docs/reliability.md")
    chosen = parser.parse_args()
    if chosen.docs is not None:
        write_docs(json.loads(chosen.docs.read_text()))
        return
    Drill(chosen).run()


if __name__ == "__main__":
    main()
