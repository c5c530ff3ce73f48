"""The paper's figures as data, and the scales that they are made at."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest

from grue.errors import UsageError
from grue.experiments.conditions import Condition
from grue.experiments.figures import (
    ALL_LEVELS,
    FIGURES,
    FILE,
    all_conditions,
    find_figures,
    parse_conditions,
    parse_levels,
    read_figures,
)
from grue.experiments.scales import RECIPES, SCALES, find_scale, read_recipes, read_scale
from grue.experiments.wishes import Wish
from grue.training.config import TrainConfig
from grue.training.programs import check_trainable

ZORK = ("zork", "zork-ablation", "zork-cqlh")
GATES = ("none", "oracle", "dropout", "masking", "cqlh")


# Figures


def test_the_figures_are_the_papers() -> None:
    bars = ("oracle", "baseline-gates", "sc-gates", "sc-masking")
    curves = ("curves-levels-1-2", "sc-gates-level-3", "oracle-or-learned", "all-levels")
    all_figures = find_figures("all")
    kinds = {figure.name: figure.kind for figure in all_figures}
    assert kinds == {
        **dict.fromkeys(bars, "bars"),
        **dict.fromkeys(curves, "curves"),
        "tasks-solved": "tasks",
        **dict.fromkeys(("maps-1-2", "maps-3-7"), "maps"),
        **dict.fromkeys(ZORK, "curves"),
    }
    assert len({figure.paper for figure in all_figures}) == len(all_figures)
    for name in (*bars, "tasks-solved", "all-levels"):
        assert FIGURES[name].levels == ALL_LEVELS
    assert FIGURES["curves-levels-1-2"].levels == (1, 2)
    assert FIGURES["sc-gates-level-3"].levels == (3,)
    assert [figure.name for figure in all_figures if figure.needs_story] == list(ZORK)
    for figure in FIGURES.values():
        if figure.needs_story:
            assert (figure.levels, figure.column) == (("zork1",), "score_average")
        else:
            assert set(figure.levels) <= set(ALL_LEVELS)
            assert figure.column == "fraction_average"


def test_each_figure_compares_what_the_paper_compares() -> None:
    assert FIGURES["oracle"].labels == (
        *("tabular + oracle", "li-tabular + oracle", "drqn + oracle", "sc + oracle"),
    )
    assert FIGURES["curves-levels-1-2"].labels == ("drqn", "drqn + oracle", "sc", "sc + oracle")
    learned = ("dropout", "masking", "cqlh")
    assert FIGURES["baseline-gates"].labels == ("drqn", *(f"drqn + {gate}" for gate in learned))
    assert FIGURES["sc-gates"].labels == ("sc", *(f"sc + {gate}" for gate in learned))
    assert FIGURES["sc-gates-level-3"].labels == (
        *("sc", "sc + oracle"),
        *(f"sc + {gate}" for gate in learned),
    )
    for name in ("sc-masking", "tasks-solved", "all-levels"):
        assert FIGURES[name].labels == ("drqn", "sc", "sc + masking")
    assert FIGURES["oracle-or-learned"].labels == ("sc + oracle", "sc + masking")
    assert FIGURES["zork"].labels == ("drqn", "sc", "sc + masking", "ae-dqn")
    assert FIGURES["zork-ablation"].labels == ("drqn", "drqn, no priority", "drqn, no look")
    assert FIGURES["zork-cqlh"].labels == ("drqn + cqlh", "drqn + acqlh")


def by_game(configs: list[TrainConfig]) -> dict[str, list[TrainConfig]]:
    """The configs of each game, which lie side by side."""
    return {game: list(some) for game, some in groupby(configs, lambda config: config.game)}


def test_all_needs_ten_deep_conditions_and_two_tabular_ones_on_every_level() -> None:
    wish = Wish(find_figures("all"), SCALES["paper"], ALL_LEVELS)
    configs = wish.configs()
    assert len(configs) == 7 * 12
    levels = by_game(configs)
    for level in levels.values():
        asked = {(config.agent, config.gate) for config in level}
        deep = {(agent, gate) for agent in ("drqn", "sc") for gate in GATES}
        assert asked == deep | {("tabular", "oracle"), ("li-tabular", "oracle")}
    assert list(levels) == [f"saladworld-{n}" for n in ALL_LEVELS]
    for config in configs:
        assert config == TrainConfig(
            game=config.game, agent=config.agent, gate=config.gate, seeds=(0, 1, 2, 3, 4)
        )


def test_zork_at_the_papers_scale() -> None:
    """Five seeds of eight conditions, with Zork's own settings and nothing else."""
    configs = Wish(find_figures("all"), SCALES["paper"]).configs()
    assert len(configs) == 7 * 12 + 8
    zork = by_game(configs)["zork1"]
    assert zork == configs[-8:]
    for config in zork:
        assert (config.steps, config.discount, config.episode_steps) == (2_000_000, 0.8, None)
        assert config == TrainConfig(
            game="zork1", seeds=(0, 1, 2, 3, 4), **Condition.of(config).settings
        )
    assert {Condition.of(config).typed for config in zork} == {
        *("drqn", "sc", "sc+masking", "ae-dqn"),
        *("drqn+no-priority", "drqn+no-look", "drqn+cqlh", "drqn+acqlh"),
    }
    plain, no_priority, no_look = (
        SCALES["paper"].config(condition, "zork1", (0,))
        for condition in FIGURES["zork-ablation"].conditions
    )
    assert no_priority == replace(plain, priority=False)
    assert no_look == replace(plain, look_every=0)


