"""Which of the paper's runs are done: a table of all of them in docs/reproduce.md.

    python benchmarks/study_table.py

Reads the records under results/saladworld and results/zork, and trains nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from env import _replace

from grue.experiments.conditions import Condition
from grue.experiments.figures import find_figures
from grue.experiments.records import Record, read_records
from grue.experiments.scales import SCALES, level_of
from grue.experiments.wishes import Wish, finished, spans, tell_levels

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ("results/saladworld", "results/zork")


def table(records: Sequence[Record]) -> str:
    wish = Wish(find_figures("all"), SCALES["paper"])
    configs = wish.configs()
    lines = [
        "| game | condition | seeds done | missing | commit | device |",
        "|---|---|---|---|---|---|",
    ]
    done = 0
    for config in configs:
        record = finished(records, config)
        seeds = () if record is None else record.seeds
        done += len(seeds)
        about = [] if record is None else record.about
        commits = dict.fromkeys(str(one["commit"])[:10] for one in about)
        devices = dict.fromkeys(str(one["device"]) for one in about)
        lines.append(
            f"| {tell_levels([level_of(config.game)])} | {Condition.of(config).label} "
            f"| {spans(seeds)} | {spans([s for s in config.seeds if s not in seeds])} "
            f"| {', '.join(commits)} | {', '.join(devices)} |"
        )
    runs = sum(len(config.seeds) for config in configs)
    return "\n".join([f"{done} of {runs} runs are done.", "", *lines])


def main() -> None:
    records = read_records([ROOT / folder for folder in RECORDS])
    _replace(ROOT / "docs" / "reproduce.md", "runs", table(records))


if __name__ == "__main__":
    main()
