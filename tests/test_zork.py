"""Zork I, both releases: the real stories, their scores and ends, what changes their world."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import grue
from grue.cli import entry
from grue.cli.play import follow_walkthrough
from grue.engine.changes import world_bytes
from grue.engine.emulator import close_emulator, open_emulator
from grue.engine.hosted import HostedState
from grue.engine.hosted_story import StoryEnv
from grue.engine.step import Step
from grue.games.zmachine import zork
from grue.games.zmachine.story import Story, read_commands, read_story_game

RELEASES = (88, 119)
WEST_OF_HOUSE = """\
West of House
You are standing in an open field west of a white house, with a boarded front door.
There is a small mailbox here."""
OPENING = {
    88: f"""\
Copyright (c) 1981, 1982, 1983 Infocom, Inc. All rights reserved.
ZORK is a registered trademark of Infocom, Inc.
Revision 88 / Serial number 840726

{WEST_OF_HOUSE}""",
    119: f"""\
ZORK I: The Great Underground Empire
Infocom interactive fiction - a fantasy story
Copyright (c) 1981, 1982, 1983, 1984, 1985, 1986 Infocom, Inc. All rights reserved.
ZORK is a registered trademark of Infocom, Inc.
Release 119 / Serial number 880429

{WEST_OF_HOUSE}""",
}
TO_THE_KITCHEN = ("go north", "go east", "open window", "enter house")
TO_THE_CELLAR = (*TO_THE_KITCHEN, "go west", "take lamp", "move rug", "open trap door")


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"release{release}")
def release(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="module")
def env(release: int, zork_file: Callable[[int], Path]) -> Iterator[StoryEnv]:
    env = StoryEnv(zork.load_zork(zork_file(release)))
    yield env
    env.close()


def play(env: StoryEnv, commands: Sequence[str | int], seed: int = 0) -> tuple[HostedState, Step]:
    state, step = env.reset(seed)
    for command in commands:
        state, step = env.step(state, command)
    return state, step


def test_the_opening(env: StoryEnv, release: int) -> None:
    state, step = env.reset()
    assert step.text == OPENING[release]
    assert (step.score, step.reward, step.terminated, step.truncated) == (0, 0, False, False)
    assert (state.steps, state.over) == (0, False)
    assert step.subtasks.tolist() == [False]


def test_ten_points_for_the_kitchen(env: StoryEnv) -> None:
    _, step = play(env, TO_THE_KITCHEN)
    assert (step.text or "").startswith("Kitchen\nYou are in the kitchen of the white house.")
    assert (step.reward, step.score) == (10, 10)
    assert play(env, TO_THE_KITCHEN[:-1])[1].score == 0


def test_twenty_five_points_for_the_cellar(env: StoryEnv) -> None:
    _, step = play(env, (*TO_THE_CELLAR, "turn on lamp", "go down"))
    assert "Cellar\nYou are in a dark and damp cellar" in (step.text or "")
    assert (step.reward, step.score, step.terminated) == (25, 35, False)


def test_the_score_falls_with_a_life_and_the_episode_ends(env: StoryEnv) -> None:
    """In the dark a grue comes sooner or later: with this seed at once."""
    state, step = play(env, (*TO_THE_CELLAR, "go down"), seed=4)
    assert (step.score, step.terminated) == (35, False)
    state, step = env.step(state, "go north")
    assert "devoured you" in (step.text or "")
    assert "****  You have died  ****" in (step.text or "")
    assert (step.reward, step.score) == (-10, 25)
    assert (step.terminated, step.admissible) == (True, True)
    assert step.subtasks.tolist() == [False]
    with pytest.raises(grue.UsageError, match="the game is over"):
        env.step(state, "look")


def test_a_player_may_die_more_than_once(release: int, zork_file: Callable[[int], Path]) -> None:
    env = StoryEnv(zork.load_zork(zork_file(release)), one_life=False)
    state, step = play(env, (*TO_THE_CELLAR, "go down", "go north"), seed=4)
    assert (step.score, state.over) == (25, False)
    _, step = env.step(state, "look")
    assert (step.text or "").startswith("Forest\n")
    env.close()


def test_the_walkthrough_has_all_points(env: StoryEnv) -> None:
    turns = list(follow_walkthrough(env))
    assert len(turns) == 396
    last = turns[-1].step
    assert (last.score, last.terminated, last.subtasks.tolist()) == (350, True, [True])
    assert not any(turn.step.terminated for turn in turns[:-1])
    scores = [turn.step.score for turn in turns]
    assert max(scores) == 350
    assert sum(turn.step.reward for turn in turns) == 350


@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_identical_replays_under_one_seed(env: StoryEnv, seed: int) -> None:
    """Seed 0 is a seed, not the clock; the troll's blows are the same each time."""
    rng = random.Random(seed)
    fight = ["turn on lamp", "go down", "go north", *(["kill troll with sword"] * 4)]
    wandering = [*TO_THE_CELLAR[:5], "take sword", *TO_THE_CELLAR[5:], *fight]
    wandering += rng.choices(env.game.commands, k=60)

    def account() -> list[tuple[object, ...]]:
        state, step = env.reset(seed)
        told: list[tuple[object, ...]] = [(step.text, step.score)]
        for command in wandering:
            if state.over:
                break
            state, step = env.step(state, command)
            told.append((step.text, step.score, step.admissible, step.terminated))
        return told

    first = account()
    assert len(first) > 15
    assert account() == first


