"""The drill's trainings: killed, stopped, on a full disk, with failing emulators, two at once."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drill_calls import call, children, family_memory, outcome, start
from drill_damage import COMMON

from grue.games.zmachine import zork

SMALL = [f"--set={name}={size}" for name, size in (
    ("encoder", 6), ("context", 8), ("hidden", 8), ("batch_size", 4), ("replay_steps", 2000),
    ("embedding", 4))]  # fmt: skip
LEVEL = "saladworld-1"
TRAININGS = {
    "tabular": [LEVEL, "--agent", "tabular", "--steps", "200000"],
    "compiled": [LEVEL, "--agent", "sc", "--gate", "masking", *SMALL, "--steps", "4000"],
    "side by side": [
        *(LEVEL, "--agent", "tabular", "--seeds", "0-3", "--together", "--steps", "100000"),
    ],
    "hosted": [zork.NAME, "--agent", "tabular", "--steps", "4000"],
}
"""``hosted`` plays Zork I in emulators, where its story is found."""
STUDY = [
    *("reproduce", "oracle", "--levels", "1", "--conditions", "tabular+oracle", "--seeds", "0-3"),
    *("--jobs", "2", "--no-draw", *COMMON, "--set", "steps=100000"),
]
"""Four trainings in two processes, led by a third one, which is killed."""
KILLS_A_RUN = 5
SIGNALS = (*[signal.SIGKILL] * 4, signal.SIGTERM, signal.SIGINT)
PATIENCE = 120.0
ROW = 100_000
"""Steps of a row of metrics in which signals are timed."""


def trainings() -> dict[str, list[str]]:
    """The commands of the trainings that can be had here."""
    return {
        name: ["train", *options, *COMMON, "--checkpoint-seconds", "0.5"]
        for name, options in TRAININGS.items()
        if zork.NAME not in options or zork.is_there()
    }


# Kills


def killed() -> dict[str, list[str]]:
    return {**trainings(), "study": STUDY}


class Kills:
    """Kills trainings of one kind; ``row`` is what came out so far, and goes on from there."""

    def __init__(self, name: str, folder: Path, seed: int, row: dict[str, Any]) -> None:
        self.name, self.folder, self.seed, self.row = name, folder, seed, row
        self.command = killed()[name]
        # A study goes on by itself, and has its runs in a folder of their own.
        study = self.command is STUDY
        self.again, self.runs = ([], "runs") if study else (["--resume"], "")
        for count in ("kills", "identical", "runs", "earlier", "earlier_identical"):
            row.setdefault(count, 0)
        self._wanted: dict[str, Any] = {}
        self._whole = 0.0

    def run(self, most: int) -> None:
        """One run with up to ``most`` kills, compared with one that was never killed."""
        if not self._wanted:
            self._straight()
        chance = random.Random(f"{self.seed} {self.name} {self.row['runs']}")
        out = self.folder / "killed"
        shutil.rmtree(out, ignore_errors=True)
        hits = self._killed(out, min(most, KILLS_A_RUN), chance)
        same = self.outcome(out) == self._wanted
        self.row["runs"] += 1
        self.row["kills"] += hits
        self.row["identical"] += hits * same
        # A study keeps records of runs that have ended, and trains them no more.
        if same and self.again and drop_last_checkpoints(out):
            self.row["earlier"] += 1
            self._finish(out)
            self.row["earlier_identical"] += self.outcome(out) == self._wanted

    def outcome(self, out: Path) -> dict[str, Any]:
        return outcome(out / self.runs)

    def _straight(self) -> None:
        """Twice: the first compiles, and the second takes as long as those that are killed."""
        for name in ("first", "straight"):
            ended = call([*self.command, "--out", str(self.folder / name)])
            if ended.code:
                raise SystemExit(f"the training {self.name} failed: {ended.lines[-1:]}")
        self._whole = ended.seconds
        self._wanted = self.outcome(self.folder / "straight")
        if self.outcome(self.folder / "first") != self._wanted:
            raise SystemExit(f"two trainings {self.name} differ, and none was killed")

    def _killed(self, out: Path, most: int, chance: random.Random) -> int:
        """Kills at random times until the run has ended, at last undisturbed."""
        for hits in range(most):
            with (self.folder / "said").open("wb") as said:
                process = start([*self.command, "--out", str(out), *self.again], stderr=said)
            try:
                process.wait(chance.uniform(0.5, self._whole))
            except subprocess.TimeoutExpired:
                workers = children(process.pid)
                process.send_signal(chance.choice(SIGNALS))
                process.wait(PATIENCE)
                # The processes of a killed study write a checkpoint and end by themselves.
                _until(lambda workers=workers: not any(map(_is_alive, workers)))
                continue
            if process.returncode:
                last = (self.folder / "said").read_text().splitlines()[-1:]
                raise SystemExit(f"a resumed training ended with {process.returncode}: {last}")
            return hits
        self._finish(out)
        return most

    def _finish(self, out: Path) -> None:
        ended = call([*self.command, "--out", str(out), *self.again])
        if ended.code:
            raise SystemExit(f"a resumed training failed: {ended.lines[-1:]}")


def drop_last_checkpoints(out: Path) -> bool:
    """Leaves only the checkpoint before the last one; false where a run has one only."""
    found = [sorted(folder.glob("step-*.npz")) for folder in out.glob("*/checkpoint")]
    if not all(len(files) > 1 for files in found):
        return False
    for files in found:
        files[-1].unlink()
    return True


# Signals


def drill_signals(folder: Path, seed: int) -> dict[str, Any]:
    """Seconds from SIGTERM and Ctrl-C to the end, in rows that are far longer than that."""
    chance, rows = random.Random(seed), {}
    settings = ("metrics_every", "target_every", "average_over", "learning_starts")
    long = [f"--set={setting}={ROW}" for setting in settings]
    for name, command in trainings().items():
        words = [*command, *long, "--steps", str(100 * ROW)]
        # A network is to be hit while it learns; the others learn from their first step on.
        least = ROW if name == "compiled" else 0
        for number in (signal.SIGTERM, signal.SIGINT):
            out = folder / f"{name} {number}"
            process = start([*words, "--out", str(out)])
            saved = _until(lambda out=out, least=least: _saved(out) > least, process)
            time.sleep(chance.uniform(0, 2))
            if process.poll() is not None:
                raise SystemExit(f"the training {name} ended by itself with {process.returncode}")
            begun = time.perf_counter()
            process.send_signal(number)
            code = process.wait(PATIENCE)
            row = rows.setdefault(name, {})
            row[signal.Signals(number).name] = round(time.perf_counter() - begun, 2)
            row["codes"] = [*row.get("codes", []), code]
            row["left"] = row.get("left", True) and saved
    return rows


def _saved(out: Path) -> int:
    """The step of the latest checkpoint."""
    found = out.glob("*/checkpoint/step-*.npz")
    return max((int(path.stem.removeprefix("step-")) for path in found), default=0)


def _until(holds: Callable[[], bool], process: Any = None, seconds: float = PATIENCE) -> bool:
    """Waits until something holds, unless the process has ended before."""
    until = time.monotonic() + seconds
    while not holds() and time.monotonic() < until:
        if process is not None and process.poll() is not None:
            break
        time.sleep(0.05)
    return holds()


# A full disk


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """A file system of so many bytes; only root may make one."""
    folder.mkdir(exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={size}", "drill", str(folder)]
    subprocess.run(["mount", *options], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def drill_disk(folder: Path, seed: int, times: int = 6) -> dict[str, Any]:
    """The disk fills up at a random time; with more space the run ends as if nothing had been."""
    chance = random.Random(seed)
    row = {"tries": 0, "told": 0, "identical": 0, "said": ""}
    command = trainings()["tabular"]
    if call([*command, "--out", str(folder / "straight")]).code:
        raise SystemExit("a training failed")
    wanted = outcome(folder / "straight")
    most = sum(path.stat().st_size for path in (folder / "straight").rglob("*") if path.is_file())
    disk = folder / "disk"
    for _ in range(times):
        try:
            with small_disk(disk, int(chance.uniform(0.05, 0.9) * most)):
                ended = call([*command, "--out", str(disk / "runs")])
                row["tries"] += 1
                row["said"] = ended.lines[-1].replace(str(folder), "…") if ended.lines else ""
                row["told"] += ended.code == 1 and "No space left" in row["said"]
                more = ["mount", "-o", f"remount,size={8 * most}", str(disk)]
                subprocess.run(more, check=True, capture_output=True)
                again = call([*command, "--out", str(disk / "runs"), "--resume"])
                same = again.code == 0 and outcome(disk / "runs") == wanted
                row["identical"] += same
        except (OSError, subprocess.CalledProcessError) as error:
            return {**row, "skipped": f"no small file system could be made here ({error})"}
    return row


# Emulators


def drill_emulators(folder: Path, seed: int, times: int = 6) -> dict[str, Any]:
    """Emulators are killed and stopped: the training goes on and says so."""
    if not zork.is_there():
        return {"skipped": f"no story of {zork.NAME} was found"}
    chance = random.Random(seed)
    rows = {name: {"tries": 0, "went_on": 0, "slowest_s": 0.0} for name in ("killed", "hung")}
    for number in range(times):
        name = list(rows)[number % 2]
        how = signal.SIGKILL if name == "killed" else signal.SIGSTOP
        out = folder / f"{name} {number}"
        command = [*trainings()["hosted"], "--out", str(out)]
        process = start(command)
        _until(lambda out=out: any(out.glob("*/checkpoint/*.npz")), process)
        time.sleep(chance.uniform(0, 0.5))
        begun, struck = time.perf_counter(), chance.choice(children(process.pid) or [0])
        if struck:
            os.kill(struck, how)
        code = process.wait(PATIENCE)
        row = rows[name]
        row["tries"] += bool(struck)
        metrics = [json.loads(line) for path in out.glob("*/metrics.jsonl")
                   for line in path.read_text().splitlines()]  # fmt: skip
        counted = sum(one["failures"] for one in metrics) == 1
        row["went_on"] += code == 0 and metrics[-1]["step"] == 4000 and counted
        row["slowest_s"] = round(max(row["slowest_s"], time.perf_counter() - begun), 1)
        if _is_alive(struck):
            raise SystemExit(f"the emulator {struck} outlived its training")
    return rows


def _is_alive(pid: int) -> bool:
    return pid > 0 and Path(f"/proc/{pid}").exists()


# Writers


def drill_writers(folder: Path) -> dict[str, Any]:
    """Two trainings in one folder: one trains, the other is refused."""
    command = [*trainings()["tabular"], "--resume", "--out"]
    pipes: Any = {"stderr": subprocess.PIPE}
    both: list[Any] = [start([*command, str(folder / "both")], **pipes) for _ in range(2)]
    errors = [process.communicate()[1].decode().splitlines()[-1:] for process in both]
    codes = sorted(process.returncode for process in both)
    straight = call([*command, str(folder / "alone")])
    said = [line.replace(str(folder), "…") for lines in errors for line in lines]
    same = outcome(folder / "both") == outcome(folder / "alone")
    return {"codes": codes, "said": said, "identical": same and straight.code == 0}


# Memory


def compiled_memory(steps: int) -> dict[str, Any]:
    """Of a process that steps a compiled game, in the course of it."""
    import jax

    import grue

    env = grue.make("saladworld-3", "compiled")
    each, batch = 100, 1000

    def episode(key: Any) -> Any:
        actions = jax.random.randint(key, (each,), 0, len(env.commands))
        last, _ = jax.lax.scan(lambda s, a: (env.step(s, a)[0], None), env.reset()[0], actions)
        return last.score

    play = jax.jit(lambda key: jax.vmap(episode)(jax.random.split(key, batch)).sum())
    sizes = []
    for number in range(max(steps // (each * batch), 10)):
        play(jax.random.key(number)).block_until_ready()
        sizes.append(family_memory(os.getpid()))
    return {"steps": len(sizes) * each * batch, **_course(sizes)}


def hosted_memory(folder: Path, steps: int) -> dict[str, Any]:
    """Of a training on Zork with all its emulators, in the course of it."""
    if not zork.is_there():
        return {"skipped": f"no story of {zork.NAME} was found"}
    options = ["--steps", str(steps), "--out", str(folder / "runs")]
    process = start(["train", zork.NAME, "--agent", "tabular", *options])
    sizes: list[int] = []
    rows = 0
    while process.poll() is None:
        lines = [path.read_bytes().count(b"\n") for path in folder.glob("runs/*/metrics.jsonl")]
        if sum(lines) > rows:
            rows = sum(lines)
            sizes.append(family_memory(process.pid))
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"the training on {zork.NAME} ended with {process.returncode}")
    return {"steps": steps, **_course(sizes)}


def _course(sizes: list[int]) -> dict[str, int]:
    tenth = len(sizes) // 10
    return {
        "after_a_tenth_bytes": sizes[tenth],
        "at_half_bytes": sizes[len(sizes) // 2],
        "at_the_end_bytes": sizes[-1],
        "most_bytes": max(sizes),
    }


if __name__ == "__main__":
    # A process of its own, so that only the game is in it.
    print(json.dumps(compiled_memory(int(sys.argv[1]))))
