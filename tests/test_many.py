"""Many games in one program: each plays as it does by itself."""

from __future__ import annotations

import runpy
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import grue
from grue.engine.compiled import CompiledEnv
from grue.engine.drawing import Draw
from grue.engine.layout import NOT_HERE, Layout
from grue.engine.make import compiled
from grue.engine.sets import games_of
from grue.engine.stacked import StackedEnv, alike
from grue.games.gamefile import CompiledGame
from grue.games.tokens import SharedVocabulary

pytestmark = [
    pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning"),
    pytest.mark.filterwarnings("ignore:.*compiled near"),
]
EXAMPLE = Path(__file__).parents[1] / "examples" / "callable_player.py"
LEVELS = tuple(f"saladworld-{level}" for level in range(1, 8))


@pytest.fixture(scope="module")
def stories(cooking: Callable[..., Path], made_game: Path) -> list[Path]:
    """Games that differ in everything: names that share words, a limit to what one can carry."""
    made = [cooking(200), cooking(201, recipe=2, take=2, drop=True, open=True), made_game]
    for story in made:
        compiled(grue.load(story)).save(story.with_suffix(".grue.npz"))  # Once, for all tests.
    return made


@pytest.fixture(scope="module")
def levels() -> StackedEnv:
    return grue.make_many(LEVELS, "compiled")


@pytest.fixture(scope="module")
def mixed(stories: list[Path]) -> StackedEnv:
    return grue.make_many([*stories, "saladworld-1", "saladworld-7"], "compiled")


def started(env: StackedEnv, games: Sequence[int]) -> tuple[Any, Any]:
    program = jax.jit(lambda env, games: jax.vmap(lambda game: env.reset(None, game))(games))
    return program(env, np.asarray(games))


TURN = jax.jit(lambda env, states, actions: jax.vmap(env.step)(states, actions))


def played(env: StackedEnv, steps: int, seed: int) -> list[tuple[Any, Any, Any]]:
    """Random commands in every game, mostly ones that change something."""
    chance = np.random.default_rng(seed)
    states, step = started(env, range(len(env.names)))
    seen = [(None, *jax.device_get((states, step)))]
    own = np.asarray(jax.vmap(env.exists)(states))
    for _ in range(steps):
        possible = np.asarray(step.admissible_set)
        wish = np.where(chance.random((len(own), 1)) < 0.75, possible, own)
        wish = np.where(wish.any(1, keepdims=True), wish, own)
        actions = (wish * chance.random(wish.shape)).argmax(1)
        states, step = TURN(env, states, actions)
        seen.append((actions, *jax.device_get((states, step))))
    return seen


def check_against_single(env: StackedEnv, game: int, seen: Sequence[tuple[Any, Any, Any]]) -> None:
    alone = env.single(game)
    numbers = [env.commands.index(command) for command in alone.commands]
    turn = jax.jit(alone.step)  # The program that other tests have compiled.
    state, one = jax.jit(alone.reset)()
    for i, (actions, many, step) in enumerate(seen):
        if i:
            state, one = turn(state, numbers.index(actions[game]))
        mine = jax.tree.map(lambda leaf: leaf[game], step)
        where = env.names[game], i
        assert env.decode(mine.observation) == alone.decode(one.observation), where
        assert np.array_equal(mine.admissible_set[numbers], one.admissible_set), where
        assert mine.admissible_set.sum() == one.admissible_set.sum(), where
        for name in ("reward", "score", "terminated", "truncated", "admissible"):
            assert getattr(mine, name) == getattr(one, name), (*where, name)
        done = len(alone.subtask_names)
        assert np.array_equal(mine.subtasks[:done], one.subtasks), where
        assert not mine.subtasks[done:].any()
        own = env.own(jax.tree.map(lambda leaf: leaf[game], many))
        for name, value in own._asdict().items():
            assert np.array_equal(value, getattr(state, name)), (*where, name)


def test_the_levels_play_as_by_themselves(levels: StackedEnv) -> None:
    seen = played(levels, 40, seed=1)
    for game in range(7):
        check_against_single(levels, game, seen)
    assert seen[-1][2].score.max() >= 10


