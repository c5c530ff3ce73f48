"""Episodes that go back to an entry of the archive: a score and a command of use at it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import TINY_STEPS, config, same

import grue
from grue.agents import archive, contexts
from grue.agents.agent import Episode
from grue.agents.archive import Archive, Draws
from grue.agents.explorers import WORD_CELLS, AchievementExplorer, AchievementSettings
from grue.training.train import train_all

COMMANDS, STEPS = 10, 8
next_episode = jax.jit(archive.next_episode, static_argnums=3)
LOOK = 0
"""Never admissible in these games."""


def played(routes: Archive, steps: list[tuple[int, int]]) -> Archive:
    """Plays commands, each with the score after it."""
    for action, score in steps:
        admissible = jnp.bool_(action != LOOK)
        number = jnp.int32(action)
        routes = archive.notice(routes, number, jnp.int32(score), admissible, number)
    return routes


def over(routes: Archive, goes_back: bool = False, joined: float = 0.0) -> Archive:
    how = Draws(joined=joined)
    return next_episode(routes, jnp.bool_(True), jnp.bool_(goes_back), how)


def entries(routes: Archive) -> dict[tuple[int, int], list[int]]:
    """The route of each score and command."""
    found = {}
    for entry in np.flatnonzero(routes.length):
        score = int(routes.scores.seen[entry // COMMANDS])
        found[score, int(entry % COMMANDS)] = routes.routes[entry, : routes.length[entry]].tolist()
    return found


def entry_of(routes: Archive, score: int, action: int) -> int:
    of_score = int(np.flatnonzero(np.asarray(routes.scores.seen) == score)[0])
    return of_score * COMMANDS + action


def going_to(routes: Archive, score: int, action: int, cut: tuple[int, int] = (0, 0)) -> Archive:
    entry = entry_of(routes, score, action)
    goal = {"goal": jnp.int32(entry), "repeated": routes.length[entry], "cut": jnp.array(cut)}
    return archive.ready(routes._replace(trip=routes.trip._replace(place=jnp.int32(0), **goal)))


def then_to(routes: Archive, score: int, action: int, start: int = 0) -> Archive:
    """The same trip, with a second route after it."""
    then = jnp.int32(entry_of(routes, score, action))
    return routes._replace(trip=routes.trip._replace(then=then, start=jnp.int32(start)))


def test_the_shortest_route_of_admissible_commands() -> None:
    routes = archive.init(STEPS, COMMANDS)
    assert entries(routes) == {}
    routes = played(routes, [(3, 0), (LOOK, 0), (4, 0), (3, 0), (5, 10)])
    first = {(0, 3): [3], (0, 4): [3, 4], (10, 5): [3, 4, 3, 5]}
    assert entries(routes) == first
    # Another route that is as long changes nothing, and a shorter one does.
    routes = played(over(routes), [(6, 0), (4, 0), (5, 10), (3, 10)])
    assert entries(routes) == {**first, (0, 6): [6], (10, 5): [6, 4, 5], (10, 3): [6, 4, 5, 3]}


def test_an_episode_goes_back_and_then_plays_on() -> None:
    routes = over(played(archive.init(STEPS, COMMANDS), [(3, 0), (4, 0), (6, 0), (5, 10)]))
    own = 9

    def commands(routes: Archive, looks: frozenset[int] = frozenset()) -> list[int]:
        chosen = []
        for time in range(6):
            action = int(archive.override(routes, jnp.int32(own)))
            chosen.append(LOOK if time in looks else action)
            routes = played(routes, [(chosen[-1], 10 * (chosen[-1] == 5))])
        return chosen

    assert commands(routes) == [own] * 6
    assert commands(going_to(routes, 10, 5)) == [3, 4, 6, 5, own, own]
    # A forced 'look' puts the others off and takes the place of none.
    assert commands(going_to(routes, 10, 5), frozenset([1])) == [3, LOOK, 4, 6, 5, own]
    assert commands(going_to(routes, 10, 5, cut=(1, 3))) == [3, 5, own, own, own, own]
    assert commands(going_to(routes, 10, 5, cut=(0, 2))) == [6, 5, own, own, own, own]


def test_a_shorter_route_is_kept_while_it_is_played() -> None:
    routes = over(played(archive.init(STEPS, COMMANDS), [(3, 0), (4, 0), (6, 0), (5, 10)]))
    routes = played(going_to(routes, 10, 5, cut=(1, 3)), [(3, 0), (5, 10)])
    assert entries(routes)[10, 5] == [3, 5]
    assert int(archive.override(routes, jnp.int32(9))) == 9


@pytest.mark.parametrize(("start", "second"), [(0, [4, 7]), (1, [7])])
def test_a_second_route_follows_the_first(start: int, second: list[int]) -> None:
    routes = over(played(archive.init(STEPS, COMMANDS), [(3, 0), (5, 10)]))
    routes = over(played(routes, [(4, 0), (7, 0)]))
    routes, chosen = then_to(going_to(routes, 10, 5), 0, 7, start), []
    for command in [3, 5, *second, -1, -1]:
        assert int(routes.command) == command
        assert int(routes.trip.goal) >= 0
        chosen.append(command if command >= 0 else LOOK)
        routes = played(routes, [(chosen[-1], 10 * (5 in chosen))])
    # What was done on both routes is known at the score of the first.
    assert entries(routes)[10, 7] == [3, 5, *second]


def test_how_often_a_second_route_is_joined() -> None:
    """All entries are drawn alike, and the place where their routes begin as well."""
    routes = over(played(archive.init(STEPS, COMMANDS), [(n, 0) for n in (3, 4, 5)]))
    routes = routes._replace(length=routes.length.at[3].set(0))  # It may be left out as a whole.
    for joined, least, most in ((0.0, 0, 0), (0.5, 60, 90), (1.0, 150, 150)):
        places = []
        for _ in range(150):
            routes = over(routes, goes_back=True, joined=joined)
            if routes.trip.then >= 0:
                places.append((int(routes.trip.then), int(routes.trip.start)))
        assert least <= len(places) <= most
        if joined == 1.0:
            counts = Counter(places)
            assert set(counts) == {(4, 0), (4, 1), (5, 0), (5, 1), (5, 2)}
            assert 60 <= sum(n for (entry, _), n in counts.items() if entry == 4) <= 90


def test_which_entries_are_drawn() -> None:
    """A score has ``lower`` of the share of the next higher one; in it, 1/√(1 + times drawn)."""
    routes = played(archive.init(STEPS, COMMANDS), [(3, 0), (4, 0), (5, 10), (6, 10), (7, 15)])
    routes = routes._replace(drawn=routes.drawn.at[4].set(3))
    odds = archive.chances(routes, 0.5)
    assert odds.scores[:4].tolist() == [0.25, 0.5, 1.0, 0.0]
    cells = {(int(s), int(n)): float(odds.cells[s, n]) for s, n in np.argwhere(odds.cells)}
    assert cells == {(0, 3): 1.0, (0, 4): 0.5, (1, 5): 1.0, (1, 6): 1.0, (2, 7): 1.0}
    # Of the whole, 1.75, the first two thirds of the first quarter are those of the first entry.
    places = [jnp.float32(x / 1.75) for x in (0.0, 0.16, 0.17, 0.3, 0.6, 0.8, 1.75)]
    assert [int(archive.draw(odds, at)) for at in places] == [3, 3, 4, 15, 16, 27, 27]
    lower = archive.chances(routes, 0.25)
    assert lower.scores[:3].tolist() == [1 / 16, 1 / 4, 1.0]


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.integers(0, 6 * COMMANDS - 1), min_size=1, max_size=12), st.floats(0, 1, width=32)
)
def test_only_entries_are_drawn(there: list[int], at: float) -> None:
    routes = archive.init(STEPS, COMMANDS)
    routes = routes._replace(length=routes.length.at[jnp.array(there)].set(1))
    scores = contexts.ScoreContexts(jnp.arange(contexts.CAPACITY), jnp.int32(6))
    routes = routes._replace(scores=scores)
    for odds in (archive.chances(routes, 0.5), archive.alike(routes)):
        assert int(archive.draw(odds, jnp.float32(at))) in there


def test_what_an_episode_leaves_out() -> None:
    """Half of the episodes leave out one command to half of them, within the route."""
    routes = played(archive.init(STEPS, COMMANDS), [(n, 0) for n in (3, 4, 5, 6, 7, 8)])
    routes = routes._replace(length=jnp.where(routes.length == 6, 6, 0))
    cuts = []
    for _ in range(60):
        routes = over(routes, goes_back=True)
        assert (int(routes.trip.goal), int(routes.trip.repeated), int(routes.count)) == (8, 6, 0)
        cuts.append(tuple(routes.trip.cut.tolist()))
    left_out = {end - first for first, end in cuts}
    assert left_out == {0, 1, 2, 3}
    assert all(0 <= first <= end <= 6 for first, end in cuts)
    assert 20 <= cuts.count((0, 0)) <= 40
    assert int(routes.drawn.sum()) == 60


def test_nothing_to_go_back_to() -> None:
    routes = over(archive.init(STEPS, COMMANDS), goes_back=True)
    assert (int(routes.trip.goal), int(routes.drawn.sum())) == (-1, 0)
    going_on = archive.next_episode(routes, jnp.bool_(False), jnp.bool_(True), Draws(joined=1.0))
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), routes, going_on))


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=40), st.integers(0, 2**16))
def test_in_a_real_game_every_route_leads_to_its_entry(actions: list[int], seed: int) -> None:
    env = grue.make("saladworld-1")
    step = jax.jit(env.step)
    routes, start = archive.init(env.episode_steps, len(env.commands)), env.reset()
    state, _ = start
    for number, action in enumerate(actions):
        if number % 10 == 9:
            routes, state = over(routes), start[0]
        state, seen = step(state, jnp.int32(action))
        goes_on, number = seen.admissible & ~seen.terminated, jnp.int32(action)
        routes = archive.notice(routes, number, seen.score, goes_on, number)
        if seen.terminated:
            break
    found = np.flatnonzero(routes.length)
    for entry in np.random.default_rng(seed).permutation(found)[:3]:
        state, seen = start
        for action in routes.routes[entry, : routes.length[entry]]:
            state, seen = step(state, action.astype(jnp.int32))
            assert seen.admissible
        assert int(seen.score) == int(routes.scores.seen[entry // len(env.commands)])
    assert len(found) <= contexts.CAPACITY * len(env.commands)


def test_entries_by_the_first_words_of_the_feedback() -> None:
    """The same as a dictionary of (score, first two words) and the fewest admissible commands."""
    env = grue.make("saladworld-1")
    own = AchievementSettings(return_share=1.0, archive_share=1.0, archive_words=2)
    explorer = AchievementExplorer(env, own)
    step, notice = jax.jit(env.step), jax.jit(explorer.notice)
    zero = jnp.int32(0)
    known, now = explorer.init(), Episode(*env.reset(), jnp.int32(-1), zero, ())
    shortest: dict[tuple[int, ...], int] = {}
    played = 0
    for action in np.random.default_rng(2).integers(0, len(env.commands), 60):
        state, seen = step(now.game, jnp.int32(action))
        then = Episode(state, seen, jnp.int32(action), now.time + 1, ())
        known, _, _ = notice(known, now, jnp.int32(action), then)
        assert not seen.terminated
        if seen.admissible:
            played += 1
            key = (int(seen.score), *seen.observation[:2].tolist())
            shortest[key] = min(shortest.get(key, played), played)
        now = then
    routes = known.archive
    assert routes is not None
    found = [
        (int(routes.scores.seen[entry // WORD_CELLS]), int(routes.length[entry]))
        for entry in np.flatnonzero(routes.length)
    ]
    assert sorted(found) == sorted((key[0], length) for key, length in shortest.items())
    assert len({key[1:] for key in shortest}) < played


@pytest.mark.slow
def test_training_with_the_archive(tmp_path: Path) -> None:
    """Resumed to the bit, also beside a run without it; episodes that go back do not count."""
    own: dict[str, Any] = {"explore": "achievements", "archive_share": 1.0, "novel_share": 0.8}
    own |= {"archive_joined": 0.5, "archive_words": 3}
    often = dict.fromkeys(("metrics_every", "learning_starts", "target_every"), 200)

    def runs(steps: int) -> list[grue.TrainConfig]:
        given = [own | {"return_share": 0.5}, {}]
        return [config(steps=steps, **often, **each) for each in given]

    whole = train_all(runs(2000), tmp_path / "whole", together=True).runs
    train_all(runs(1200), tmp_path / "resumed", together=True)
    train_all(runs(2000), tmp_path / "resumed", resume=True, together=True)
    for run in whole:
        assert run.folder is not None
        same(run.folder, tmp_path / "resumed" / run.folder.name)
    archived, plain = (run.metrics for run in whole)
    assert 0 < archived["repeated"][-1] < 0.5
    assert 0 < archived["episodes"].sum() <= 2000 // TINY_STEPS // 2 + 1
    assert plain["episodes"].sum() >= 2000 // TINY_STEPS
    # Outside training nothing is repeated.
    folder = whole[0].folder
    assert folder is not None
    played = grue.evaluate(folder, episodes=2, epsilon=1.0)
    assert played.steps.tolist() == [TINY_STEPS] * 2 or played.won.any()


def test_the_archive_needs_episodes_that_repeat() -> None:
    with pytest.raises(
        grue.UsageError, match="archive_share is a share of return_share, which is 0"
    ):
        grue.TrainConfig(explore="achievements", archive_share=0.5)
