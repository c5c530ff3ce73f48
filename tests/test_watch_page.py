"""The page of grue watch in a real browser: headless Chromium, driven by Playwright."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_runs import ARGUMENTS, config

import grue
from grue.training.train import train_all
from grue.watch.serve import listen, make_server
from grue.watch.subjects import GameSubject, RunSubject, find_subjects

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium: .ci/run installs it"
)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-sync", "--disable-background-networking", "--disable-component-update"]
WAIT = 60_000
"""Milliseconds; an agent's programs are compiled in the meantime."""
WON = ["go south", "go east", "go east", "take lettuce", "go west", "go west", "go north"]
WON += ["put lettuce on counter"]


class Running:
    """A server in a thread, which can be stopped and started again on its port."""

    def __init__(self, subjects: list[Any], port: int = 0) -> None:
        listening = listen("127.0.0.1", port)
        self.subjects, self.port = subjects, listening.getsockname()[1]
        self.server = make_server(subjects, None)
        run = self.server.run
        self.thread = threading.Thread(target=run, kwargs={"sockets": [listening]}, daemon=True)
        self.thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(WAIT / 1000)
        assert not self.thread.is_alive()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunSubject:
    out = tmp_path_factory.mktemp("watched")
    train_all([config(steps=400, average_over=200)], out, keep_every=200)
    (found,) = find_subjects([str(out)])
    assert isinstance(found, RunSubject)
    return found


@pytest.fixture(scope="module")
def server(run: RunSubject) -> Iterator[Running]:
    running = Running([run, GameSubject(1, grue.load("saladworld-1"))])
    yield running
    running.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as made:
        opened = made.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


Open = Callable[..., Any]


