"""The environment contract: the same tests for compiled, stacked, hosted and pooled games."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import grue
from grue.engine.environment import Environment
from grue.engine.hosted import EmulatorEnv
from grue.engine.hosted_story import host
from grue.engine.pooled import PooledEnv
from grue.engine.step import Step
from grue.games.playable import Knowledge, Playable
from grue.games.tokens import squeeze, tokenize

STEPS = 10
KINDS = (
    *("compiled", "stacked", "hosted TextWorld", "hosted set", "pooled TextWorld"),
    *("hosted story", "pooled story", "hosted Zork", "pooled Zork"),
)
PATHS = {
    "TextWorld": ("go south", "go east", "look", "go east", "take lettuce"),
    "story": ("go south", "go east", "look", "go east", "take lettuce"),
    "Zork": ("open mailbox", "go north", "look", "go north"),
}


@dataclass
class Case:
    """An environment, and the real game in this process to compare it with."""

    kind: str
    game: Playable
    env: Environment
    real: EmulatorEnv[Any]

    def __post_init__(self) -> None:
        self.hosted = self.kind.startswith("hosted")
        self.reset: Any = self.env.reset if self.hosted else jax.jit(self.env.reset)
        self.take: Any = self.env.step if self.hosted else jax.jit(self.env.step)
        self.path = PATHS.get(self.kind.split()[-1], PATHS["TextWorld"])
        self.is_set = self.kind in ("stacked", "hosted set")

    def command(self, state: Any, name: str) -> tuple[Any, Step]:
        return self.take(state, self.env.commands.index(name))

    def play(self, key: Any = None) -> list[tuple[Any, Step]]:
        """The states and steps along the path, the opening first."""
        seen = [self.reset(key)]
        for name in self.path:
            seen.append(self.command(seen[-1][0], name))
        return seen


@pytest.fixture(scope="module")
def plain_story(tmp_path_factory: pytest.TempPathFactory) -> Playable:
    """A level without its ``.json``: a story of which only the file is known."""
    level, folder = grue.load("saladworld-1"), tmp_path_factory.mktemp("story")
    shutil.copy(level.story, folder)
    commands = folder / "commands.txt"
    commands.write_text("\n".join(level.commands))
    return grue.load(folder / level.story.name, commands=commands)


@pytest.fixture(scope="module", params=KINDS)
def case(
    request: pytest.FixtureRequest, plain_story: Playable, zork_file: Callable[[int], Path]
) -> Iterator[Case]:
    kind: str = request.param
    if kind.endswith("Zork"):
        game = grue.load("zork1", zork_file(119))
    else:
        game = plain_story if kind.endswith("story") else grue.load("saladworld-1")
    real = host(game, STEPS)
    if kind == "compiled":
        env = grue.make(game, "compiled", STEPS)
    elif kind in ("stacked", "hosted set"):  # The other games are never drawn.
        listed, engine = [game, "saladworld-2"], "compiled" if kind == "stacked" else "hosted"
        env = grue.make_many(listed, engine, episode_steps=STEPS, weights=[1, 0])
    elif kind.startswith("pooled"):
        env = PooledEnv(game, STEPS, informed=True, workers=1)
    else:
        env = grue.make(game, "hosted", STEPS)
    yield Case(kind, game, env, real)
    env.close()
    real.close()


def same(one: Any, other: Any) -> bool:
    leaves, others = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(leaves) == len(others) and all(map(np.array_equal, leaves, others))


def test_it_tells_of_the_game(case: Case) -> None:
    env, game = case.env, case.game
    assert isinstance(env, Environment)
    assert "look" in env.commands
    assert env.episode_steps == STEPS
    if case.is_set:
        assert env.commands[: len(game.commands)] == game.commands
        assert env.max_score == 20
        assert len(env.subtask_names) == len(grue.load("saladworld-2").subtasks)
        assert len(env.digest) == 64
    else:
        assert env.commands == game.commands
        assert env.max_score == game.max_score
        assert env.subtask_names == tuple(subtask.text for subtask in game.subtasks)
        assert env.digest == game.digest
    assert env.observation_length > 0
    assert env.vocabulary.words[0]
    assert (env.notes(), env.check()) == ([], None)
    pooled = isinstance(env, PooledEnv)
    assert env.processes == pooled
    assert set(env.about) == ({"engine", "jericho", "release", "serial"} if pooled else set())


def test_every_step_has_the_same_fields(case: Case) -> None:
    env = case.env
    shapes = {
        "observation": ("i", (env.observation_length,)),
        "reward": ("i", ()),
        "score": ("i", ()),
        "terminated": ("b", ()),
        "truncated": ("b", ()),
        "admissible": ("b", ()),
        "admissible_set": ("b", (len(env.commands),)),
        "subtasks": ("b", (len(env.subtask_names),)),
    }
    for _, step in case.play():
        found = {name: np.asarray(getattr(step, name)) for name in shapes}
        assert {name: (a.dtype.kind, a.shape) for name, a in found.items()} == shapes
        assert isinstance(step.text, str) == case.hosted
        assert step.text is None or case.hosted


def test_tokens_decode_to_the_text_of_the_real_game(case: Case) -> None:
    key = jax.random.key(3)
    state, step = case.real.reset(key)
    expected = [step]
    for name in case.path:
        state, step = case.real.step(state, name)
        expected.append(step)
    for (_, found), real in zip(case.play(key), expected, strict=True):
        words = tokenize(real.text or "")[: case.env.observation_length]
        assert len(words) > 2
        # Numbers that a story computes are not among its words.
        known = case.env.vocabulary.numbers
        told = [w if not w.isdigit() or w in known else "<unknown>" for w in words]
        assert squeeze(case.env.decode(found.observation)).lower() == "".join(told).lower()
        assert (found.reward, found.score) == (real.reward, real.score)
        assert found.admissible == real.admissible


def test_tokens_are_padded_at_the_end(case: Case) -> None:
    for _, step in case.play():
        row = np.asarray(step.observation)
        count = np.count_nonzero(row)
        assert count > 0
        assert row[:count].all()
        assert row.max() < len(case.env.vocabulary)


def test_look_and_inventory_spend_no_step(case: Case) -> None:
    env = case.env
    assert env.knows.look
    for state, _ in case.play():
        before = case.command(state, case.path[-1])
        looked, carried = env.look(state), env.inventory(state)
        assert np.asarray(looked).shape == (env.observation_length,)
        assert same(looked, case.command(state, "look")[1].observation)
        assert squeeze(env.decode(carried)).lower().startswith("youare")
        assert same(case.command(state, case.path[-1])[1], before[1])


def test_a_step_depends_on_its_arguments_alone(case: Case) -> None:
    first = case.play()
    again = case.play()
    for (state, step), (_, other) in zip(first, again, strict=True):
        assert same(step, other)
        assert same(case.command(state, "look")[1], case.command(state, "look")[1])
    # From the middle, after the game went on elsewhere.
    for (state, _), name, (_, then) in zip(first[:-1], case.path, first[1:], strict=True):
        assert same(case.command(state, name)[1], then)


def test_restart_begins_the_next_episode(case: Case) -> None:
    seen = case.play()
    opening = seen[0][1]
    state, step = case.env.restart(seen[-1][0])
    assert same(step, opening)
    assert int(np.asarray(state.steps)) == 0
    for name in case.path:
        state, step = case.command(state, name)
    assert int(np.asarray(state.steps)) == len(case.path)
    assert same(case.env.restart(state)[1], opening)


def test_a_key_gives_hosted_and_pooled_games_the_same_chance(case: Case) -> None:
    key = jax.random.key(7)
    mine, _ = case.env.reset(key)
    real, _ = case.real.reset(key)
    if case.kind == "compiled" or case.is_set:  # These games draw no random numbers.
        assert same(case.env.reset()[1], case.env.reset(key)[1])
        return
    seeds = []
    for _ in range(3):
        seed = mine.chance.seed if case.hosted else int(mine.seed)
        assert seed == real.chance.seed
        seeds.append(seed)
        mine, real = case.env.restart(mine)[0], case.real.restart(real)[0]
    assert len(set(seeds)) == 3


def test_what_it_knows_of_commands(case: Case) -> None:
    state, step = case.play()[2]
    possible = np.asarray(step.admissible_set).tolist()
    assert case.env.knows.admissible == case.game.knows.admissible
    if not case.env.knows.admissible:
        assert all(possible)
        return
    changed = [bool(case.take(state, n)[1].admissible) for n in range(len(possible))]
    assert possible == changed
    assert 0 < sum(possible) < len(possible)


def test_what_it_knows_of_subtasks_and_score(case: Case) -> None:
    known = case.kind in ("compiled", "stacked", "hosted set") or case.kind.endswith("TextWorld")
    assert case.env.knows.subtasks == known
    assert (case.env.subtask_names == ("Win the game.",)) == (not known)
    refusal = case.env.knows.score_refusal
    if case.kind.endswith("story"):
        assert refusal is not None
        assert "version 8" in refusal
        assert {int(step.score) for _, step in case.play()} == {0}
        assert case.env.max_score is None
    else:
        assert refusal is None
        assert case.env.max_score is not None
    assert known == (case.env.knows._replace(chance=False) == Knowledge())
    assert case.env.knows.chance == (case.is_set or not known)  # A set draws the game.


def test_an_episode_is_cut_at_its_limit(case: Case) -> None:
    state, step = case.reset()
    for number in range(STEPS):
        assert not step.truncated, number
        state, step = case.command(state, "look")
    assert step.truncated
    assert not step.terminated


def test_the_end_of_a_game(case: Case) -> None:
    if case.kind.endswith("Zork"):
        pytest.skip("the walkthrough of Zork I is longer than an episode here")
    state, step = case.reset()
    for name in grue.load("saladworld-1").walkthrough:
        assert not step.terminated
        state, step = case.command(state, name)
    assert step.terminated
    assert not step.truncated
    assert not np.asarray(step.admissible_set).any()
    if case.env.knows.subtasks:
        assert int(step.score) == case.game.max_score
        assert np.asarray(step.subtasks)[: len(case.game.subtasks)].all()
    if case.hosted:
        with pytest.raises(grue.UsageError, match="the game is over"):
            case.command(state, "look")
    else:
        after, nothing = case.command(state, "look")
        assert same(after, state)
        assert (case.env.decode(nothing.observation), int(nothing.reward)) == ("", 0)
    assert not case.env.restart(state)[1].terminated


@pytest.mark.parametrize("make", [host, PooledEnv])
def test_what_cannot_be_looked_at_says_so(make: Callable[..., Any]) -> None:
    options = {"snapshots": False} if make is host else {"informed": False, "workers": 1}
    env = make(grue.load("saladworld-1"), STEPS, **options)
    assert not env.knows.look
    state, _ = env.reset()
    for ask in (env.look, env.inventory):
        with pytest.raises(grue.UsageError, match="open"):
            ask(state)
    _, step = env.step(state, env.commands.index("go south"))  # It plays on.
    assert "living room" in env.decode(step.observation)
    env.close()


def test_hosted_seeds_count_up(plain_story: Playable) -> None:
    env = host(plain_story)
    state, _ = env.reset(41)
    assert [state.chance.seed, env.restart(state)[0].chance.seed] == [41, 42]
    last, _ = env.reset(2**31 - 2)
    assert env.restart(last)[0].chance.seed == 0
    with pytest.raises(grue.UsageError, match="from 0 to"):
        env.reset(-1)
    env.close()


def test_rows_of_tokens_cannot_be_changed(plain_story: Playable) -> None:
    """They are kept, and given to everyone who meets the same text."""
    env = host(plain_story)
    _, step = env.reset()
    with pytest.raises(ValueError, match="read-only"):
        step.observation[0] = 1
    env.close()


def test_closing_ends_what_it_holds(case: Case) -> None:
    before = case.play()
    if case.hosted:
        host(case.game).close()  # Other games of the same kind go on.
    else:
        case.env.close()
    if isinstance(case.env, PooledEnv):
        assert case.env.pool.processes == []
    for (_, step), (_, again) in zip(before, case.play(), strict=True):
        assert same(step, again)
    if isinstance(case.env, PooledEnv):
        assert case.env.pool.processes
