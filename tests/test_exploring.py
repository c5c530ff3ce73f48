"""Explorers: what an event is worth, ε at the frontier, different explorers in one program."""

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
from grue.agents.explorers import (
    VISITS,
    AchievementExplorer,
    AchievementSettings,
    BonusExplorer,
    Counted,
)
from grue.agents.exploring import (
    EXPLORERS,
    Candidates,
    ChosenExplorer,
    Explorer,
    ExplorerSet,
)
from grue.agents.replay import ReplayStep
from grue.agents.text_explorers import CountExplorer, EpisodicExplorer, TextSettings
from grue.engine.step import Step
from grue.training.train import train_all

ENV = grue.make("saladworld-1")
SETTINGS = AchievementSettings(bonus=2.0, frontier_epsilon=0.4, frontier_rewards=2)
EXPLORER = AchievementExplorer(ENV, SETTINGS)
COMMANDS = len(ENV.commands)


def moment(
    score: int, reward: int = 0, admissible: bool = False, over: bool = False, text: int = 0
) -> Episode:
    """An episode after a step. Texts are numbers."""
    seen = Step(
        observation=jnp.array([text, 0, 0], jnp.int32),
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
    known: Counted,
    score: int,
    action: int,
    reward: int = 0,
    explorer: BonusExplorer = EXPLORER,
    **after: Any,
) -> tuple[Counted, int, dict[str, float]]:
    known, fields, told = explorer.notice(
        known, moment(score), jnp.int32(action), moment(score + reward, reward, **after)
    )
    numbers = {name: float(value) for name, value in told.items() if not value.ndim}
    return known, int(fields["event"]), numbers


def test_visits_by_score() -> None:
    """Of the score before the command, in the order first met; the last place takes the rest."""
    known, places = EXPLORER.init(), []
    for score in (10, 0, 10, *range(20, 40), 0):
        known, _, told = EXPLORER.notice(known, moment(score), jnp.int32(1), moment(score))
        assert float(told["visits"].sum()) == 1
        places.append(int(told["visits"].argmax()))
    assert places == [0, 1, 0, *range(2, VISITS), *[VISITS - 1] * (22 - VISITS), 1]


def test_what_an_achievement_is_worth() -> None:
    """β/√N, the first time in an episode that a command is admissible at a score."""
    known = EXPLORER.init()
    new = {"bonus": 2.0, "first_events": 1.0, "frontier": 1.0, "repeated": 0.0, "best": 0.0}
    old = {**new, "bonus": 0.0, "first_events": 0.0}
    known, event, told = play(known, 0, 2, admissible=True)
    assert (event, told) == (2, {**new, "events": 1.0})
    # Again in the same episode, and what is not admissible, are none.
    for action, admissible in ((2, True), (3, False)):
        known, event, told = play(known, 0, action, admissible=admissible)
        assert (event, told) == (-1, {**old, "events": 1.0})
    # At another score it is another achievement.
    known, event, told = play(known, 5, 2, admissible=True, over=True)
    assert (event, told) == (COMMANDS + 2, {**new, "events": 2.0, "best": 5.0})
    # The next episode: the same thing for the second time in the run.
    known, event, told = play(known, 0, 2, admissible=True)
    assert event == 2
    assert told == pytest.approx({**old, "bonus": 2 / np.sqrt(2), "events": 1.0, "best": 5.0})


def test_the_highest_score_so_far() -> None:
    known, best = EXPLORER.init(), []
    for score, reward, over in ((0, 0, False), (0, 5, True), (0, 0, False), (0, 10, True)):
        known, _, told = play(known, score, 1, reward, over=over)
        best.append(told["best"])
    assert best == [0.0, 5.0, 5.0, 10.0]


def test_achievements_at_all_scores_together() -> None:
    explorer = AchievementExplorer(ENV, AchievementSettings(by_score=False, bonus=1.0))
    known = explorer.init()
    assert known.counts.shape == (COMMANDS,)
    known, event, _ = play(known, 0, 2, explorer=explorer, admissible=True)
    assert event == 2
    known, event, _ = play(known, 5, 2, explorer=explorer, admissible=True, over=True)
    assert event == -1
    known, event, told = play(known, 5, 2, explorer=explorer, admissible=True)
    assert (event, told["bonus"]) == (2, pytest.approx(1 / np.sqrt(2)))