@pytest.fixture
def page(browser: Any) -> Iterator[Open]:
    """Opens an address. An error on any page fails the test."""
    wrong: list[str] = []
    contexts = []

    def opened(address: str, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
        contexts.append(context)
        made = context.new_page()
        made.set_default_timeout(WAIT)
        made.on("pageerror", lambda error: wrong.append(str(error)))
        made.goto(address)
        made.wait_for_selector("body[data-ready]")
        return made

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def shown(page: Any, selector: str, text: str) -> None:
    """Waits until an element has a text."""
    page.locator(selector).filter(has_text=re.compile(text)).first.wait_for()


def by_hand(page: Any) -> None:
    page.select_option("#subject", "1")
    shown(page, "#described", "played by hand")


def played(page: Any) -> None:
    """A line of the winning commands on the run."""
    for number, command in enumerate(WON, 1):
        page.fill("#command", command)
        page.press("#command", "Enter")
        shown(page, "#steps", rf"^{number} /")


def test_play_level_1_by_typing(page: Open, server: Running) -> None:
    made = page(server.address)
    by_hand(made)
    for number, command in enumerate(["take lettuce", *WON], 1):
        made.fill("#command", command.replace("lettuce", "the lettuce"))
        made.press("#command", "Enter")
        shown(made, "#steps", rf"^{number}$")
        if number == 1:  # Nothing to take here; undone, and recalled with the arrow.
            made.press("#command", "ArrowUp")
            assert made.input_value("#command") == "take the lettuce"
    shown(made, "#over", "won")
    assert made.text_content("#score") == "15 / 15"
    assert made.locator("#tasks li.done").count() == 2
    made.click("#undo")
    shown(made, "#steps", "^8$")
    shown(made, "#inventory", "lettuce")
    assert made.locator(".room.here").get_attribute("data-room") == "kitchen"


def test_play_level_1_by_clicking(page: Open, server: Running) -> None:
    made = page(server.address)
    by_hand(made)
    for number, command in enumerate(WON, 1):
        made.get_by_role("button", name=command, exact=True).locator("visible=true").last.click()
        shown(made, "#steps", rf"^{number}$")
    shown(made, "#over", "won")


def test_watch_a_trained_run(page: Open, server: Running) -> None:
    made = page(server.address)
    shown(made, "#described", r"sc \+ masking on saladworld-1, 400 steps trained")
    rows = made.locator("#mind tbody tr")
    rows.first.wait_for()
    assert rows.count() == 8
    choice = made.text_content("#choice")
    assert made.locator("tr.chosen").get_attribute("data-command") == choice
    made.click("#agent-step")
    shown(made, "#steps", r"^1 /")
    assert made.locator(".entry .given").first.text_content() == choice
    made.select_option("#speed", "10")  # The episode is not over before the play is paused.
    made.click("#play")
    shown(made, "#steps", r"^([4-9]|\d\d+) /")
    made.click("#play")
    made.click("#to-end")
    made.wait_for_selector("#over")
    made.locator("#place").fill("3")
    shown(made, "#steps", r"^3 /")
    assert made.text_content("#place-name").startswith("step 3 of")


def test_wrong_beliefs_are_coloured(page: Open, server: Running) -> None:
    """Orange where ξ̂ says yes and the game no, purple the other way round, else neither."""
    made = page(server.address)
    kinds: list[str] = []
    for step in range(6):
        shown(made, "#steps", rf"^{step} /")
        made.wait_for_selector("#choice")
        for row in made.locator("#mind tbody tr").all():
            believed = float(row.locator(".estimate").text_content())
            true = row.locator(".truth").text_content() == "✓"
            wrong = {"believes", "doubts"} & set((row.get_attribute("class") or "").split())
            if believed != 0.5:  # Rounded, it may be either.
                right = (believed > 0.5) == true
                assert wrong == (set() if right else {"doubts" if true else "believes"})
            kinds += wrong
        told = made.text_content(".summary")
        assert re.search(r"\d+ candidates? of 8 · \d+ admissible · \d+ wrong beliefs?", told)
        made.click("#agent-step")
    assert kinds
    colours = {
        kind: made.evaluate(
            f"() => getComputedStyle(document.body).getPropertyValue('--{kind}').trim()"
        )
        for kind in ("paper", "believes", "doubts")
    }
    assert len(set(colours.values())) == 3


def test_fork_at_step_4_and_compare(page: Open, server: Running) -> None:
    made = page(server.address)
    played(made)
    shown(made, "#over", "won")
    made.locator("#place").fill("4")
    shown(made, "#steps", r"^4 /")
    made.locator("tr[data-command='drop lettuce'] .give").click()
    shown(made, "#steps", r"^5 /")
    made.click("#agent-step")
    shown(made, "#steps", r"^6 /")
    assert made.locator(".branches tbody tr").count() == 2
    made.get_by_role("button", name="compare", exact=True).click()
    shown(made, ".comparison h3", "B and A share 4 steps")
    first = made.locator(".comparison tbody tr").first
    assert [first.locator("td").nth(n).text_content() for n in (0, 1, 4)] == [
        "5",
        "drop lettuce",
        "go west",
    ]
    made.click("button[title='Show branch A']")
    shown(made, "#over", "won")


def test_two_checkpoints_at_the_same_moment(page: Open, server: Running) -> None:
    made = page(server.address)
    made.click("#tab-training")
    shown(made, "#progress", "400 of 400 steps")
    values = made.locator("#mind tbody .bar b")
    made.wait_for_selector("#choice")  # Before it has thought, the values are empty.
    late = values.all_text_contents()
    made.select_option("#other", index=1)
    made.wait_for_selector("#other-choice")
    made.select_option("#other", index=0)
    made.locator("#checkpoint").fill("0")
    shown(made, "#checkpoint-name", "^200 steps$")
    until, early = time.monotonic() + WAIT / 1000, late
    # Two columns of values until the other agent is gone, and none before this one has thought.
    while len(early) != len(late) or early == late or set(early) == {"–"}:
        assert time.monotonic() < until
        time.sleep(0.05)
        early = values.all_text_contents()
    assert len(early) == len(late) == 8
    assert early != late


def test_two_runs_at_the_same_moment(page: Open, run: RunSubject, tmp_path: Path) -> None:
    """Of other seeds: each with its own values, as each alone has them there."""
    train_all([config(steps=400, average_over=200, seeds=(1,))], tmp_path)
    running = Running(find_subjects([str(run.folder), str(tmp_path)]))
    made = page(running.address)
    made.fill("#command", "go south")
    made.press("#command", "Enter")
    shown(made, "#steps", "^1 /")

    def told(number: int) -> dict[str, str]:
        """The Q that each command has, of this agent or of the other one."""
        made.wait_for_selector("#choice")
        return made.evaluate(
            """(n) => Object.fromEntries([...document.querySelectorAll("#mind tbody tr")].map(
              (row) => [row.dataset.command, row.querySelectorAll(".bar b")[n].textContent]))""",
            number,
        )

    mine = told(0)
    made.click("#tab-training")
    (other,) = [one for one in made.locator("#other option").all() if "seed1" in one.text_content()]
    made.select_option("#other", other.get_attribute("value"))
    made.wait_for_selector("#other-choice")
    chosen = made.text_content("#other-choice")
    assert told(0) == mine
    theirs = told(1)
    assert theirs != mine
    assert made.locator("#mind th", has_text="Q′").count() == 1
    # The other run by itself, on the same moment.
    made.select_option("#subject", "1")
    shown(made, "#steps", "^0 /")
    made.fill("#command", "go south")
    made.press("#command", "Enter")
    shown(made, "#steps", "^1 /")
    assert told(0) == theirs
    assert made.text_content("#choice") == chosen
    running.stop()


def test_many_episodes_on_the_map(page: Open, server: Running) -> None:
    made = page(server.address)
    made.click("#tab-many")
    made.fill("#many-count", "60")
    made.click("#many-play")
    shown(made, "#panel strong", "^60 episodes$")
    assert made.locator(".heatmap .room").count() == 4
    shown(made, ".heatmap [data-room='kitchen']", "visited in 100%")
    # Each subtask with the rooms in which it is done, and in how many episodes.
    done = made.locator("#many-subtasks tr").nth(0)
    assert "open space" in done.locator(".where").text_content()
    assert re.fullmatch(r"[<>]?\d+%", done.locator(".number").text_content())


def test_some_are_never_none_and_not_all_never_all(page: Open, server: Running) -> None:
    made = page(server.address)
    told = made.evaluate(
        """async () => {
          const { percent } = await import("grue/many");
          return [0, 1, 5, 994, 999, 1000].map((number) => percent(number, 1000));
        }"""
    )
    assert told == ["0%", "<1%", "1%", "99%", ">99%", "100%"]


def test_an_exported_file_opens_from_disk(page: Open, server: Running, tmp_path: Path) -> None:
    made = page(server.address)
    played(made)
    with made.expect_download() as waiting:
        made.click("#export")
    path = tmp_path / "episode.html"
    waiting.value.save_as(path)
    assert "watched" not in path.read_text().split('id="stored"')[1]  # The folder's name.
    stored = page(path.as_uri())
    shown(stored, "#steps", "^0 /")
    assert stored.locator("#mind tbody tr").count() == 8
    stored.keyboard.press("End")
    shown(stored, "#over", "won")
    assert stored.locator(".room.here").get_attribute("data-room") == "kitchen"
    assert not stored.locator("#prompt").is_visible()


def test_keyboard_only(page: Open, server: Running) -> None:
    made = page(server.address)
    made.keyboard.press("/")
    made.keyboard.type("go south")
    made.keyboard.press("Enter")
    shown(made, "#steps", "^1 /")
    made.keyboard.press("Escape")
    made.keyboard.press("n")
    shown(made, "#steps", "^2 /")
    made.keyboard.press("ArrowLeft")
    shown(made, "#steps", "^1 /")
    made.keyboard.press("Home")
    shown(made, "#steps", "^0 /")
    made.keyboard.press("ArrowRight")
    shown(made, "#steps", "^1 /")
    made.locator("#tab-branches").focus()
    made.keyboard.press("Tab")
    made.keyboard.press("Enter")
    shown(made, "#tab-training[aria-selected=true]", "Over training")


def test_a_narrow_window(page: Open, server: Running) -> None:
    made = page(server.address, viewport={"width": 390, "height": 800}, color_scheme="dark")
    wide = made.evaluate("() => document.documentElement.scrollWidth")
    assert wide <= 390
    made.click("#agent-step")
    shown(made, "#steps", "^1 /")
    assert made.locator("#prompt").is_visible()


def test_the_page_goes_on_when_the_server_is_back(page: Open, run: RunSubject) -> None:
    first = Running([run])
    made = page(first.address)
    for number, command in enumerate(WON[:3], 1):
        made.fill("#command", command)
        made.press("#command", "Enter")
        shown(made, "#steps", rf"^{number} /")
    first.stop()
    made.fill("#command", WON[3])
    made.press("#command", "Enter")
    shown(made, "#trouble", "The server does not answer. Start grue watch again")
    second = Running([run], first.port)
    shown(made, "#steps", "^4 /")
    assert not made.locator("#trouble").is_visible()
    shown(made, "#inventory", "lettuce")
    second.stop()


def test_a_live_run_is_followed(page: Open, tmp_path: Path) -> None:
    words = [*ARGUMENTS, "--steps", "200000", "--out", str(tmp_path), "--watch"]
    words += ["--keep-every", "400"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "grue.cli", *words],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        address = next(found[1] for line in lines if (found := re.search(r"(http\S+)", line)))
        threading.Thread(target=process.stderr.read, daemon=True).start()
        made = page(address)
        made.click("#tab-training")
        shown(made, "#progress", r"[1-9][0-9,]* of 200k steps")
        before = made.text_content("#progress")
        made.locator("#progress", has_not_text=before).wait_for()
        made.wait_for_selector("#agent-step:visible")
        made.click("#agent-step")
        shown(made, "#steps", "^1 /")
        # The agent on show is the latest, as the head of the page says.
        before = made.text_content("#described")
        made.locator("#described", has_not_text=before).wait_for()
        made.wait_for_selector("#choice")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT / 1000)


