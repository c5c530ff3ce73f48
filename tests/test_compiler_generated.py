"""Games of TextWorld's own generators, compiled and played against the real thing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import grue
from grue.engine.compiler.build import compile_game, score_text
from grue.engine.verify import Verifier
from grue.errors import CannotCompileError
from grue.games.game import Game
from grue.games.gamefile import compiled_path
from grue.training.programs import check_trainable

pytestmark = pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning")

# The generator's settings, its seed, and how many rooms and commands the game has.
CHALLENGES: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "tw-simple": ({"rewards": "dense", "goal": "brief", "test": False}, 3, 6, 466),
    "tw-coin_collector": ({"level": 3}, 1, 3, 9),
    "tw-treasure_hunter": ({"level": 2}, 5, 5, 13),
    # With a "non-euclidean chest" and a "non-euclidean keycard": names that share words.
    "custom": ({}, 6, 3, 62),
}


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    import textworld
    from textworld.challenges import CHALLENGES as MAKERS
    from textworld.generator import compile_game as compile_story

    made: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind not in made:
            settings, seed, *_ = CHALLENGES[kind]
            options = textworld.GameOptions()
            options.seeds = seed
            # TextWorld's own file names begin with "tw-" too, which Jericho treats apart.
            options.path = str(tmp_path_factory.mktemp("generated") / f"{kind}.z8")
            if kind == "custom":
                options.nb_rooms, options.nb_objects, options.quest_length = 3, 8, 3
                made[kind] = Path(textworld.make(options)[0])
            else:
                made[kind] = Path(compile_story(MAKERS[kind][1](settings, options), options))
        return made[kind]

    return get


@pytest.mark.parametrize("kind", CHALLENGES)
def test_generated_game(
    generated: Callable[[str], Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind != "custom":  # One kind is swept as well; it takes a program of its own.
        monkeypatch.setattr("grue.engine.verify.SWEEP_SHARE", 10**9)
    game = grue.load(generated(kind))
    _, _, rooms, commands = CHALLENGES[kind]
    assert (len(game.rooms), len(game.commands)) == (rooms, commands)
    engines = Verifier(game)
    report = engines.run(150, seed=0)
    assert str(report.first or "") == ""
    assert (report.mismatches, report.steps >= 150) == (0, True)
    # Its walkthrough wins on both engines.
    state, step = engines._reset()
    real_state, real = engines.real.reset()
    for command in game.walkthrough:
        action = game.commands.index(command)
        state, step = engines._step(state, action)
        real_state, real = engines.real.step(real_state, action)
    assert (bool(step.terminated), int(step.score)) == (True, game.max_score)
    assert (real.terminated, real.score) == (True, game.max_score)
    engines.real.close()


@pytest.fixture
def with_lists(tmp_path: Path) -> Callable[[int], Game]:
    """A box, a stand with two things, and two things whose texts list what the holders hold."""
    import textworld
    from textworld.generator import compile_game as compile_story
    from textworld.generator.game import Event, Quest

    def make(about_the_stand: int) -> Game:
        maker: Any = textworld.GameMaker()  # whose annotations are not those it takes
        hall = maker.new_room("hall")
        maker.set_player(hall)
        box, stand = (maker.new(type=t, name=name) for t, name in (("c", "box"), ("s", "stand")))
        note, card, lamp, book = (
            maker.new(type="o", name=name) for name in ("note", "card", "lamp", "book")
        )
        hall.add(box, stand, note, card)
        box.add_property("open")
        stand.add(lamp, book)
        note.infos.desc = f"There [is-are a list of things in the {box.id}] there."
        listed = (card, stand)[about_the_stand]
        listed.infos.desc = f"There [is-are a list of things on the {stand.id}] there."
        maker.quests = [Quest([Event(conditions=[maker.new_fact("in", book, box)])], reward=1)]
        options = textworld.GameOptions()
        options.path = str(tmp_path / "lists.z8")
        return grue.load(Path(compile_story(maker.build(), options)))

    return make


def test_a_game_without_a_quest(tmp_path: Path) -> None:
    """It plays, but there is nothing to win and nothing to learn."""
    import textworld
    from textworld.generator import compile_game as compile_story

    maker: Any = textworld.GameMaker()  # whose annotations are not those it takes
    hall = maker.new_room("hall")
    maker.set_player(hall)
    hall.add(maker.new(type="o", name="ball"))
    options = textworld.GameOptions()
    options.path = str(tmp_path / "idle.z8")
    story = Path(compile_story(maker.build(), options))
    with pytest.raises(CannotCompileError, match="it has no quest that can be won"):
        compile_game(grue.load(story))
    with pytest.raises(grue.UsageError, match=r"idle.z8, cannot be used: .* no quest"):
        grue.make_many(tmp_path, hosted="leave out")
    with pytest.raises(grue.UsageError, match="has no quest that can be won, so there is nothing"):
        check_trainable(grue.TrainConfig(game=str(story)))


def test_a_list_after_is_or_are(with_lists: Callable[[int], Game]) -> None:
    """Before "nothing", the verb is what it was before the last list."""
    game = with_lists(0)
    compile_game(game).save(compiled_path(game))
    engines = Verifier(game)
    said = []
    state, _ = engines._reset()
    real_state, _ = engines.real.reset()
    for command in ("examine note", "examine card", "examine note", "take lamp from stand",
                    "examine card", "examine note"):  # fmt: skip
        action = game.commands.index(command)
        state, step = engines._step(state, action)
        real_state, real = engines.real.step(real_state, action)
        text = " ".join((real.text or "").split())
        assert " ".join(engines.compiled.decode(step.observation).split()) == text
        said.append(text)
    assert [text for text in said if text.startswith("There")] == [
        "There is nothing there.",
        "There are a lamp and a book there.",
        "There are nothing there.",
        "There is a book there.",
        "There is nothing there.",
    ]
    report = engines.run(150, seed=0)
    assert (str(report.first or ""), report.mismatches) == ("", 0)
    engines.real.close()


def test_a_list_that_stands_twice_in_a_text_is_refused(with_lists: Callable[[int], Game]) -> None:
    """Inform adds its own list to a stand's description."""
    with pytest.raises(CannotCompileError, match="a text lists the things of 'stand' twice"):
        compile_game(with_lists(1))


