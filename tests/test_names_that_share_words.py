"""Names that share words: what the story understands, asks and does, compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import grue
from grue.engine.compiled import CompiledEnv
from grue.engine.compiler.build import compile_game
from grue.engine.verify import Verifier
from grue.errors import CannotCompileError
from grue.games.gamefile import CompiledGame

pytestmark = pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning")


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hall and a yard with stands, boxes, lamps, keys and red things of like names."""
    import textworld
    from textworld.generator import compile_game as compile_story
    from textworld.generator.game import Event, Quest

    maker: Any = textworld.GameMaker()  # whose annotations are not those it takes
    hall, yard = maker.new_room("hall"), maker.new_room("yard")
    maker.connect(hall.north, yard.south)
    maker.set_player(hall)
    stand, oak, shelf = (
        maker.new(type="s", name=name) for name in ("stand", "oak stand", "oak shelf")
    )
    box = maker.new(type="c", name="box")
    box.add_property("open")
    things = [maker.new(type="o", name=n) for n in ("lamp", "green lamp", "coin")]
    foods = [maker.new(type="f", name=n) for n in ("red pepper", "red onion", "red type D apple")]
    keys = [maker.new(type="k", name=n) for n in ("key", "gold key")]
    hall.add(stand, shelf, *things, *foods)
    yard.add(oak, box, *keys)
    maker.add_fact("match", keys[1], box)
    maker.quests = [Quest([Event(conditions=[maker.new_fact("in", things[2], box)])], reward=1)]
    options = textworld.GameOptions()
    options.path = str(tmp_path_factory.mktemp("names") / "names.z8")
    return Path(compile_story(maker.build(), options))


@pytest.fixture(scope="module")
def env(story: Path) -> CompiledEnv:
    return CompiledEnv(compile_game(grue.load(story), near=False))


PLAYS = {
    "both in sight": (
        ("examine lamp", "(the lamp)\n"),
        ("take lamp", "(the lamp)\nYou pick up the lamp from the ground."),
        ("put lamp on stand", "(the lamp on the stand)\nYou put the lamp on the stand."),
    ),
    "only the other carried": (
        ("take green lamp", "You pick up the green lamp from the ground."),
        ("drop lamp", "(the green lamp)\nYou drop the green lamp on the ground."),
    ),
    "the other place": (
        ("take green lamp", "You pick up the green lamp from the ground."),
        ("go north", "-= Yard =-"),
        ("put lamp on stand", "You put the green lamp on the oak stand."),
        ("take lamp from stand", "You take the green lamp from the oak stand."),
    ),
    "from the other place": (
        ("take coin from oak stand", "You can't see any such thing."),
        ("take coin", "You pick up the coin from the ground."),
        ("put coin on oak shelf", "You put the coin on the oak shelf."),
        (
            "take coin from oak stand",
            "I only understood you as far as wanting to take the coin from the oak shelf.",
        ),
        ("take lamp from oak stand", "You can't see any such thing."),
    ),
    "the wrong key": (
        ("go north", "-= Yard =-"),
        ("take key", "(the key)\nYou pick up the key from the ground."),
        ("close box", "You close the box."),
        ("lock box with gold key", "You need to take the gold key first."),
        ("go south", "-= Hall =-"),
        ("unlock box with gold key", "You can't see any such thing."),
    ),
    "a question": (
        ("take red pepper", "You pick up the red pepper from the ground."),
        ("go north", "-= Yard =-"),
        ("drop red onion", "I only understood you as far as wanting to drop the red pepper."),
        ("go south", "-= Hall =-"),
        ("eat red pepper", "You eat the red pepper. Not bad."),
        (
            "insert red pepper into box",
            "Which do you mean, the red onion or the red type D apple?",
        ),
        ("take red type D apple", "You pick up the red type D apple from the ground."),
        ("drop red type D apple", "You drop the red type D apple on the ground."),
        (
            "insert red pepper into box",
            "Which do you mean, the red type D apple or the red onion?",
        ),
    ),
}


@pytest.mark.parametrize("play", PLAYS.values(), ids=PLAYS)
def test_play(env: CompiledEnv, play: tuple[tuple[str, str], ...]) -> None:
    state, _ = env.reset()
    for command, beginning in play:
        state, step = env.step(state, env.commands.index(command))
        expected = env.decode(env.vocabulary.encode(beginning))
        assert env.decode(step.observation).startswith(expected), command


