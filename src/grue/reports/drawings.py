"""The figures of a report beyond the paper's: drawn from records, with their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from grue.agents.gating import GATES, everything
from grue.experiments.conditions import BASELINE, SC_MASKING, Condition
from grue.experiments.scales import level_of
from grue.experiments.wishes import tell_levels
from grue.reports.bars import bars_figure, mean_bars
from grue.reports.curves import (
    NAMES,
    Curve,
    Panel,
    Shares,
    curves_figure,
    learning_curves,
    note_of,
    pairs_figure,
    shares_figure,
    spread_note,
)
from grue.reports.intervals import Mark, MarkPanel, intervals_figure
from grue.reports.multiples import are_too_many, multiples_figure
from grue.reports.picture import COLOURS, GREY, save_picture, styles_of
from grue.reports.statistics import interquartile_mean, probability_of_improvement, steps_to_solve
from grue.reports.summary import Named, games_of, labels_of, told_by_score

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIGITS = 4
INTERVAL = "the bar is the 95% interval of a bootstrap over the seeds"
LEAST_APART = 0.01
"""Smaller differences of fractions come from exploration at the end, not from learning."""
Numbers = list[dict[str, Any]]


@dataclass(frozen=True)
class Drawing:
    """A figure of some records."""

    name: str
    title: str
    caption: str
    numbers: Numbers
    """The numbers that it shows, for JSON. If there are none, nothing is drawn."""
    figure: Callable[[], Figure]

    def draw(self, path: Path) -> Path:
        return save_picture(path, self.figure)


def drawings(entries: Sequence[Named]) -> list[Drawing]:
    """All figures for which the records have numbers."""
    counted = [entry for entry in entries if not told_by_score(entry.game)]
    scored = [entry for entry in entries if told_by_score(entry.game)]
    found = [
        _curves("curves", counted, "fraction_average"),
        _curves("scores", scored, "score_average"),
        *(make(counted) for make in (_bars, _iqm, _improvement)),
        *(make(entries) for make in (_first_solve, _classifier, _candidates, _heads)),
        *(make(entries) for make in (_visits, _events)),
    ]
    return [drawing for drawing in found if drawing.numbers]


# The fraction of subtasks, or the score


def _curves(name: str, entries: Sequence[Named], column: str) -> Drawing:
    title, what = {
        "curves": ("Learning curves", "fraction of subtasks done in"),
        "scores": ("Learning curves of the score", "score of"),
    }[name]
    panels = panels_of(entries, column)
    windows = {entry.record.config.average_over for entry in entries}

    def figure() -> Figure:
        if not are_too_many(panels):
            return curves_figure(panels, column, None, windows)
        top = 1.0 if name == "curves" else None
        rows = [(panel,) for panel in panels]
        note = note_of(panels, column, windows)
        return multiples_figure(rows, (column,), NAMES[column], note, top)

    return Drawing(
        name,
        title,
        f"The {what} an episode, over training.",
        _panel_numbers(panels),
        figure,
    )


def _bars(entries: Sequence[Named]) -> Drawing:
    games, labels = games_of(entries), labels_of(entries)
    found = mean_bars(entries, games, labels)
    numbers = [
        {"game": bar.game, "condition": bar.label, "seeds": list(bar.seeds)}
        | {"mean": bar.value, "deviation": bar.spread}
        for bar in found
    ]
    return Drawing(
        "bars",
        "At the end of training",
        "The fraction of subtasks in the last window of training.",
        _rounded(numbers),
        lambda: bars_figure(found, games, labels),
    )


def _iqm(entries: Sequence[Named]) -> Drawing:
    """Interquartile means with intervals, on each game and on all games that conditions share."""
    finals = _finals(entries)
    groups = {game: [game] for game in games_of(entries)}
    shared = _shared_games(finals)
    if len(shared) > 1:
        groups[f"{tell_levels([level_of(game) for game in shared])} together"] = shared
    colours = _colours(entries)
    marks: dict[str, list[Mark]] = {}
    numbers: Numbers = []
    for name, games in groups.items():
        for label in labels_of(entries):
            strata = [finals[game, label] for game in games if (game, label) in finals]
            if len(strata) == len(games):
                found = interquartile_mean(strata)
                mark = Mark(label, colours[label], found.value, found.low, found.high)
                marks.setdefault(name, []).append(mark)
                numbers.append({"games": games, "condition": label} | vars(found))
    return Drawing(
        "iqm",
        "Interquartile means",
        "The mean of the middle half of the runs, at the end of training.",
        _rounded(numbers),
        lambda: intervals_figure(_panels(marks), "fraction of subtasks (IQM)", INTERVAL),
    )


def _improvement(entries: Sequence[Named]) -> Drawing:
    """How likely a run of one condition beats a run of another."""
    finals = _finals(entries)
    marks: dict[str, list[Mark]] = {}
    numbers: Numbers = []
    for game in games_of(entries):
        for ours, theirs in comparisons([e for e in entries if e.game == game]):
            if (game, ours) not in finals or (game, theirs) not in finals:
                continue
            found = probability_of_improvement([finals[game, ours]], [finals[game, theirs]])
            apart = abs(finals[game, ours].mean() - finals[game, theirs].mean()) >= LEAST_APART
            sure = apart and not found.low <= 0.5 <= found.high
            colour = COLOURS[int(found.low < 0.5)] if sure else GREY
            mark = Mark(f"{ours} > {theirs}", colour, found.value, found.low, found.high)
            marks.setdefault(game, []).append(mark)
            numbers.append({"game": game, "ours": ours, "theirs": theirs} | vars(found))
    note = (
        f"{INTERVAL}; grey where it holds 1/2, or where the means differ by less than {LEAST_APART}"
    )
    return Drawing(
        "improvement",
        "Probability of improvement",
        "How often a run of the first condition ends above a run of the second; ties count half.",
        _rounded(numbers),
        lambda: intervals_figure(_panels(marks), "probability", note, middle=0.5),
    )


def comparisons(entries: Sequence[Named]) -> list[tuple[str, str]]:
    """The pairs of conditions to compare on one game. Both have the same number of steps.

    A pair has two agents with the same gate, or an agent with a gate and without one, or sc +
    masking and the baseline. The condition that is later in the list comes first in the pair.
    """
    found = []
    for theirs, ours in combinations(_in_order(entries), 2):
        (a, b), (c, d) = ((e.record.agent, e.record.gate) for e in (ours, theirs))
        final = Condition(a, b) == SC_MASKING and Condition(c, d) == BASELINE
        as_long = ours.record.config.steps == theirs.record.config.steps
        if as_long and ((a != c and b == d) or (a == c and d == "none") or final):
            found.append((ours.label, theirs.label))
    return found


def _first_solve(entries: Sequence[Named]) -> Drawing:
    """When each seed first won a game."""
    colours = _colours(entries)
    marks: dict[str, list[Mark]] = {}
    numbers: Numbers = []
    for entry in _in_order(entries):
        if entry.record.first_solve is None:
            continue
        found = steps_to_solve(entry.record.first_solve)
        text = f"{len(found.reached)}/{found.seeds}"
        mark = Mark(
            entry.label, colours[entry.label], found.median, points=found.reached, text=text
        )
        marks.setdefault(entry.game, []).append(mark)
        numbers.append(
            {"game": entry.game, "condition": entry.label, "seeds": list(entry.record.seeds)}
            | {"steps": list(entry.record.first_solve), "median": found.median}
        )
    won = {game: some for game, some in marks.items() if any(mark.points for mark in some)}
    last = max((int(entry.record.steps[-1]) for entry in entries), default=0)
    note = "a point for each seed that has won, and how many have; the tick is the median"
    return Drawing(
        "first-solve",
        "Steps to the first win",
        "The step by which a run had first done every subtask of a game in one episode.",
        _rounded(numbers) if won else [],
        lambda: intervals_figure(_panels(won), "training steps", note, last=last),
    )


# Classifier, gate, heads


def _pairs(
    entries: Sequence[Named], columns: tuple[str, str], names: tuple[str, str]
) -> tuple[list[tuple[Panel, Panel]], Numbers]:
    """The panels of two metrics on the games that have both, and their numbers."""
    firsts, seconds = (panels_of(entries, column) for column in columns)
    others = {panel.game: panel for panel in seconds}
    pairs = [(panel, others[panel.game]) for panel in firsts if panel.game in others]
    numbers = [
        {"curve": name} | numbers
        for pair in pairs
        for name, panel in zip(names, pair, strict=True)
        for numbers in _panel_numbers([panel])
    ]
    return pairs, numbers


def _classifier(entries: Sequence[Named]) -> Drawing:
    learned = [e for e in entries if GATES[e.record.gate].classifier]
    names = ("precision", "recall")
    pairs, numbers = _pairs(learned, names, names)
    return Drawing(
        "classifier",
        "Precision and recall of the classifier",
        "Of ξ̂ ≥ 1/2 over all commands, against the commands that would change the game.",
        numbers,
        lambda: multiples_figure(pairs, names, " and ".join(names), _spread_of(pairs), 1.0),
    )


def _spread_of(pairs: Sequence[tuple[Panel, Panel]]) -> str:
    return spread_note(curve for pair in pairs for panel in pair for curve in panel.curves)


def _candidates(entries: Sequence[Named]) -> Drawing:
    gates = {name for name, g in GATES.items() if g.classifier and g.candidates is not everything}
    names = ("commands let through", "admissible commands")
    gated = [entry for entry in entries if entry.record.gate in gates]
    pairs, numbers = _pairs(gated, ("candidates", "admissible_commands"), names)
    return Drawing(
        "candidates",
        "Size of the candidate set",
        "How many commands the gate let through at a step, and how many were admissible.",
        numbers,
        lambda: pairs_figure(pairs, names, "commands", None),
    )


def _heads(entries: Sequence[Named]) -> Drawing:
    return _shares(
        entries,
        "heads",
        "Use of the heads",
        "The share of the steps that each head of score contextualisation chose the command of.",
        "mean over the seeds; scores take heads in the order in which a run first meets them",
    )


def _visits(entries: Sequence[Named]) -> Drawing:
    """Where exploration goes."""
    return _shares(
        entries,
        "visits",
        "Visits by score",
        "The share of the steps that runs with an explorer spend at each score.",
        "mean over the seeds; scores are numbered in the order in which a run first meets them",
    )


def _shares(entries: Sequence[Named], column: str, title: str, caption: str, note: str) -> Drawing:
    """The columns of a list, whose parts sum to 1."""
    found = []
    for entry in _in_order(entries):
        shares = entry.record.columns.get(column)
        if shares is not None and shares.shape[2] > 1:
            known = np.isfinite(shares).all((0, 2))
            if known.any():
                panel, steps = f"{entry.game}, {entry.label}", entry.record.steps[known]
                mean = shares[:, known].mean(0)
                # Parts after the last one in use are no news.
                used = np.flatnonzero(mean.any(0)).max(initial=0) + 1
                found.append(Shares(panel, steps, mean if column == "heads" else mean[:, :used]))
    numbers = [
        {"panel": one.title, "steps": one.steps.tolist(), "shares": one.shares.tolist()}
        for one in found
    ]
    part = "head" if column == "heads" else "score"
    return Drawing(
        column,
        title,
        caption,
        _rounded(numbers),
        lambda: shares_figure(found, part, note),
    )


def _events(entries: Sequence[Named]) -> Drawing:
    """How much that is new an episode does."""
    panels = panels_of(entries, "events")
    return Drawing(
        "events",
        "Events of an episode",
        "How many events of an episode had a bonus: with achievements, commands that were "
        "admissible for the first time at a score.",
        _panel_numbers(panels),
        lambda: pairs_figure([(panel,) for panel in panels], ["events"], "events", None),
    )


# Parts


def panels_of(entries: Sequence[Named], column: str) -> tuple[Panel, ...]:
    """A curve for each record that has the column."""
    labels = labels_of(entries)
    curves: dict[str, list[Curve]] = {}
    for entry in _in_order(entries):
        if column in entry.record.columns:
            for panel in learning_curves(entry.record.runs(), column):
                order = (labels.index(entry.label),)
                named = [replace(c, label=entry.label, order=order) for c in panel.curves]
                curves.setdefault(entry.game, []).extend(named)
    return tuple(Panel(game, tuple(some)) for game, some in curves.items())


def _panels(marks: Mapping[str, Sequence[Mark]]) -> list[MarkPanel]:
    return [MarkPanel(name, tuple(some)) for name, some in marks.items()]


def _in_order(entries: Sequence[Named]) -> list[Named]:
    labels = labels_of(entries)
    return sorted(entries, key=lambda entry: (entry.game, labels.index(entry.label)))


def _colours(entries: Sequence[Named]) -> dict[str, str]:
    return {label: style.colour for label, style in styles_of(labels_of(entries)).items()}


def _finals(entries: Sequence[Named]) -> dict[tuple[str, str], np.ndarray]:
    """The last values without nan, of the entries that have any."""
    finals = {(e.game, e.label): e.record.final[np.isfinite(e.record.final)] for e in entries}
    return {key: values for key, values in finals.items() if len(values)}


def _shared_games(finals: Iterable[tuple[str, str]]) -> list[str]:
    """The games that every condition has been trained on."""
    pairs = list(finals)
    labels = {label for _, label in pairs}
    games = sorted({game for game, _ in pairs})
    return [game for game in games if all((game, label) in pairs for label in labels)]


def _panel_numbers(panels: Sequence[Panel]) -> Numbers:
    numbers = [
        {"game": panel.game, "condition": curve.label, "seeds": list(curve.seeds)}
        | {name: getattr(curve, name).tolist() for name in ("steps", "mean", "deviation")}
        for panel in panels
        for curve in panel.curves
    ]
    return _rounded(numbers)


def _rounded(value: Any) -> Any:
    """Rounded to the digits of records, so that machines with other rounding give the same file."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return round(value, DIGITS) if isinstance(value, float) else value