def test_a_damaged_run_is_told_on_the_page(page: Open, run: RunSubject, tmp_path: Path) -> None:
    broken, foreign = tmp_path / "broken", tmp_path / "foreign"
    for folder in (broken, foreign):
        shutil.copytree(run.folder, folder)
    (broken / "config.json").write_text("{")
    text = (foreign / "config.json").read_text()
    (foreign / "config.json").write_text(text.replace('"agent": "sc"', '"agent": "mine"'))
    running = Running(find_subjects([str(broken), str(run.folder), str(foreign)]))
    made = page(running.address)  # The one that is whole is shown first.
    shown(made, "#described", "400 steps trained")
    made.wait_for_selector("#choice")
    for number, why in (("0", "config.json is damaged"), ("2", "there is no agent 'mine'")):
        made.select_option("#subject", number)
        shown(made, "#said", why)
    made.click("#agent-step")
    shown(made, "#steps", "^1 /")
    running.stop()


def test_a_damaged_checkpoint(page: Open, run: RunSubject, tmp_path: Path) -> None:
    """The page says so, and goes on with the others."""
    folder = tmp_path / run.name
    shutil.copytree(run.folder, folder)
    running = Running(find_subjects([str(folder)]))
    made = page(running.address)
    made.wait_for_selector("#choice")
    made.click("#tab-training")
    made.wait_for_selector("#checkpoint")
    (folder / "kept" / "step-000000200.npz").write_bytes(b"not what was kept")
    made.locator("#checkpoint").fill("0")
    shown(made, "#said", "step-000000200.npz is damaged")
    made.click("#new-episode")
    made.wait_for_selector("#choice")
    running.stop()


