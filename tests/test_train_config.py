"""Settings of a training run: presets, texts of the command line, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

import grue
from grue import TrainConfig
from grue.agents.catalogue import AGENTS
from grue.cli import training as command
from grue.training.config import names_for, parse_seeds, parse_settings


def test_the_defaults_are_the_papers() -> None:
    config = TrainConfig()
    assert TrainConfig.preset("paper") == config
    masking = TrainConfig(gate="masking")
    assert (masking.threshold, masking.softness) == (0.001, 0.1)
    table = TrainConfig(agent="tabular")
    assert (table.discount, table.table_rows, table.table_learning_rate) == (0.9, 32_768, 0.1)
    assert (config.embedding, config.encoder, config.context, config.hidden) == (20, 64, 512, 128)
    assert (config.epsilon_start, config.epsilon_end, config.epsilon_steps) == (1.0, 0.1, 10**6)
    assert (config.positive_fraction, config.negative_fraction) == (0.25, 0.25)
    assert (config.sequence_length, config.minimum_history, config.look_every) == (15, 6, 20)
    assert (config.discount, config.learning_rate) == (0.9, 0.001)


def test_presets() -> None:
    small = TrainConfig.preset("small", agent="drqn", context=32)
    assert (small.agent, small.context, small.steps) == ("drqn", 32, 20_000)
    every = {"steps": 20_000, "valid_every": 2_000, "epsilon_steps": 10_000}
    replay = {**every, "replay_steps": 50_000, "batch_size": 16}
    deep = {**replay, "encoder": 32, "context": 64, "hidden": 64}
    elimination = {**replay, "word_vector": 20, "value_filters": 32}
    elimination |= {"elimination_filters": 10, "elimination_rows": 64, "learning_starts": 1_000}
    changed = {"tabular": every, "li-tabular": every, "drqn": deep, "sc": deep}
    changed |= {"drrn": deep, "ae-dqn": elimination}
    assert list(changed) == list(AGENTS)
    for agent, values in changed.items():
        usual = TrainConfig(agent=agent).flat()
        own = TrainConfig.preset("small", agent=agent).flat()
        assert {name: own[name] for name in own if own[name] != usual[name]} == values
    assert TrainConfig.preset("paper", agent="drqn") == TrainConfig(agent="drqn")
    with pytest.raises(grue.UsageError, match="there is no preset 'tiny'; there are paper, small"):
        TrainConfig.preset("tiny")


def test_json_goes_there_and_back() -> None:
    config = TrainConfig(heads=3, seeds=(4, 7), learning_rate=1.0, huber=True, priority=False)
    text = json.dumps(config.to_json())
    assert '"seeds": [4, 7]' in text
    assert '"learning_rate": 1.0' in text
    assert TrainConfig.from_json(json.loads(text)) == config
    # A setting that an older grue did not know has its default.
    older = {name: value for name, value in config.to_json().items() if name != "past_end"}
    assert TrainConfig.from_json(older) == config


@pytest.mark.parametrize("agent", AGENTS)
def test_json_holds_the_settings_of_the_agent_and_the_gate_alone(agent: str) -> None:
    stored = TrainConfig(agent=agent).to_json()
    assert list(stored) == names_for({"agent": agent})
    assert ("context" in stored) == (agent in ("drqn", "sc", "drrn"))
    assert ("table_rows" in stored) == (agent in ("tabular", "li-tabular"))
    assert ("value_filters" in stored) == (agent == "ae-dqn")
    assert "softness" not in stored
    assert TrainConfig.from_json(stored) == TrainConfig(agent=agent)


def test_words_that_a_setting_may_not_be() -> None:
    with pytest.raises(grue.UsageError, match="no activation 'gelu'; there are elu, relu"):
        TrainConfig(activation="gelu")
    with pytest.raises(grue.UsageError, match="no precision 'half'; there are auto, float32, b"):
        TrainConfig(precision="half")


def test_an_unknown_setting() -> None:
    with pytest.raises(grue.UsageError, match="no setting 'contxt'; the nearest is 'context'"):
        grue.TrainConfig(contxt=3)


def test_json_with_an_unknown_setting() -> None:
    with pytest.raises(grue.UsageError, match="no setting 'contxt'; the nearest is 'context'"):
        TrainConfig.from_json({"contxt": 3})


MIXED_TYPES = """
import json, sys
from pathlib import Path
import numpy as np
from grue import TrainConfig, UsageError