def test_texts_of_an_episode_and_of_the_run() -> None:
    """counts: every time. episodic: once in an episode. The score makes another event."""
    worth = {}
    for explorer_of in (CountExplorer, EpisodicExplorer):
        explorer = explorer_of(ENV, TextSettings(bonus=1.0))
        known, bonuses = explorer.init(), []
        for score, text, over in ((0, 1, False), (0, 1, False), (5, 1, False), (0, 2, True)):
            known, _, told = play(known, score, 0, explorer=explorer, text=text, over=over)
            bonuses.append(told["bonus"])
        known, _, told = play(known, 0, 0, explorer=explorer, text=1)
        worth[explorer_of] = [*bonuses, told["bonus"]]
    root = 1 / np.sqrt(2)
    assert worth[CountExplorer] == pytest.approx([1, root, 1, 1, 1 / np.sqrt(3)])
    assert worth[EpisodicExplorer] == pytest.approx([1, 0, 1, 1, root])


def test_the_bonus_keeps_a_floor_at_the_frontier() -> None:
    settings = AchievementSettings(bonus=2.0, bonus_floor=0.5, frontier_rewards=1)
    explorer = AchievementExplorer(ENV, settings)
    known, bonuses = explorer.init(), []
    for reward in (0, 0, 0, 0, 0, 5):
        known, _, told = play(known, 0, 2, reward, explorer, admissible=True, over=True)
        bonuses.append(told["bonus"])
    # From the first reward on there is no floor: N = 6.
    expected = [2, 2 / np.sqrt(2), 2 / np.sqrt(3), 1, 1, 2 / np.sqrt(6)]
    assert bonuses == pytest.approx(expected)


@pytest.mark.parametrize("behind", [0.0, 0.25])
def test_the_bonus_behind_the_frontier(behind: float) -> None:
    """The score 0 is the frontier until two rewards were had there; then a share is paid."""
    settings = AchievementSettings(bonus=2.0, bonus_behind=behind, frontier_rewards=2)
    explorer = AchievementExplorer(ENV, settings)
    known, bonuses = explorer.init(), []
    for reward in (0, 5, 5, 0):
        known, _, told = play(known, 0, 2, reward, explorer, admissible=True, over=True)
        bonuses.append(told["bonus"])
    known, _, told = play(known, 5, 2, 0, explorer, admissible=True)
    expected = [2, 2 / np.sqrt(2), behind * 2 / np.sqrt(3), behind * 1, 2]
    assert [*bonuses, told["bonus"]] == pytest.approx(expected)


def test_the_bonus_fades_in_the_replay_memory() -> None:
    """It is computed from the counts of the moment, not of when the step was stored."""
    known = EXPLORER.init()
    steps = ReplayStep(
        *[None] * 3,  # pyright: ignore[reportArgumentType]
        reward=jnp.array([[0.0, 5.0, 0.0]]),
        admissible=jnp.ones((1, 3), bool),
        terminated=jnp.zeros((1, 3), bool),
        fields={"event": jnp.array([[2, 2, -1]])},
    )._replace(score=jnp.zeros((1, 3), jnp.int32))
    both = ExplorerSet(
        ENV,
        [ChosenExplorer(EXPLORERS[n], EXPLORERS[n].settings()) for n in ("none", "achievements")],
    )
    for count in (1, 2, 3):
        known, *_ = play(known, 0, 2, admissible=True, over=True)
        worth = 2 / np.sqrt(count)
        np.testing.assert_allclose(EXPLORER.bonus(known, steps), [[worth, worth, 0.0]], rtol=1e-6)
        rewards = both.rewards(((), known), steps, jnp.int32(1))
        usual = 1.5 / np.sqrt(count)
        np.testing.assert_allclose(rewards, [[usual, 5 + usual, 0.0]], rtol=1e-6)
        np.testing.assert_array_equal(both.rewards(((), known), steps, jnp.int32(0)), steps.reward)


def test_explorers_of_one_kind_with_other_settings() -> None:
    """Each run has the fields and metrics of its own explorer."""
    kind = EXPLORERS["achievements"]
    chosen = [
        AchievementSettings(bonus=1.0),
        AchievementSettings(bonus=3.0, by_score=False),
        AchievementSettings(bonus=5.0),
    ]
    several = ExplorerSet(ENV, [ChosenExplorer(kind, one) for one in chosen])
    known = several.init()
    known, *_ = several.notice(known, moment(0), jnp.int32(1), moment(0), jnp.int32(0))
    for number, (event, bonus) in enumerate(((COMMANDS + 2, 1.0), (2, 3.0), (COMMANDS + 2, 5.0))):
        after = moment(5, admissible=True)
        _, fields, told = several.notice(known, moment(5), jnp.int32(2), after, jnp.int32(number))
        assert (int(fields["event"]), float(told["bonus"])) == (event, bonus)


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


def of_archive(**own: Any) -> AchievementExplorer:
    shares = {"return_share": 0.5, "archive_share": 0.5}
    return AchievementExplorer(ENV, AchievementSettings(**shares, **own))