def test_an_agent_on_zork(page: Open, zork_file: Callable[[int], Path], tmp_path: Path) -> None:
    """Watched as on any game, but without what the story does not tell; branches are replayed."""
    settings: dict[str, Any] = {"episode_steps": 15, "metrics_every": 20, "average_over": 20}
    settings |= {"target_every": 20, "learning_starts": 20, "agent": "tabular", "table_rows": 64}
    story = zork_file(119)
    train_all([grue.TrainConfig(game="zork1", story=story, steps=40, **settings)], tmp_path)
    running = Running(find_subjects([str(tmp_path)]))
    made = page(running.address)
    shown(made, "#map", "does not tell its world: there is no map")
    shown(made, ".summary", "This game does not tell which commands are admissible")
    assert [one.text_content() for one in made.locator("#mind th").all()] == ["command", "Q"]
    for number in range(1, 4):
        made.click("#agent-step")
        shown(made, "#steps", rf"^{number} /")
    made.locator("#place").fill("1")
    made.fill("#command", "open mailbox")
    made.press("#command", "Enter")
    shown(made, ".entry.now", "mailbox")
    shown(made, "#steps", "^2 /")
    assert made.locator(".branches tbody tr").count() == 2
    made.click("#to-end")
    shown(made, "#over", "out of steps")
    running.stop()


def test_zork_without_map_and_truth(page: Open, zork_file: Callable[[int], Path]) -> None:
    running = Running([GameSubject(0, grue.load("zork1", zork_file(88)))])
    made = page(running.address)
    shown(made, "#map", "there is no map")
    shown(made, "#mind", "does not tell which commands are admissible")
    for number, command in enumerate(("open mailbox", "read the leaflet"), 1):
        made.fill("#command", command)
        made.press("#command", "Enter")
        shown(made, "#steps", rf"^{number}$")
    shown(made, ".entry.now", "WELCOME TO ZORK")
    made.click("#undo")
    made.fill("#command", "take leaflet")
    made.press("#command", "Enter")
    shown(made, ".entry.now", "Taken")
    running.stop()
