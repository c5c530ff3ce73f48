"""J: scores get heads by round robin in the order in which they are first seen."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grue.agents import contexts

assign = jax.jit(contexts.assign)


def heads_of(scores: list[int], heads: int, capacity: int = contexts.CAPACITY) -> list[int]:
    known, found = contexts.init(capacity), []
    for score in scores:
        known, head = assign(known, jnp.int32(score), heads)
        found.append(int(head))
    return found


@pytest.mark.parametrize(
    ("scores", "heads", "expected"),
    [
        ([0, 10, 15, 10, 0], 5, [0, 1, 2, 1, 0]),
        ([0, 5, 10, 15, 20, 25, 5], 5, [0, 1, 2, 3, 4, 0, 1]),
        ([0, -10, 0, -10, 35], 2, [0, 1, 0, 1, 0]),
        ([7, 0, 7, 3], 1, [0, 0, 0, 0]),
        ([0, 0, 0], 5, [0, 0, 0]),
    ],
)
def test_round_robin(scores: list[int], heads: int, expected: list[int]) -> None:
    assert heads_of(scores, heads) == expected


def test_zero_is_a_score_like_any_other() -> None:
    # The table starts out full of zeros that were never seen.
    assert heads_of([5, 0], 5) == [0, 1]


def test_a_head_can_be_asked_for_without_recording_the_score() -> None:
    known, _ = contexts.assign(contexts.init(), jnp.int32(0), 5)
    assert int(contexts.head(known, jnp.int32(10), 5)) == 1
    assert int(contexts.head(known, jnp.int32(20), 5)) == 1
    assert int(known.count) == 1


def test_scores_past_the_capacity_share_the_last_place() -> None:
    assert heads_of([1, 2, 3, 4, 5, 1], 5, capacity=3) == [0, 1, 2, 2, 2, 0]


@given(st.lists(st.integers(-50, 350), max_size=40), st.integers(1, 7))
def test_as_a_dictionary_would(scores: list[int], heads: int) -> None:
    order: dict[int, int] = {}
    expected = [order.setdefault(score, len(order)) % heads for score in scores]
    assert heads_of(scores, heads) == expected


def test_jit_and_vmap_over_runs_with_different_heads() -> None:
    runs = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), contexts.init())
    assign = jax.jit(jax.vmap(contexts.assign))
    found = []
    for score in (0, 10, 15):
        runs, heads = assign(runs, jnp.full(2, score), jnp.array([1, 5]))
        found.append(heads.tolist())
    assert found == [[0, 0], [0, 1], [0, 2]]