def test_epsilon_of_an_episode_that_went_back() -> None:
    """At least ``archive_epsilon``."""
    explorer = of_archive(archive_epsilon=0.6, frontier_rewards=0)
    known = explorer.init()
    assert known.archive is not None
    for goal, epsilon, expected in ((-1, 0.1, 0.1), (3, 0.1, 0.6), (3, 0.7, 0.7)):
        trip = known.archive.trip._replace(goal=jnp.int32(goal))
        now = known._replace(archive=known.archive._replace(trip=trip))
        found = explorer.epsilon(now, jnp.float32(epsilon), jnp.int32(10))
        assert float(found) == pytest.approx(expected)


def test_which_episodes_go_back_to_the_archive() -> None:
    """Of the episodes half repeat something, and of these every other one goes back."""
    explorer = of_archive()
    known, kinds = explorer.init(), []
    for _ in range(9):
        assert known.returns is not None
        assert known.archive is not None
        back, best = int(known.archive.trip.goal) >= 0, int(known.returns.repeated) > 0
        kinds.append("archive" if back else "best" if best else "own")
        assert bool(explorer.counts(known)) == (kinds[-1] == "own")
        # The best episode is long, so that no episode leaves out all of it.
        for time in range(12):
            step, own = moment(0)._replace(time=jnp.int32(time)), jnp.int32(time % 3 + 2)
            chosen, way = explorer.override(known, step, own), known.archive
            after = moment(5 * (time == 11), 5 * (time == 11), admissible=True, over=time == 11)
            repeats = (way is not None and int(way.command) >= 0) or time < int(
                known.returns.repeated
            )
            known, _, told = explorer.notice(known, step, chosen, after)
            assert told["repeated"] == repeats
            assert known.archive is not None
            assert known.returns is not None
    assert kinds == ["own", "best", "own", "archive", "own", "best", "own", "archive", "own"]
    # A win that is not rare any more: nothing is repeated.
    assert known.returns is not None
    known = known._replace(rewards=known.rewards + 50)
    assert known.returns.ended
    for _ in range(8):
        last = moment(0)._replace(time=jnp.int32(0))
        known, *_ = explorer.notice(known, last, jnp.int32(1), moment(0, over=True))
        assert explorer.counts(known)


def test_exploratory_commands_that_are_new() -> None:
    """A share by 1/(tries + 1) among the new ones with ξ̂ ≥ 1/2, the rest evenly."""
    explorer = AchievementExplorer(ENV, AchievementSettings(novel_share=0.6))
    known = explorer.init()
    # At score 0 command 1 was done and tried twice, 2 was tried in vain, 3 and 4 are new.
    known, *_ = play(known, 0, 1, explorer=explorer, admissible=True)
    for action in (1, 2):
        known, *_ = play(known, 0, action, explorer=explorer)
    assert known.tried is not None
    assert known.tried[0, 1:5].tolist() == [2, 1, 0, 0]
    some = jnp.zeros(COMMANDS, bool).at[jnp.array([1, 2, 3, 4])].set(True)
    beliefs = jnp.full(COMMANDS, 0.9).at[3].set(0.5).at[4].set(0.4)
    found = explorer.exploratory(known, moment(0), Candidates(some, beliefs))
    assert found is not None
    # 2: 1/2; 3: 1. Of the share of 0.6 one third and two thirds, and 0.4/4 for each of the four.
    np.testing.assert_allclose(found[1:5], [0.1, 0.3, 0.5, 0.1], rtol=1e-6)
    assert float(found.sum()) == pytest.approx(1.0)
    # At another score nothing has been done or tried.
    found = explorer.exploratory(known, moment(5), Candidates(some, beliefs))
    assert found is not None
    np.testing.assert_allclose(found[1:5], [0.3, 0.3, 0.3, 0.1], rtol=1e-6)
    # If all that are believed in are done, ξ̂ decides: 0.9 and 0.4 of 1.3.
    done = jnp.zeros(COMMANDS, bool).at[jnp.array([1, 4])].set(True)
    found = explorer.exploratory(known, moment(0), Candidates(done, beliefs))
    assert found is not None
    np.testing.assert_allclose(found[1], 0.6 * 0.9 / 1.3 + 0.2, rtol=1e-6)
    np.testing.assert_allclose(found[4], 0.6 * 0.4 / 1.3 + 0.2, rtol=1e-6)
    # The next episode begins with nothing done.
    known, *_ = play(known, 0, 2, explorer=explorer, over=True)
    both = Candidates(some.at[2].set(False).at[4].set(False), beliefs)
    found = explorer.exploratory(known, moment(0), both)
    assert found is not None
    # 1: 1/3; 3: 1.
    np.testing.assert_allclose(found[1], 0.6 / 4 + 0.2, rtol=1e-6)


