"""How fast grue watch is: first paint, a step of level 7 with all thoughts, a long episode.

    python benchmarks/watch.py --out results/bench/watch-cpu.json
    python benchmarks/watch.py --docs results/bench/watch-cpu.json

Trains a run of level 7 with the paper's network for a moment first, and one whose episodes have
10,000 steps. ``grue watch`` serves them from a process of its own, as for a user. Times are taken
by the page itself. Needs chromium and Playwright.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from env import _replace

import grue
from grue.training.provenance import about
from grue.training.train import train_all

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
LONG = 10_000
"""Steps of the long episode."""
OPENED, STEPS, MOVES = 10, 40, 300
WAIT = 900_000
"""Milliseconds: the agent plays the long episode in the meantime."""
BARS = {
    "first_paint": ("opening the page, to its first text", 1000),
    "step": ("a step of the agent on level 7, from the click to the new values on the page", 100),
    "typed": ("the same for a command that is typed", 100),
    "server": ("of it, the server's part", 100),
    "move": ("a frame while the slider moves over an episode of 10,000 steps", 50),
    "walk": ("a frame while the arrow key walks through its last steps", 50),
}
"""What is measured, and how many milliseconds it may take in 95 of 100 cases."""

HELPERS = """
const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
const steps = () => document.getElementById("steps").textContent;
/** Milliseconds from an act until its step has been painted with the agent's choice. */
async function untilShown(act, number) {
  const begun = performance.now();
  act();
  while (!steps().startsWith(`${number} /`) || !document.getElementById("choice")) {
    if (performance.now() - begun > 60000) throw new Error(`step ${number} is not shown`);
    await frame();
  }
  await frame();
  return performance.now() - begun;
}
/** Milliseconds between frames while something is done in each. */
async function frames(act, count) {
  const found = [];
  let before = await frame();
  for (let number = 0; number < count; number += 1) {
    act(number);
    const now = await frame();
    found.push(now - before);
    before = now;
  }
  return found;
}
"""
STEP = """async (count) => {
  const found = [];
  for (let number = 1; number <= count; number += 1) {
    found.push(await untilShown(() => document.getElementById("agent-step").click(), number));
  }
  return found;
}"""
TYPED = """async (count) => {
  const found = [];
  const input = document.getElementById("command");
  const first = Number(steps().split(" ")[0]);
  for (let number = first + 1; number <= first + count; number += 1) {
    found.push(await untilShown(() => {
      input.value = "look";
      document.getElementById("prompt").requestSubmit();
    }, number));
  }
  return found;
}"""
SERVER = """() => performance.getEntriesByType("resource")
  .filter((one) => one.name.endsWith("/api/play")).map((one) => one.duration)"""
MOVE = """(count) => {
  const slider = document.getElementById("place");
  return frames((number) => {
    slider.value = Math.round((number / count) * Number(slider.max));
    slider.dispatchEvent(new Event("input"));
  }, count);
}"""
WALK = """(count) => frames(() => document.body.dispatchEvent(
  new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true })), count)"""


def trained(out: Path, **more: Any) -> Path:
    """A run of level 7 at the paper's sizes, hardly trained: only its speed matters here."""
    config = grue.TrainConfig(
        **{"game": "saladworld-7", "agent": "sc", "gate": "masking", "metrics_every": 200,
           "steps": 400, "learning_starts": 200, "target_every": 200, "average_over": 200,
           "replay_steps": 1000, **more}
    )  # fmt: skip
    (run,) = train_all([config], out, resume=True).runs
    assert run.folder is not None
    return run.folder


def trained_runs(out: Path) -> tuple[Path, Path]:
    """One run to take steps of, and one with a long episode; trained unless they are there."""
    small = {"embedding": 4, "encoder": 6, "context": 8, "hidden": 8, "batch_size": 4}
    sizes = {"replay_steps": 3 * LONG, "learning_starts": LONG, "steps": LONG}
    long = trained(out / "long", episode_steps=LONG, **small, **sizes)
    return trained(out / "short"), long


@contextmanager
def served(*folders: Path) -> Iterator[str]:
    """The address of grue watch in a process of its own."""
    command = [sys.executable, "-m", "grue.cli", "watch", *map(str, folders), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def opened(browser: Any, address: str) -> Any:
    """A page in a browser without a memory of others, when the agent has thought."""
    page = browser.new_context(viewport={"width": 1440, "height": 960}).new_page()
    page.set_default_timeout(WAIT)
    page.goto(address)
    page.wait_for_selector("#choice")
    return page


def measured(browser: Any, address: str) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {"first_paint": []}
    opened(browser, address).close()  # The server's programs are compiled now.
    for _ in range(OPENED):
        page = opened(browser, address)
        paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        times["first_paint"].append(page.evaluate(paint))
        page.close()
    page = opened(browser, address)
    times["step"] = asked(page, STEP, STEPS)
    times["server"] = page.evaluate(SERVER)
    times["typed"] = asked(page, TYPED, STEPS)
    page.select_option("#subject", "1")
    page.wait_for_selector(f"#steps:text('0 / {LONG}')")
    page.wait_for_selector("#choice")
    page.click("#to-end")
    page.wait_for_selector("#over")
    times["move"] = asked(page, MOVE, MOVES)
    page.keyboard.press("End")
    times["walk"] = asked(page, WALK, MOVES)
    return times


def asked(page: Any, code: str, count: int) -> list[float]:
    return page.evaluate(f"async (count) => {{ {HELPERS} return ({code})(count); }}", count)


def summary(times: dict[str, list[float]]) -> dict[str, dict[str, float | int]]:
    return {
        name: {
            "count": len(found),
            "median_ms": round(float(np.median(found)), 1),
            "p95_ms": round(float(np.percentile(found, 95)), 1),
            "most_ms": round(max(found), 1),
        }
        for name, found in times.items()
    }


def measure(out: Path, runs: Path) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    folders = trained_runs(runs)
    load = os.getloadavg()[0]
    with sync_playwright() as made, served(*folders) as address:
        browser = made.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        times = measured(browser, address)
        version = browser.version
        browser.close()
    record = {
        "command": f"python benchmarks/watch.py --out {out}",
        "seed": 0,
        **about(),
        "chromium": version,
        "load_before": round(load, 2),
        "times": summary(times),
    }
    out.write_text(json.dumps(record, indent=1) + "\n")
    return record


def table(record: dict[str, Any]) -> str:
    lines = ["| | median | 95 of 100 within | longest | may take |", "|---|---|---|---|---|"]
    for name, (told, bar) in BARS.items():
        row = record["times"][name]
        cells = [f"{row[column]:.0f} ms" for column in ("median_ms", "p95_ms", "most_ms")]
        lines.append(f"| {told} | {' | '.join(cells)} | {bar:,} ms |")
    return "\n".join(
        [
            *lines,
            "",
            f"{record['device']}: `{record['command']}`, commit {record['commit'][:10]}, seed "
            f"{record['seed']}, JAX {record['jax']}, Chromium {record['chromium']}; the load of "
            f"other work before it was {record['load_before']}.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="measure, and write this file")
    parser.add_argument("--runs", type=Path, help="keep the trained runs in this folder")
    parser.add_argument("--docs", type=Path, help="write the table of docs/watch.md from a file")
    chosen = parser.parse_args()
    if chosen.out is not None:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory() as scratch:
            print(table(measure(chosen.out, chosen.runs or Path(scratch))))
    if chosen.docs is not None:
        page = Path(__file__).resolve().parent.parent / "docs" / "watch.md"
        _replace(page, "speed", table(json.loads(chosen.docs.read_text())))


if __name__ == "__main__":
    main()