def test_other_thing_counts_as_change_and_not_as_possible(env: CompiledEnv) -> None:
    """What the game does to another thing changes the state; the rules name no such command."""
    state, _ = env.reset()
    for command in ("take green lamp", "go north"):
        state, before = env.step(state, env.commands.index(command))
    action = env.commands.index("put lamp on stand")
    assert not before.admissible_set[action]
    state, step = env.step(state, action)
    assert step.admissible


def test_both_engines_agree(story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grue.engine.verify.SWEEP_SHARE", 2)
    report = Verifier(grue.load(story)).run(1000, seed=1)
    assert str(report.first or "") == ""
    assert (report.mismatches, report.skipped) == (0, 0)


# Near.


@pytest.fixture
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that most commands with shared words must be compiled near."""
    monkeypatch.setattr("grue.engine.compiler.sentences.MOST_SITUATIONS", 40)


def test_near(story: Path, small_tables: None, monkeypatch: pytest.MonkeyPatch) -> None:
    game = grue.load(story)
    with pytest.raises(CannotCompileError, match=r"would have \d+ entries, and may have 40"):
        compile_game(game, near=False)
    near = compile_game(game)
    told = near.header["near"]
    assert 0 < len(told) < len(game.commands)
    assert told["drop red onion"]["things"]
    assert "shares words with too many things" in told["drop red onion"]["why"]
    with pytest.warns(UserWarning, match=f"names is compiled near: {len(told)} of "):
        env = grue.make(game, "compiled")
    assert set(env.near) == set(told)
    # In sight all is exact, out of sight all answers are alike.
    monkeypatch.setattr("grue.engine.verify.compiled", lambda _: near)
    monkeypatch.setattr("grue.engine.verify.SWEEP_SHARE", 2)
    report = Verifier(game).run(800, seed=2)
    assert str(report.first or "") == ""
    assert report.skipped > 50
    state, _ = env.reset()
    for command in ("take red pepper", "go north", "drop red onion"):
        state, step = env.step(state, env.commands.index(command))
    assert env.decode(step.observation) == "You can't see any such thing."


def test_near_is_kept_in_the_file(story: Path, small_tables: None, tmp_path: Path) -> None:
    from grue.games.gamefile import load_compiled

    made: CompiledGame = compile_game(grue.load(story))
    made.save(tmp_path / "names.grue.npz")
    loaded = load_compiled(tmp_path / "names.grue.npz")
    assert loaded.header["near"] == made.header["near"]
    assert all(np.array_equal(loaded.arrays[name], made.arrays[name]) for name in made.arrays)


def test_exact_games_say_nothing_of_near(env: CompiledEnv) -> None:
    assert "near" not in env.game.header
    assert env.near == {}


def test_compile_at_the_command_line(
    story: Path, small_tables: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from grue.cli import entry

    path = tmp_path / "names.grue.npz"
    assert entry.main(["compile", str(story), "-o", str(path), "--exact-only"]) == 1
    out, err = capsys.readouterr()
    assert (out, path.exists()) == ("", False)
    assert err.startswith("grue: names cannot be compiled (")
    assert err.endswith("): it plays hosted\n")
    assert entry.main(["compile", str(story), "-o", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"{path}, near: ")


def test_names_of_places_alone(tmp_path: Path) -> None:
    """Nothing can be carried, and two places share a word."""
    import textworld
    from textworld.generator import compile_game as compile_story
    from textworld.generator.game import Event, Quest

    maker: Any = textworld.GameMaker()
    hall, yard = maker.new_room("hall"), maker.new_room("yard")
    maker.connect(hall.north, yard.south)
    maker.set_player(hall)
    hall.add(maker.new(type="s", name="stand"))
    yard.add(maker.new(type="s", name="oak stand"))
    maker.quests = [Quest([Event(conditions=[maker.new_fact("at", maker.player, yard)])])]
    options = textworld.GameOptions()
    options.path = str(tmp_path / "places.z8")
    made = compile_game(grue.load(Path(compile_story(maker.build(), options))), near=False)
    env = CompiledEnv(made)
    state, _ = env.reset()
    _, step = env.step(state, env.commands.index("examine oak stand"))
    assert env.decode(step.observation) == "You can't see any such thing."
    assert "reading_table" in made.arrays
