"""The figures of a report, beyond the paper's: drawn from records, with the numbers they show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from grue.agents.gating import GATES, everything
from grue.experiments.figures import BASELINE, SC_MASKING
from grue.reports.bars import SPREAD, draw_bar_groups, mean_bars
from grue.reports.curves import Curve, Panel, draw_panels, learning_curves
from grue.reports.intervals import Mark, MarkPanel, draw_intervals
from grue.reports.over_training import Heads, draw_heads, draw_pairs
from grue.reports.picture import COLOURS, GREY
from grue.reports.statistics import interquartile_mean, probability_of_improvement, steps_to_solve
from grue.reports.styles import styles_of
from grue.reports.summary import Named, games_of, labels_of, told_by_score

DIGITS = 4
MANY = "all games"
INTERVAL = "the bar is the 95% interval of a bootstrap over the seeds"


@dataclass(frozen=True)
class Drawing:
    """A figure that some records give."""

    name: str
    title: str
    caption: str
    numbers: list[dict[str, Any]]
    """What is drawn, for JSON."""
    draw: Callable[[Path], Path]


def drawings(entries: Sequence[Named]) -> list[Drawing]:
    """All figures that the records have something for."""
    counted = [entry for entry in entries if not told_by_score(entry.game)]
    scored = [entry for entry in entries if told_by_score(entry.game)]
    of_some = [curves(counted), scores(scored), bars(counted), iqm(counted), improvement(counted)]
    makers = (first_solve, classifier, candidates, heads)
    made = [drawing for drawing in (*of_some, *(m(entries) for m in makers)) if drawing is not None]
    return [replace(drawing, numbers=_rounded(drawing.numbers)) for drawing in made]


# The fraction of subtasks, or the score


def curves(entries: Sequence[Named]) -> Drawing | None:
    panels = panels_of(entries, "fraction_average")
    if not panels:
        return None
    windows = {entry.record.config.average_over for entry in entries}
    return Drawing(
        "curves",
        "Learning curves",
        "The fraction of subtasks done in an episode, over training.",
        _panel_numbers(panels),
        lambda path: draw_panels(panels, path, "fraction_average", None, windows),
    )


def scores(entries: Sequence[Named]) -> Drawing | None:
    panels = panels_of(entries, "score_average")
    if not panels:
        return None
    windows = {entry.record.config.average_over for entry in entries}
    return Drawing(
        "scores",
        "Learning curves of the score",
        "The score of an episode, over training.",
        _panel_numbers(panels),
        lambda path: draw_panels(panels, path, "score_average", None, windows),
    )


def bars(entries: Sequence[Named]) -> Drawing | None:
    games, labels = games_of(entries), labels_of(entries)
    found = mean_bars(entries, games, labels)
    if not found:
        return None
    return Drawing(
        "bars",
        "At the end of training",
        "The fraction of subtasks in the last window of training.",
        [
            {"game": bar.game, "condition": bar.label, "seeds": list(bar.seeds)}
            | {"mean": bar.value, "deviation": bar.above}
            for bar in found
        ],
        lambda path: draw_bar_groups(
            found, games, labels, path, None, "fraction of subtasks", SPREAD
        ),
    )


def iqm(entries: Sequence[Named]) -> Drawing | None:
    """Interquartile means with intervals, on each game and on all that the conditions share."""
    finals = _finals(entries)
    groups = {game: [game] for game in games_of(entries)}
    shared = _shared_games(finals)
    if len(shared) > 1:
        groups[_several(shared, entries)] = shared
    colours = _colours(entries)
    panels, numbers = [], []
    for name, games in groups.items():
        marks = []
        for label in labels_of(entries):
            strata = [finals.get((game, label)) for game in games]
            present = [stratum for stratum in strata if stratum is not None]
            if len(present) < len(games):
                continue
            found = interquartile_mean(present)
            marks.append(Mark(label, colours[label], found.value, found.low, found.high))
            numbers.append({"games": games, "condition": label} | vars(found))
        if marks:
            panels.append(MarkPanel(name, tuple(marks)))
    if not panels:
        return None
    return Drawing(
        "iqm",
        "Interquartile means",
        "The mean of the middle half of the runs, at the end of training.",
        numbers,
        lambda path: draw_intervals(panels, path, None, "fraction of subtasks (IQM)", INTERVAL),
    )


def improvement(entries: Sequence[Named]) -> Drawing | None:
    """How likely a run of one condition beats a run of another."""
    finals = _finals(entries)
    panels, numbers = [], []
    for game in games_of(entries):
        marks = []
        for ours, theirs in comparisons([e for e in entries if e.game == game]):
            x, y = finals.get((game, ours)), finals.get((game, theirs))
            if x is None or y is None:
                continue
            found = probability_of_improvement([x], [y])
            colour = GREY if found.low <= 0.5 <= found.high else COLOURS[int(found.low < 0.5)]
            label = f"{ours} > {theirs}"
            marks.append(Mark(label, colour, found.value, found.low, found.high))
            numbers.append({"game": game, "ours": ours, "theirs": theirs} | vars(found))
        if marks:
            panels.append(MarkPanel(game, tuple(marks)))
    if not panels:
        return None
    return Drawing(
        "improvement",
        "Probability of improvement",
        "How often a run of the first condition ends above a run of the second; ties count half.",
        numbers,
        lambda path: draw_intervals(
            panels, path, None, "probability", f"{INTERVAL}; grey where it holds 1/2", middle=0.5
        ),
    )


def comparisons(entries: Sequence[Named]) -> list[tuple[str, str]]:
    """Pairs worth a look on one game, trained as long: agents under the same gate, gates against
    none of the same agent, and the paper's last agent against its baseline. The later in the list
    comes first."""
    ordered = _in_order(entries)
    found = []
    for theirs, ours in combinations(ordered, 2):
        (a, b), (c, d) = ((e.record.agent, e.record.gate) for e in (ours, theirs))
        final = (a, b) == _pair(SC_MASKING) and (c, d) == _pair(BASELINE)
        as_long = ours.record.config.steps == theirs.record.config.steps
        if as_long and ((a != c and b == d) or (a == c and d == "none") or final):
            found.append((ours.label, theirs.label))
    return found


def first_solve(entries: Sequence[Named]) -> Drawing | None:
    """When each seed first finished a game."""
    colours = _colours(entries)
    panels, numbers = [], []
    for game in games_of(entries):
        marks = []
        for entry in _in_order(entries):
            if entry.game != game or entry.record.first_solve is None:
                continue
            found = steps_to_solve(entry.record.first_solve)
            text = f"{len(found.reached)}/{found.seeds}"
            marks.append(
                Mark(
                    entry.label, colours[entry.label], found.median, None, None, found.reached, text
                )
            )
            numbers.append(
                {"game": game, "condition": entry.label, "seeds": list(entry.record.seeds)}
                | {"steps": list(entry.record.first_solve), "median": found.median}
            )
        if any(mark.points for mark in marks):
            panels.append(MarkPanel(game, tuple(marks)))
    if not panels:
        return None
    last = max(int(entry.record.steps[-1]) for entry in entries)
    return Drawing(
        "first-solve",
        "Steps to the first win",
        "The step by which a run had first done every subtask of a game in one episode.",
        numbers,
        lambda path: draw_intervals(
            panels,
            path,
            None,
            "training steps",
            "a point for each seed that has won, and how many have; the tick is the median",
            last=last,
        ),
    )


# Classifier, gate, heads


def classifier(entries: Sequence[Named]) -> Drawing | None:
    learned = [e for e in entries if GATES[e.record.gate].classifier]
    pairs = _pairs(learned, "precision", "recall")
    if not pairs:
        return None
    names = ("precision", "recall")
    return Drawing(
        "classifier",
        "Precision and recall of the classifier",
        "Of ξ̂ ≥ 1/2 over all commands, against the commands that would change the game.",
        _pair_numbers(pairs, names),
        lambda path: draw_pairs(pairs, path, None, names, "precision, recall", 1.0),
    )


def candidates(entries: Sequence[Named]) -> Drawing | None:
    gated = [
        e
        for e in entries
        if GATES[e.record.gate].classifier and GATES[e.record.gate].candidates is not everything
    ]
    pairs = _pairs(gated, "candidates", "admissible_commands")
    if not pairs:
        return None
    names = ("commands let through", "admissible commands")
    return Drawing(
        "candidates",
        "Size of the candidate set",
        "How many commands the gate let through at a step, and how many were admissible.",
        _pair_numbers(pairs, names),
        lambda path: draw_pairs(pairs, path, None, names, "commands", None),
    )


def heads(entries: Sequence[Named]) -> Drawing | None:
    found = []
    for game in games_of(entries):
        for entry in _in_order(entries):
            shares = entry.record.columns.get("heads")
            if entry.game == game and shares is not None and shares.shape[2] > 1:
                known = np.isfinite(shares).all((0, 2))
                if known.any():
                    title = f"{game}, {entry.label}"
                    steps = entry.record.steps[known]
                    found.append(Heads(title, steps, shares[:, known].mean(0)))
    if not found:
        return None
    return Drawing(
        "heads",
        "Use of the heads",
        "The share of the steps that each head of score contextualisation chose the command of.",
        [
            {"panel": one.title, "steps": one.steps.tolist(), "shares": one.shares.tolist()}
            for one in found
        ],
        lambda path: draw_heads(found, path, None),
    )


# Parts


def panels_of(entries: Sequence[Named], column: str) -> tuple[Panel, ...]:
    """A curve for each record that has the column."""
    ordered = _in_order(entries)
    panels = []
    for game in games_of(entries):
        curves = []
        for entry in ordered:
            if entry.game != game or column not in entry.record.columns:
                continue
            for panel in learning_curves(entry.record.runs(), column):
                order = (labels_of(entries).index(entry.label),)
                curves += [replace(c, label=entry.label, order=order) for c in panel.curves]
        if curves:
            panels.append(Panel(game, tuple(curves)))
    return tuple(panels)


def _pairs(entries: Sequence[Named], first: str, second: str) -> list[tuple[Panel, Panel]]:
    others = {panel.game: panel for panel in panels_of(entries, second)}
    firsts = panels_of(entries, first)
    return [(panel, others[panel.game]) for panel in firsts if panel.game in others]


def _in_order(entries: Sequence[Named]) -> list[Named]:
    labels = labels_of(entries)
    return sorted(entries, key=lambda entry: (entry.game, labels.index(entry.label)))


def _colours(entries: Sequence[Named]) -> dict[str, str]:
    return {label: style.colour for label, style in styles_of(labels_of(entries)).items()}


def _finals(entries: Sequence[Named]) -> dict[tuple[str, str], np.ndarray]:
    """The finite last values, where there are any."""
    finals = {(e.game, e.label): e.record.final[np.isfinite(e.record.final)] for e in entries}
    return {key: values for key, values in finals.items() if len(values)}


def _shared_games(finals: Iterable[tuple[str, str]]) -> list[str]:
    """The games that every condition has been trained on."""
    pairs = list(finals)
    labels = {label for _, label in pairs}
    games = sorted({game for game, _ in pairs})
    return [game for game in games if all((game, label) in pairs for label in labels)]


def _several(shared: Sequence[str], entries: Sequence[Named]) -> str:
    return MANY if len(shared) == len(games_of(entries)) else f"{len(shared)} games together"


def _pair(condition: Any) -> tuple[str, str]:
    return condition.agent, condition.gate


def _panel_numbers(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    return [
        {"game": panel.game, "condition": curve.label} | _curve_numbers(curve)
        for panel in panels
        for curve in panel.curves
    ]


def _pair_numbers(
    pairs: Sequence[tuple[Panel, Panel]], names: tuple[str, str]
) -> list[dict[str, Any]]:
    return [
        {"curve": name} | numbers
        for pair in pairs
        for name, panel in zip(names, pair, strict=True)
        for numbers in _panel_numbers([panel])
    ]


def _curve_numbers(curve: Curve) -> dict[str, Any]:
    return {
        "seeds": list(curve.seeds),
        "steps": curve.steps.tolist(),
        "mean": curve.mean.tolist(),
        "deviation": curve.deviation.tolist(),
    }


def _rounded(value: Any) -> Any:
    """Numbers as records have them, and no finer than a machine's last digit."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return round(value, DIGITS) if isinstance(value, float) else value
