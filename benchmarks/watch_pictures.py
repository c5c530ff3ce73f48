"""Takes the pictures of docs/watch.md and README: light, dark, branches, many episodes.

    grue train saladworld-3 --gate masking --steps 120000 --set epsilon_steps=60000 \\
        --keep-every 10000 --out runs
    python benchmarks/watch_pictures.py runs/saladworld-3-sc-masking-seed0 docs/images

Needs chromium and Playwright.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from watch import FLAGS, served

WIDE = {"width": 1440, "height": 1100}
STEP = 4
"""Where the branches part."""
LOOKED_AT = 12
"""Steps among which the one with most wrong beliefs is shown."""


def at_step(page: Any, step: int) -> None:
    page.locator("#place").fill(str(step))
    page.wait_for_selector(f"#steps:text('{step} /')")
    page.wait_for_selector("tr.chosen")
    thought(page)


def thought(page: Any) -> None:
    """Waits until the values of the whole episode are plotted, and what moves has come to rest."""
    page.wait_for_selector("#plots[aria-busy='false']")
    page.wait_for_timeout(500)


def most_wrong(page: Any) -> int:
    """The step at which the agent's beliefs are wrong about most commands."""
    found = {}
    for step in range(LOOKED_AT):
        at_step(page, step)
        found[step] = page.locator("tr.believes, tr.doubts").count()
    return max(found, key=lambda step: found[step])


def take(page: Any, folder: Path, name: str, part: str | None = None) -> None:
    """The whole page, or a part of it."""
    page.mouse.move(0, 0)
    place = folder / f"watch-{name}.png"
    if part is None:
        page.screenshot(path=place, full_page=True)
    else:
        page.locator(part).screenshot(path=place)
    print(place, flush=True)


def opened(browser: Any, address: str, scheme: str) -> Any:
    page = browser.new_context(viewport=WIDE, color_scheme=scheme).new_page()
    page.set_default_timeout(600_000)
    page.goto(address)
    page.wait_for_selector("#choice")
    page.click("#to-end")
    page.wait_for_selector("#over")
    thought(page)
    return page


def light_pictures(page: Any, folder: Path) -> None:
    at_step(page, most_wrong(page))
    take(page, folder, "mind")
    at_step(page, STEP)
    other = page.locator("#mind tbody tr:not(.chosen):not(.out) .give").first
    other.click()
    page.wait_for_selector(f"#steps:text('{STEP + 1} /')")
    page.click("#to-end")
    page.wait_for_selector("#over")
    page.get_by_role("button", name="compare", exact=True).first.click()
    page.wait_for_selector(".comparison")
    thought(page)
    take(page, folder, "branches", "#more")
    page.click("#tab-many")
    page.fill("#many-count", "1000")
    page.click("#many-play")
    page.wait_for_selector("#panel strong:text('1,000 episodes')")
    take(page, folder, "many", "#more")


def dark_picture(page: Any, folder: Path) -> None:
    """An early agent, and beside it the last one at the same moment."""
    page.click("#tab-training")
    page.wait_for_selector("#progress")
    at_step(page, STEP)  # At the end there is nothing to choose.
    page.select_option("#other", index=page.locator("#other option").count() - 1)
    page.wait_for_selector("#other-choice")
    page.locator("#checkpoint").fill("1")
    page.wait_for_timeout(500)  # The table waits for the other agent now.
    at_step(page, most_wrong(page))
    page.wait_for_selector("#other-choice")
    take(page, folder, "dark")


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args()
    with sync_playwright() as made, served(chosen.run) as address:
        browser = made.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        light_pictures(opened(browser, address, "light"), chosen.folder)
        dark_picture(opened(browser, address, "dark"), chosen.folder)
        browser.close()


if __name__ == "__main__":
    main()