def test_different_kinds_of_games_play_as_by_themselves(mixed: StackedEnv) -> None:
    """They need all tables that only some games have, and the others do not."""
    arrays = [set(mixed.single(game).game.arrays) for game in range(len(mixed.names))]
    for name in ("reading_table", "capacity"):
        assert 0 < sum(name in one for one in arrays) < len(arrays)
    seen = played(mixed, 40, seed=2)
    for game in range(len(mixed.names)):
        check_against_single(mixed, game, seen)


def test_another_game_changes_nothing_else(stories: list[Path]) -> None:
    """A game with new words, more commands and more rooms comes in behind the others."""
    few = grue.make_many(["saladworld-1", "saladworld-2"], "compiled")
    more = grue.make_many(["saladworld-1", "saladworld-2", "saladworld-7", stories[1]], "compiled")
    assert more.commands[: len(few.commands)] == few.commands
    assert len(more.commands) > len(few.commands)
    assert len(more.vocabulary) > len(few.vocabulary)
    seen = played(few, 20, seed=3)
    states, _ = started(more, [0, 1])
    for actions, _, step in seen[1:]:
        states, found = TURN(more, states, actions)
        for row in (0, 1):
            assert more.decode(found.observation[row]) == few.decode(step.observation[row])
        wide = np.asarray(found.admissible_set)
        assert np.array_equal(wide[:, : len(few.commands)], step.admissible_set)
        assert not wide[:, len(few.commands) :].any()
        assert np.array_equal(found.score, step.score)


def test_commands_of_other_games(levels: StackedEnv) -> None:
    states, step = started(levels, range(7))
    exists = np.asarray(jax.vmap(levels.exists)(states))
    for game in range(7):
        own = set(levels.single(game).commands)
        assert [c for c, yes in zip(levels.commands, exists[game], strict=True) if yes] == [
            c for c in levels.commands if c in own
        ]
    assert not (np.asarray(step.admissible_set) & ~exists).any()
    lacking = int(np.flatnonzero(~exists[0])[0])
    state, first = levels.reset(None, 0)
    for action in (lacking, levels.no_command):
        after, answer = jax.jit(levels.step)(state, action)
        assert levels.decode(answer.observation) == NOT_HERE
        assert (int(answer.reward), bool(answer.admissible), int(after.steps)) == (0, False, 1)
        assert np.array_equal(answer.admissible_set, first.admissible_set)
        still = jax.tree.map(
            np.array_equal, after.world._replace(steps=0), state.world._replace(steps=0)
        )
        assert all(jax.tree.leaves(still))


def test_real_games_give_that_answer_too(stories: list[Path]) -> None:
    """Inform does not know the nouns of other games."""
    env = grue.make_many([stories[0], stories[2]], "hosted")
    compiled_set = grue.make_many([stories[0], stories[2]], "compiled")
    state, _ = env.reset(game=0)
    missing = [c for c, yes in zip(env.commands, env.exists(state), strict=True) if not yes]
    answers = {c: env.step(state, c)[1].text for c in missing}
    nouns = [c for c in missing if c.startswith(("examine", "take"))]
    assert len(nouns) > 2
    assert {(answers[c] or "").strip() for c in nouns} == {NOT_HERE}
    assert env.commands == compiled_set.commands
    env.close()


# Values


def test_an_environment_is_a_value() -> None:
    one, again = (grue.make("saladworld-2", "compiled") for _ in range(2))
    assert jax.tree.structure(one) == jax.tree.structure(again)
    assert jax.tree.structure(one) != jax.tree.structure(grue.make("saladworld-3", "compiled"))
    traces = []

    @jax.jit
    def turn(env: CompiledEnv, state: Any) -> Any:
        traces.append(1)
        return env.step(state, 0), env.restart(state)

    state, _ = jax.jit(one.reset)()
    found, other = turn(one, state), turn(again, state)
    constants = jax.jit(lambda state: (one.step(state, 0), one.restart(state)))(state)
    for result in (other, constants):
        assert all(map(np.array_equal, jax.tree.leaves(found), jax.tree.leaves(result)))
    assert len(traces) == 1


