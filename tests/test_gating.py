"""Candidate sets, the ε-greedy choice and ε itself, against sets worked out by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from grue.agents import gating
from grue.agents.agent import RunParameters
from grue.agents.gating import GATES, GateSet, MaskingSettings, registered_gates
from grue.errors import UsageError
from grue.training.config import TrainConfig
from grue.training.programs import parameters_of

ADMISSIBILITY = jnp.array([0.0, 0.0005, 0.001, 0.5, 1.0])
ORACLE = jnp.array([False, True, False, True, False])
KEYS = jax.random.split(jax.random.key(0), 4000)
# One program for all gates and numbers, as in training.
draw_sets = jax.jit(jax.vmap(GateSet.candidates, (None, 0, None, None, None)), static_argnums=0)
choose = jax.jit(jax.vmap(gating.choose, (0, None, None, None)))


def parameters(gate: str, softness: float) -> RunParameters:
    zero = jnp.float32(0)
    number = jnp.int32(GATES.number(gate))
    return RunParameters(number, jnp.int32(1), zero, zero, jnp.int32(0), jnp.float32(softness))


def sets(
    gate: str,
    admissibility: Array = ADMISSIBILITY,
    oracle: Array = ORACLE,
    softness: float = 0.0,
    **settings: float,
) -> np.ndarray:
    gates = registered_gates({gate: GATES.find(gate).settings(**settings)})
    return np.asarray(draw_sets(gates, KEYS, parameters(gate, softness), admissibility, oracle))


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        ("none", [1, 1, 1, 1, 1]),
        ("cqlh", [1, 1, 1, 1, 1]),
        ("acqlh", [1, 1, 1, 1, 1]),
        ("oracle", [0, 1, 0, 1, 0]),
        # At least c, so c itself is in.
        ("masking", [0, 0, 1, 1, 1]),
    ],
)
def test_sets_without_chance(gate: str, expected: list[int]) -> None:
    assert (sets(gate) == np.array(expected, bool)).all()


def test_masking_with_another_threshold() -> None:
    assert (sets("masking", threshold=0.5) == np.array([0, 0, 0, 1, 1], bool)).all()


def test_dropout_adds_each_command_with_its_probability() -> None:
    found = sets("dropout", jnp.array([0.0, 0.25, 0.5, 0.9, 1.0]))
    # Sure commands are sure, and the last one keeps the set from being empty.
    assert not found[:, 0].any()
    assert found[:, 4].all()
    # Four standard errors of 4,000 draws.
    assert np.abs(found[:, 1:4].mean(0) - [0.25, 0.5, 0.9]).max() < 4 * 0.5 / 4000**0.5


@pytest.mark.parametrize("gate", ["dropout", "masking"])
def test_an_empty_set_becomes_all_commands(gate: str) -> None:
    assert sets(gate, jnp.zeros(5)).all()


def test_an_empty_oracle_becomes_all_commands() -> None:
    assert sets("oracle", oracle=jnp.zeros(5, bool)).all()


@pytest.mark.parametrize("gate", ["dropout", "masking"])
def test_softness_allows_everything_now_and_then(gate: str) -> None:
    sure = jnp.array([1.0, 0.0, 0.0, 0.0, 0.0])
    found = sets(gate, sure, softness=0.2)
    whole = found.all(1)
    assert set(found.sum(1)) == {1, 5}
    assert abs(whole.mean() - 0.2) < 4 * 0.4 / 4000**0.5
    assert not sets(gate, sure, softness=0.0).all(1).any()
    assert sets(gate, sure, softness=1.0).all()


@pytest.mark.parametrize(
    ("gate", "softness"),
    [("none", 0), ("oracle", 0), ("cqlh", 0), ("acqlh", 0), ("dropout", 0.1), ("masking", 0.1)],
)
def test_only_soft_gates_soften(gate: str, softness: float) -> None:
    assert float(parameters_of(TrainConfig(gate=gate)).softness) == pytest.approx(softness)


def test_the_settings_of_one_gate_are_not_those_of_another() -> None:
    gates = registered_gates({"masking": MaskingSettings(threshold=0.5)})
    own = dict(zip(GATES, gates.settings, strict=True))
    assert own["masking"].threshold == 0.5
    assert own["dropout"] == GATES["dropout"].settings()
    assert gates != registered_gates()
    assert hash(registered_gates()) == hash(registered_gates({}))


@pytest.mark.parametrize("gate", GATES)
def test_which_gates_need_the_classifier(gate: str) -> None:
    needs = bool(registered_gates().uses_classifier(GATES.number(gate)))
    assert needs == (gate in ("dropout", "masking", "cqlh", "acqlh"))


def test_the_greedy_choice_is_the_best_candidate() -> None:
    values = jnp.array([5.0, 9.0, -1.0, 7.0])
    candidates = jnp.array([True, False, True, True])
    assert set(np.asarray(choose(KEYS, values, candidates, 0.0))) == {3}


def test_exploring_is_uniform_over_the_candidates() -> None:
    values = jnp.array([5.0, 9.0, -1.0, 7.0])
    candidates = jnp.array([True, False, True, True])
    chosen = np.asarray(choose(KEYS, values, candidates, 1.0))
    shares = np.bincount(chosen, minlength=4) / len(KEYS)
    assert shares[1] == 0
    assert np.abs(shares[[0, 2, 3]] - 1 / 3).max() < 4 * 0.48 / 4000**0.5


def test_epsilon_mixes_both() -> None:
    values = jnp.array([0.0, 1.0])
    chosen = np.asarray(choose(KEYS, values, jnp.ones(2, bool), 0.3))
    # The other command is reached by half of the exploring.
    assert abs((chosen == 0).mean() - 0.15) < 4 * 0.36 / 4000**0.5


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 1.0), (250_000, 0.775), (1_000_000, 0.1), (1_300_000, 0.1)]
)
def test_epsilon_falls_in_a_straight_line(step: int, expected: float) -> None:
    assert float(gating.annealed(step, 1.0, 0.1, 1_000_000)) == pytest.approx(expected, abs=1e-6)
    in_a_program = gating.annealed(jnp.int32(step), 1.0, 0.1, 1_000_000)
    assert float(in_a_program) == pytest.approx(expected, abs=1e-6)


def test_an_unknown_gate_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="'mask'; there are none, oracle, dropout, masking"):
        GATES.number("mask")


def test_exploratory_commands_with_given_probabilities() -> None:
    """Exploratory commands have the probabilities given; the greedy one does not depend on them."""
    values, odds = jnp.array([1.0, 5.0, 3.0]), jnp.array([0.5, 0.0, 0.5])
    draw = jax.jit(jax.vmap(gating.choose, (0, None, None, None, None)))
    every = jnp.ones(3, bool)
    assert set(np.asarray(draw(KEYS, values, every, 0.0, odds))) == {1}
    chosen = np.bincount(np.asarray(draw(KEYS, values, every, 1.0, odds)), minlength=3) / len(KEYS)
    # Four standard errors of 4,000 draws.
    assert chosen == pytest.approx([0.5, 0.0, 0.5], abs=0.032)
    assert chosen[1] == 0
    # The same draws as without, if all are alike.
    alike = draw(KEYS, values, every, 0.5, jnp.full(3, 1 / 3))
    assert (alike == choose(KEYS, values, every, 0.5)).all()
