"""The learning curves of examples/ppo.py on the seven levels, and what the speed buys.

    python studies/ppo_curves.py --out results/ppo --figure docs/images/ppo.png

Reads the files that the example wrote (results/ppo/*.json) and writes a table and a figure.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

SOLVED = 0.95
"""A level is solved when episodes reach this fraction of the maximal score on average."""
HEAD = (
    "| level | device | frames per second | final fraction | solved after frames | after seconds |"
)


def read(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda one: (one["config"]["game"], one["about"]["device"]))


def counted(curve: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows from the first time limit on: before it only the quickest episodes have ended."""
    import grue

    config = curve["config"]
    steps = grue.make(config["game"]).episode_steps
    return [row for row in curve["rows"] if row["frames"] > steps * config["envs"]]


def solved(curve: dict[str, Any]) -> dict[str, Any] | None:
    """The first row at which the level is solved."""
    return next((row for row in counted(curve) if row["fraction"] >= SOLVED), None)


def table(curves: list[dict[str, Any]]) -> str:
    lines = [HEAD, "|---" * 6 + "|"]
    for curve in curves:
        config, row = curve["config"], solved(curve)
        final = curve["rows"][-1]["fraction"]
        after = f"{row['frames']:,} | {row['seconds']:.0f}" if row else "not | not"
        level = config["game"].removeprefix("saladworld-")
        commands = ", all commands" if config["all_commands"] else ""
        lines.append(
            f"| {level}{commands} | {curve['about']['device']} | "
            f"{curve['frames_per_second']:,} | {final:.3f} | {after} |"
        )
    return "\n".join(lines) + "\n"


def draw(curves: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6), sharey=True)
    for curve in curves:
        rows = counted(curve)
        label = curve["config"]["game"].removeprefix("saladworld-")
        label += ", all commands" if curve["config"]["all_commands"] else ""
        fraction = [row["fraction"] for row in rows]
        left.plot([row["frames"] for row in rows], fraction, label=f"level {label}")
        right.plot([row["seconds"] for row in rows], fraction)
    left.set(xlabel="steps of all games", ylabel="fraction of the score", ylim=(0, 1.02))
    right.set(xlabel="seconds, compiling included")
    left.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=130, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path("results/ppo"))
    parser.add_argument("--figure", type=Path, default=Path("docs/images/ppo.png"))
    given = parser.parse_args()
    curves = read(given.out)
    text = table(curves)
    (given.out / "table.md").write_text(text)
    draw(curves, given.figure)
    print(text)


if __name__ == "__main__":
    main()