def test_seeds_differ(env: StoryEnv) -> None:
    fight = [*TO_THE_CELLAR, "turn on lamp", "go down", "go north", "wait"]
    assert len({play(env, fight, seed)[1].text for seed in range(8)}) > 1


def test_states_can_be_gone_back_to(env: StoryEnv) -> None:
    start, _ = env.reset()
    inside, _ = play(env, TO_THE_KITCHEN)
    assert (env.step(start, "look")[1].text or "").startswith("West of House")
    assert (env.step(inside, "look")[1].text or "").startswith("Kitchen")
    assert env.step(start, "open mailbox")[1].admissible
    assert env.step(start, "open mailbox")[1].admissible


def test_what_changes_the_world(env: StoryEnv) -> None:
    """e_t: moving, taking and opening do; looking, waiting and what is refused do not."""
    account = [
        ("look", False),
        ("wait", False),
        ("inventory", False),
        ("open mailbox", True),
        ("open mailbox", False),
        ("take leaflet", True),
        ("read leaflet", False),
        ("take sword", False),  # It is not here.
        ("go east", False),  # The door is boarded.
        ("frobnicate", False),
        ("drop leaflet", True),
        ("go north", True),
        ("go south", False),  # The windows are boarded.
        ("go east", True),
        ("open window", True),
        ("enter house", True),
        ("look", False),
        ("wait", False),
        ("go west", True),
        ("take lamp", True),
        ("turn on lamp", True),
        ("turn on lamp", False),
        ("turn off lamp", True),
        ("move rug", True),
        ("move rug", False),
        ("open trap door", True),
        ("wait", False),
    ]
    state, _ = env.reset()
    found = []
    for command, _ in account:
        state, step = env.step(state, command)
        found.append((command, step.admissible))
    assert found == account


def test_our_reading_of_the_world_agrees_with_jerichos(zork_file: Callable[[int], Path]) -> None:
    """On the release that Jericho knows, over random play in all parts of the game."""
    story = zork.load_zork(zork_file(88))
    env = StoryEnv(story)
    emulator = open_emulator(story.story)
    world = world_bytes(story, emulator)
    close_emulator(emulator)
    rng = random.Random(3)
    agree: list[bool] = []
    for first in range(0, 360, 40):
        state, _ = play(env, story.walkthrough[:first], story.walkthrough_seed)
        for command in rng.choices(story.commands, k=60):
            if state.over:
                break
            following, step = env.step(state, command)
            before, after = (one.snapshot for one in (state, following))
            assert before is not None
            assert after is not None
            ours = not np.array_equal(before[0][world], after[0][world])
            agree.append(ours == step.admissible)
            state = following
    env.close()
    assert len(agree) > 300
    assert np.mean(agree) > 0.95


