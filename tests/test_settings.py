"""Settings that declare themselves: limits, types, and whose each one is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from grue import TrainConfig, UsageError
from grue.agents.catalogue import AGENTS, GATES, Gate
from grue.agents.registry import AgentKind, nearest
from grue.agents.settings import (
    LARGEST,
    AgentSettings,
    Limits,
    NoSettings,
    check_limits,
    described,
    from_text,
    names_of,
    setting,
    typed,
)
from grue.cli import training as command
from grue.training.config import PARTS, all_settings, known_to, names_for


@dataclass(frozen=True, kw_only=True)
class Sample(AgentSettings):
    many: int = setting(3, "how many", least=2, most=9)
    share: float = setting(0.5, "of the whole", least=0, most=1)
    rate: float = setting(0.1, "of learning", above=0)
    kind: str = setting("plain", "of what", choices=("plain", "fancy"))
    limit: int | None = setting(None, "at most so many", above=0)
    wanted: bool = setting(False, "whether it is wanted")


# Declarations


def test_a_field_carries_its_description_and_limits() -> None:
    own = {field.name: field for field in fields(Sample)}
    assert own["many"].default == 3
    assert own["many"].metadata["description"] == "how many"
    assert own["many"].metadata["limits"] == Limits(least=2, most=9)
    assert own["kind"].metadata["limits"].choices == ("plain", "fancy")
    assert names_of(Sample)[-6:] == ["many", "share", "rate", "kind", "limit", "wanted"]
    assert list(described(Sample))[-2:] == [
        ("limit", None, "at most so many"),
        ("wanted", False, "whether it is wanted"),
    ]


@pytest.mark.parametrize("kind", dict.fromkeys(all_settings().values()))
def test_every_setting_is_described_and_its_default_is_allowed(kind: type) -> None:
    check_limits(kind())
    undescribed = {name for name, _, told in described(kind) if not told}
    assert undescribed <= {"seeds", *PARTS}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"many": 1}, "many must be at least 2, not 1"),
        ({"many": 10}, "many must be at most 9, not 10"),
        ({"share": -0.1}, "share lies from 0 to 1, not -0.1"),
        ({"share": 1.1}, "share lies from 0 to 1, not 1.1"),
        ({"rate": 0.0}, "rate must be more than 0, not 0.0"),
        ({"kind": "odd"}, "there is no kind 'odd'; there are plain, fancy"),
        ({"limit": 0}, "limit must be more than 0, not 0"),
        ({"limit": LARGEST + 1}, "limit must be at most 2147483647, not 2147483648"),
    ],
)
def test_limits(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_limits(Sample(**values))
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    "values",
    [{"many": 2}, {"many": 9}, {"share": 0.0}, {"share": 1.0}, {"rate": 1e9}, {"limit": LARGEST}],
)
def test_what_is_just_within_the_limits(values: dict[str, Any]) -> None:
    check_limits(Sample(**values))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("many", "4", 4),
        ("many", "1_000", 1000),
        ("share", "1", 1.0),
        ("rate", "1e-4", 1e-4),
        ("kind", "odd", "odd"),
        ("limit", "None", None),
        ("limit", "7", 7),
        ("wanted", "Yes", True),
        ("wanted", "0", False),
    ],
)
def test_texts_take_the_type_of_their_field(name: str, text: str, value: Any) -> None:
    found = from_text(Sample, name, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("many", "few", "many is a whole number, not 'few'"),
        ("many", "1.5", "many is a whole number, not '1.5'"),
        ("many", "none", "many is a whole number, not 'none'"),
        ("rate", "fast", "rate is a number, not 'fast'"),
        ("wanted", "2", "wanted is true or false, not '2'"),
    ],
)
def test_texts_that_are_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        from_text(Sample, name, value)


def test_values_take_exactly_the_type_of_their_field() -> None:
    found = typed(Sample, "rate", 1)
    assert (found, type(found)) == (1.0, float)
    assert typed(Sample, "limit", None) is None
    for name, value in [("many", 1.0), ("many", True), ("wanted", 1), ("rate", float("nan"))]:
        with pytest.raises(UsageError, match=f"{name} is "):
            typed(Sample, name, value)


def test_the_nearest_name() -> None:
    assert nearest("contxt", ["hidden", "context", "encoder"]) == "context"
    assert nearest("", ["hidden"]) == "hidden"


# Whose a setting is


@pytest.fixture
def own_parts() -> Iterator[None]:
    """An agent with settings of its own, and gates: one has a name in common with it."""
    AGENTS.add("sample", AgentKind(AGENTS["tabular"].make, settings=Sample))

    @dataclass(frozen=True, kw_only=True)
    class Clashing:
        share: float = setting(0.5, "of the gate")

    @dataclass(frozen=True, kw_only=True)
    class Loop:
        steps: int = setting(5, "which the training loop has too")

    GATES.add("clashing", Gate(settings=Clashing))
    GATES.add("loop", Gate(settings=Loop))
    yield
    AGENTS.remove("sample")
    GATES.remove("clashing")
    GATES.remove("loop")


def test_settings_are_attributes_and_lie_with_their_part(own_parts: None) -> None:
    config = TrainConfig(agent="sample", many=4, discount=0.5)
    assert config.settings == Sample(many=4, discount=0.5)
    assert config.gate_settings == NoSettings()
    assert (config.many, config.discount, config.steps) == (4, 0.5, 1_300_000)
    assert not hasattr(config, "context")
    with pytest.raises(AttributeError, match="this config has no setting 'context'"):
        _ = config.context
    with pytest.raises(UsageError, match="many must be at most 9, not 10"):
        TrainConfig(agent="sample", many=10)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (
            {"agent": "tabular", "context": 8},
            "context is a setting of the agent drqn, sc, drrn, not of tabular",
        ),
        (
            {"agent": "sc", "table_rows": 8},
            "table_rows is a setting of the agent tabular, li-tabular, not of sc",
        ),
        ({"agent": "sc", "many": 3}, "many is a setting of the agent sample, not of sc"),
        (
            {"gate": "none", "threshold": 0.5},
            "threshold is a setting of the gate masking, not of none",
        ),
        (
            {"gate": "oracle", "softness": 0.5},
            "softness is a setting of the gate dropout, masking, not of oracle",
        ),
        ({"gate": "dropout", "threshold": 0.5}, "the gate masking, not of dropout"),
        (
            {"agent": "sample", "contxt": 3},
            "there is no setting 'contxt'; the nearest is ",
        ),
        (
            {"agent": "sample", "tabel_rows": 3},
            "there is no setting 'tabel_rows'; the nearest is ",
        ),
    ],
)
def test_a_setting_of_another_is_refused_with_whose_it_is(
    own_parts: None, values: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError) as caught:
        TrainConfig(**values)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_settings_of_one_name_are_refused(own_parts: None) -> None:
    with pytest.raises(
        UsageError, match="two of sample, clashing, none have a setting 'share'; rename one"
    ):
        TrainConfig(agent="sample", gate="clashing")
    with pytest.raises(UsageError, match="have a setting 'steps'; rename one"):
        TrainConfig(gate="loop")
    assert TrainConfig(agent="sample").share == 0.5
    assert TrainConfig(agent="tabular", gate="clashing", share=0.75).share == 0.75


def test_what_fits_the_new_agent_of_a_changed_config_stays() -> None:
    config = TrainConfig(gate="masking", softness=0.5, discount=0.5, context=8)
    other = replace(config, agent="tabular", gate="oracle")
    assert other == TrainConfig(agent="tabular", gate="oracle", discount=0.5)
    assert replace(config, gate="dropout") == TrainConfig(
        gate="dropout", softness=0.5, discount=0.5, context=8
    )


def test_known_names() -> None:
    values = {"context": 8, "table_rows": 9, "softness": 0.5, "steps": 4000}
    assert known_to({"agent": "sc", "gate": "masking"}, values) == {
        "context": 8,
        "softness": 0.5,
        "steps": 4000,
    }
    assert known_to({"agent": "tabular"}, values) == {"table_rows": 9, "steps": 4000}
    for agent in AGENTS:
        names = names_for({"agent": agent, "gate": "masking"})
        assert len(set(names)) == len(names)
        assert set(names) <= set(all_settings())


# --set


def test_each_setting_goes_to_those_that_have_it() -> None:
    options = {"agent": "sc,tabular", "gate": "none"}
    both = command.conditions("saladworld-1", "small", ["context=8", "table_rows=99"], options)
    deep, table = both
    assert (deep.agent, deep.context) == ("sc", 8)
    assert (table.agent, table.table_rows) == ("tabular", 99)
    assert not hasattr(deep, "table_rows")
    assert not hasattr(table, "context")

    options = {"agent": "sc", "gate": "none,masking"}
    plain, masking = command.conditions("saladworld-1", "small", ["threshold=0.5"], options)
    assert not hasattr(plain, "threshold")
    assert masking.threshold == 0.5


@pytest.mark.parametrize(
    ("options", "text", "reason"),
    [
        (
            {"agent": "sc,drqn"},
            "table_rows=9",
            "table_rows is a setting of the agent tabular, li-tabular, not of sc",
        ),
        (
            {"agent": "tabular,ae-dqn"},
            "context=9",
            "context is a setting of the agent drqn, sc, drrn, not of tabular",
        ),
        (
            {"agent": "sc", "gate": "none,oracle"},
            "softness=0",
            "softness is a setting of the gate dropout, masking, not of none",
        ),
    ],
)
def test_a_setting_that_none_has_is_refused(
    options: dict[str, Any], text: str, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        command.conditions("saladworld-1", "small", [text], options)
