"""The memory: fractions, sequences within episodes, and the ring, against plain Python."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grue.agents import contexts
from grue.agents import replay as memory
from grue.agents.agent import AgentState
from grue.agents.deep import DeepAgent, Kept
from grue.agents.registry import Setup
from grue.agents.replay import EpisodicReplay, ReplayStep, Sequences
from grue.training.config import TrainConfig
from grue.training.programs import parameters_of, program_key

LENGTH = 4
add = jax.jit(memory.add)
WORDS = 30_000
STATIC = ("batch", "length", "shortest", "discount", "longest")
sample = jax.jit(memory.sample, static_argnames=STATIC)


def row(episode: int, step: int, reward: float = 0.0, terminated: bool = False) -> ReplayStep:
    """A row that tells which it is: the score is the episode, the action the step."""
    observation = jnp.full(LENGTH, 100 * episode + step, jnp.int32)
    return ReplayStep(
        observation,
        jnp.int32(episode),
        jnp.int32(step),
        jnp.float32(reward),
        jnp.bool_(step % 2 == 0),
        jnp.bool_(terminated),
    )


def store(kept: EpisodicReplay, episode: int, rewards: list[float]) -> EpisodicReplay:
    for step, reward in enumerate(rewards):
        last = step == len(rewards) - 1
        after = row(episode, step + 1)
        kept = add(kept, row(episode, step, reward, last), after, jnp.bool_(last))
    return kept


def draw(
    kept: EpisodicReplay, seed: int = 0, batch: int = 64, length: int = 5, **more: Any
) -> Sequences:
    return sample(jax.random.key(seed), kept, batch=batch, length=length, **more)


def check_sequences(found: Sequences, lengths: dict[int, int]) -> None:
    """Every sequence is a run of one episode's steps, with what came before and after."""
    rows = jax.tree.map(np.asarray, found.rows)
    previous, valid = np.asarray(found.previous), np.asarray(found.valid)
    for b in range(len(valid)):
        episode, first = int(rows.score[b, 0]), int(rows.action[b, 0])
        steps = int(valid[b].sum())
        assert valid[b, :steps].all()
        assert steps == min(valid.shape[1], lengths[episode] - first)
        for i in range(steps + 1):
            assert rows.score[b, i] == episode
            assert rows.action[b, i] == first + i
            assert rows.observation[b, i].tolist() == [100 * episode + first + i] * LENGTH
            assert previous[b, i] == first + i - 1
        ends = first + steps == lengths[episode]
        assert rows.terminated[b, steps - 1] == ends


def test_nothing_to_sample_until_an_episode_is_stored() -> None:
    kept = memory.init(40, LENGTH, WORDS)
    assert not memory.can_sample(kept)
    kept = add(kept, row(0, 0), row(0, 1), jnp.bool_(False))
    assert not memory.can_sample(kept)
    assert memory.can_sample(add(kept, row(0, 1), row(0, 2), jnp.bool_(True)))


def test_sequences_stay_in_their_episode() -> None:
    kept = memory.init(100, LENGTH, WORDS)
    lengths = {1: 12, 2: 3, 3: 7}
    for episode, length in lengths.items():
        kept = store(kept, episode, [0.0] * length)
    found = draw(kept, batch=200)
    check_sequences(found, lengths)
    assert set(np.asarray(found.rows.score[:, 0]).tolist()) == {1, 2, 3}
    # A long episode is entered at every step that leaves room for a whole sequence.
    starts = np.asarray(found.rows.action[:, 0])[np.asarray(found.rows.score[:, 0]) == 1]
    assert set(starts.tolist()) == set(range(8))


def test_fractions() -> None:
    kept = memory.init(1000, LENGTH, WORDS)
    rewards = {1: [0.0, 5.0], 2: [0.0, -1.0], 3: [0.0, 0.0], 4: [0.0, 0.0], 5: [3.0, -3.0]}
    for episode, given_rewards in rewards.items():
        kept = store(kept, episode, given_rewards)
    found = np.asarray(draw(kept, batch=64).rows.score[:, 0])
    assert set(found[:16].tolist()) == {1, 5}
    assert set(found[16:32].tolist()) == {2, 5}
    assert set(found[32:].tolist()) == {1, 2, 3, 4, 5}


def test_without_priority_all_episodes_are_equal() -> None:
    kept = memory.init(1000, LENGTH, WORDS)
    for episode in range(1, 9):
        kept = store(kept, episode, [10.0 if episode == 1 else 0.0] * 3)
    drawn = draw(kept, batch=4000, positive_fraction=0.0, negative_fraction=0.0)
    found = np.asarray(drawn.rows.score[:, 0])
    shares = np.bincount(found, minlength=9)[1:] / 4000
    assert np.abs(shares - 1 / 8).max() < 4 * (1 / 8 * 7 / 8 / 4000) ** 0.5