def test_a_game_without_snapshots_plays_the_same(env: StoryEnv) -> None:
    """And goes back nowhere, unless it is read from them, as a story that Jericho knows not."""
    other = StoryEnv(env.game, snapshots=False)
    (state, step), (lean, seen) = env.reset(7), other.reset(7)
    first = lean
    rng = random.Random(4)
    for command in rng.choices(env.game.commands, k=120):
        assert (seen.text, seen.score, seen.admissible) == (step.text, step.score, step.admissible)
        assert seen.terminated == step.terminated
        if state.over:
            break
        # What is told along the way changes nothing.
        assert env.tell(state, "look")
        (state, step), (lean, seen) = env.step(state, command), other.step(lean, command)
    if first.snapshot is None:
        with pytest.raises(grue.UsageError, match="only go on from its last state"):
            other.step(first, "look")
    assert (first.snapshot is None) == (env.game.file.release == 88)
    other.close()


def test_text_is_without_status_line_and_prompt(env: StoryEnv) -> None:
    """The status line counts moves, which are none of the agent's business."""
    _, step = play(env, ("go north", "go north", "look"))
    assert (step.text or "").splitlines()[0] == "Forest Path"
    for word in ("Score", "Moves", ">"):
        assert word not in (step.text or "")


# The game as it is loaded


def test_the_commands_are_jerichos_and_look(env: StoryEnv) -> None:
    from jericho.defines import BINDINGS_DICT

    table = next(t for t in BINDINGS_DICT.values() if t["name"] == "zork1")
    assert env.game.commands == (*table["minimal_actions"].split("/"), "look")
    assert len(env.game.commands) == 132


def test_every_word_is_known(env: StoryEnv) -> None:
    """Of the whole walkthrough; the vocabulary is fixed before play."""
    words = env.game.words
    assert words.words[0] == "<unknown>"
    unknown: set[str] = set()
    for turn in follow_walkthrough(env):
        text = turn.step.text or ""
        numbers = words.encode(text)
        unknown |= {text for number in numbers if number == 1}
    # The final score and the number of moves are computed.
    assert all("Your score is" in text for text in unknown)
    assert words.decode(words.encode("You are in the Kitchen.")) == "you are in the kitchen."


def test_releases_are_known_by_their_bytes(zork_file: Callable[[int], Path]) -> None:
    for release in RELEASES:
        story = grue.load("zork1", story=zork_file(release))
        assert isinstance(story, Story)
        assert zork.RELEASES[hashlib.sha256(story.data).hexdigest()] == release
        assert (story.name, story.max_score, story.file.release) == ("zork1", 350, release)


def test_the_story_is_looked_for(
    zork_file: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRUE_ZORK1", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(grue.UsageError, match=r"story=PATH\), name it in GRUE_ZORK1, or put"):
        grue.load("zork1")
    (tmp_path / "grue").mkdir()
    (tmp_path / "grue" / "zork1.z3").write_bytes(zork_file(119).read_bytes())
    assert grue.load("zork1").file.release == 119
    monkeypatch.setenv("GRUE_ZORK1", str(zork_file(88)))
    assert grue.load("zork1").file.release == 88
    assert grue.load("zork1", story=zork_file(119)).file.release == 119


