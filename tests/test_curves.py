"""Learning curves: the numbers first, then the picture."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib.colors
import matplotlib.image
import numpy as np
import pytest

from grue.errors import GrueError, UsageError
from grue.experiments.conditions import describe
from grue.reports.curves import Missing, curves_figure, draw_curves, learning_curves
from grue.reports.picture import COLOURS, FIXED, save_picture, short_number
from grue.training.config import TrainConfig

NAN = float("nan")


@dataclass(frozen=True)
class Made:
    """A run with numbers made by hand."""

    config: TrainConfig
    seed: int
    folder: Path
    metrics: dict[str, np.ndarray]


def made(seed: int, values: list[float], at: list[int] | None = None, **settings: Any) -> Made:
    steps = [1000 * (i + 1) for i in range(len(values))] if at is None else at
    columns = {"step": np.array(steps), "fraction_average": np.array(values, float)}
    columns["score_average"] = 15 * columns["fraction_average"]
    config = TrainConfig(**settings).of_seed(seed)
    return Made(config, seed, Path(f"runs/{config.agent}-{seed}"), columns)


def test_mean_and_deviation_over_the_seeds() -> None:
    runs = [made(2, [0.2, 0.4, 1.0]), made(0, [0.0, 0.4, 0.4]), made(1, [0.1, 0.4, 0.4])]
    (panel,) = learning_curves(runs)
    (curve,) = panel.curves
    assert panel.game == "saladworld-1"
    assert curve.label == "sc"
    assert curve.seeds == (0, 1, 2)
    assert curve.steps.tolist() == [1000, 2000, 3000]
    np.testing.assert_allclose(curve.mean, [0.1, 0.4, 0.6], rtol=1e-12)
    # Divided by n: the squares are 0.01 + 0 + 0.01, 0, and 0.04 + 0.04 + 0.16.
    np.testing.assert_allclose(
        curve.deviation, [np.sqrt(0.02 / 3), 0, np.sqrt(0.24 / 3)], atol=1e-12
    )
    (only,) = learning_curves(runs[:1])[0].curves
    assert only.mean.tolist() == [0.2, 0.4, 1.0]
    assert only.deviation.tolist() == [0, 0, 0]
    (score,) = learning_curves(runs[:1], "score_average")[0].curves
    assert score.mean.tolist() == [3, 6, 15]


def test_curves_go_as_far_as_all_seeds_and_begin_where_all_have_an_episode() -> None:
    runs = [made(0, [NAN, 0.2, 0.4, 0.6]), made(1, [0.1, 0.4, 0.6]), made(2, [NAN, NAN])]
    (curve,) = learning_curves(runs)[0].curves
    assert curve.seeds == (0, 1)  # The third has nothing to show yet.
    assert curve.steps.tolist() == [2000, 3000]
    np.testing.assert_allclose(curve.mean, [0.3, 0.5])
    apart = [made(0, [0.5, 0.5], [1000, 2000]), made(1, [0.5], [9000])]
    assert learning_curves(apart) == ()
    assert learning_curves([]) == ()


def test_rows_at_other_steps_are_interpolated() -> None:
    runs = [made(0, [0.0, 0.4], [1000, 3000]), made(1, [0.0, 0.2, 0.4])]
    (curve,) = learning_curves(runs)[0].curves
    assert curve.steps.tolist() == [1000, 2000, 3000]
    np.testing.assert_allclose(curve.mean, [0, 0.2, 0.4])
    np.testing.assert_allclose(curve.deviation, [0, 0, 0], atol=1e-12)


def test_conditions_are_told_apart_by_what_differs() -> None:
    runs = [
        made(0, [0.9], gate="masking", encoder=32),
        made(0, [0.5], gate="masking", encoder=32, priority=False),
        made(0, [0.4], gate="masking", encoder=32, look_every=0),
        made(0, [0.3], agent="drqn", encoder=32),
        made(0, [0.2], gate="none", encoder=32),
        made(0, [0.1], gate="oracle", encoder=32, huber=True),
        # Another game with a discount of its own, which is no switch there.
        made(0, [0.7], game="saladworld-2", discount=0.8, gate="masking", encoder=32),
        # Longer and finer, and still the same condition.
        made(1, [0.7], gate="masking", encoder=32, steps=9000, metrics_every=1000),
    ]
    first, second = learning_curves(runs)
    assert [first.game, second.game] == ["saladworld-1", "saladworld-2"]
    assert [(curve.label, float(curve.mean[0])) for curve in first.curves] == [
        ("drqn", 0.3),
        ("sc", 0.2),
        ("sc + oracle, huber", 0.1),
        ("sc + masking", pytest.approx(0.8)),
        ("sc + masking, no priority", 0.5),
        ("sc + masking, no look", 0.4),
    ]
    assert [curve.label for curve in second.curves] == ["sc + masking"]
    assert describe(runs[6].config, ["discount", "replay_steps"]) == "sc + masking, discount 0.8"
    assert describe(TrainConfig(steps=8000), ["steps"]) == "sc, steps 8,000"


def test_wrong_runs_are_refused(tmp_path: Path) -> None:
    twice = [made(3, [0.5]), made(3, [0.6])]
    with pytest.raises(UsageError, match=r"runs/sc-3 and runs/sc-3 are the same .* seed, 3"):
        learning_curves(twice)
    with pytest.raises(UsageError, match="no column 'frction'; there are fraction_average, score"):
        learning_curves(twice, "frction")
    with pytest.raises(GrueError, match=r"cannot draw .*a\.png: no run has finished an episode"):
        draw_curves([made(0, [NAN])], tmp_path / "a.png")
    with pytest.raises(UsageError, match=re.escape(".png, .svg, .pdf")):
        draw_curves([made(0, [0.5])], tmp_path / "a.gif")
    assert os.listdir(tmp_path) == []


def several() -> list[Made]:
    rising = np.linspace(0.1, 0.9, 30)
    return [
        made(seed, (rising * scale + 0.02 * seed).tolist(), game=game, agent=agent, gate=gate)
        for game in ("saladworld-1", "saladworld-2", "saladworld-3")
        for agent, gate, scale in (("drqn", "none", 0.4), ("sc", "masking", 1.0))
        for seed in (range(3) if game == "saladworld-1" else range(2))
    ]


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    path = draw_curves(several(), tmp_path / "new" / "curves.png", title="Gates")
    image = matplotlib.image.imread(path)[:, :, :3]
    height, width = image.shape[:2]
    assert 400 < height < 1200
    assert 1500 < width < 2500
    colours = [FIXED["drqn"], FIXED["sc + masking"]]
    for colour in colours:
        near = np.abs(image - matplotlib.colors.to_rgb(colour)).max(2) < 0.02
        assert near.sum() > 500  # A line in each panel, and one in the legend.
    for colour in {*COLOURS[:-1], FIXED["sc"], FIXED["sc + oracle"]} - {*colours}:
        near = np.abs(image - matplotlib.colors.to_rgb(colour)).max(2) < 0.02
        assert near.sum() == 0
    edges = image[:5].min(), image[-5:].min(), image[:, :5].min(), image[:, -5:].min()
    assert edges == (1, 1, 1, 1)
    assert os.listdir(path.parent) == ["curves.png"]


def test_words_of_the_picture(tmp_path: Path) -> None:
    text = draw_curves(several(), tmp_path / "curves.svg", title="Gates").read_text()
    said = re.findall(r"<!-- (.*?) -->", text)
    assert {"Gates", "saladworld-1", "saladworld-2", "saladworld-3"} <= set(said)
    assert "drqn (2 to 3 seeds)" in said
    assert "sc + masking (2 to 3 seeds)" in said
    assert "mean and each seed; moving average of 20,000 steps" in said
    assert said.count("training steps") == 3
    assert said.count("fraction of subtasks") == 1
    assert "30k" in said

    one = draw_curves([made(0, [0.5])], tmp_path / "one.svg", "score_average").read_text()
    said = re.findall(r"<!-- (.*?) -->", one)
    assert {"sc (1 seed)", "score", "moving average of 20,000 steps"} <= set(said)


def test_a_few_seeds_are_drawn_one_by_one(tmp_path: Path) -> None:
    """A band would tell nothing of two that learned and one that did not."""
    ends = {2: [0.1, 0.9], 5: [0.1, 0.9, 0.5, 0.4, 0.3]}
    few, many = ([made(i, [0.0, end]) for i, end in enumerate(ends[n])] for n in (2, 5))
    thin = "stroke-opacity: 0.55"
    texts = {
        name: draw_curves(runs, tmp_path / f"{name}.svg").read_text()
        for name, runs in (("few", few), ("many", many))
    }
    assert texts["few"].count(thin) == 2
    assert texts["many"].count(thin) == 0
    assert "mean and each seed" in texts["few"]
    assert "mean ± standard deviation over the seeds" in texts["many"]
    other = [replace(run, config=replace(run.config, agent="drqn")) for run in few]
    both = draw_curves([*other, *many], tmp_path / "both.svg").read_text()
    told = "mean ± standard deviation over the seeds, each seed where there are at most 3"
    assert told in both


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    panels = learning_curves([made(0, [0.1, 0.2])])
    missing = Missing(("drqn",), "levels 1-2")
    path = save_picture(
        tmp_path / "a.svg", lambda: curves_figure(panels, "fraction", None, {20_000}, missing)
    )
    said = re.findall(r"<!-- (.*?) -->", path.read_text())
    assert {"drqn (not run)", "not run: levels 1-2"} <= set(said)


def test_what_one_panel_lacks_is_told_there(tmp_path: Path) -> None:
    runs = [
        made(0, [0.1, 0.2], game=f"saladworld-{level}", agent=agent)
        for level, agent in ((1, "drqn"), (3, "drqn"), (3, "sc"))
    ]
    text = draw_curves(runs, tmp_path / "a.svg").read_text()
    said = re.findall(r"<!-- (.*?) -->", text)
    assert [line for line in said if line.startswith("without")] == ["without sc"]
    gated = [
        made(0, [0.1, 0.2], game="saladworld-3", agent="sc", gate=gate)
        for gate in ("masking", "dropout")
    ]
    text = draw_curves([*runs, *gated], tmp_path / "b.svg").read_text()
    assert "<!-- 1 of 4 conditions -->" in text


def test_files_are_whole_and_repeatable(tmp_path: Path) -> None:
    for suffix, magic in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
        first = draw_curves(several(), tmp_path / f"first{suffix}").read_bytes()
        assert first.startswith(magic)
        assert draw_curves(several(), str(tmp_path / f"second{suffix}")).read_bytes() == first


def test_more_conditions_than_colours(tmp_path: Path) -> None:
    runs = [made(0, [0.1, 0.2], encoder=8 + i) for i in range(len(COLOURS) + 2)]
    text = draw_curves(runs, tmp_path / "many.svg").read_text()
    said = re.findall(r"<!-- (.*?) -->", text)
    assert [f"sc, encoder {8 + i} (1 seed)" in said for i in range(10)] == [True] * 10
    assert text.count("stroke-dasharray") >= 4  # Two dashed lines, here and in the legend.


def test_short_numbers() -> None:
    numbers = [0, 500, 1000, 2500, 20_000, 1_300_000]
    assert [short_number(n) for n in numbers] == ["0", "500", "1k", "2.5k", "20k", "1.3M"]
