"""A colour for each condition, the same in every picture.

The gate gives the hue; of one hue sc has the dark colour and the baseline the light one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grue.experiments.conditions import Condition
from grue.reports.picture import COLOURS, DASHES, INK

HUES = {
    "none": ("#86b8e0", "#1f6fb4"),
    "oracle": ("#c8a8e2", "#8a5bb0"),
    "dropout": ("#e3c06a", "#a97a08"),
    "masking": ("#83cca9", "#1e8a5c"),
    "cqlh": ("#f2a583", "#c2491d"),
    "acqlh": ("#ea9fbc", "#b83d6b"),
}
FIXED = {
    **{Condition("drqn", gate).label: light for gate, (light, _) in HUES.items()},
    **{Condition("sc", gate).label: dark for gate, (_, dark) in HUES.items()},
    Condition("tabular", "oracle").label: "#b0b8c1",
    Condition("li-tabular", "oracle").label: "#69737e",
    Condition("ae-dqn", "none").label: INK,
}
HATCHES = ("", "////", "....")
"""And dashes: where there are more conditions than colours."""


@dataclass(frozen=True)
class Style:
    colour: str
    turn: int = 0
    """How often the colours were used up before."""

    @property
    def line(self) -> dict[str, Any]:
        return {"color": self.colour, "linestyle": DASHES[self.turn % len(DASHES)]}

    @property
    def bar(self) -> dict[str, Any]:
        return {"facecolor": self.colour, "hatch": HATCHES[self.turn % len(HATCHES)]}


def styles_of(labels: Sequence[str]) -> dict[str, Style]:
    """Of some conditions, in their order; those that the paper has not take what is left."""
    fixed = {label: Style(FIXED[label]) for label in labels if label in FIXED}
    used = {style.colour for style in fixed.values()}
    free = [colour for colour in COLOURS if colour not in used]
    others = [label for label in dict.fromkeys(labels) if label not in fixed]
    rest = {label: Style(free[i % len(free)], i // len(free)) for i, label in enumerate(others)}
    return {label: (fixed | rest)[label] for label in dict.fromkeys(labels)}