# What must be refused, made from level 4 by one change each.


def changed(change: Callable[[Any], None]) -> Game:
    game = grue.load("saladworld-4")
    data = copy.deepcopy(game.data)
    change(data)
    return Game(game.name, game.story, data)


def info(data: Any, name: str) -> Any:
    return next(found for _, found in data["infos"] if found["name"] == name)


def unknown_condition(data: Any) -> None:
    info(data, "kitchen")["desc"] += " [if the moon is full]It is bright.[end if]"


def unknown_substitution(data: Any) -> None:
    info(data, "kitchen")["desc"] += " It is [the time of day]."


def one_name_twice(data: Any) -> None:
    info(data, "tomato")["name"] = "lettuce"


def name_with_a_word_of_the_grammar(data: Any) -> None:
    info(data, "tomato")["name"] = "tomato and basil"


def unknown_command(data: Any) -> None:
    data["metadata"]["commands"].append("juggle tomato")


def test_unchanged_game_is_compiled() -> None:
    assert compile_game(changed(lambda _: None)).name == "saladworld-4"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            unknown_condition,
            r"the condition \[if the moon is full\] in the description of 'kitchen'",
        ),
        (unknown_substitution, r"substitution \[the time of day\] in the description of 'kitchen'"),
        (one_name_twice, "the parser takes 'lettuce' for 'lettuce'"),
        (name_with_a_word_of_the_grammar, "the parser reads 'and' in 'tomato and basil' apart"),
        (unknown_command, "no rule of the game gives the command 'juggle tomato'"),
    ],
    ids=lambda value: getattr(value, "__name__", "reason"),
)
def test_what_stops_the_compiler_is_named(change: Callable[[Any], None], reason: str) -> None:
    with pytest.raises(CannotCompileError, match=reason):
        compile_game(changed(change))


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (1, "one point"),
        (2, "two points"),
        (13, "thirteen points"),
        (20, "twenty points"),
        (21, "twenty-one points"),
        (99, "ninety-nine points"),
        (100, "one hundred points"),
        (101, "one hundred and one points"),
        (342, "three hundred and forty-two points"),
    ],
)
def test_points_in_words(points: int, words: str) -> None:
    assert score_text(points).strip() == f"Your score has just gone up by {words}."