def test_vmap_over_stacked_tables(stories: list[Path]) -> None:
    """Games in a common layout have the same structure: their tables can be stacked and vmapped."""
    files = [compiled(grue.load(name)) for name in ("saladworld-1", stories[0])]
    envs = alike(files)
    assert len({jax.tree.structure(env) for env in envs}) == 1
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *envs)
    states, steps = jax.jit(jax.vmap(lambda env: env.reset()))(stacked)
    singles = [CompiledEnv(file) for file in files]
    look = [envs[0].commands.index("look")] * 2
    states, steps = jax.jit(jax.vmap(lambda env, state, action: env.step(state, action)))(
        stacked, states, np.array(look)
    )
    for row, alone in enumerate(singles):
        begun, _ = jax.jit(alone.reset)()
        _, expected = jax.jit(alone.step)(begun, alone.commands.index("look"))
        assert envs[0].decode(steps.observation[row]) == alone.decode(expected.observation)


def test_a_set_is_a_value(levels: StackedEnv) -> None:
    again = grue.make_many(LEVELS, "compiled")
    assert jax.tree.structure(levels) == jax.tree.structure(again)
    weighted = levels.with_draw(Draw.of(7, weights=[0, 0, 1, 0, 0, 0, 0]))
    assert jax.tree.structure(levels) == jax.tree.structure(weighted)
    draws = jax.jit(lambda env, keys: jax.vmap(env.reset)(keys)[0].game)
    keys = jax.random.split(jax.random.key(0), 64)
    assert set(np.asarray(draws(levels, keys))) == set(range(7))
    assert set(np.asarray(draws(weighted, keys))) == {2}


# Which game comes next


def test_how_games_are_drawn(levels: StackedEnv) -> None:
    keys = jax.random.split(jax.random.key(5), 700)

    @jax.jit
    def two(env: StackedEnv, keys: Any) -> Any:
        first, _ = jax.vmap(env.reset)(keys)
        second, _ = jax.vmap(env.restart)(first)
        return first.game, second.game, jax.vmap(env.restart)(second)[0].game

    first, second, third = two(levels, keys)
    for drawn in (first, second, third):
        assert np.bincount(drawn, minlength=7).min() > 60
    assert 0.05 < np.mean(np.asarray(first) == np.asarray(second)) < 0.25
    assert np.array_equal(two(levels, keys)[1], second)
    first, second, third = two(levels.with_draw(Draw.of(7, "in order")), keys)
    assert set(np.asarray(first)) == set(range(7))
    assert np.array_equal(second, (first + 1) % 7)
    assert np.array_equal(third, (first + 2) % 7)
    same = two(levels.with_draw(Draw.of(7, "same")), keys)
    assert np.array_equal(same[0], same[2])
    assert int(levels.with_draw(Draw.of(7, "in order")).reset()[0].game) == 0


def test_each_begins_as_by_itself(levels: StackedEnv) -> None:
    for game in range(7):
        state, step = levels.reset(None, game)
        assert int(state.game) == game
        alone = levels.single(game)
        expected = jax.jit(alone.reset)()[1].observation
        assert levels.decode(step.observation) == alone.decode(expected)
        assert levels.names[game] == f"saladworld-{game + 1}"
    assert levels.max_scores.tolist() == [15, 20, 20, 25, 30, 35, 40]
    assert levels.max_score == 40


