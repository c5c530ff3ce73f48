"""The map: where rooms go, which ways are drawn, and the files that come out."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest

import grue
from grue.errors import GrueError, UsageError
from grue.games.game import Exit, Game, Room
from grue.reports import game_map as game_map
from grue.reports.game_map import contents, door_colour, draw_map
from grue.reports.layout import OPPOSITE, STEPS, Way, is_straight, lay_out, ways


def fact(name: str, *arguments: str) -> dict[str, Any]:
    return {"name": name, "arguments": [{"name": a, "type": ""} for a in arguments]}


def odd_game() -> Game:
    """A world that fits no grid: a square that does not close, a one-way, a room apart."""
    world = [
        fact("at", "P", "r0"),
        *(fact(f"{d}_of", there, here) for here, d, there in ODD_EXITS),
        fact("link", "r0", "d0", "r4"),
        fact("open", "d0"),
        fact("at", "c0", "r5"),
        fact("in", "o0", "c0"),
        fact("in", "o1", "I"),
    ]
    names = {"P": "P", "I": "I", "d": "d", "c": "c", "o": "o", "r": "r"}
    titles = {f"r{i}": f"room {i}" for i in range(6)}
    titles |= {
        "d0": "white $frosted$ door",
        "c0": "box",
        "o0": "coin",
        "o1": "lamp",
        "P": "",
        "I": "",
    }
    logic = "".join(f"type {name} {{\n}}\n" for name in names)
    infos = [[key, {"name": title, "type": key[0]}] for key, title in titles.items()]
    data = {"world": world, "quests": [], "infos": infos, "KB": {"logic": logic}}
    return Game("odd", Path("odd.z8"), data)


ODD_EXITS = (
    ("r0", "north", "r1"),
    ("r1", "south", "r0"),
    ("r1", "east", "r2"),
    ("r2", "west", "r1"),
    ("r2", "south", "r3"),
    ("r3", "north", "r2"),
    ("r0", "east", "r4"),
    ("r4", "west", "r0"),
    ("r3", "west", "r0"),
)


@pytest.mark.parametrize("name", grue.game_names())
def test_every_level_fits_the_compass(name: str) -> None:
    game = grue.load(name)
    places = lay_out(game.rooms, game.start)
    assert places[game.start] == (0, 0)
    assert set(places) == {room.name for room in game.rooms}
    assert len(set(places.values())) == len(places)
    for room in game.rooms:
        for direction, exit_ in room.exits.items():
            east, north = STEPS[direction]
            column, row = places[room.name]
            assert places[exit_.to] == (column + east, row + north)
    assert all(is_straight(way, places) for way in ways(game.rooms))


def test_places_of_level_two() -> None:
    game = grue.load("saladworld-2")
    assert lay_out(game.rooms, game.start) == {
        "kitchen": (0, 0),
        "backyard": (-1, 0),
        "living room": (0, -1),
        "open space": (1, -1),
        "vegetable market": (2, -1),
        "garden": (1, 0),
        "supermarket": (1, -2),
    }


def test_ways_are_drawn_once() -> None:
    found = ways(grue.load("saladworld-6").rooms)
    assert len(found) == 11  # A tree over 12 rooms.
    assert not any(way.one_way for way in found)
    assert sorted(way.door for way in found if way.door) == ["blue door", "red door"]


def test_rooms_that_collide_are_moved_apart() -> None:
    rooms = odd_game().rooms
    places = lay_out(rooms, "room 0")
    assert len(set(places.values())) == 6
    # Both lie east of room 0 by the compass; room 4 was found first.
    assert places["room 4"] == (1, 0)
    assert places["room 3"] != (1, 0)
    assert places["room 5"][0] == max(column for column, _ in places.values())

    found = ways(rooms)
    assert len(found) == 5
    assert [way for way in found if way.one_way] == [Way("room 3", "room 0", "west", None, True)]
    bent = {(way.here, way.there) for way in found if not is_straight(way, places)}
    assert {"room 2", "room 3"} in [set(pair) for pair in bent]


def test_two_rooms_that_lead_to_each_other_by_the_same_direction() -> None:
    rooms = (Room("a", {"north": Exit("b")}), Room("b", {"north": Exit("a")}))
    assert [way.one_way for way in ways(rooms)] == [True, True]
    assert lay_out(rooms, "a") == {"a": (0, 0), "b": (0, 1)}


def test_contents_are_listed_under_what_holds_them() -> None:
    rows = [(row.depth, row.text) for row in contents(grue.load("saladworld-5"), "fruit shop")]
    chest = next(t for t in grue.load("saladworld-5").things if t.state == "locked" and t.location)
    assert rows == [(0, f"{chest.name} (locked)"), (1, "banana"), (0, "chest key")]


def test_door_colours() -> None:
    assert door_colour("blue door") == game_map.SOFTER["blue"]
    assert door_colour("Purple portal") == "#800080"
    assert door_colour("type 3 hatch") == door_colour("door") == game_map.DOOR


@pytest.mark.parametrize("name", ["saladworld-1", "saladworld-7"])
def test_nothing_overlaps_or_is_cut_off(name: str, tmp_path: Path, monkeypatch) -> None:
    """Measures every text as Matplotlib draws it."""
    drawn: list[Any] = []
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig", lambda figure, *_, **__: drawn.append(figure)
    )
    draw_map(grue.load(name), tmp_path / "map.png")
    (figure,) = drawn
    renderer = figure.canvas.get_renderer() if hasattr(figure.canvas, "get_renderer") else None
    texts = [text for text in figure.axes[0].texts if text.get_text()]
    boxes = [text.get_window_extent(renderer) for text in texts]
    for i, box in enumerate(boxes):
        assert figure.bbox.x0 < box.x0 < box.x1 < figure.bbox.x1, texts[i]
        assert figure.bbox.y0 < box.y0 < box.y1 < figure.bbox.y1, texts[i]
        for j in range(i):
            assert not box.overlaps(boxes[j]), (texts[i], texts[j])

    words = [text.get_text() for text in texts]
    game = grue.load(name)
    for room in game.rooms:
        assert words.count(room.name) == 1
    for thing in game.objects:
        assert any(word.split(" (")[0] == thing.name for word in words)


def test_files_by_suffix_are_whole_and_repeatable(tmp_path: Path) -> None:
    game = grue.load("saladworld-4")
    for suffix, magic in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
        first = draw_map(game, tmp_path / f"new/first{suffix}").read_bytes()
        second = draw_map(game, tmp_path / f"second{suffix.upper()}").read_bytes()
        assert first.startswith(magic)
        assert first == second
    assert sorted(os.listdir(tmp_path / "new")) == ["first.pdf", "first.png", "first.svg"]
    image = matplotlib.image.imread(tmp_path / "new/first.png")
    height, width = image.shape[:2]
    assert 600 < height < 2400
    assert 600 < width < 2400
    assert image[:, :, :3].min() < 0.3  # There is ink on it,
    border = image[:20].min(), image[-20:].min(), image[:, :20].min(), image[:, -20:].min()
    assert border == (1, 1, 1, 1)  # and none at the edges.


def test_an_odd_game_is_drawn(tmp_path: Path) -> None:
    path = draw_map(odd_game(), str(tmp_path / "odd.svg"))
    comments = re.findall(r"<!-- (.*?) -->", path.read_text())
    assert {f"room {i}" for i in range(6)} <= set(comments)
    assert "6 rooms, 3 objects, 0 subtasks, 0 points; carried: lamp" in comments
    assert "white $frosted$ door" in comments
    assert "open" in comments


def test_an_existing_picture_survives_a_failure(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "map.png"
    path.write_bytes(b"old")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fail)
    with pytest.raises(GrueError, match="No space left on device"):
        draw_map(grue.load("saladworld-1"), path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["map.png"]


def test_wrong_paths_are_refused(tmp_path: Path) -> None:
    game = grue.load("saladworld-1")
    for name in ("map.gif", "map", ".png"):
        with pytest.raises(UsageError, match=re.escape(".png, .svg, .pdf")):
            draw_map(game, tmp_path / name)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UsageError, match=r"folder\.png is a folder: give the name of a file"):
        draw_map(game, tmp_path / "folder.png")
    for name in ("file/map.png", "file/more/map.png"):
        with pytest.raises(GrueError, match=f"cannot write .*{name}") as caught:
            draw_map(game, tmp_path / name)
        assert "\n" not in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.png"]


def test_opposites_are_opposite() -> None:
    for direction, (east, north) in STEPS.items():
        assert STEPS[OPPOSITE[direction]] == (-east, -north)