def test_exploratory_commands_that_are_rarely_admissible() -> None:
    """A share by 1/(1 + N), whatever the gate allows."""
    explorer = AchievementExplorer(ENV, AchievementSettings(rare_share=0.5))
    known, *_ = play(explorer.init(), 0, 1, explorer=explorer, admissible=True)
    known, *_ = play(known, 0, 2, explorer=explorer)
    some = jnp.zeros(COMMANDS, bool).at[jnp.array([1, 2])].set(True)
    beliefs = jnp.full(COMMANDS, 0.9)
    found = explorer.exploratory(known, moment(0), Candidates(some, beliefs))
    assert found is not None
    # N is 1 for command 1, else 0.
    one = 0.5 / (COMMANDS - 0.5)
    np.testing.assert_allclose(found[:4], [one, 0.25 + one / 2, 0.25 + one, one], rtol=1e-6)
    assert float(found.sum()) == pytest.approx(1.0)
    # In a set, only commands of this game.
    exists = jnp.arange(COMMANDS) < 4
    found = explorer.exploratory(known, moment(0), Candidates(some, beliefs, exists))
    assert found is not None
    np.testing.assert_allclose(found[:4], [1 / 7, 1 / 4 + 1 / 14, 1 / 4 + 1 / 7, 1 / 7], rtol=1e-6)
    assert not np.asarray(found[4:]).any()
    # It comes before the share of the new ones.
    both = AchievementExplorer(ENV, AchievementSettings(rare_share=0.5, novel_share=1.0))
    known, *_ = play(both.init(), 0, 1, explorer=both, admissible=True)
    found = both.exploratory(known, moment(0), Candidates(some, beliefs, exists))
    assert found is not None
    np.testing.assert_allclose(found[:4], [1 / 7, 1 / 14, 1 / 2 + 1 / 7, 1 / 7], rtol=1e-6)


def test_exploratory_commands_of_a_shared_program() -> None:
    kind = EXPLORERS["achievements"]
    chosen = [AchievementSettings(), AchievementSettings(novel_share=1.0)]
    several = ExplorerSet(ENV, [ChosenExplorer(kind, one) for one in chosen])
    believed = jnp.arange(COMMANDS) < 4
    candidates = Candidates(jnp.ones(COMMANDS, bool), believed / 2)
    known = several.init()
    even, novel = (
        several.exploratory(known, moment(0), candidates, jnp.int32(number)) for number in (0, 1)
    )
    assert even is not None
    assert novel is not None
    np.testing.assert_allclose(even, jnp.full(COMMANDS, 1 / COMMANDS), rtol=1e-6)
    np.testing.assert_allclose(novel, believed / 4, rtol=1e-6)
    # Outside training, and where no run asks for it, they are drawn as in the paper.
    assert several.exploratory((), moment(0), candidates, jnp.int32(1)) is None
    usual = ExplorerSet(ENV, [ChosenExplorer(kind, chosen[0])])
    assert usual.exploratory(usual.init(), moment(0), candidates, jnp.int32(0)) is None


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
    assert (alone.metrics["events"] >= 1).all()
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
        grue.UsageError,
        match="a setting of the explorer achievements, episodic, counts, not of none",
    ):
        grue.TrainConfig(bonus=1.0)


def test_fields_have_one_shape() -> None:
    declared = EXPLORER.fields()
    _, fields, _ = EXPLORER.notice(EXPLORER.init(), moment(0), jnp.int32(1), moment(0))
    assert {n: jax.ShapeDtypeStruct(f.shape, f.dtype) for n, f in fields.items()} == declared


def test_rewards_had_with_help_do_not_leave_the_frontier() -> None:
    """Two rewards leave it, but only of episodes that repeat nothing."""
    explorer = AchievementExplorer(ENV, AchievementSettings(frontier_rewards=2, return_share=0.5))
    known = explorer.init()
    assert known.returns is not None
    # The fifth command of an episode: three were repeated, or none.
    before, after = moment(0)._replace(time=jnp.int32(4)), moment(5, reward=5)
    frontier = []
    for repeated in (3, 3, 0, 3, 0):
        known = known._replace(returns=known.returns._replace(repeated=jnp.int32(repeated)))
        known, _, _ = explorer.notice(known, before, jnp.int32(1), after)
        frontier.append(float(play(known, 0, 1, explorer=explorer)[2]["frontier"]))
    assert frontier == [1.0, 1.0, 1.0, 1.0, 0.0]
