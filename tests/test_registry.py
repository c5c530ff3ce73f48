"""Finding games by name and by path, and what a game says about itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import grue
from grue.games.game import Exit, Room, Subtask, Thing
from grue.games.registry import load_textworld
from grue.games.zmachine.story import Story


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The path of a level's story that may be changed."""
    for file in (
        grue.load("saladworld-1").story,
        grue.load("saladworld-1").story.with_suffix(".json"),
    ):
        shutil.copy(file, tmp_path / f"mine{file.suffix}")
    return tmp_path / "mine.z8"


def test_names() -> None:
    assert grue.game_names() == tuple(f"saladworld-{n}" for n in range(1, 8))
    for name in grue.game_names():
        assert grue.load(name).name == name


def test_shipped_games_are_read_once() -> None:
    assert grue.load("saladworld-4") is grue.load("saladworld-4")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("saladworld-8", "the games are saladworld-1 to saladworld-7, zork1"),
        ("saladword-3", "did you mean saladworld-3?"),
        ("SaladWorld", "the games are saladworld-1 to saladworld-7, zork1, or the path of a story"),
        ("zork", "did you mean zork1?"),
    ],
)
def test_unknown_name(name: str, hint: str) -> None:
    with pytest.raises(grue.UsageError) as caught:
        grue.load(name)
    assert hint in str(caught.value)
    assert repr(name) in str(caught.value)


def test_no_hint_for_a_name_like_no_other() -> None:
    with pytest.raises(grue.UsageError) as caught:
        grue.load("chess")
    assert "did you mean" not in str(caught.value)


def test_game_by_path(copy: Path) -> None:
    for path in (copy, str(copy)):
        game = grue.load(path)
        assert game.name == "mine"
        assert game.story == copy
        assert game.commands == grue.load("saladworld-1").commands


@pytest.mark.parametrize("name", ["absent.z8", "folder/absent", "absent.z5"])
def test_path_of_no_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(grue.UsageError, match=f"there is no file {name}"):
        grue.load(name)


def test_story_without_its_game_file(copy: Path) -> None:
    """It is a Z-machine story like any other."""
    copy.with_suffix(".json").unlink()
    story = grue.load(copy)
    assert isinstance(story, Story)
    assert (story.name, story.story, story.file.version) == ("mine", copy, 8)
    with pytest.raises(grue.UsageError, match=r"mine\.z8 is a Z-machine story, and its world is"):
        load_textworld(copy)


def test_zork_has_no_known_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is told whether or not its file is there."""
    monkeypatch.setenv("GRUE_ZORK1", "nowhere.z5")
    with pytest.raises(
        grue.UsageError, match="zork1 is a Z-machine story, and its world is unknown"
    ):
        load_textworld("zork1")


@pytest.mark.parametrize("text", ["", "{", "salad", '{"world": '])
def test_game_file_that_is_not_json(copy: Path, text: str) -> None:
    copy.with_suffix(".json").write_text(text)
    with pytest.raises(grue.BrokenFileError, match=r"mine\.json is not a TextWorld game file: "):
        grue.load(copy)


def test_game_file_that_is_not_text(copy: Path) -> None:
    copy.with_suffix(".json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(grue.BrokenFileError, match=r"mine\.json is not a TextWorld game file: "):
        grue.load(copy)


@pytest.mark.parametrize("key", ["world", "quests", "infos", "KB"])
def test_game_file_without_a_part(copy: Path, key: str) -> None:
    data = json.loads(copy.with_suffix(".json").read_text())
    del data[key]
    copy.with_suffix(".json").write_text(json.dumps(data))
    with pytest.raises(grue.BrokenFileError, match=f"it has no '{key}'"):
        grue.load(copy)


@pytest.mark.parametrize("data", [[], "world", 3, None])
def test_game_file_of_another_shape(copy: Path, data: object) -> None:
    copy.with_suffix(".json").write_text(json.dumps(data))
    with pytest.raises(grue.BrokenFileError, match="it has no 'world'"):
        grue.load(copy)


def test_broken_story_is_named_before_its_game_file(copy: Path) -> None:
    copy.write_bytes(b"salad")
    copy.with_suffix(".json").unlink()
    with pytest.raises(grue.BrokenFileError, match="is not a Z-machine story"):
        grue.load(copy)


def test_level_1_described_in_full() -> None:
    game = grue.load("saladworld-1")
    assert set(map(str, game.rooms)) == set(
        map(
            str,
            (
                Room("kitchen", {"south": Exit("living room")}),
                Room("living room", {"east": Exit("open space"), "north": Exit("kitchen")}),
                Room(
                    "open space",
                    {"east": Exit("vegetable market"), "west": Exit("living room")},
                ),
                Room("vegetable market", {"west": Exit("open space")}),
            ),
        )
    )
    assert set(game.things) == {
        Thing("lettuce", "portable", "vegetable market"),
        Thing("counter", "supporter", "kitchen"),
    }
    assert game.subtasks == (
        Subtask("Enter the vegetable market.", 10),
        Subtask("Put the lettuce on the counter.", 5),
    )
    assert (game.start, game.max_score, game.episode_steps) == ("kitchen", 15, 100)
    assert game.walkthrough == (
        *("go south", "go east", "go east", "take lettuce"),
        *("go west", "go west", "go north", "put lettuce on counter"),
    )


def test_doors_and_states_are_described() -> None:
    game = grue.load("saladworld-7")
    rooms = {room.name: room for room in game.rooms}
    assert rooms["garden"].exits["north"] == Exit("supermarket", "blue door")
    assert rooms["supermarket"].exits == {"south": Exit("garden", "blue door")}
    assert rooms["cookhouse"].exits == {"east": Exit("playroom", "red door")}
    things = {thing.name: thing for thing in game.things}
    assert things["blue door"] == Thing("blue door", "door", "", "locked")
    assert things["red door"].kind == "door"
    assert things["wooden chest"] == Thing("wooden chest", "container", "fruit shop", "locked")
    assert things["banana"] == Thing("banana", "portable", "wooden chest")
    assert things["fridge"].state == "closed"
    assert things["oven"] == Thing("oven", "fitting", "cookhouse", "open")
    assert things["stove"].kind == "fitting"
    # The meal is not in the world before it is made.
    assert "meal" not in things
    assert not {"blue door", "red door", "stove", "oven"} & {t.name for t in game.objects}


def test_game_file_without_commands_gives_every_command(copy: Path) -> None:
    data = json.loads(copy.with_suffix(".json").read_text())
    data["metadata"] = {}
    copy.with_suffix(".json").write_text(json.dumps(data))
    game = grue.load(copy)
    assert "eat lettuce" in game.commands
    assert set(grue.load("saladworld-1").commands) < set(game.commands)
    assert game.walkthrough == ()
    assert game.episode_steps == 200
