"""How fast grue watch is: first paint, a step of level 7 with all thoughts, a long episode.

    python benchmarks/watch.py --out results/bench/watch-cpu.json

Trains a run of level 7 with the paper's network for a moment first. Needs chromium and Playwright.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grue
from grue.training.provenance import about
from grue.training.train import train_all
from grue.watch.serve import listen, make_server
from grue.watch.subjects import find_subjects

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
LONG = 10_000
"""Steps of the long episode."""


def trained(out: Path, **more: Any) -> Path:
    """A run of level 7 at the paper's sizes, hardly trained: only its speed matters here."""
    config = grue.TrainConfig(
        **{"game": "saladworld-7", "agent": "sc", "gate": "masking", "metrics_every": 200,
           "steps": 400, "learning_starts": 200, "target_every": 200, "average_over": 200,
           "replay_steps": 1000, **more}
    )  # fmt: skip
    (run,) = train_all([config], out).runs
    assert run.folder is not None
    return run.folder


def step_seconds(page: Any, steps: int) -> list[float]:
    """From the click to the new step on the page, for single steps of the agent."""
    found = []
    for number in range(1, steps + 1):
        begun = time.perf_counter()
        page.click("#agent-step")
        page.wait_for_selector(f"#steps:text('{number} /')")
        found.append(time.perf_counter() - begun)
    return found


def answer_seconds(page: Any, steps: int) -> list[float]:
    """The server's part: from the request to the last byte of its answer."""
    return page.evaluate(
        """async (steps) => {
          const ask = async (question, asked) => (await fetch(`/api/${question}`, {
            method: "POST", headers: {"Content-Type": "application/json"},
            body: JSON.stringify(asked)})).json();
          const { session } = await ask("begin", { subject: 0 });
          const found = [];
          for (let at = 0; at < steps; at += 1) {
            const begun = performance.now();
            await ask("play", { session, at, mind: 0, count: 1 });
            found.push((performance.now() - begun) / 1000);
          }
          return found;
        }""",
        steps,
    )


def frames(page: Any, moves: int) -> list[float]:
    """Milliseconds between frames while the reader moves through a long episode."""
    return page.evaluate(
        """async (moves) => {
          const slider = document.getElementById("place");
          const found = [];
          const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
          let before = await frame();
          for (let move = 0; move < moves; move += 1) {
            slider.value = Math.round((move / moves) * Number(slider.max));
            slider.dispatchEvent(new Event("input"));
            const now = await frame();
            found.push(now - before);
            before = now;
          }
          return found;
        }""",
        moves,
    )


def measured(folder: Path, long: Path) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    subjects = find_subjects([str(folder), str(long)])
    listening = listen("127.0.0.1", 0)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server = make_server(subjects, None)
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    with sync_playwright() as made:
        browser = made.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page()
        page.set_default_timeout(120_000)
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        answer_seconds(page, 2)  # The programs are compiled now.
        paints = []
        for _ in range(5):
            page.goto(address)
            page.wait_for_selector("body[data-ready]")
            paints.append(page.evaluate("() => performance.getEntriesByType('paint')[0].startTime"))
        page.wait_for_selector("#mind tbody tr")
        seen, answered = step_seconds(page, 20), answer_seconds(page, 40)
        page.select_option("#subject", "1")
        page.wait_for_selector(f"#steps:text('0 / {LONG}')")
        page.click("#to-end")
        page.wait_for_selector("#over")
        moving = frames(page, 120)
        browser.close()
    server.should_exit = True
    return {
        "first_paint_ms": statistics.median(paints),
        "answer_ms": 1000 * statistics.median(answered),
        "answer_most_ms": 1000 * max(answered),
        "step_on_page_ms": 1000 * statistics.median(seen),
        "long_episode_steps": LONG,
        "frame_ms": statistics.median(moving),
        "frame_most_ms": max(moving),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    with TemporaryDirectory() as name:
        short = trained(Path(name))
        small = {"embedding": 4, "encoder": 6, "context": 8, "hidden": 8, "batch_size": 4}
        sizes = {"replay_steps": 3 * LONG, "learning_starts": LONG, "steps": LONG}
        long = trained(Path(name) / "long", episode_steps=LONG, **small, **sizes)
        rows = measured(short, long)
    command = f"python benchmarks/watch.py --out {out}"
    out.write_text(json.dumps({"command": command, "seed": 0, **about(), **rows}, indent=2) + "\n")
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
