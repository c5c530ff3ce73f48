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

LOOK = 0


def played(returns: Returns, steps: list[tuple[int, int]], ended: bool = False) -> Returns:
    """Plays commands with their rewards."""
    score = 0
    for time, (action, reward) in enumerate(steps):
        score += reward
        last = ended and time == len(steps) - 1
        t, a, u, r = map(jnp.int32, (time, action, score, reward))
        returns = returning.notice(returns, LOOK, t, a, u, r, jnp.bool_(last))
    return returns


def begun(
    returns: Returns, episode: int, share: float = 1.0, rare: bool = True, thinned: float = 0.0
) -> tuple[Returns, int]:
    """The episode after the one with a number."""
    returns = returns._replace(episode=jnp.uint32(episode))
    returns = returning.next_episode(returns, share, thinned, jnp.bool_(rare))
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
    assert replayed(returns) == [7, 8, OWN, OWN, OWN]


OWN = 99
"""The command that the agent chooses."""


def replayed(returns: Returns, forced: frozenset[int] = frozenset()) -> list[int]:
    """The commands of an episode without rewards. At some times 'look' is forced."""
    commands = []
    for time in range(len(returns.best)):
        action = int(returning.override(returns, LOOK, jnp.int32(OWN)))
        commands.append(LOOK if time in forced else action)
        t, a, zero = map(jnp.int32, (time, commands[-1], 0))
        returns = returning.notice(returns, LOOK, t, a, zero, zero, jnp.bool_(False))
    return commands


def test_which_episodes_are_thinned_and_how_much() -> None:
    """Every other repeating episode; (L/4)^v of L commands are left out on average.

    v is episode · 3242174889 mod 2³² by 2³². A thinned episode repeats up to the reward.
    """
    returns = played(returning.init(40), [(1, 0)] * 31 + [(1, 10)])
    found = [begun(returns, n, thinned=0.5) for n in range(1, 7)]
    spread = [n * 3_242_174_889 % 2**32 / 2**32 for n in range(1, 7)]
    assert [round(v, 3) for v in spread] == [0.755, 0.51, 0.265, 0.02, 0.774, 0.529]
    expected = [8**v / 32 if n % 2 else 0.0 for n, v in enumerate(spread, 1)]
    np.testing.assert_allclose([float(r.omitted) for r, _ in found], expected, rtol=1e-5)
    assert [n == 32 for _, n in found] == [True, False] * 3
    # A quarter of the episodes repeat, and half of these are thinned.
    some = [begun(returns, n, share=0.25, thinned=0.5)[0] for n in range(1, 17)]
    assert [int(r.repeated) > 0 for r in some] == [False, False, True, False] * 4
    thin = [n for n, r in enumerate(some, 1) if float(r.omitted) > 0]
    assert thin == [7, 15]
    # Once a won game is not rare, nothing is repeated.
    won = played(returning.init(5), [(7, 0), (8, 10)], ended=True)
    assert begun(won, 1, thinned=1.0)[1] == 2
    again, repeated = begun(won, 1, thinned=1.0, rare=False)
    assert (repeated, float(again.omitted)) == (0, 0.0)


def test_a_thinned_episode_leaves_out_commands_and_looks() -> None:
    commands = [5, LOOK, 6, 7, 8, LOOK, 9, 3]
    best = played(returning.init(10), [(a, 0) for a in commands[:-1]] + [(commands[-1], 10)])
    whole = best._replace(repeated=best.length, episode=jnp.uint32(3))
    draws = jax.random.uniform(jax.random.key(3), (10,))
    for omitted in (0.2, 0.5, 0.8):
        kept = [
            a for a, x in zip(commands, draws, strict=False) if a != LOOK and float(x) >= omitted
        ]
        assert 0 < len(kept) < 6
        thin = whole._replace(omitted=jnp.float32(omitted))
        assert replayed(thin) == kept + [OWN] * (10 - len(kept))
        # A forced 'look' puts off the others and takes the place of none.
        expected = [*kept[:1], LOOK, *kept[1:]]
        assert replayed(thin, frozenset([1])) == expected + [OWN] * (10 - len(expected))
    # Without thinning every command has its place.
    assert replayed(whole) == [*commands, OWN, OWN]


def test_a_shorter_way_ends_the_repetition() -> None:
    """The highest score comes after two of four commands, and from there on the agent plays."""
    best = played(returning.init(6), [(7, 0), (8, 0), (9, 0), (6, 10)])
    thin, repeated = begun(best, 1, thinned=1.0)
    assert (repeated, float(thin.omitted) > 0) == (4, True)
    thin = thin._replace(omitted=jnp.float32(1e-6))
    thin = played(thin, [(7, 0), (8, 10)])
    assert (int(thin.length), thin.best[:2].tolist()) == (2, [7, 8])
    assert int(returning.override(thin, LOOK, jnp.int32(OWN))) == OWN


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
    returns, look = returning.init(env.episode_steps), env.commands.index("look")
    state, seen = env.reset()
    step = jax.jit(env.step)
    for time, command in enumerate(game.walkthrough):
        action = jnp.int32(env.commands.index(command))
        state, seen = step(state, action)
        told = seen.score, seen.reward, seen.terminated
        returns = returning.notice(returns, look, jnp.int32(time), action, *told)
    assert returns.ended
    assert (int(returns.score), int(returns.length)) == (env.max_score, len(game.walkthrough))
    state, seen = env.reset()
    returns = returns._replace(repeated=returns.length)
    for time in range(len(game.walkthrough)):
        action = returning.override(returns, look, jnp.int32(0))
        state, seen = step(state, action)
        told = seen.score, seen.reward, seen.terminated
        returns = returning.notice(returns, look, jnp.int32(time), action, *told)
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