def test_limits_of_steps_are_the_games_own(levels: StackedEnv) -> None:
    states, _ = started(levels, [0, 1])
    world = states.world._replace(steps=jnp.full(2, 99))
    _, step = TURN(levels, states._replace(world=world), np.full(2, levels.no_command))
    assert step.truncated.tolist() == [True, False]  # 100 on level 1, else 200.
    short = grue.make_many(LEVELS[:2], "compiled", episode_steps=7)
    assert short.episode_steps == 7


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draw": "backwards"}, "there is no draw 'backwards'; use uniform, in order, same"),
        ({"weights": [1]}, "give 2 weights"),
        ({"weights": [0, 0]}, "all weights are 0"),
        ({"weights": [1, float("nan")]}, "give 2 weights"),
        ({"draw": "in order", "weights": [1, 2]}, "weights are for games that are drawn"),
        ({"hosted": "maybe"}, "hosted is 'maybe'; use 'refuse', 'leave out', 'host'"),
        ({"damaged": "host"}, "damaged is 'host'; use 'refuse', 'leave out'"),
        ({"engine": "fast"}, "engine is 'fast'"),
        ({"weights": ["a", "b"]}, "weights are .'a', 'b'.; give 2 numbers"),
        ({"episode_steps": 0}, "episode_steps is 0; give a whole number, at least 1"),
        ({"episode_steps": "x"}, "episode_steps is 'x'"),
        ({"commands": "look"}, "commands is 'look'; give a list of commands"),
        ({"vocabulary": ["look"]}, "the vocabulary has no word <unknown>"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(grue.UsageError, match=message):
        grue.make_many(["saladworld-1", "saladworld-2"], **options)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("games", [None, 3, {"saladworld-1"}])
def test_what_is_no_list_of_games(games: Any) -> None:
    with pytest.raises(grue.UsageError, match="give a folder or a list of games"):
        grue.make_many(games)


def test_numbers_that_no_game_has(levels: StackedEnv) -> None:
    for number in (-1, 7, jnp.array([0, 7])):
        with pytest.raises(grue.UsageError, match=r"there is no game .*; use 0 to 6"):
            levels.reset(None, number)
    with pytest.raises(grue.UsageError, match="there is no game 7; use 0 to 6"):
        levels.single(7)
    with pytest.raises(grue.UsageError, match="the draw is of 2 games, and the set has 7"):
        levels.with_draw(Draw.of(2))


# Words


def test_words_of_unseen_games(levels: StackedEnv, stories: list[Path]) -> None:
    train = grue.make_many(LEVELS[:1], "compiled")
    test = grue.make_many(["saladworld-1", stories[0]], "compiled", vocabulary=train.vocabulary)
    assert test.vocabulary == train.vocabulary
    _, seen = test.reset(None, 0)
    _, first = train.reset(None, 0)
    count = np.count_nonzero(first.observation)
    assert np.array_equal(seen.observation[:count], first.observation[:count])
    _, unseen = test.reset(None, 1)
    text = test.decode(unseen.observation)
    assert "<unknown>" in text
    alone = test.single(1)
    words = alone.vocabulary
    told = jax.jit(alone.reset)()[1].observation
    expected = [words.words[n - 1] for n in np.asarray(told) if n]
    known = train.vocabulary.numbers
    numbers = [known.get(word) or known.get(word.lower(), 1) for word in expected]
    assert np.asarray(unseen.observation)[: len(numbers)].tolist() == numbers
    with pytest.raises(grue.UsageError, match="has no word <unknown>"):
        grue.make_many(LEVELS, vocabulary=grue.make("saladworld-1").vocabulary)


def test_a_shared_vocabulary_keeps_the_order() -> None:
    one = SharedVocabulary.of_games([("b", "a"), ("a", "C")])
    assert one.words == ("<unknown>", "b", "a", "C")
    assert one.encode("a c B d") == [3, 1, 2, 1]


# Facts, text, folders


def test_facts_are_those_of_the_game(levels: StackedEnv) -> None:
    seen = played(levels, 12, seed=4)
    for game in (0, 4):
        state = jax.tree.map(lambda leaf: leaf[game], seen[-1][1])  # noqa: B023
        alone = grue.make(LEVELS[game], "compiled")
        one, _ = jax.jit(alone.reset)()
        for actions, _, _ in seen[1:]:
            name = levels.commands[actions[game]]
            one, _ = jax.jit(alone.step)(one, alone.commands.index(name))
        assert levels.facts(state) == alone.facts(one)
        assert levels.infos(state)["location"] == alone.infos(one)["location"]


def test_a_folder_is_a_set(stories: list[Path], tmp_path: Path) -> None:
    inner = tmp_path / "train"
    inner.mkdir()
    for story in stories[:2]:
        for suffix in (".z8", ".json", ".grue.npz"):
            (inner / f"{story.stem}{suffix}").write_bytes(story.with_suffix(suffix).read_bytes())
    env = grue.make_many(inner)
    assert env.names == tuple(sorted(story.stem for story in stories[:2]))
    with pytest.raises(grue.UsageError, match="give one of its folders train"):
        grue.make_many(tmp_path)
    with pytest.raises(grue.UsageError, match="there is no folder"):
        grue.make_many(tmp_path / "none")
    with pytest.raises(grue.UsageError, match="saladworld-1 is no folder; give a folder of games"):
        grue.make_many("saladworld-1")
    with pytest.raises(grue.UsageError, match="the list of games is empty"):
        grue.make_many([])
    (tmp_path / "twice").mkdir()
    for name in ("a.z8", "a.z5", "a.grue.npz", "b.grue.npz"):
        (tmp_path / "twice" / name).touch()
    listed = [str(game) for game in games_of(tmp_path / "twice")]
    assert [Path(game).name for game in listed] == ["a.z5", "a.z8", "b.grue.npz"]
    compiled(grue.load(stories[0])).save(inner / "extra.grue.npz")
    (inner / "wrong.grue.npz").write_bytes(b"no game")
    with pytest.raises(grue.BrokenFileError, match=r"wrong.grue.npz .*damaged='leave out'"):
        grue.make_many(inner)
    with pytest.warns(UserWarning, match=r"left out 1 of 4 games: .*wrong.grue.npz"):
        found = grue.make_many(inner, damaged="leave out")
    assert [Path(name).name for name, _ in found.left_out] == ["wrong.grue.npz"]
    assert len(found.names) == 3


def test_games_that_do_not_compile(two_lamps: Path) -> None:
    listed = ["saladworld-1", two_lamps]
    with pytest.raises(grue.GrueError, match="1 of 2 games cannot be compiled, such as"):
        grue.make_many(listed)
    with pytest.warns(UserWarning, match="left out 1 of 2 games"):
        left = grue.make_many(listed, hosted="leave out")
    assert left.names == ("saladworld-1",)
    assert left.left_out[0][0] == str(two_lamps)
    env = grue.make_many(listed, hosted="host")
    state, step = env.reset(game=1)
    state, step = env.step(state, "take green lamp")
    assert "green lamp" in env.decode(step.observation)
    state, step = env.step(state, "put green lamp on stand")
    assert (int(step.score), bool(step.terminated)) == (1, True)
    state, step = env.reset(game=0)
    state, step = env.step(state, "go south")
    alone = grue.make("saladworld-1")
    _, expected = jax.jit(alone.step)(jax.jit(alone.reset)()[0], alone.commands.index("go south"))
    assert env.decode(step.observation) == alone.decode(expected.observation) == step.text
    assert {int(env.reset(seed)[0].game) for seed in range(8)} == {0, 1}
    env.close()


def test_hosted_and_compiled_sets_are_alike(stories: list[Path]) -> None:
    real = grue.make_many(stories[:2], "hosted")
    fast = grue.make_many(stories[:2], "compiled")
    assert (real.commands, real.vocabulary) == (fast.commands, fast.vocabulary)
    assert (real.subtask_names, real.digest) == (fast.subtask_names, fast.digest)
    key = jax.random.key(11)
    mine, step = real.reset(key)
    other, expected = fast.reset(key)
    chance = np.random.default_rng(0)
    for _ in range(10):
        assert mine.game == int(other.game)
        count = len(expected.observation)
        assert np.array_equal(step.observation[:count], expected.observation)
        assert np.array_equal(step.admissible_set, expected.admissible_set)
        action = int(chance.choice(np.flatnonzero(step.admissible_set)))
        mine, step = real.step(mine, action)
        other, expected = jax.jit(fast.step)(other, action)
        assert step.score == expected.score
        if step.terminated:
            (mine, step), (other, expected) = real.restart(mine), fast.restart(other)
    real.close()


def test_text_games_play_and_fork(levels: StackedEnv) -> None:
    games = grue.TextGames(levels)
    now = games.begin(3, games=[0, 0, 1])
    assert now.names == ["saladworld-1", "saladworld-1", "saladworld-2"]
    assert now.texts[0] == now.texts[1] == levels.decode(levels.reset(None, 0)[1].observation)
    for command in grue.load("saladworld-1").walkthrough[:-1]:
        assert command in now.all_commands[0]
        now = games.play(now, [command, "dance", "look"])
    assert now.texts[1] == NOT_HERE
    assert now.scores.tolist()[1] == 0
    last = grue.load("saladworld-1").walkthrough[-1]
    group = games.fork(now, 0, 5)
    assert len(group) == 5
    after = games.play(group, [last, "look", last, "look", "look"])
    assert after.ended.tolist() == [True, False, True, False, False]
    assert after.shares.tolist()[:3:2] == [1.0, 1.0]
    assert after.texts[0].endswith("*** The End ***")
    assert after.commands[0] == []
    over = games.play(after, ["look"] * 5)
    assert over.texts[0] == ""
    assert over.scores.tolist() == after.scores.tolist()
    assert games.play(group, [last] * 5).texts == [after.texts[0]] * 5  # A moment is a value.
    assert games.begin(40, seed=3).games.tolist() == games.begin(40, seed=3).games.tolist()
    assert games.facts(group, 0) == games.facts(now, 0)
    with pytest.raises(grue.UsageError, match="there are 1 commands for 5 games"):
        games.play(group, ["look"])


def test_fork_gives_rows_of_one_state(levels: StackedEnv) -> None:
    envs: list[Any] = [levels, grue.make("saladworld-2", "compiled")]
    for env in envs:
        state, _ = jax.jit(env.reset)()
        group = env.fork(state, 4)
        for leaf, rows in zip(jax.tree.leaves(state), jax.tree.leaves(group), strict=True):
            assert np.array_equal(rows, np.stack([leaf] * 4))


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("count", [0, -1, 1.5, "3"])
def test_forks_of_no_rows(levels: StackedEnv, count: Any) -> None:
    games = grue.TextGames(levels)
    for fork in (
        lambda: levels.fork(levels.reset()[0], count),
        lambda: games.fork(games.begin(1), 0, count),
    ):
        with pytest.raises(grue.UsageError, match=r"the count of a fork is .*at least 1"):
            fork()


@pytest.mark.parametrize("count", [0, -1])
def test_forks_of_no_rows_of_a_hosted_game(count: int) -> None:
    real = grue.make("saladworld-1", engine="hosted")
    with pytest.raises(grue.UsageError, match=r"the count of a fork is .*at least 1"):
        real.fork(real.reset()[0], count)
    real.close()


@pytest.mark.usefixtures("untyped")
def test_texts_and_numbers_that_are_wrong(levels: StackedEnv) -> None:
    games: Any = grue.TextGames(levels)
    now = games.begin(3)
    assert len(games.begin(0)) == len(games.take(now, [])) == 0
    for wrong, message in (
        (lambda: games.begin(-1), "give a number from 0 on"),
        (lambda: games.begin(2, games=[0, 9]), "numbers of games of the set, which are 0 to 6"),
        (lambda: games.begin(1, games=[0.5]), "numbers of games of the set"),
        (lambda: games.begin(2, games=[0]), "there are 1 numbers for 2 games"),
        (lambda: games.take(now, [3]), "numbers of games of the moment, which are 0 to 2"),
        (lambda: games.fork(now, -1, 2), "numbers of games of the moment"),
        (lambda: games.facts(now, 3), "numbers of games of the moment"),
        (lambda: games.play(now, "abc"), "give a list of texts"),
        (lambda: games.play(now, ["look", None, "look"]), "give a list of texts"),
        (lambda: games.play(now, ["look"]), "there are 1 commands for 3 games"),
    ):
        with pytest.raises(grue.UsageError, match=message):
            wrong()


def test_the_example_plays_with_any_callable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [str(EXAMPLE), "saladworld-1", "saladworld-2", "--episodes", "8", "--steps", "12"]
    monkeypatch.setattr(sys, "argv", line)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    told = capsys.readouterr().out
    assert told.startswith("2 games, 8 episodes: 0.")
    play = runpy.run_path(str(EXAMPLE))["play"]
    walk = iter(grue.load("saladworld-1").walkthrough)
    games = grue.TextGames(grue.make_many(["saladworld-1"], "compiled"))
    assert play(games, lambda text, commands: next(walk), 1, 50, 0).tolist() == [1.0]


def test_nothing_is_kept_over_many_resets(levels: StackedEnv) -> None:
    games = grue.TextGames(levels)
    games.play(games.begin(1024, seed=0), ["look"] * 1024)
    before = len(jax.live_arrays())
    for seed in range(20):
        games.play(games.begin(1024, seed=seed), ["look"] * 1024)
    assert len(jax.live_arrays()) <= before


def test_sizes_hold_every_game() -> None:
    files = [compiled(grue.load(name)) for name in LEVELS]
    layout = Layout.of(files, SharedVocabulary.of_games([]), ())
    for file in files:
        assert isinstance(file, CompiledGame)
        assert len(file.arrays["exit_to"]) <= layout.sizes["rooms"]
        assert len(file.commands) <= layout.lacking
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grue.make_many(LEVELS)
