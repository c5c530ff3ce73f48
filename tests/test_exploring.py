"""Explorers: what an achievement is worth, ε by score, and different explorers in one program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_runs import config, nearly_same

import grue
from grue.agents.agent import Episode
from grue.agents.exploring import (
    EXPLORERS,
    AchievementExplorer,
    Achievements,
    AchievementSettings,
    ChosenExplorer,
    Explorer,
    ExplorerSet,
)
from grue.agents.replay import ReplayStep
from grue.engine.step import Step
from grue.training.train import train_all

ENV = grue.make("saladworld-1")
SETTINGS = AchievementSettings(
    achievement_bonus=2.0, achievement_epsilon=0.4, achievement_rewards=2
)
EXPLORER = AchievementExplorer(ENV, SETTINGS)
COMMANDS = len(ENV.commands)


def moment(score: int, reward: int = 0, admissible: bool = False, over: bool = False) -> Episode:
    """An episode after a step."""
    seen = Step(
        observation=None,
        text=None,
        reward=jnp.int32(reward),
        score=jnp.int32(score),
        terminated=jnp.bool_(over),
        truncated=jnp.bool_(False),
        admissible=jnp.bool_(admissible),
        admissible_set=None,
        subtasks=None,
    )
    return Episode(None, seen, jnp.int32(-1), jnp.int32(0), None)


def play(
    known: Achievements, score: int, action: int, reward: int = 0, **after: Any
) -> tuple[Achievements, int, dict[str, float]]:
    known, fields, told = EXPLORER.notice(
        known, moment(score), jnp.int32(action), moment(score + reward, reward, **after)
    )
    return known, int(fields["achievement"]), {name: float(value) for name, value in told.items()}


def test_what_an_achievement_is_worth() -> None:
    """β/√N, the first time in an episode that a command is admissible at a score."""
    known = EXPLORER.init()
    known, index, told = play(known, 0, 2, admissible=True)
    assert (index, told) == (2, {"bonus": 2.0, "achievements": 1.0})
    # Again in the same episode, and what is not admissible, are none.
    for action, admissible in ((2, True), (3, False)):
        known, index, told = play(known, 0, action, admissible=admissible)
        assert (index, told) == (-1, {"bonus": 0.0, "achievements": 1.0})
    # At another score it is another achievement.
    known, index, told = play(known, 5, 2, admissible=True, over=True)
    assert (index, told) == (COMMANDS + 2, {"bonus": 2.0, "achievements": 2.0})
    # The next episode: the same thing for the second time in the run.
    known, index, told = play(known, 0, 2, admissible=True)
    assert index == 2
    assert told == pytest.approx({"bonus": 2 / np.sqrt(2), "achievements": 1.0})


def test_the_bonus_fades_in_the_replay_memory() -> None:
    """It is computed from the counts of the moment, not of when the step was stored."""
    known = EXPLORER.init()
    steps = ReplayStep(
        *[None] * 3,  # pyright: ignore[reportArgumentType]
        reward=jnp.array([[0.0, 5.0, 0.0]]),
        admissible=jnp.ones((1, 3), bool),
        terminated=jnp.zeros((1, 3), bool),
        fields={"achievement": jnp.array([[2, 2, -1]])},
    )
    both = ExplorerSet(
        ENV, [ChosenExplorer(EXPLORERS[n], EXPLORERS[n].settings()) for n in EXPLORERS]
    )
    for count in (1, 2, 3):
        known, *_ = play(known, 0, 2, admissible=True, over=True)
        worth = 2 / np.sqrt(count)
        np.testing.assert_allclose(EXPLORER.bonus(known, steps), [[worth, worth, 0.0]], rtol=1e-6)
        rewards = both.rewards(((), known), steps, jnp.int32(1))
        usual = 1.5 / np.sqrt(count)
        np.testing.assert_allclose(rewards, [[usual, 5 + usual, 0.0]], rtol=1e-6)
        np.testing.assert_array_equal(both.rewards(((), known), steps, jnp.int32(0)), steps.reward)


def test_epsilon_is_higher_where_few_rewards_were_had() -> None:
    known, least = EXPLORER.init(), 0.4
    for rewards in range(4):
        for epsilon in (0.1, 0.7):
            found = EXPLORER.epsilon(known, jnp.float32(epsilon), jnp.int32(0))
            expected = max(epsilon, least) if rewards < 2 else epsilon
            assert float(found) == pytest.approx(expected)
        known, *_ = play(known, 0, 1, reward=5, admissible=True)
    # Nothing was ever had at this score.
    assert float(EXPLORER.epsilon(known, jnp.float32(0.1), jnp.int32(5))) == pytest.approx(least)


def test_no_explorer_changes_nothing() -> None:
    plain = Explorer(ENV, None)
    assert plain.init() == ()
    assert plain.fields() == {}
    assert float(plain.epsilon((), jnp.float32(0.3), jnp.int32(0))) == pytest.approx(0.3)


@pytest.mark.slow
def test_different_explorers_share_a_program(tmp_path: Path) -> None:
    both = [config(steps=800, explore=name) for name in ("none", "achievements")]
    train_all(both, tmp_path / "together", together=True)
    names = ("saladworld-1-sc-masking-seed0", "saladworld-1-sc-masking-achievements-seed0")
    for one, name in zip(both, names, strict=True):
        alone = train_all([one], tmp_path / "alone").runs[0]
        nearly_same(tmp_path / "together" / name, tmp_path / "alone" / name, 4)
        assert ("bonus" in alone.metrics) == (one.explore != "none")
        # A run of a shared program can be loaded by itself.
        played = grue.evaluate(tmp_path / "together" / name, episodes=2, epsilon=0.5)
        assert len(played) == 2
    assert (alone.metrics["bonus"] > 0).all()
    assert (alone.metrics["achievements"] >= 1).all()
    # Stopped and resumed in the same group they end with the same bits.
    half = [config(steps=400, explore=one.explore) for one in both]
    train_all(half, tmp_path / "resumed", together=True)
    train_all(both, tmp_path / "resumed", resume=True, together=True)
    for name in names:
        one, other = (tmp_path / place / name for place in ("together", "resumed"))
        assert (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()


def test_refusals() -> None:
    with pytest.raises(grue.UsageError, match="tabular does not learn from a bonus"):
        grue.TrainConfig(agent="tabular", explore="achievements")
    with pytest.raises(grue.UsageError, match="there is no explorer 'curiosity'"):
        grue.TrainConfig(explore="curiosity")
    with pytest.raises(
        grue.UsageError, match="a setting of the explorer achievements, not of none"
    ):
        grue.TrainConfig(achievement_bonus=1.0)


def test_fields_have_one_shape() -> None:
    declared = EXPLORER.fields()
    _, fields, _ = EXPLORER.notice(EXPLORER.init(), moment(0), jnp.int32(1), moment(0))
    assert {n: jax.ShapeDtypeStruct(f.shape, f.dtype) for n, f in fields.items()} == declared
