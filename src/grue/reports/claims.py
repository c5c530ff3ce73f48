"""What the paper says in words about its games, and how each sentence is tested on records.

A claim is a row of ``CLAIMS``: the sentence, where it stands, and tests of verdicts.py. Those on
Zork I are in zork_claims.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grue.experiments.conditions import Condition
from grue.experiments.figures import (
    ALL_LEVELS,
    BASELINE,
    LEARNED,
    SC,
    SC_MASKING,
    SC_ORACLE,
)
from grue.experiments.records import Record
from grue.experiments.thinning import SOLVED
from grue.reports.claim_text import Claim
from grue.reports.criteria import (
    SPEED,
    AnyOf,
    Better,
    FewAdmissible,
    Improves,
    Near,
    NoBetter,
    NotWorse,
    Reaches,
    StaysBelow,
)
from grue.reports.verdicts import Cell, Data, Test, Verdict, decide
from grue.reports.zork_claims import ZORK_CLAIMS

WELL = 0.8

ON_LEVEL_1 = (
    "Every run of the baseline solves level 1 with all commands, after 205,000 to 467,000 steps, "
    "so that nothing can end above it. It is the slowest: over all of training, sc and each "
    "learned gate are above it; sc solves the level after 191,000 to 200,000 steps, sc with "
    "masking after 152,000 to 181,000, and the baseline with the oracle after 146,000 to 172,000. "
    "With few steps, at the small preset, sc solves the level and the baseline does not "
    "(docs/agents.md)."
)
ON_LEVEL_2 = (
    "On level 2 with all commands three of five runs of sc solve it, after 437,000 to 748,000 "
    "steps; the other two met 2 and 5 wins by chance and stay at two subtasks of three. No run of "
    "the baseline comes past two, though each met 4 to 12. With masking every run of sc solves "
    "it, after 255,000 to 271,000 steps: it meets wins sooner and more often (docs/agents.md)."
)
GATES_ON_LEVEL_3 = (
    "Masking is the fastest: with it sc solves level 3 after 288,000 to 323,000 steps. With "
    "dropout it does so too, after 449,000 to 790,000, though one of five runs ends a little "
    "below; with cqlh four runs do, after 557,000 to 1,246,000, and one stays at two subtasks of "
    "three. By the ends of five runs that is not enough to tell them apart."
)
ON_LEVEL_3 = (
    "By these ends level 3 cannot tell the two apart. With the oracle both solve it, sc after "
    "247,000 to 281,000 steps and the baseline after 414,000 to 509,000. With all commands both "
    "end with two subtasks of three, sc there sooner (sc-learns-faster); each run of the baseline "
    "met a win by chance, 2 to 4 in all, and none learned from it, while no run of sc met any."
)
TABULAR, LI_TABULAR = Condition("tabular", "oracle"), Condition("li-tabular", "oracle")
BASELINE_ORACLE = Condition("drqn", "oracle")
GATED_BASELINE = tuple(Condition("drqn", gate) for gate in LEARNED)
GATED_SC = tuple(Condition("sc", gate) for gate in LEARNED)
EASY, HARD = (1, 2, 3), (4, 5, 6, 7)


@dataclass(frozen=True)
class Judged:
    claim: Claim
    verdict: Verdict


def judge(records: Sequence[Record], claims: Sequence[Claim] | None = None) -> list[Judged]:
    data = Data(records)
    chosen = CLAIMS if claims is None else claims
    return [Judged(claim, decide(claim.tests, data)) for claim in chosen]


def _better(
    ours: Iterable[Condition], theirs: Condition, levels: Iterable[int], speed: bool = False
) -> tuple[Test, ...]:
    measure = {"measure": SPEED} if speed else {}
    return tuple(
        Better(Cell(mine, level), Cell(theirs, level), **measure)
        for level in levels
        for mine in ours
    )


def _reach(
    conditions: Iterable[Condition], levels: Iterable[int], bound: float
) -> tuple[Test, ...]:
    return tuple(Reaches(Cell(c, level), bound) for level in levels for c in conditions)


def _stay_below(
    conditions: Iterable[Condition], levels: Iterable[int], bound: float
) -> tuple[Test, ...]:
    return tuple(StaysBelow(Cell(c, level), bound) for level in levels for c in conditions)


def _near(ours: Iterable[Condition], theirs: Condition, levels: Iterable[int]) -> tuple[Test, ...]:
    return tuple(Near(Cell(mine, level), Cell(theirs, level)) for level in levels for mine in ours)


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "few-admissible",
        "Introduction",
        "there are usually few commands that are actually admissible in any particular context",
        "less than half of the commands are admissible where the baseline goes",
        tuple(FewAdmissible(Cell(BASELINE, level)) for level in ALL_LEVELS),
    ),
    Claim(
        "sc-learns-faster",
        "Introduction",
        "combining the score contextualisation approach to an otherwise standard recurrent deep RL "
        "architecture leads to faster learning than when using a single value function",
        "over all of training, sc is above the baseline on every level",
        _better([SC], BASELINE, ALL_LEVELS, speed=True),
    ),
    Claim(
        "gating-on-harder-levels",
        "Introduction",
        "our action gating mechanism enables the learning agent to progress on the harder levels",
        "from level 3 on, sc with masking ends above sc",
        _better([SC_MASKING], SC, (3, *HARD)),
    ),
    Claim(
        "harder-levels-unsolved",
        "A Synthetic IF Benchmark",
        "even our best method falls short of solving the harder levels within the allotted "
        "training time",
        "from level 4 on, sc with masking solves no level",
        _stay_below([SC_MASKING], HARD, SOLVED),
    ),
    Claim(
        "tabular-suffers",
        "Score Contextualisation; fig:adm_images",
        "the tabular agents' performance suffers as soon as there are multiple subtasks",
        "neither tabular agent does well on a level, since every level has at least two subtasks",
        _stay_below([TABULAR, LI_TABULAR], ALL_LEVELS, WELL),
        "On levels 1 and 2 what look and inventory tell is enough to choose the next command by, "
        "and on level 1 the last feedback nearly is: agents without memory do well there. Both "
        "learn by the best admissible command; by the best of all, as Algorithm 1 prints it, they "
        "end lower (docs/agents.md).",
    ),
    Claim(
        "tabular-poor",
        "caption of fig:adm_images",
        "The tabular agents, which do not take history into account, perform quite poorly.",
        "with the oracle, the baseline and sc end above both tabular agents on every level",
        _better([BASELINE_ORACLE, SC_ORACLE], TABULAR, ALL_LEVELS)
        + _better([BASELINE_ORACLE, SC_ORACLE], LI_TABULAR, ALL_LEVELS),
    ),
    Claim(
        "baseline-well-to-level-3",
        "Score Contextualisation; fig:adm_images",
        "The baseline agent performs well up to the third level, but then shows significantly "
        "reduced performance.",
        "with the oracle, the baseline does well on levels 1 to 3, and its level 3 is above each "
        "later level",
        _reach([BASELINE_ORACLE], EASY, WELL)
        + tuple(Better(Cell(BASELINE_ORACLE, 3), Cell(BASELINE_ORACLE, level)) for level in HARD),
    ),
    Claim(
        "all-suffer-beyond-level-4",
        "Score Contextualisation; fig:adm_images",
        "Beyond the fourth level, the performance of all agents suffers",
        "with the oracle, each agent ends on levels 5 to 7 below where it ends on level 4",
        tuple(
            Better(Cell(condition, 4), Cell(condition, level))
            for level in (5, 6, 7)
            for condition in (TABULAR, LI_TABULAR, BASELINE_ORACLE, SC_ORACLE)
        ),
    ),
    Claim(
        "sc-better-without-oracle",
        "Score Contextualisation; fig:simple_images",
        "score contextualisation performs better than the baseline when the admissible set is "
        "unknown",
        "with all commands, sc ends above the baseline on levels 1 and 2",
        _better([SC], BASELINE, (1, 2)),
        note=f"{ON_LEVEL_1} {ON_LEVEL_2}",
    ),
    Claim(
        "sc-solves-baseline-cannot",
        "Score Contextualisation; fig:simple_images",
        "score contextualisation can learn to solve these levels even without access to A_t, "
        "whereas the baseline cannot",
        "with all commands, sc solves levels 1 and 2 and the baseline solves neither",
        _reach([SC], (1, 2), SOLVED) + _stay_below([BASELINE], (1, 2), SOLVED),
        note=f"{ON_LEVEL_1} {ON_LEVEL_2}",
    ),
    Claim(
        "oracle-simplifies",
        "Score Contextualisation; fig:simple_images",
        "oracle gating simplifies the problem",
        "over all of training, the oracle is above all commands, for the baseline and for sc, on "
        "levels 1 and 2",
        _better([BASELINE_ORACLE], BASELINE, (1, 2), speed=True)
        + _better([SC_ORACLE], SC, (1, 2), speed=True),
    ),
    Claim(
        "sc-mitigates",
        "Score Contextualisation",
        "We conclude that score contextualisation mitigates the negative effects of partial "
        "observability.",
        "sc is likely to beat the baseline, over all levels together: with the oracle, where "
        "contextualisation is the only difference, and with all commands",
        (
            Improves(SC_ORACLE, BASELINE_ORACLE, ALL_LEVELS),
            Improves(SC, BASELINE, ALL_LEVELS),
        ),
        note=ON_LEVEL_3,
    ),
    Claim(
        "gating-helps-level-1",
        "Score Contextualisation with Learned Action Gating; fig:action_gating_histogram",
        "action gating alone provides some benefits in the first level",
        "on level 1, the baseline with some learned gate ends above the baseline",
        (AnyOf(_better(GATED_BASELINE, BASELINE, (1,))),),
        note=ON_LEVEL_1,
    ),
    Claim(
        "gating-alone-no-better",
        "Score Contextualisation with Learned Action Gating; fig:action_gating_histogram",
        "performance is equivalent for the rest of the levels",
        "from level 2 on, the baseline with each learned gate ends near the baseline",
        _near(GATED_BASELINE, BASELINE, (2, 3, *HARD)),
    ),
    Claim(
        "gating-alone-does-not-improve",
        "caption of fig:action_gating_histogram",
        "Except in Level 1, action gating by itself does not improve end performance.",
        "from level 2 on, the baseline with each learned gate ends no higher than without",
        tuple(
            NoBetter(Cell(gated, level), Cell(BASELINE, level))
            for level in (2, 3, *HARD)
            for gated in GATED_BASELINE
        ),
    ),
    Claim(
        "gating-helps-sc",
        "Score Contextualisation with Learned Action Gating; fig:level_3_images",
        "when combined with score contextualisation [...], we observe some performance gains",
        "on level 3, sc with some learned gate ends above sc",
        (AnyOf(_better(GATED_SC, SC, (3,))),),
    ),
    Claim(
        "masking-best-level-3",
        "caption of fig:level_3_images",
        "Of the three methods, masking performs best.",
        "on level 3, sc with masking ends above sc with dropout and sc with cqlh",
        _better([SC_MASKING], Condition("sc", "dropout"), (3,))
        + _better([SC_MASKING], Condition("sc", "cqlh"), (3,)),
        note=GATES_ON_LEVEL_3,
    ),
    Claim(
        "masking-best",
        "Score Contextualisation with Learned Action Gating; fig:memento_action_gating_histogram",
        "masking with the right threshold works best",
        "with sc, masking is likely to beat each other learned gate, over all levels together",
        (
            Improves(SC_MASKING, Condition("sc", "dropout"), ALL_LEVELS),
            Improves(SC_MASKING, Condition("sc", "cqlh"), ALL_LEVELS),
        ),
    ),
    Claim(
        "almost-the-oracle",
        "Score Contextualisation with Learned Action Gating; fig:level_3_images",
        "In Level 3 in particular, we almost recover the performance of the SC agent with oracle "
        "gating.",
        "on level 3, sc with masking ends near sc with the oracle, or above it",
        (NotWorse(Cell(SC_MASKING, 3), Cell(SC_ORACLE, 3)),),
    ),
    Claim(
        "masking-no-worse-to-level-3",
        "caption of fig:memento_action_gating_histogram",
        "For first 3 levels, SC + Masking is better or equivalent to SC.",
        "on levels 1 to 3, sc with masking ends near sc, or above it",
        tuple(NotWorse(Cell(SC_MASKING, level), Cell(SC, level)) for level in EASY),
    ),
    Claim(
        "stall-from-level-4",
        "caption of fig:memento_action_gating_histogram",
        "For levels 4 and beyond, better exploration strategies are required.",
        "from level 4 on, neither the baseline nor sc nor sc with masking does well",
        _stay_below([BASELINE, SC, SC_MASKING], HARD, WELL),
    ),
    Claim(
        "outperforms-baseline",
        "Score Contextualisation with Learned Action Gating; "
        "fig:memento_mask_baseline_gating_histogram",
        "the augmented method significantly outperforms the baseline, and is able to handle more "
        "complex IF domains",
        "sc with masking ends above the baseline on levels 1 to 3",
        _better([SC_MASKING], BASELINE, EASY),
        note=f"{ON_LEVEL_1} {ON_LEVEL_2}",
    ),
    Claim(
        "faster-from-level-4",
        "Score Contextualisation with Learned Action Gating; "
        "fig:all_learning_curves_final_comparison",
        "From level 4 onwards, [...] combining score contextualisation with masking results in "
        "faster learning, even though final performance is unchanged.",
        "from level 4 on, sc with masking is above the baseline over all of training, and ends "
        "near it",
        _better([SC_MASKING], BASELINE, HARD, speed=True) + _near([SC_MASKING], BASELINE, HARD),
    ),
    Claim(
        "both-better-on-levels-1-2",
        "caption of fig:all_learning_curves_final_comparison",
        "For the simpler levels i.e. level 1 and 2, SC and SC + Masking perform better than "
        "Baseline.",
        "sc and sc with masking end above the baseline on levels 1 and 2",
        _better([SC, SC_MASKING], BASELINE, (1, 2)),
        note=f"{ON_LEVEL_1} {ON_LEVEL_2}",
    ),
    Claim(
        "only-masking-solves-level-3",
        "caption of fig:all_learning_curves_final_comparison",
        "With difficult level 3, only SC + Masking solves the game.",
        "sc with masking solves level 3; sc and the baseline do not",
        _reach([SC_MASKING], (3,), SOLVED) + _stay_below([SC, BASELINE], (3,), SOLVED),
    ),
    Claim(
        "oracle-learns-faster",
        "caption of fig:memento_mask_oracle",
        "Learning is faster in case of oracle gating",
        "over all of training, sc with the oracle is above sc with masking on levels 1 to 3",
        _better([SC_ORACLE], SC_MASKING, EASY, speed=True),
    ),
    Claim(
        "enhancements-improve",
        "caption of fig:memento_mask_baseline_gating_histogram_alternate",
        "our algorithmic enhancements improve the baseline",
        "sc with masking is likely to beat the baseline, over all levels together",
        (Improves(SC_MASKING, BASELINE, ALL_LEVELS),),
    ),
    *ZORK_CLAIMS,
)