def test_no_rewarded_episode_falls_back_on_all() -> None:
    kept = store(memory.init(100, LENGTH, WORDS), 1, [0.0, 0.0])
    assert set(np.asarray(draw(kept).rows.score[:, 0]).tolist()) == {1}


def test_old_episodes_give_way() -> None:
    kept = memory.init(12, LENGTH, WORDS)
    for episode in range(1, 5):
        kept = store(kept, episode, [1.0] * 3)  # Four rows each: three fit.
    assert set(np.asarray(draw(kept).rows.score[:, 0]).tolist()) == {2, 3, 4}
    # The episode under way takes the place of the oldest, row by row.
    kept = add(kept, row(5, 0), row(5, 1), jnp.bool_(False))
    assert set(np.asarray(draw(kept).rows.score[:, 0]).tolist()) == {3, 4}


def test_the_reward_flags_are_of_one_episode() -> None:
    kept = store(memory.init(100, LENGTH, WORDS), 1, [5.0, 0.0])
    kept = store(kept, 2, [0.0, 0.0])
    assert int(kept.positive.count) == 1
    assert not np.asarray(kept.rewards).any()


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([0.0, 5.0, -5.0]), min_size=1, max_size=9), min_size=1),
    st.integers(0, 2**16),
)
def test_as_a_list_of_episodes_would(episodes: list[list[float]], seed: int) -> None:
    capacity = 24
    kept = memory.init(capacity, LENGTH, WORDS)
    for number, rewards in enumerate(episodes, 1):
        kept = store(kept, number, rewards)
    # Newest first, as many as fit whole.
    fitting, used = {}, 0
    for number in range(len(episodes), 0, -1):
        used += len(episodes[number - 1]) + 1
        if used > capacity:
            break
        fitting[number] = len(episodes[number - 1])
    found = draw(kept, seed=seed, batch=64)
    check_sequences(found, fitting)
    known = int(kept.whole.count - kept.whole.oldest)
    # There are a quarter as many places for episodes as for rows.
    assert known == min(len(fitting), capacity // 4)


@pytest.mark.parametrize("field", ReplayStep._fields[:6])
def test_every_field_comes_back(field: str) -> None:
    kept = store(memory.init(50, LENGTH, WORDS), 3, [0.0, 2.0, -1.0])
    found = draw(kept, batch=8, length=3)
    expected = [getattr(row(3, s, r, s == 2), field) for s, r in enumerate([0.0, 2.0, -1.0])]
    got = np.asarray(getattr(found.rows, field))[:, :3]
    assert (got == np.stack([np.asarray(e) for e in expected])).all()


def test_words_take_as_few_bytes_as_they_need() -> None:
    assert memory.init(8, LENGTH, 256).stored.observation.dtype == jnp.uint8
    assert memory.init(8, LENGTH, 257).stored.observation.dtype == jnp.uint16


def test_admissible_sets_come_back_as_they_were() -> None:
    """Of eleven commands; the bytes have room for sixteen."""
    kept = memory.init(64, LENGTH, WORDS, commands=11)
    sets = np.random.default_rng(0).random((7, 11)) < 0.4

    def with_set(step: int) -> ReplayStep:
        return row(0, step)._replace(admissible_set=jnp.asarray(sets[step]))

    for step in range(6):
        kept = add(kept, with_set(step), with_set(step + 1), jnp.bool_(step == 5))
    found = draw(kept, length=6).rows
    assert found.admissible_set is not None
    both = np.asarray(found.action), np.asarray(found.admissible_set)
    for actions, possible in zip(*both, strict=True):
        np.testing.assert_array_equal(possible[:, :11], sets[actions])
        assert not possible[:, 11:].any()


# Further fields of a step

FIELDS = {
    "bonus": jax.ShapeDtypeStruct((), jnp.float32),
    "place": jax.ShapeDtypeStruct((2,), jnp.int32),
    "flag": jax.ShapeDtypeStruct((), jnp.bool_),
}


def with_fields(episode: int, step: int, reward: float = 0.0) -> ReplayStep:
    """Fields that tell which step they are of; the bonus is always positive."""
    which = 100 * episode + step
    fields = {
        "bonus": jnp.float32(which + 0.5),
        "place": jnp.array([episode, step], jnp.int32),
        "flag": jnp.bool_(which % 3 == 0),
    }
    return row(episode, step, reward)._replace(fields=fields)


def store_with_fields(kept: EpisodicReplay, episode: int, rewards: list[float]) -> EpisodicReplay:
    for step, reward in enumerate(rewards):
        following, over = with_fields(episode, step + 1), step == len(rewards) - 1
        kept = add(kept, with_fields(episode, step, reward), following, jnp.bool_(over))
    return kept


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(0, 2**16))
def test_further_fields_stay_with_their_step(lengths: list[int], seed: int) -> None:
    """Also when the ring has been gone around."""
    kept = memory.init(24, LENGTH, WORDS, fields=FIELDS)
    for episode, length in enumerate(lengths, 1):
        kept = store_with_fields(kept, episode, [0.0] * length)
    found = draw(kept, seed=seed).rows
    assert {name: array.dtype for name, array in found.fields.items()} == {
        name: of.dtype for name, of in FIELDS.items()
    }
    episode, step = np.asarray(found.score), np.asarray(found.action)
    which = 100 * episode + step
    np.testing.assert_array_equal(found.fields["bonus"], which + 0.5)
    np.testing.assert_array_equal(found.fields["place"], np.stack([episode, step], -1))
    np.testing.assert_array_equal(found.fields["flag"], which % 3 == 0)


