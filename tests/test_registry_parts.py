"""Agents and gates of one's own: registered, replaced, trained, and resumed among others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from small_runs import Watcher, config

import grue
from grue import TrainConfig
from grue.agents import gating
from grue.agents.agent import AgentState, Episode, RunParameters, Told
from grue.agents.catalogue import AGENTS, GATES, Gate
from grue.agents.gating import Belief
from grue.agents.registry import Metric, Registry, register
from grue.agents.settings import setting
from grue.agents.tabular import TabularAgent, TabularSettings
from grue.errors import NotRegisteredError, UsageError
from grue.training.metrics import columns_of
from grue.training.programs import parameters_of
from grue.training.runs import load_state
from grue.training.train import Interrupted, train

BUILT_IN = ("none", "oracle", "dropout", "masking", "cqlh", "acqlh")


@pytest.fixture(autouse=True)
def own_parts() -> Iterator[None]:
    """Forgets what a test has registered."""
    before = set(AGENTS), set(GATES)
    yield
    for registry, known in zip((AGENTS, GATES), before, strict=True):
        for name in set(registry) - known:
            registry.remove(name)


def first(number: int) -> Callable[[Belief], Array]:
    """A gate that allows the first commands."""
    return lambda belief: jnp.arange(len(belief.admissible_set)) < number


def small(**values: Any) -> TrainConfig:
    """Of an agent whose program is compiled in a moment."""
    given = {"agent": "tabular", "gate": "none", "steps": 400} | values
    # It learns as it plays: the program with updates would be compiled for nothing.
    return config(**{"learning_starts": given["steps"]} | given)


def candidates(gate: str, **values: Any) -> list[float]:
    return train(small(gate=gate, **values)).runs[0].metrics["candidates"].tolist()


# Gates


def test_a_gate_that_joins_later_is_the_one_that_is_trained_with() -> None:
    """Programs are kept, and the one that is there knows nothing of the new gate."""
    assert candidates("none") == [8, 8]
    gating.register("few", Gate(first(1)))
    assert candidates("few") == [1, 1]
    gating.register("few", Gate(first(2)))
    assert candidates("few") == [2, 2]
    assert candidates("none") == [8, 8]


def test_the_settings_of_a_gate_of_ones_own() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Few:
        number: int = setting(3, "commands that are allowed", above=0)

    def few(belief: Belief) -> Array:
        return jnp.arange(len(belief.admissible_set)) < belief.settings.number

    gating.register("few", Gate(few, settings=Few))
    assert candidates("few") == [3, 3]
    assert candidates("few", number=5) == [5, 5]
    with pytest.raises(UsageError, match="number must be more than 0, not 0"):
        small(gate="few", number=0)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_gate_stays(name: str) -> None:
    before = GATES[name]
    with pytest.raises(UsageError, match=f"'{name}' is a built-in gate and cannot be replaced"):
        gating.register(name, Gate(first(1)))
    GATES.remove(name)
    assert GATES[name] is before
    assert tuple(GATES)[:6] == BUILT_IN


def test_a_gate_of_ones_own_keeps_its_number_when_it_is_replaced() -> None:
    gating.register("one", Gate(first(1)))
    gating.register("two", Gate(first(2)))
    gating.register("one", Gate(first(3)))
    assert [GATES.number(name) for name in ("one", "two")] == [6, 7]


def test_a_resumed_run_finds_its_gate_among_others(tmp_path: Path) -> None:
    """Its number in the checkpoint is that of another gate by then."""
    name = "saladworld-1-tabular-few-seed0"
    gating.register("few", Gate(first(1)))
    train(small(gate="few", steps=1000), tmp_path / "straight")

    def stop(step: int) -> None:
        if step == 400:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        train(small(gate="few", steps=1000), tmp_path, progress=Watcher(stop))
    before = int(parameters_of(small(gate="few")).gate)
    GATES.remove("few")
    for other in ("all", "most"):
        gating.register(other, Gate(first(7)))
    gating.register("few", Gate(first(1)))
    assert int(parameters_of(small(gate="few")).gate) == before + 2
    run = train(small(gate="few", steps=1000), tmp_path, resume=True).runs[0]
    assert run.metrics["candidates"].tolist() == [1] * 5
    straight = tmp_path / "straight" / name / "metrics.jsonl"
    assert (tmp_path / name / "metrics.jsonl").read_bytes() == straight.read_bytes()
    assert int(load_state(tmp_path / name)[3].gate) == before + 2
    assert set(grue.evaluate(tmp_path / name).trace.candidates[0].tolist()) == {1}


# Agents


class CountingAgent(TabularAgent):
    """Tells what it has seen."""

    def observe(
        self,
        state: AgentState,
        before: Episode,
        action: Array,
        after: Episode,
        parameters: RunParameters,
    ) -> tuple[AgentState, Told]:
        state, _ = super().observe(state, before, action, after, parameters)
        looks = action == self.env.commands.index("look")
        told = {
            "looks": looks,
            "look_share": looks,
            "last_time": after.time,
            "odd": before.time % 2,
        }
        return state, {name: jnp.asarray(value, jnp.float32) for name, value in told.items()}

    def update(self, state: AgentState, parameters: RunParameters, key: Array) -> tuple[Any, Told]:
        return state.learned, {"seven": jnp.float32(7)}


DECLARED = (
    Metric("looks", "commands that were look", "count"),
    Metric("look_share", "of all commands", "step"),
    Metric("last_time", "steps of an episode when it ends", "episode"),
    Metric("odd", "share of odd times", "step"),
    Metric("seven", "of each update"),
)


@pytest.mark.parametrize("together", [False, True])
def test_the_columns_that_an_agent_declares(together: bool) -> None:
    register("counting", settings=TabularSettings, metrics=DECLARED)(CountingAgent)
    own = small(agent="counting", steps=1000, learning_starts=200, seeds=(0, 1), look_every=0)
    for run in train(own, together=together).runs:
        table = run.metrics
        assert list(table) == ["step", "seed", *(metric.name for metric in columns_of(own))]
        assert "q_loss" not in table
        assert "precision" not in table
        assert table["looks"].dtype == np.int64
        np.testing.assert_allclose(table["look_share"], table["looks"] / 200)
        assert 0 < table["looks"].sum() < 1000
        # Episodes of 45 steps, none of which is won so early, or they are shorter.
        assert (table["last_time"] <= 45).all()
        assert (table["last_time"] > 20).all()
        np.testing.assert_allclose(table["odd"], 0.5, atol=0.03)
        # Nothing is learned in the first row.
        np.testing.assert_array_equal(table["seven"], [np.nan, 7, 7, 7, 7])
        assert run.final["seven"] == 7


def test_a_column_that_was_not_declared_is_refused() -> None:
    register("counting", settings=TabularSettings, metrics=DECLARED[:1])(CountingAgent)
    with pytest.raises(UsageError, match=r"metric '\w+', which it has not declared; its columns"):
        train(small(agent="counting"))


def test_an_agent_that_is_replaced_is_the_one_that_is_trained() -> None:
    class Still(TabularAgent):
        """Only ever looks."""

        def act(self, *given: Any) -> Any:
            state, decision = super().act(*given)
            return state, decision._replace(action=jnp.int32(self.env.commands.index("look")))

    register("own", settings=TabularSettings)(TabularAgent)
    own = small(agent="own", look_every=0)
    moving = train(own).runs[0].metrics["admissible"]
    register("own", settings=TabularSettings)(Still)
    still = train(own).runs[0].metrics["admissible"]
    assert (moving > 0).all()
    assert (still == 0).all()


@pytest.mark.parametrize("name", AGENTS)
def test_a_built_in_agent_stays(name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' is a built-in agent and cannot be replaced"):
        register(name)(TabularAgent)
    AGENTS.remove(name)
    assert name in AGENTS


# The registry


def test_names_that_cannot_be_part_of_a_folders() -> None:
    for name in ("", "a b", "a/b", "a,b"):
        with pytest.raises(UsageError, match="cannot name a gate: use letters, digits, '-'"):
            gating.register(name, Gate())
    gating.register("Few_2.b-c", Gate())
    assert "Few_2.b-c" in GATES


def test_an_unknown_name() -> None:
    parts: Registry[int] = Registry("part")
    parts.add("one", 1, built_in=True)
    parts.add("two", 2)
    assert (list(parts), len(parts), parts.find("two"), parts.number("two")) == (
        ["one", "two"],
        2,
        2,
        1,
    )
    with pytest.raises(NotRegisteredError, match="there is no part 'three'; there are one, two;"):
        parts.find("three")
    with pytest.raises(UsageError, match="'two' is a built-in part"):
        parts.add("two", 3, built_in=True)
    parts.remove("two")
    assert list(parts) == ["one"]


def test_the_order_does_not_hang_on_who_is_imported_first() -> None:
    """Tables are sorted by it."""
    for module in ("deep", "registry"):
        program = f"import grue.agents.{module}; from grue.agents.registry import AGENTS; "
        shown = subprocess.run(
            [sys.executable, "-c", program + "print(*AGENTS)"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert shown.split() == ["tabular", "li-tabular", "drqn", "sc", "drrn", "ae-dqn"], module


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        (Metric("score", "taken"), "two parts of the run have a metric 'score'"),
        (Metric("last", "not one's own", "end"), "the metric 'last' is per end"),
    ],
)
def test_metrics_that_cannot_be_columns(metric: Metric, why: str) -> None:
    register("counting", settings=TabularSettings, metrics=(metric,))(CountingAgent)
    with pytest.raises(grue.UsageError, match=why):
        train(small(agent="counting"))
