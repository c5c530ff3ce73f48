"""Bars, tables and figures: the numbers first, then what is drawn."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import matplotlib.colors
import matplotlib.image
import numpy as np
import pytest
from made_records import made_record, rich

from grue.errors import GrueError, UsageError
from grue.experiments.records import Record, read_records, write_record
from grue.reports.bars import Bar, bars_figure, draw_bars, mean_bars
from grue.reports.drawings import Drawing, comparisons, drawings
from grue.reports.picture import COLOURS, FIXED, GREY, Style, styles_of
from grue.reports.report import paper_figures
from grue.reports.summary import Named, cells, named, table

ROOT = Path(__file__).parents[1]
NAN = float("nan")


def said(path: Path) -> list[str]:
    """The words of an SVG picture."""
    return re.findall(r"<!-- (.*?) -->", path.read_text())


# Bars


def test_bars_are_means_and_deviations() -> None:
    records = [
        made_record(1, "sc", final=(0.2, 0.4, 0.9)),
        made_record(2, "sc", "masking", (0.5, NAN)),
        made_record(2, "drqn", final=(NAN, NAN)),
    ]
    games, labels = ["saladworld-1", "saladworld-2"], ["drqn", "sc", "sc + masking"]
    first, second = mean_bars(records, games, labels)
    assert (first.label, first.game, first.seeds) == ("sc", "saladworld-1", (0, 1, 2))
    assert first.value == pytest.approx(0.5)
    # The squares are 0.09 + 0.01 + 0.16, divided by n.
    assert first.spread == pytest.approx(np.sqrt(0.26 / 3))
    assert second == Bar("sc + masking", "saladworld-2", 0.5, 0.0, (0,))
    tasks = mean_bars(records, games, labels, lambda record: record.final * 2)
    assert tasks[0].value == pytest.approx(1.0)
    assert mean_bars(records, games, ["tabular"]) == ()
    with pytest.raises(UsageError, match="two records of sc on saladworld-1; give one of them"):
        mean_bars([*records, made_record(1, "sc")], games, labels)


def test_bars_are_drawn(tmp_path: Path) -> None:
    records = [made_record(1, "sc", final=(0.4, 0.6)), made_record(2, "drqn", final=(0.5,))]
    labels = ["drqn", "sc", "tabular"]
    path = tmp_path / "new" / "bars.svg"
    bars = draw_bars(records, (1, 2), labels, path, "A title")
    assert bars == mean_bars(records, ["saladworld-1", "saladworld-2"], labels)
    words = said(path)
    assert {"A title", "level", "1", "2", "fraction of subtasks"} <= set(words)
    assert {"drqn (1 seed)", "sc (2 seeds)", "tabular (not run)"} <= set(words)
    assert "mean ± standard deviation over the seeds; – not run" in words
    assert words.count("–") == 4  # Six places, two bars.
    image_path = path.with_suffix(".png")
    draw_bars(records, (1, 2), labels, image_path)
    image = matplotlib.image.imread(image_path)[:, :, :3]
    # Those of drqn and sc, the first that is left for what the paper has not, and no other.
    drawn = {FIXED["drqn"]: 3000, FIXED["sc"]: 3000, COLOURS[1]: 100}
    # Without the greys, which letters have too.
    deep = {colour for label, colour in FIXED.items() if label.startswith(("drqn", "sc"))}
    for colour in {*deep, *COLOURS[:-1]}:
        near = np.abs(image - matplotlib.colors.to_rgb(colour)).max(2) < 0.02
        assert (near.sum() > drawn.get(colour, 0)) == (colour in drawn)
    with pytest.raises(GrueError, match=r"cannot draw .*none\.png: there is no result"):
        draw_bars(records, (5,), labels, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


# Labels and the table


def labels(*records: Record) -> list[str]:
    return [entry.label for entry in named(records)]


def test_labels_tell_records_apart(tmp_path: Path) -> None:
    assert labels(made_record(1, "sc", "masking"), made_record(2, "sc", "masking")) == [
        "sc + masking",
        "sc + masking",
    ]
    plain, sc = made_record(1, "drqn"), made_record(1, "sc", encoder=8)
    assert labels(plain, made_record(1, "drqn", priority=False)) == ["drqn", "drqn, no priority"]
    longer = made_record(1, "drqn", steps=2_600_000)
    assert labels(plain, longer) == ["drqn, 1,300,000 steps", "drqn, 2,600,000 steps"]
    # What marks a condition on one game marks it on all.
    elsewhere = made_record(2, "drqn", priority=False)
    marked = ["drqn", "drqn, no priority", "drqn, no priority", "sc"]
    assert labels(plain, made_record(1, "drqn", priority=False), elsewhere, sc) == marked
    read = read_records([write_record(plain, tmp_path)])
    assert labels(*read, plain, plain) == [
        "drqn, 1,300,000 steps, saladworld-1/drqn-none.json",
        "drqn, 1,300,000 steps, unsaved",
        "drqn, 1,300,000 steps, unsaved (2)",
    ]
    other = made_record(1, "drqn", encoder=8, context=8, hidden=8, batch_size=8, discount=0.5)
    assert labels(plain, other) == ["drqn", "drqn, discount 0.5, batch size 8, 3 more settings"]


def test_table() -> None:
    records = [
        made_record(2, "sc", final=(0.2, 0.4, NAN), first_solve=(5_000, None, 15_000)),
        made_record(1, "sc", "masking", (0.5,), first_solve=(None,)),
        made_record(1, "tabular", "oracle", (0.1, 0.3)),
        made_record(1, "drqn", final=(0.5,), rise=(1, 1, 1, NAN)),
        made_record(3, "drqn", final=(NAN,)),
    ]
    rows = table(named(records))
    assert [cells(row)[:6] for row in rows] == [
        (
            *("saladworld-1", "tabular + oracle", "1.3M", "0, 1"),
            *("0.200 ± 0.100", "0.200 [0.100, 0.300]"),
        ),
        ("saladworld-1", "drqn", "975k of 1,300,000", "0", "0.500", "–"),
        ("saladworld-1", "sc + masking", "1.3M", "0", "0.500", "–"),
        ("saladworld-2", "sc", "1.3M", "0, 1", "0.300 ± 0.100", "0.300 [0.200, 0.400]"),
    ]
    assert [cells(row)[6:] for row in rows] == [
        ("–", "–", "–"),
        ("–", "–", "–"),
        ("never (0 of 1)", "never (0 of 1)", "–"),
        ("never (1 of 2)", "never (0 of 2)", "–"),
    ]


def test_unfinished_seeds_are_not_mixed_with_others() -> None:
    curve = np.array([[0.1, 0.2, 0.3, 0.4], [0.3, 0.4, 0.5, 0.6], [0.9, 0.9, NAN, NAN]])
    columns = {"fraction_average": curve}
    record = made_record(1, "sc", final=(0, 0, 0), columns=columns)
    rows = table(named([record]))
    assert [cells(row)[1:5] for row in rows] == [
        ("sc", "1.3M", "0, 1", "0.500 ± 0.100"),
        ("sc, unfinished", "650k of 1,300,000", "2", "0.900"),
    ]
    # Alone they have the name to themselves.
    assert labels(record.only([2])) == ["sc"]


def test_zork_is_told_by_its_score() -> None:
    columns = {"score_average": np.array([[0.0, 10, 20, 30], [0, 5, 10, 20]])}
    (row,) = table(named([made_record("zork1", "sc", final=(0, 0), columns=columns)]))
    assert cells(row)[4:6] == ("–", "25.0 [20.0, 30.0]")
    assert cells(row)[-1] == "25.0 ± 5.0"


def test_a_condition_has_one_colour() -> None:
    styles = styles_of(["sc", "own", "drqn + masking", "another", "sc"])
    assert list(styles) == ["sc", "own", "drqn + masking", "another"]
    assert styles["sc"] == Style(FIXED["sc"]) == styles_of(["x", "y", "sc"])["sc"]
    assert len({style.colour for style in styles.values()}) == 4
    assert len(set(FIXED.values())) == len(FIXED)
    many = styles_of(["sc", *(f"own {i}" for i in range(2 * len(COLOURS)))])
    assert len(set(many.values())) == len(many)


# Figures


@pytest.fixture(scope="module")
def entries() -> tuple[Named, ...]:
    return named(
        [
            made_record(1, "drqn", final=(0.1, 0.2, 0.3)),
            rich(1, "none", (0.4, 0.5, 0.6), first_solve=(None, 325_000, None)),
            rich(1, "masking", (0.8, 0.9, 1.0), first_solve=(325_000, 650_000, 650_000)),
            made_record(2, "drqn", final=(0.1, 0.2, 0.3)),
            rich(2, "masking", (0.5, 0.5, 0.5)),
        ]
    )


def by_name(entries: tuple[Named, ...]) -> dict[str, Drawing]:
    return {drawing.name: drawing for drawing in drawings(entries)}


def test_figures_have_these_numbers(entries: tuple[Named, ...]) -> None:
    made = by_name(entries)
    assert list(made) == [
        *("curves", "bars", "iqm", "improvement"),
        *("first-solve", "classifier", "candidates", "heads"),
    ]
    seeds, steps = [0, 1, 2], [325_000, 650_000, 975_000, 1_300_000]
    first = made["curves"].numbers[0]
    assert first == {
        "game": "saladworld-1",
        "condition": "drqn",
        "seeds": seeds,
        "steps": steps,
        "mean": [0.05, 0.1, 0.15, 0.2],
        "deviation": [0.0204, 0.0408, 0.0612, 0.0816],
    }
    assert made["bars"].numbers[2] == {
        "game": "saladworld-1",
        "condition": "sc + masking",
        "seeds": seeds,
        "mean": 0.9,
        "deviation": 0.0816,
    }
    iqm = {(tuple(n["games"]), n["condition"]): n for n in made["iqm"].numbers}
    assert iqm[("saladworld-1",), "drqn"]["value"] == 0.2
    # sc has not been trained on level 2, so there is no mean over both games.
    assert set(iqm) == {
        (("saladworld-1",), "drqn"),
        (("saladworld-1",), "sc"),
        (("saladworld-1",), "sc + masking"),
        (("saladworld-2",), "drqn"),
        (("saladworld-2",), "sc + masking"),
    }
    assert made["improvement"].numbers[-1] == {
        "game": "saladworld-2",
        "ours": "sc + masking",
        "theirs": "drqn",
        "value": 1.0,
        "low": 1.0,
        "high": 1.0,
    }
    assert [(n["condition"], n["steps"], n["median"]) for n in made["first-solve"].numbers] == [
        ("sc", [None, 325_000, None], None),
        ("sc + masking", [325_000, 650_000, 650_000], 650_000),
    ]
    # A gate that needs no classifier does not train it.
    shown = {(n["curve"], n["condition"]): n["mean"] for n in made["classifier"].numbers}
    assert shown == {
        ("precision", "sc + masking"): [0.2, 0.4, 0.6, 0.8],
        ("recall", "sc + masking"): [1.0, 0.9, 0.9, 0.9],
    }
    sizes = {n["curve"]: n["mean"] for n in made["candidates"].numbers}
    assert sizes == {
        "commands let through": [8.0, 6.0, 4.0, 3.0],
        "admissible commands": [2.0, 2.0, 2.0, 2.0],
    }
    assert made["heads"].numbers[0] == {
        "panel": "saladworld-1, sc",
        "steps": steps,
        "shares": [[1.0, 0.0], [0.75, 0.25], [0.5, 0.5], [0.5, 0.5]],
    }


def test_iqm_over_the_games_that_all_share(entries: tuple[Named, ...]) -> None:
    without = tuple(entry for entry in entries if entry.label != "sc")
    (both,) = [
        n
        for n in by_name(without)["iqm"].numbers
        if len(n["games"]) > 1 and "drqn" in n["condition"]
    ]
    assert both["games"] == ["saladworld-1", "saladworld-2"]
    assert both["value"] == 0.2  # Of .1 .1 .2 .2 .3 .3 the middle four.


def test_comparisons_are_few(entries: tuple[Named, ...]) -> None:
    first = [entry for entry in entries if entry.game == "saladworld-1"]
    assert comparisons(first) == [
        ("sc", "drqn"),
        ("sc + masking", "drqn"),
        ("sc + masking", "sc"),
    ]
    gated = named([made_record(1, "drqn", "dropout"), made_record(1, "sc", "masking")])
    assert comparisons(gated) == []


def test_where_an_explorer_goes(tmp_path: Path) -> None:
    """Scores that no run met are not drawn."""
    visits = np.zeros((2, 4, 16))
    visits[0, :, :2] = [[1.0, 0.0], [0.5, 0.5], [0.5, 0.5], [0.0, 1.0]]
    visits[1, :, :2] = [[1.0, 0.0], [1.0, 0.0], [0.5, 0.5], [0.5, 0.5]]
    columns = {"visits": visits, "events": np.tile([4.0, 8.0, 8.0, 9.0], (2, 1))}
    own = {"columns": columns, "explore": "achievements"}
    made = by_name(named([made_record(4, "sc", "masking", (0.5, 0.6), **own)]))
    (numbers,) = made["visits"].numbers
    assert numbers["shares"] == [[1.0, 0.0], [0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]
    (curve,) = made["events"].numbers
    assert curve["mean"] == [4.0, 8.0, 8.0, 9.0]
    words = said(made["visits"].draw(tmp_path / "visits.svg"))
    assert {"saladworld-4, sc + masking + achievements", "score 1", "score 2"} <= set(words)
    assert "score 3" not in words
    assert "events" in said(made["events"].draw(tmp_path / "events.svg"))


def test_tabular_runs_have_no_classifier() -> None:
    made = by_name(named([made_record(1, "tabular", "oracle", (0.1, 0.2))]))
    assert list(made) == ["curves", "bars", "iqm"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("iqm", {"saladworld-1", "saladworld-2", "drqn", "fraction of subtasks (IQM)"}),
        ("improvement", {"sc &gt; drqn", "sc + masking &gt; sc", "probability"}),
        ("first-solve", {"sc + masking", "1/3", "3/3", "500k", "training steps"}),
        ("classifier", {"precision", "recall", "sc + masking (3 seeds)", "masking"}),
        ("candidates", {"commands let through", "admissible commands", "commands"}),
        ("heads", {"saladworld-1, sc + masking", "head 1", "head 2", "share of the steps"}),
    ],
)
def test_figures_are_drawn(
    entries: tuple[Named, ...], tmp_path: Path, name: str, words: set[str]
) -> None:
    path = by_name(entries)[name].draw(tmp_path / f"{name}.svg")
    assert words <= set(said(path))


def test_nothing_is_drawn_above_the_top() -> None:
    """A mean of 2/3 ± 0.47 of a fraction: whiskers and bands end at 1."""
    records = [made_record(1, "sc", final=(0.0, 1.0, 1.0, 1.0, 0.0, 1.0))]
    bars = mean_bars(records, ["saladworld-1"], ["sc"])
    (axes,) = bars_figure(bars, ["saladworld-1"], ["sc"]).axes
    ((low, high),) = [line.get_segments()[0][:, 1] for line in cast(Any, axes.collections)]
    assert (round(low, 3), high) == (round(2 / 3 - np.sqrt(2 / 9), 3), 1.0)
    # Levels with other numbers of subtasks: each whisker ends at its own.
    games = ["saladworld-1", "saladworld-4"]
    both = [Bar("sc", game, 1.8, 0.5, (0, 1)) for game in games]
    (axes,) = bars_figure(both, games, ["sc"], tops={games[0]: 2.0, games[1]: 4.0}).axes
    ends = [line.get_segments()[0][1, 1] for line in cast(Any, axes.collections)]
    assert ends == pytest.approx([2.0, 2.3])
    (drawing,) = [one for one in drawings(named(records)) if one.name == "curves"]
    (axes,) = drawing.figure().axes
    (band,) = axes.collections
    assert np.asarray(band.get_paths()[0].vertices)[:, 1].max() == 1.0


def test_no_note_is_cut_off() -> None:
    """The longest one, at the narrowest figure: all lines lie inside."""
    records = [
        made_record(level, agent, final=(0.1 * level, 0.5 + 0.1 * level))
        for level, agents in ((1, ("drqn", "sc")), (3, ("tabular", "drqn", "sc")))
        for agent in agents
    ]
    drawn = {one.name: one.figure() for one in drawings(named(records))}
    assert "\n" in drawn["improvement"].legends[0].get_title().get_text()
    for name, figure in drawn.items():
        figure.draw_without_rendering()
        for legend in figure.legends:
            box = legend.get_title().get_window_extent()
            assert box.x0 >= 0, name
            assert box.x1 <= figure.bbox.x1, name


def test_many_conditions_are_small_multiples() -> None:
    """A row for each game, a column for each gate."""
    gates = ("none", "oracle", "dropout", "masking", "cqlh")
    records = [
        made_record(3, a, g, (0.5, 0.7))
        for a in ("drqn", "sc")
        for g in gates[: 5 if a == "sc" else 2]
    ]
    records.append(made_record(1, "sc", final=(0.5, 0.7)))
    (drawing,) = [one for one in drawings(named(records)) if one.name == "curves"]
    figure = drawing.figure()
    assert len(figure.axes) == 2 * len(gates)
    assert [axes.get_title("left") for axes in figure.axes[:5]] == ["no gate", *gates[1:]]
    few = 3  # Two seeds one by one, and their mean.
    assert [len(axes.lines) for axes in figure.axes] == [
        few,
        0,
        0,
        0,
        0,
        2 * few,
        2 * few,
        few,
        few,
        few,
    ]
    # Fewer conditions share a panel.
    (drawing,) = [one for one in drawings(named(records[-4:])) if one.name == "curves"]
    assert [axes.get_title("left") for axes in drawing.figure().axes] == [
        "saladworld-1",
        "saladworld-3",
    ]


def test_titles_of_columns_do_not_touch() -> None:
    wide: dict[str, Any] = {"explore": "achievements"}
    records = [
        made_record(3, a, g, (0.5, 0.7), **wide)
        for a in ("drqn", "sc")
        for g in ("oracle", "dropout", "masking", "cqlh")
    ]
    (drawing,) = [one for one in drawings(named(records)) if one.name == "curves"]
    figure = drawing.figure()
    figure.draw_without_rendering()
    titles = [cast("Any", axes)._left_title for axes in figure.axes]
    boxes = [title.get_window_extent() for title in titles]
    assert len(boxes) == 4
    for box, following in pairwise(boxes):
        assert following.x0 - box.x1 > 12 * figure.dpi / 72


def test_a_thousandth_is_no_improvement() -> None:
    finals = {"drqn": (0.999, 0.998, 0.999), "sc": (1.0, 1.0, 1.0)}
    records = [made_record(1, agent, final=final) for agent, final in finals.items()]
    far = [
        made_record(2, "drqn", final=(0.6, 0.6, 0.6)),
        made_record(2, "sc", final=(1.0, 1.0, 1.0)),
    ]
    (drawing,) = [one for one in drawings(named(records + far)) if one.name == "improvement"]
    assert [(n["game"], n["value"]) for n in drawing.numbers] == [
        ("saladworld-1", 1.0),
        ("saladworld-2", 1.0),
    ]
    colours = [axes.lines[-1].get_color() for axes in drawing.figure().axes]
    assert colours == [GREY, COLOURS[0]]


def test_games_together_are_named() -> None:
    records = [made_record(level, "sc", final=(0.5, 0.7)) for level in (1, 3)]
    (drawing,) = [one for one in drawings(named(records)) if one.name == "iqm"]
    titles = [axes.get_title("left") for axes in drawing.figure().axes]
    assert titles == ["saladworld-1", "saladworld-3", "levels 1, 3 together"]


# What is committed


def test_committed_figures_are_those_of_the_committed_records(tmp_path: Path) -> None:
    """results/figures says what the records in results/saladworld and results/zork say."""
    records = read_records([ROOT / "results" / name for name in ("saladworld", "zork")])
    made = {f"{drawing.name}.json": drawing.numbers for drawing in drawings(named(records))}
    assert len(paper_figures(records, tmp_path)) == len(list(tmp_path.glob("*.png")))
    made |= {path.name: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    kept = ROOT / "results" / "figures"
    assert made == {path.name: json.loads(path.read_text()) for path in kept.glob("*.json")}
    assert {path.stem for path in kept.glob("*.png")} == {Path(name).stem for name in made}
