"""The paper's figures, as data: what each shows, and which conditions on which games it needs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from grue.errors import UsageError
from grue.experiments.conditions import Condition
from grue.games.zmachine import zork

Kind = Literal["bars", "curves", "tasks", "maps"]
ALL_LEVELS = tuple(range(1, 8))


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    """What it shows."""
    paper: str
    """The figure's label in the paper's source."""
    caption: str
    """What the paper says about it, in short."""
    kind: Kind
    """bars: the fraction of subtasks at the end of training; tasks: their number; curves: the
    fraction, or the score, over training; maps: the games."""
    levels: tuple[int | str, ...] = ()
    """Of SaladWorld, or the name of another game."""
    conditions: tuple[Condition, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(condition.label for condition in self.conditions)

    @property
    def needs_story(self) -> bool:
        """Whether it is of a game that does not come with grue."""
        return zork.NAME in self.levels

    @property
    def column(self) -> str:
        """What its curves are of: in Zork there is one subtask, to win, and nobody does."""
        return "score_average" if self.needs_story else "fraction_average"


def _each(agent: str, *gates: str) -> tuple[Condition, ...]:
    return tuple(Condition(agent, gate) for gate in gates)


LEARNED = ("dropout", "masking", "cqlh")
BASELINE, SC, SC_MASKING = Condition("drqn"), Condition("sc"), Condition("sc", "masking")
SC_ORACLE = Condition("sc", "oracle")
AE_DQN = Condition("ae-dqn")
NO_PRIORITY, NO_LOOK = Condition("drqn", priority=False), Condition("drqn", look=False)
CQLH, ACQLH = Condition("drqn", "cqlh"), Condition("drqn", "acqlh")

_LISTED = (
    Figure(
        name="oracle",
        title="Oracle gating",
        paper="fig:adm_images",
        caption="The tabular agents, which take no history into account, do poorly",
        kind="bars",
        levels=ALL_LEVELS,
        conditions=tuple(
            Condition(agent, "oracle") for agent in ("tabular", "li-tabular", "drqn", "sc")
        ),
    ),
    Figure(
        name="curves-levels-1-2",
        title="With the oracle and with all commands",
        paper="fig:simple_images",
        caption="Whether score contextualisation helps to learn to act optimally",
        kind="curves",
        levels=(1, 2),
        conditions=_each("drqn", "none", "oracle") + _each("sc", "none", "oracle"),
    ),
    Figure(
        name="baseline-gates",
        title="The baseline with each gate",
        paper="fig:action_gating_histogram",
        caption="Except on level 1, action gating by itself does not help",
        kind="bars",
        levels=ALL_LEVELS,
        conditions=_each("drqn", "none", *LEARNED),
    ),
    Figure(
        name="sc-gates-level-3",
        title="Score contextualisation with each gate, level 3",
        paper="fig:level_3_images",
        caption="Of the three gates, masking performs best",
        kind="curves",
        levels=(3,),
        conditions=_each("sc", "none", "oracle", *LEARNED),
    ),
    Figure(
        name="sc-gates",
        title="Score contextualisation with each gate",
        paper="fig:memento_action_gating_histogram",
        caption="Up to level 3, sc + masking is better than sc or equal",
        kind="bars",
        levels=ALL_LEVELS,
        conditions=_each("sc", "none", *LEARNED),
    ),
    Figure(
        name="sc-masking",
        title="Score contextualisation and masking against the baseline",
        paper="fig:memento_mask_baseline_gating_histogram",
        caption="Fraction of subtasks at the end of training",
        kind="bars",
        levels=ALL_LEVELS,
        conditions=(BASELINE, SC, SC_MASKING),
    ),
    Figure(
        name="oracle-or-learned",
        title="Oracle gating and learned admissibility",
        paper="fig:memento_mask_oracle",
        caption="Learning is faster with the oracle",
        kind="curves",
        levels=(1, 2, 3),
        conditions=(SC_ORACLE, SC_MASKING),
    ),
    Figure(
        name="tasks-solved",
        title="Subtasks solved",
        paper="fig:memento_mask_baseline_gating_histogram_alternate",
        caption="The enhancements improve the baseline: number of subtasks solved",
        kind="tasks",
        levels=ALL_LEVELS,
        conditions=(BASELINE, SC, SC_MASKING),
    ),
    Figure(
        name="all-levels",
        title="Learning curves on all levels",
        paper="fig:all_learning_curves_final_comparison",
        caption="sc and sc + masking beat the baseline; only sc + masking solves level 3",
        kind="curves",
        levels=ALL_LEVELS,
        conditions=(BASELINE, SC, SC_MASKING),
    ),
    Figure(
        name="maps-1-2",
        title="Maps of levels 1 and 2",
        paper="fig:game map_level12",
        caption="Simpler levels test score contextualisation",
        kind="maps",
        levels=(1, 2),
    ),
    Figure(
        name="maps-3-7",
        title="Maps of levels 3 to 7",
        paper="fig:game map",
        caption="With each level there are more rooms and objects",
        kind="maps",
        levels=(3, 4, 5, 6, 7),
    ),
    Figure(
        name="zork",
        title="Zork I",
        paper="fig:zork_compare",
        caption="Learning curves of the agents",
        kind="curves",
        levels=(zork.NAME,),
        conditions=(BASELINE, SC, SC_MASKING, AE_DQN),
    ),
    Figure(
        name="zork-ablation",
        title="Zork I: the baseline without priority, without look",
        paper="fig:zork_baseline",
        caption="Ablations of the baseline",
        kind="curves",
        levels=(zork.NAME,),
        conditions=(BASELINE, NO_PRIORITY, NO_LOOK),
    ),
    Figure(
        name="zork-cqlh",
        title="Zork I: CQLH and ACQLH",
        paper="fig:zork_cqlh",
        caption="Ablation of CQLH",
        kind="curves",
        levels=(zork.NAME,),
        conditions=(CQLH, ACQLH),
    ),
)
FIGURES = {figure.name: figure for figure in _LISTED}


def find_figures(name: str) -> tuple[Figure, ...]:
    """A figure by its name, or with ``all`` every one."""
    if name == "all":
        return _LISTED
    if name not in FIGURES:
        close = difflib.get_close_matches(name, [*FIGURES, "all"], 1, 0.0)
        raise UsageError(
            f"there is no figure {name!r}: did you mean {close[0]}? "
            "grue reproduce list names them all"
        )
    return (FIGURES[name],)


def all_conditions(figures: Sequence[Figure]) -> tuple[Condition, ...]:
    return tuple(dict.fromkeys(c for figure in figures for c in figure.conditions))


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """Conditions from "sc+masking,drqn+no-look": an agent, and with a plus its gate and more."""
    known = {c.typed: c for c in all_conditions(_LISTED)}
    found = []
    for part in text.split(","):
        name = part.replace(" ", "").removesuffix("+none")
        if name not in known:
            close = difflib.get_close_matches(name, known, 1, 0.0)
            raise UsageError(
                f"no figure has the condition {part.strip()!r}: did you mean {close[0]}? "
                f"there are {', '.join(known)}"
            )
        found.append(known[name])
    return tuple(dict.fromkeys(found))


def parse_levels(text: str) -> tuple[int, ...]:
    """Levels from "1,3" or "1-7"."""
    from grue.training.config import parse_seeds

    try:
        levels = parse_seeds(text)
    except UsageError:
        levels = ()
    if not levels or not set(levels) <= set(ALL_LEVELS):
        raise UsageError(f"levels lie from 1 to 7, as in 1,3 or 1-7, not {text!r}")
    return tuple(sorted(set(levels)))
