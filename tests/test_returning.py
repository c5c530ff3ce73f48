"""Episodes that begin with the commands of the best episode so far."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import TINY_STEPS, config

import grue
from grue.agents import returning
from grue.agents.returning import Returns
from grue.training.train import train_all


def played(returns: Returns, steps: list[tuple[int, int]], ended: bool = False) -> Returns:
    """Plays commands with their rewards."""
    score = 0
    for time, (action, reward) in enumerate(steps):
        score += reward
        last = ended and time == len(steps) - 1
        t, a, u, r = map(jnp.int32, (time, action, score, reward))
        returns = returning.notice(returns, t, a, u, r, jnp.bool_(last))
    return returns


def begun(
    returns: Returns, episode: int, share: float = 1.0, rare: bool = True
) -> tuple[Returns, int]:
    returns = returning.next_episode(returns, jnp.int32(episode), share, jnp.bool_(rare))
    return returns, int(returns.repeated)


def test_the_best_episode_is_the_highest_then_the_shortest() -> None:
    returns = played(returning.init(5), [(7, 0), (8, 5), (9, 0), (6, 10), (5, -5)])
    assert [int(x) for x in (returns.score, returns.length, returns.last_score)] == [15, 4, 5]
    assert returns.best[:4].tolist() == [7, 8, 9, 6]
    # Lower, or as high but not shorter: the old one stays.
    for steps in ([(1, 10)], [(1, 0), (2, 5), (3, 5), (4, 5)]):
        returns = played(begun(returns, 1)[0], steps)
        assert returns.best[:4].tolist() == [7, 8, 9, 6]
    # As high and shorter.
    returns = played(begun(returns, 1)[0], [(1, 5), (2, 10)], ended=True)
    assert [int(x) for x in (returns.score, returns.length, returns.last_score)] == [15, 2, 5]
    assert returns.best[:2].tolist() == [1, 2]
    assert returns.ended


def test_what_an_episode_repeats() -> None:
    """All but 5^u of 4 commands, rounded down, where u is episode · 2654435769 mod 2³² by 2³²."""
    returns = played(returning.init(5), [(7, 0), (8, 0), (9, 0), (6, 10)])
    spread = [n * 2_654_435_769 % 2**32 / 2**32 for n in range(1, 9)]
    assert [round(u, 2) for u in spread] == [0.62, 0.24, 0.85, 0.47, 0.09, 0.71, 0.33, 0.94]
    # 5^0.62 = 2.7, 5^0.24 = 1.5, 5^0.85 = 3.9, …
    assert [begun(returns, n)[1] for n in range(1, 9)] == [2, 3, 1, 2, 3, 1, 3, 0]
    # A quarter of the episodes.
    some = [begun(returns, n, share=0.25)[1] for n in range(1, 9)]
    assert some == [0, 0, 1, 0, 0, 0, 3, 0]
    # The reward itself is never repeated; half of the episodes begin within √L commands of it.
    long = played(returning.init(200), [(1, 0)] * 143 + [(1, 10)])
    left_out = np.array([144 - begun(long, n)[1] for n in range(1, 201)])
    assert (left_out.min(), left_out.max()) == (1, 142)
    assert 95 <= (left_out <= 12).sum() <= 105
    # The reward is no longer rare: up to the highest score, unless that ended the game.
    assert begun(returns, 1, rare=False)[1] == 4
    ended = played(returning.init(5), [(7, 0), (8, 10)], ended=True)
    assert begun(ended, 1, rare=False)[1] == 0
    # Without a best episode there is nothing to repeat.
    assert begun(returning.init(5), 1)[1] == 0


def test_the_override_ends_after_the_repeated_commands() -> None:
    returns, repeated = begun(played(returning.init(5), [(7, 0), (8, 0), (9, 0), (6, 10)]), 1)
    assert repeated == 2
    commands = [int(returning.override(returns, jnp.int32(t), jnp.int32(0))) for t in range(5)]
    assert commands == [7, 8, 0, 0, 0]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-5, 5)), min_size=1, max_size=8))
def test_repeating_reaches_the_highest_score(steps: list[tuple[int, int]]) -> None:
    returns = played(returning.init(8), steps)
    scores = np.cumsum([reward for _, reward in steps])
    highest = max(0, scores.max())
    length = int(scores.argmax()) + 1 if highest > 0 else 0
    assert (int(returns.score), int(returns.length)) == (highest, length)
    assert returns.best[:length].tolist() == [action for action, _ in steps[:length]]


def test_in_a_real_game_the_walkthrough_is_repeated() -> None:
    """A won episode, repeated, wins again; half of it has half of its score or less."""
    env, game = grue.make("saladworld-1"), grue.load("saladworld-1")
    returns = returning.init(env.episode_steps)
    state, seen = env.reset()
    step = jax.jit(env.step)
    for time, command in enumerate(game.walkthrough):
        action = jnp.int32(env.commands.index(command))
        state, seen = step(state, action)
        told = seen.score, seen.reward, seen.terminated
        returns = returning.notice(returns, jnp.int32(time), action, *told)
    assert returns.ended
    assert (int(returns.score), int(returns.length)) == (env.max_score, len(game.walkthrough))
    state, seen = env.reset()
    returns = returns._replace(repeated=returns.length)
    for time in range(len(game.walkthrough)):
        action = returning.override(returns, jnp.int32(time), jnp.int32(0))
        state, seen = step(state, action)
    assert seen.terminated
    assert int(seen.score) == env.max_score


@pytest.mark.slow
def test_episodes_with_repeated_commands_do_not_count() -> None:
    """Half of the episodes repeat; only the others are in the metrics."""
    counted = {}
    for share in (0.0, 0.5):
        own = config(gate="none", explore="achievements", steps=3_000, return_share=share)
        metrics = train_all([own]).runs[0].metrics
        counted[share] = int(metrics["episodes"].sum())
        assert (metrics["repeated"].max() > 0) == (share > 0)
    # Without a win an episode has 45 steps. The first reward comes after some episodes.
    assert counted[0.0] >= 3_000 // TINY_STEPS
    assert counted[0.0] // 2 <= counted[0.5] < counted[0.0]