def test_the_ring_of_the_fields_was_gone_around() -> None:
    kept = memory.init(24, LENGTH, WORDS, fields=FIELDS)
    for episode in range(1, 9):
        kept = store_with_fields(kept, episode, [0.0] * 5)
    assert int(kept.written) == 48
    found = draw(kept).rows
    assert set(np.asarray(found.score[:, 0]).tolist()) == {5, 6, 7, 8}
    np.testing.assert_array_equal(found.fields["place"][..., 0], found.score)


def test_only_the_reward_makes_an_episode_positive() -> None:
    kept = memory.init(100, LENGTH, WORDS, fields=FIELDS)
    kept = store_with_fields(kept, 1, [0.0, 0.0, 0.0])
    assert (int(kept.positive.count), int(kept.negative.count)) == (0, 0)
    kept = store_with_fields(kept, 2, [0.0, 1.0, -1.0])
    assert (int(kept.positive.count), int(kept.negative.count)) == (1, 1)
    found = np.asarray(draw(kept, batch=64).rows.score[:, 0])
    assert set(found[:32].tolist()) == {2}
    assert set(found[32:].tolist()) == {1, 2}


# Sequences that run past the end of an episode


def starts_and_trained(steps: int, length: int, history: int, past_end: bool) -> tuple[set, list]:
    """Where sequences begin, and how often each step is trained on if each place is drawn once."""
    kept = store(memory.init(64, LENGTH, WORDS), 1, [0.0] * steps)
    shortest = history + 1 if past_end else None
    found = draw(kept, batch=512, length=length, shortest=shortest)
    check_sequences(found, {1: steps})
    first, valid = np.asarray(found.rows.action[:, 0]), np.asarray(found.valid)
    times = np.zeros(steps, int)
    for begin in set(first.tolist()):
        which = np.flatnonzero(first == begin)
        assert (valid[which] == valid[which[0]]).all()
        trained = begin + history + np.flatnonzero(valid[which[0], history:])
        times[trained] += 1
    return set(first.tolist()), times.tolist()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(2, 6), st.data())
def test_past_the_end_the_last_step_counts_as_much_as_an_inner_one(
    steps: int, length: int, data: st.DataObject
) -> None:
    """With 512 draws of at most 12 places all of them are met, but for one chance in 10^18."""
    history = data.draw(st.integers(0, length - 1))
    starts, times = starts_and_trained(steps, length, history, past_end=True)
    assert starts == set(range(max(steps - history, 1)))
    inner = length - history
    # The first steps of an episode have no history: those of a sequence from its start.
    expected = [min(max(t - history + 1, 0), inner) for t in range(steps)]
    assert times == expected
    if steps >= length:
        assert times[-1] == inner == max(times)

    starts, times = starts_and_trained(steps, length, history, past_end=False)
    assert starts == set(range(max(steps - length + 1, 1)))
    begins = range(max(steps - length + 1, 1))
    assert times == [sum(b + history <= t < b + length for b in begins) for t in range(steps)]
    if steps >= 2 * length:
        assert times[-1] == 1


def test_without_the_option_the_sequences_are_those_of_the_whole_length() -> None:
    kept = memory.init(100, LENGTH, WORDS)
    for episode, length in {1: 12, 2: 3, 3: 7}.items():
        kept = store(kept, episode, [0.0] * length)
    plain, same = draw(kept, seed=4), draw(kept, seed=4, shortest=5)
    jax.tree.map(np.testing.assert_array_equal, plain, same)
    shorter = draw(kept, seed=4, shortest=2)
    assert (np.asarray(plain.rows.score) == np.asarray(shorter.rows.score)).all()
    assert not np.array_equal(plain.valid, shorter.valid)


