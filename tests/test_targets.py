"""Targets and losses against numbers worked out by hand, jitted and not."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grue.agents import targets
from grue.agents.gating import GATES, MaskingSettings, registered_gates

Q_NEXT = jnp.array([[1.0, 4.0, 2.0], [3.0, -1.0, 0.5]])
ADMISSIBILITY = jnp.array([0.25, 1.0])
SAME = jnp.array([2.0, -1.0])
NONE, ORACLE, MASKING, CQLH, ACQLH = map(
    GATES.number, ("none", "oracle", "masking", "cqlh", "acqlh")
)
next_value = partial(targets.next_value, registered_gates())


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        (NONE, [4.0, 3.0]),
        (MASKING, [4.0, 3.0]),
        # 0.25 · 4 + 0.75 · 2 = 2.5, and with certainty the maximum itself.
        (CQLH, [2.5, 3.0]),
        (ACQLH, [1.0, 3.0]),
    ],
)
def test_next_value_by_gate(jit: bool, gate: int, expected: list[float]) -> None:
    function = jax.jit(next_value) if jit else next_value
    found = function(jnp.int32(gate), Q_NEXT, SAME, ADMISSIBILITY)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_oracle_bounds_the_maximum() -> None:
    """The second state allows nothing: all are compared. Room past the commands does not count."""
    possible = jnp.zeros((2, 8), bool).at[0, 0].set(True).at[:, 7].set(True)
    found = next_value(ORACLE, Q_NEXT, SAME, ADMISSIBILITY, possible)
    np.testing.assert_array_equal(found, [Q_NEXT[0, 0], Q_NEXT[1].max()])
    assert Q_NEXT[0, 0] < Q_NEXT[0].max()
    for gate in (NONE, MASKING):
        bounded = next_value(gate, Q_NEXT, SAME, ADMISSIBILITY, possible)
        np.testing.assert_array_equal(bounded, Q_NEXT.max(-1))


@pytest.mark.parametrize("jit", [False, True])
def test_masked_targets(jit: bool) -> None:
    """By hand, c = 0.3: the value 4 is not believed; where nothing is, the maximum is over all."""
    own = MaskingSettings(masked_targets=True, threshold=0.3)
    masked = partial(targets.next_value, registered_gates({"masking": own}))
    believed = jnp.array([[0.3, 0.2, 0.9], [0.1, 0.2, 0.0]])
    function = jax.jit(masked) if jit else masked
    found = function(jnp.int32(MASKING), Q_NEXT, SAME, ADMISSIBILITY, None, None, believed)
    assert found.tolist() == [2.0, 3.0]
    # A command that the game does not have does not count, however much it is believed.
    exists = jnp.array([[True, True, False], [True, False, True]])
    found = function(jnp.int32(MASKING), Q_NEXT, SAME, ADMISSIBILITY, None, exists, believed)
    assert found.tolist() == [1.0, 3.0]
    # Other gates do not look at it.
    found = function(jnp.int32(NONE), Q_NEXT, SAME, ADMISSIBILITY, None, None, believed)
    assert found.tolist() == [4.0, 3.0]


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        # θ prefers the commands 2 and 1, which θ⁻ values at 2 and -1.
        (NONE, [2.0, -1.0]),
        # 0.25 · 2 + 0.75 · 2, and with certainty the value itself.
        (CQLH, [2.0, -1.0]),
        (ACQLH, [0.5, -1.0]),
        # Of the admissible commands θ prefers 0 and 2.
        (ORACLE, [1.0, 0.5]),
        # Of the believed ones θ prefers 0; in the second row nothing is believed.
        (MASKING, [1.0, -1.0]),
    ],
)
def test_double_q_learning(jit: bool, gate: int, expected: list[float]) -> None:
    """By hand: the command that θ prefers, with its value from θ⁻."""
    chooser = jnp.array([[5.0, 0.0, 9.0], [0.0, 1.0, 0.5]])
    possible = jnp.array([[True, True, False], [True, False, True]])
    believed = jnp.array([[0.3, 0.2, 0.1], [0.1, 0.2, 0.0]])
    gates = registered_gates({"masking": MaskingSettings(masked_targets=True, threshold=0.2)})
    function = partial(targets.next_value, gates)
    function = jax.jit(function) if jit else function
    given = (Q_NEXT, SAME, ADMISSIBILITY, possible if gate == ORACLE else None)
    believed = believed.at[1].set(0.0) if gate == MASKING else believed
    found = function(jnp.int32(gate), *given, None, believed, chooser)
    assert found.tolist() == expected
    # With the same values for both, the maximum is the usual one.
    same = function(jnp.int32(gate), *given, None, believed, Q_NEXT)
    usual = function(jnp.int32(gate), *given, None, believed)
    np.testing.assert_array_equal(same, usual)


def test_double_q_learning_never_chooses_a_command_that_the_game_lacks() -> None:
    exists = jnp.array([[True, True, False], [True, False, True]])
    chooser = jnp.array([[5.0, 0.0, 9.0], [0.0, 1.0, 0.5]])
    found = next_value(NONE, Q_NEXT, SAME, ADMISSIBILITY, None, exists, None, chooser)
    assert found.tolist() == [1.0, 0.5]


def test_a_command_known_to_do_nothing_keeps_only_its_own_value() -> None:
    found = next_value(CQLH, Q_NEXT, SAME, jnp.zeros(2))
    np.testing.assert_allclose(found, SAME)
    np.testing.assert_allclose(next_value(ACQLH, Q_NEXT, SAME, jnp.zeros(2)), [0.0, 0.0])


def test_gates_that_act_on_the_choice_leave_the_target_alone() -> None:
    acting = [next_value(i, Q_NEXT, SAME, ADMISSIBILITY) for i in range(len(GATES))]
    same = [np.array_equal(found, acting[0]) for found in acting]
    assert same == [True, True, True, True, False, False]


def test_q_target_stops_at_the_end_of_the_game() -> None:
    found = targets.q_target(
        jnp.array([5.0, 5.0, 0.0]),
        jnp.array([False, True, False]),
        jnp.array([10.0, 10.0, -2.0]),
        0.9,
    )
    np.testing.assert_allclose(found, [14.0, 5.0, -1.8], rtol=1e-6)


@pytest.mark.parametrize("jit", [False, True])
def test_traced_targets(jit: bool) -> None:
    """Backwards by hand, γ = 0.5, λ = 0.25; the second sequence ends after two steps."""
    reward = jnp.array([[1.0, 0.0], [0.0, 8.0], [4.0, 0.0]])
    terminated = jnp.array([[False, False], [False, True], [False, False]])
    value = jnp.array([[8.0, 2.0], [4.0, 6.0], [2.0, 9.0]])
    goes_on = jnp.array([[True, True], [True, False], [False, False]])
    function = partial(targets.traced_target, discount=0.5, trace=0.25)
    found = (jax.jit(function) if jit else function)(reward, terminated, value, goes_on)
    # y_2 = 4 + 0.5 · 2; y_1 = 0.5 (0.75 · 4 + 0.25 · 5); y_0 = 1 + 0.5 (0.75 · 8 + 0.25 · 2.125)
    np.testing.assert_allclose(found[:, 0], [4.265625, 2.125, 5.0], rtol=1e-6)
    # y_1 = 8, the end; y_0 = 0.5 (0.75 · 2 + 0.25 · 8)
    np.testing.assert_allclose(found[:2, 1], [1.75, 8.0], rtol=1e-6)
    one_step = partial(targets.traced_target, discount=0.5, trace=0.0)
    expected = targets.q_target(reward, terminated, value, 0.5)
    np.testing.assert_array_equal(one_step(reward, terminated, value, goes_on), expected)


def test_the_appendix_delta_of_cqlh() -> None:
    # δ'' = r + γ [max Q(h') ξ̂ + Q(h', a) (1 - ξ̂)] - Q(h, a) = 5 + 0.9 (4·0.25 + 2·0.75) - 3
    value = next_value(CQLH, Q_NEXT[:1], SAME[:1], ADMISSIBILITY[:1])
    target = targets.q_target(jnp.array([5.0]), jnp.array([False]), value, 0.9)
    assert float(target[0]) - 3.0 == pytest.approx(4.25)


def test_the_alternate_delta_drops_the_unchanged_case() -> None:
    # δ'' = 5 + 0.9 · 4 · 0.25 - 3
    value = next_value(ACQLH, Q_NEXT[:1], SAME[:1], ADMISSIBILITY[:1])
    target = targets.q_target(jnp.array([5.0]), jnp.array([False]), value, 0.9)
    assert float(target[0]) - 3.0 == pytest.approx(2.9)


def test_errors_and_their_gradients() -> None:
    target, q = jnp.array([3.0, 1.0]), jnp.array([1.0, 1.5])
    np.testing.assert_allclose(targets.squared_error(target, q), [4.0, 0.25])
    np.testing.assert_allclose(targets.huber_error(target, q), [3.0, 0.25])
    slope = jax.grad(lambda y, x: targets.squared_error(y, x).sum(), argnums=(0, 1))(target, q)
    # Nothing flows into the target; the slope in Q is -2 (y - Q).
    np.testing.assert_allclose(slope[0], [0.0, 0.0])
    np.testing.assert_allclose(slope[1], [-4.0, 1.0])
    straight = jax.grad(lambda x: targets.huber_error(target, x).sum())(q)
    np.testing.assert_allclose(straight, [-2.0, 1.0])


def test_cross_entropy_of_the_command_taken() -> None:
    logits = jnp.array([0.0, math.log(3.0), math.log(3.0), 100.0, -100.0])
    admissible = jnp.array([True, True, False, True, True])
    # σ(log 3) = 3/4.
    expected = [math.log(2), math.log(4 / 3), math.log(4), 0.0, 100.0]
    np.testing.assert_allclose(
        targets.bandit_cross_entropy(logits, admissible), expected, rtol=1e-5, atol=1e-6
    )