def test_short_is_a_quarter_of_the_papers() -> None:
    """And else the same, but for ae-dqn's sizes and constants and the activation on Zork."""
    short, paper = (
        Wish(find_figures("all"), SCALES[name], seeds=(0, 1, 2)).configs()
        for name in ("short", "paper")
    )
    network = {"activation": "relu", "adam_by_head": False}
    smaller = {
        **{"state_words": 65, "word_vector": 50, "value_filters": 100, "learning_starts": 1_000},
        **{"elimination_filters": 30, "elimination_confidence": 1.0, "elimination_dropout": 0.5},
        **{"lowest_reward": -1_000.0, "highest_reward": 1_000.0},
    }
    for brief, long in zip(short, paper, strict=True):
        assert (4 * brief.steps, 4 * brief.epsilon_steps) == (long.steps, long.epsilon_steps)
        own = (smaller if brief.agent == "ae-dqn" else network) if brief.game == "zork1" else {}
        assert brief == replace(
            long, steps=long.steps // 4, epsilon_steps=long.epsilon_steps // 4, **own
        )


def test_only_zork_has_a_story() -> None:
    wish = Wish(find_figures("all"), SCALES["smoke"], story="/stories/zork1.z5")
    for config in wish.configs():
        assert config.story == ("/stories/zork1.z5" if config.game == "zork1" else None)
    (ae_dqn,) = [config for config in wish.configs() if config.agent == "ae-dqn"]
    # It learns too, and is small: its own sizes are those of a GPU.
    assert (ae_dqn.learning_starts, ae_dqn.value_filters) == (200, 4)
    assert wish.command(replace(ae_dqn, seeds=(1,))) == (
        "grue reproduce zork --scale smoke --conditions ae-dqn --seeds 1"
    )
    (no_look,) = [config for config in wish.configs() if config.look_every == 0]
    assert wish.command(no_look) == (
        "grue reproduce zork-ablation --scale smoke --conditions drqn+no-look --seeds 0,1"
    )


def test_smoke_can_be_trained_and_has_an_error_bar() -> None:
    configs = Wish(find_figures("all"), SCALES["smoke"], ALL_LEVELS).configs()
    assert len(configs) == 7 * 12
    for config in configs:
        check_trainable(config)
        assert len(config.seeds) == 2
        assert config.average_over >= 400  # At least two episodes, whatever the level.


def test_levels_conditions_and_seeds_restrict_what_is_run() -> None:
    figures = find_figures("sc-masking")
    wish = Wish(figures, SCALES["paper"], (1, 3), parse_conditions("sc+masking, drqn"), (7,))
    asked = [(config.game, config.agent, config.gate, config.seeds) for config in wish.configs()]
    assert asked == [
        (f"saladworld-{level}", *condition, (7,))
        for level in (1, 3)
        for condition in (("drqn", "none"), ("sc", "masking"))
    ]
    assert len(wish.configs_of(figures[0])) == 7 * 3  # The figure shows what it shows.
    assert wish.command(wish.configs()[3]) == (
        "grue reproduce all --scale paper --levels 3 --conditions sc+masking --seeds 7"
    )
    assert parse_levels("1-3,7") == (1, 2, 3, 7)
    assert parse_conditions("sc+none,li-tabular+oracle") == (
        Condition("sc"),
        Condition("li-tabular", "oracle"),
    )


def test_settings_on_top_of_a_scale() -> None:
    """They go before what the scale says of a game, and into the command that is kept."""
    texts = ["activation=elu", "adam-by-head=yes", "steps=120000", "word_vector=40"]
    scale = find_scale("short", texts)
    wish = Wish(find_figures("all"), scale)
    plain = Wish(find_figures("all"), SCALES["short"]).configs()
    given = {"activation": "elu", "adam_by_head": True, "steps": 120_000, "word_vector": 40}
    assert wish.configs() == [
        replace(config, **{name: given[name] for name in given if name in config.flat()})
        for config in plain
    ]
    assert wish.command(wish.configs()[0]).endswith(
        " --seeds 0,1,2 --set activation=elu --set adam_by_head=True --set steps=120000 "
        "--set word_vector=40"
    )
    told = wish.command(wish.configs()[0]).split("--set ")[1:]
    assert find_scale("short", told) == scale
    assert find_scale("short") == SCALES["short"]
    with pytest.raises(UsageError, match="decides on the gate; --conditions chooses, --set does"):
        find_scale("paper", ["gate=masking"])
    for name, value in Condition("sc", look=False).settings.items():
        with pytest.raises(UsageError, match=f"decides on the {name}; .* --set does not"):
            find_scale("paper", [f"{name}={value}"])
    with pytest.raises(UsageError, match="no setting 'stepz'; the nearest is 'steps'"):
        find_scale("paper", ["stepz=4"])