def returns_of(rewards: list[float], first: int, length: int, discount: float) -> list[float]:
    """By the definition, step by step; 0 past the end."""
    from_here = [
        sum(discount**k * reward for k, reward in enumerate(rewards[t:]))
        for t in range(len(rewards))
    ]
    return (from_here + [0.0] * length)[first : first + length]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([-3.0, 0.0, 5.0]), min_size=1, max_size=12), max_size=6),
    st.sampled_from([0.5, 0.9]),
    st.booleans(),
)
def test_returns_are_the_rewards_to_the_end_of_the_episode(
    episodes: list[list[float]], discount: float, past_end: bool
) -> None:
    """The ring has 40 rows: episodes wrap around its end, and old ones are overwritten."""
    episodes = [*episodes, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 2.0]]
    kept = memory.init(40, LENGTH, WORDS)
    for number, rewards in enumerate(episodes):
        kept = store(kept, number, rewards)
    shortest = 2 if past_end else None
    given_ = {"discount": discount, "longest": 12}
    found = draw(kept, batch=64, length=4, shortest=shortest, **given_)
    plain = draw(kept, batch=64, length=4, shortest=shortest)
    assert plain.returns is None
    assert found.returns is not None
    jax.tree.map(np.testing.assert_array_equal, plain, found._replace(returns=None))
    for b in range(64):
        number, first = int(found.rows.score[b, 0]), int(found.rows.action[b, 0])
        expected = returns_of(episodes[number], first, 4, discount)
        assert found.returns[b].tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("lower_bound", [False, True])
def test_the_agent_samples_returns_if_targets_need_them(lower_bound: bool) -> None:
    config = TrainConfig(
        batch_size=8, sequence_length=5, minimum_history=2, lower_bound=lower_bound, discount=0.5
    )
    key = program_key(config)
    agent = DeepAgent(Setup(key.env, key.settings, key.gates, 1))
    kept = store(memory.init(64, LENGTH, WORDS), 1, [0.0] * 8 + [8.0])
    state = AgentState(None, Kept(kept, contexts.init(), (), ()))
    found = jax.jit(agent.sample)(state, parameters_of(config), jax.random.key(0))
    if not lower_bound:
        assert found.returns is None
        return
    assert found.returns is not None
    last = np.asarray(found.rows.action[:, -2])
    assert np.asarray(found.returns[:, -1]).tolist() == (8.0 * 0.5 ** (8 - last)).tolist()


@pytest.mark.parametrize("past_end", [False, True])
def test_the_agent_samples_as_its_setting_says(past_end: bool) -> None:
    config = TrainConfig(batch_size=512, sequence_length=5, minimum_history=2, past_end=past_end)
    key = program_key(config)
    agent = DeepAgent(Setup(key.env, key.settings, key.gates, 1))
    kept = store(memory.init(64, LENGTH, WORDS), 1, [0.0] * 9)
    state = AgentState(None, Kept(kept, contexts.init(), (), ()))
    found = jax.jit(agent.sample)(state, parameters_of(config), jax.random.key(0))
    check_sequences(found, {1: 9})
    # Steps 2 to 8 can be trained on; without the option a whole sequence must fit.
    assert set(np.asarray(found.rows.action[:, 0]).tolist()) == set(range(7 if past_end else 5))


def test_final_scores_are_sampled_alike_however_rare() -> None:
    """One episode of nine ended with 20: half of the balanced share is of it."""
    kept = memory.init(200, LENGTH, WORDS, scores=True)
    for episode in range(9):
        for step in range(6):
            last = jnp.bool_(step == 5)
            after = row(episode, step + 1)._replace(score=jnp.int32(20 if episode == 4 else 10))
            kept = add(kept, row(episode, step), after, last)
    found = draw(kept, batch=4000, positive_fraction=0.5, negative_fraction=0.25)
    episode = np.asarray(found.rows.score[:, 0])
    balanced, rest = episode[:2000] == 4, episode[2000:] == 4
    assert balanced.mean() == pytest.approx(1 / 2, abs=0.04)
    assert rest.mean() == pytest.approx(1 / 9, abs=0.03)
    others = np.bincount(episode[:2000][~balanced], minlength=9)
    assert (others[np.arange(9) != 4] > 80).all()


def test_forgotten_episodes_are_not_sampled_by_score() -> None:
    """The ring has been written round: the only episode with 20 is gone."""
    kept = memory.init(40, LENGTH, WORDS, scores=True)
    seen = set()
    for episode in range(14):
        for step in range(6):
            after = row(episode, step + 1)._replace(score=jnp.int32(20 if episode == 0 else 10))
            kept = add(kept, row(episode, step), after, jnp.bool_(step == 5))
        found = draw(kept, seed=episode, batch=64, positive_fraction=1.0, negative_fraction=0.0)
        there = set(np.asarray(found.rows.score[:, 0]).tolist())
        assert there <= set(range(max(0, episode - 5), episode + 1))
        seen |= there
    assert seen == set(range(14))