config = TrainConfig(
    steps=np.int64(4000), gate="masking", softness=np.float32(0.5), discount=1, game=Path("a/b.z8"),
    seeds=[3, 0],
)
told = [[type(config.steps).__name__, type(config.discount).__name__, config.to_json()]]
for values in json.load(sys.stdin):
    try:
        told.append(str(TrainConfig(**values)))
    except UsageError as error:
        told.append(str(error))
print(json.dumps(told))
"""
WRONG_TYPES = [
    ({"seeds": 3}, "seeds are some numbers, as in (0, 1, 2), not 3"),
    ({"seeds": "01"}, "seeds are some numbers, as in (0, 1, 2), not '01'"),
    ({"seeds": [0.5]}, "a seed is a whole number, not 0.5"),
    ({"steps": 10.0}, "steps is a whole number, not 10.0"),
    ({"steps": True}, "steps is a whole number, not True"),
    ({"steps": None}, "steps is a whole number, not None"),
    ({"huber": 1}, "huber is true or false, not 1"),
    ({"game": 3}, "game is a name, not 3"),
    ({"learning_rate": "fast"}, "learning_rate is a number, not 'fast'"),
]


def test_values_take_the_type_of_their_setting() -> None:
    """In a process of its own: here a check of annotations would come first."""
    result = subprocess.run(
        [sys.executable, "-c", MIXED_TYPES],
        input=json.dumps([values for values, _ in WRONG_TYPES]),
        capture_output=True,
        text=True,
        check=True,
    )
    (kind, float_kind, config), *refusals = json.loads(result.stdout)
    assert (kind, float_kind) == ("int", "float")
    assert (
        config
        == TrainConfig(
            steps=4000, gate="masking", softness=0.5, discount=1.0, game="a/b.z8", seeds=(3, 0)
        ).to_json()
    )
    assert refusals == [reason for _, reason in WRONG_TYPES]


def test_one_seed_of_a_config() -> None:
    config = TrainConfig(seeds=(3, 0))
    assert config.of_seed(0) == TrainConfig(seeds=(0,))
    assert hash(config) == hash(replace(config))


def test_parse_settings() -> None:
    assert parse_settings(
        ["context=64", " learning-rate = 1e-4", "huber=yes", "priority=False", "steps=10_000"]
    ) == {
        "context": 64,
        "learning_rate": 1e-4,
        "huber": True,
        "priority": False,
        "steps": 10_000,
    }
    assert parse_settings(["heads=none", "episode_steps=50", "gate=oracle", "seeds=0,3-5"]) == {
        "heads": None,
        "episode_steps": 50,
        "gate": "oracle",
        "seeds": (0, 3, 4, 5),
    }
    assert parse_settings([]) == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("context", "--set takes name=value, not 'context'"),
        ("contxt=3", "there is no setting 'contxt'; the nearest is 'context'"),
        ("target-ever=3", "there is no setting 'target_ever'; the nearest is 'target_every'"),
        ("=3", "there is no setting ''; the nearest is "),
        ("context=many", "context is a whole number, not 'many'"),
        ("context=1.5", "context is a whole number, not '1.5'"),
        ("discount=x", "discount is a number, not 'x'"),
        ("context=none", "context is a whole number, not 'none'"),
        ("huber=2", "huber is true or false, not '2'"),
        ("seeds=1,x", "seeds are numbers from 0 on, as in 0,1,2 or 0-4, not '1,x'"),
        ("seeds=", "seeds are numbers from 0 on, as in 0,1,2 or 0-4, not ''"),
        ("seeds=-1", "seeds are numbers from 0 on"),
        ("seeds=²", "seeds are numbers from 0 on"),
        ("seeds=4-1", "seeds go up, at most 10000 of them, as in 0-4, not '4-1'"),
        ("seeds=0-99999999999", "seeds go up, at most 10000 of them"),
    ],
)
def test_refused_texts(text: str, reason: str) -> None:
    with pytest.raises(grue.UsageError) as caught:
        parse_settings([text])
    assert reason in str(caught.value)


def test_parse_seeds() -> None:
    assert parse_seeds("0") == (0,)
    assert parse_seeds(" 2 , 0 - 1 ") == (2, 0, 1)


def test_a_game_is_named() -> None:
    game = grue.load("saladworld-2")
    with pytest.raises(grue.UsageError, match="path of a file, not a Game: give 'saladworld-2'"):
        TrainConfig(game=game)
    mine = replace(game, name="mine")
    with pytest.raises(grue.UsageError, match=f"not a Game: give '{game.story}'"):
        TrainConfig.preset("small", game=mine)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"agent": "scc"}, "there is no agent 'scc'; there are tabular, li-tabular, drqn, sc"),
        ({"gate": "mask"}, "there is no gate 'mask'; there are none, oracle, dropout, masking"),
        ({"seeds": ()}, "seeds must be some different numbers, not []"),
        ({"seeds": (1, 1)}, "seeds must be some different numbers, not [1, 1]"),
        ({"seeds": (2**31,)}, "seeds lie from 0 to 2147483647, not [2147483648]"),
        ({"seeds": (-1,)}, "seeds lie from 0 to 2147483647, not [-1]"),
        ({"steps": 0}, "steps must be more than 0, not 0"),
        ({"steps": -1000}, "steps must be more than 0, not -1000"),
        ({"steps": 2**31}, "steps must be at most 2147483647, not 2147483648"),
        ({"heads": 0}, "heads must be more than 0, not 0"),
        ({"look_every": -1}, "look_every must be at least 0, not -1"),
        ({"discount": 1.5}, "discount lies from 0 to 1, not 1.5"),
        ({"discount": float("nan")}, "discount is a number, not nan"),
        ({"learning_rate": float("inf")}, "learning_rate is a number, not inf"),
        (
            {"positive_fraction": 0.7, "negative_fraction": 0.4},
            "positive_fraction and negative_fraction are at most 1 together",
        ),
        (
            {"minimum_history": 15},
            "minimum_history must be less than sequence_length, 15, not 15",
        ),
        ({"steps": 1500}, "steps must be a multiple of metrics_every, which is 1000, not 1500"),
        ({"steps": 1001}, "steps must be a multiple of update_every, which is 4, not 1001"),
        (
            {"target_every": 1500},
            "target_every must be a multiple of metrics_every, which is 1000, not 1500",
        ),
        (
            {"average_over": 2500},
            "average_over must be a multiple of metrics_every, which is 1000, not 2500",
        ),
        (
            {"learning_starts": 1100},
            "learning_starts must be a multiple of metrics_every, which is 1000, not 1100",
        ),
    ],
)
def test_refused_values(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(grue.UsageError) as caught:
        TrainConfig(**values)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_targets_may_be_copied_more_and_less_often_than_rows_are_written() -> None:
    assert TrainConfig(target_every=200).target_every == 200
    assert TrainConfig(target_every=4_000).target_every == 4_000


def test_a_setting_may_be_zero() -> None:
    assert TrainConfig(look_every=0, minimum_history=0).look_every == 0
    assert TrainConfig(gate="masking", softness=0.0).softness == 0


# The options of grue train


def test_conditions_are_the_product_of_agents_and_gates() -> None:
    options = {"agent": "drqn, sc", "gate": "none,masking", "seeds": "0-1", "steps": 4000}
    configs = command.conditions("saladworld-2", "small", ["context=8"], options)
    assert [(config.agent, config.gate) for config in configs] == [
        ("drqn", "none"),
        ("drqn", "masking"),
        ("sc", "none"),
        ("sc", "masking"),
    ]
    assert {(c.game, c.seeds, c.steps, c.context, c.encoder) for c in configs} == {
        ("saladworld-2", (0, 1), 4000, 8, 32)
    }


def test_what_is_not_given_is_the_presets_and_the_configs() -> None:
    options = {"agent": None, "gate": None, "seeds": None, "steps": None, "look_every": None}
    (config,) = command.conditions("saladworld-1", "paper", [], options)
    assert config == TrainConfig()


def test_an_option_counts_once() -> None:
    with pytest.raises(grue.UsageError, match="steps is given twice, once by --set"):
        command.conditions("saladworld-1", "small", ["steps=4000"], {"steps": 8000})
    with pytest.raises(grue.UsageError, match="give each gate only once, not 'none,none'"):
        command.conditions("saladworld-1", "small", [], {"gate": "none,none"})
    assert command.one_of("sc", None, "agent") == "sc"
    assert command.one_of(None, "sc,drqn", "agent") == "sc,drqn"
    assert command.one_of(None, None, "agent") is None
    with pytest.raises(grue.UsageError, match="give --agent or --agents, not both"):
        command.one_of("sc", "drqn", "agent")
    with pytest.raises(grue.UsageError, match="--gate takes one gate; for several use --gates "):
        command.one_of("none,oracle", None, "gate")