def test_wrong_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="no figure 'sc-mask': did you mean sc-masking"):
        find_figures("sc-mask")
    with pytest.raises(UsageError, match="no figure 'zork-abl': did you mean zork-ablation"):
        find_figures("zork-abl")
    with pytest.raises(UsageError, match="no scale 'papre'; there are paper, short, smoke"):
        find_scale("papre")
    with pytest.raises(UsageError, match=r"condition 'sc\+mask': did you mean sc\+masking"):
        parse_conditions("drqn,sc+mask")
    for levels in ("0", "1-8", "x", "3-1", ""):
        with pytest.raises(UsageError, match="levels lie from 1 to 7"):
            parse_levels(levels)


def test_labels() -> None:
    assert Condition("sc", "masking").label == "sc + masking"
    assert Condition("drqn").label == "drqn"
    switched = Condition("sc", "masking", priority=False, look=False)
    assert switched.label == "sc + masking, no priority, no look"
    assert switched.in_a_list == "sc + masking with no priority and no look"
    assert switched.typed == "sc+masking+no-priority+no-look"
    assert Condition.of(TrainConfig(**switched.settings)) == switched
    exploring = Condition("sc", "masking", explore="achievements")
    assert exploring.label == "sc + masking + achievements"
    assert Condition.parse("sc+achievements") == Condition("sc", explore="achievements")
    assert Condition.of(TrainConfig(**exploring.settings)) == exploring
    conditions = all_conditions(tuple(FIGURES.values()))
    assert len({condition.label for condition in conditions}) == len(conditions) == 17
    for condition in conditions:
        assert parse_conditions(condition.typed) == (condition,)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('kind = "bars"', 'kind = "bar"', "figure 1: there is no kind 'bar': did you mean bars?"),
        ('title = "', 'titel = "', "figure 1: there is no entry 'titel': did you mean title?"),
        ('title = "Oracle gating"\n', "", "figure 1: title is missing or no text"),
        ('"sc+oracle"]', '"sc+orakel"]', "figure 1: there is no gate 'orakel'; there are none"),
        ('"sc+oracle"]', '"sc+no-hope"]', "figure 1: a condition is written AGENT, AGENT+GATE"),
        ('"sc+oracle"]', '"sc+counts+episodic"]', "or AGENT+GATE+EXPLORER"),
        ('levels = "1-7"', 'levels = "1-8"', "figure 1: levels lie from 1 to 7"),
        ('name = "baseline-gates"', 'name = "oracle"', "figure 3: there are two figures oracle"),
        ("[[figure]]", "[[figur", "cannot be read as TOML"),
    ],
)
def test_what_is_wrong_in_the_file_of_figures_is_told_in_a_line(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    path = tmp_path / "figures.toml"
    path.write_text(FILE.read_text().replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        read_figures(path)
    assert str(caught.value).startswith(str(path))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_figures_past_the_paper_have_recipes() -> None:
    """`all` leaves them out; a recipe is for all conditions with the explorer, below the scale."""
    figure = FIGURES["exploration"]
    assert figure not in find_figures("all")
    for name, scale in SCALES.items():
        wish = Wish((figure,), scale, levels=(4,))
        plain, exploring = wish.configs()
        assert (plain.explore, plain.heads) == ("none", None)
        assert (exploring.explore, exploring.heads) == ("achievements", 8)
        usual = RECIPES["achievements"]["epsilon_steps"]
        assert exploring.epsilon_steps == scale.settings.get("epsilon_steps", usual)
        command = wish.command(exploring)
        assert command.startswith(f"grue reproduce exploration --scale {name} --levels 4 ")
        assert "--conditions sc+masking+achievements --seeds" in command
        assert wish.command(plain).startswith(f"grue reproduce all --scale {name} --levels 4 ")


def test_what_is_wrong_in_a_recipe_is_told_in_a_line() -> None:
    with pytest.raises(UsageError, match=r"there is no explorer 'curious': did you mean counts\?"):
        read_recipes({"recipe": {"curious": {}}})
    with pytest.raises(UsageError, match=r"there is no setting 'bonuss': did you mean bonus\?"):
        read_recipes({"recipe": {"counts": {"bonuss": 1}}})


def test_what_is_wrong_in_a_scale_is_told_in_a_line() -> None:
    with pytest.raises(UsageError, match=r"scale tiny: there is no setting 'stepz': did you mean"):
        read_scale("tiny", {"seeds": [0], "settings": {"stepz": 4}})
    with pytest.raises(UsageError, match="scale tiny: 'seeds' is missing"):
        read_scale("tiny", {})