def test_make_takes_a_story_and_commands(
    zork_file: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRUE_ZORK1", raising=False)
    listed = tmp_path / "commands.txt"
    listed.write_text("open mailbox\nlook\n")
    story = grue.load("zork1", zork_file(119), listed)
    for env in (
        grue.make("zork1", story=zork_file(119), commands=listed, episode_steps=9),
        grue.make(story, episode_steps=9),
    ):
        assert isinstance(env, StoryEnv)
        assert (env.game.commands, env.episode_steps) == (("open mailbox", "look"), 9)
        assert "leaflet" in str(env.step(env.reset()[0], 0)[1].text)
        env.close()
    with pytest.raises(
        grue.UsageError, match="zork1 already has its story and commands; give story"
    ):
        grue.make(story, story=zork_file(88))
    with pytest.raises(grue.UsageError, match="a name or the path of a file, not a Story: give 'z"):
        grue.TrainConfig(game=story)


def test_another_story_is_not_zork(zork_file: Callable[[int], Path], tmp_path: Path) -> None:
    level = grue.load("saladworld-1").story
    with pytest.raises(grue.UsageError, match="not a known release of Zork I: releases 88 and 119"):
        grue.load("zork1", story=level)
    cut = tmp_path / "zork1.z3"
    cut.write_bytes(zork_file(119).read_bytes()[:-1000])
    with pytest.raises(grue.BrokenFileError, match="is cut short"):
        grue.load("zork1", story=cut)
    with pytest.raises(grue.UsageError, match=r"--story \(in Python: story\) is for zork1"):
        grue.load("saladworld-1", story=level)


def test_the_missing_story_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GRUE_ZORK1", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for command in ("train", "play", "walkthrough"):
        assert entry.main([command, "zork1"]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("grue: Zork I does not come with grue: give its story file with")
        assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_any_story_is_played_by_its_path(env: StoryEnv, tmp_path: Path) -> None:
    copy = tmp_path / f"adventure{env.game.story.suffix}"
    copy.write_bytes(env.game.data)
    story = grue.load(copy)
    assert (story.name, story.file.release) == ("adventure", env.game.file.release)
    other = StoryEnv(story)
    assert play(other, TO_THE_KITCHEN)[1].score == 10
    other.close()


def test_commands_of_a_file(tmp_path: Path, zork_file: Callable[[int], Path]) -> None:
    path = tmp_path / "commands.txt"
    path.write_text("# the way in\n\ngo  north\ngo east\nopen window\nenter house\n")
    story = read_story_game(zork_file(119), commands=path)
    assert story.commands == (*TO_THE_KITCHEN, "look")
    assert grue.load("zork1", zork_file(88), path).commands == story.commands
    for text, reason in (
        ("look\nlook\n", "line 2: 'look' is already in line 1"),
        ("\n# nothing\n", "has no commands"),
    ):
        path.write_text(text)
        with pytest.raises(grue.UsageError, match=reason):
            read_commands(path)
    with pytest.raises(grue.UsageError, match="there is no file"):
        read_commands(tmp_path / "absent.txt")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(grue.UsageError, match="cannot read the commands"):
        read_commands(path)
    with pytest.raises(grue.UsageError, match="has its own commands"):
        grue.load("saladworld-1", commands=path)


def test_commands_to_the_interpreter_are_refused(env: StoryEnv) -> None:
    state, _ = env.reset()
    for command in ("save", "restore", "quit", "restart", "look. quit", "look\n"):
        with pytest.raises(grue.UsageError):
            env.step(state, command)


def test_seeds_that_the_emulator_does_not_take(env: StoryEnv) -> None:
    for seed in (-1, 2**31 - 1):
        with pytest.raises(grue.UsageError, match="give one from 0 to 2147483646"):
            env.reset(seed)
    assert env.reset(2**31 - 2)[1].score == 0


def test_a_story_at_the_command_line(
    zork_file: Callable[[int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    story = str(zork_file(119))
    assert entry.main(["walkthrough", "zork1", "--run", "--story", story]) == 0
    assert capsys.readouterr().out.endswith("score 350/350, game won\n")
    assert entry.main(["play", story, "--hints"]) == 2
    assert "play it without --hints" in capsys.readouterr().err
    assert entry.main(["map", story]) == 2
    assert "is a Z-machine story, and its world is unknown" in capsys.readouterr().err
