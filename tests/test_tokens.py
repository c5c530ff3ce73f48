"""Words as numbers: goldens, and that nothing but white space is lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import grue
from grue.games.gamefile import compiled_path, load_compiled
from grue.games.tokens import PADDING, Vocabulary, join, squeeze, tokenize

LEVEL_7 = load_compiled(compiled_path(grue.load("saladworld-7"))).vocabulary
SPACE = st.text(" \t\n\r\v\f", min_size=1, max_size=3)


def spaced(words: list[str], gaps: list[str]) -> str:
    return "".join(part for pair in zip(words, gaps, strict=True) for part in pair)


GOLDEN = [
    ("", []),
    (" \n\t ", []),
    ("You can't go that way.", ["You", "can't", "go", "that", "way", "."]),
    ("-= Living Room =-\nYou", ["-=", "Living", "Room", "=-", "You"]),
    ("*** The End ***", ["***", "The", "End", "***"]),
    ("a non-euclidean keycard", ["a", "non-euclidean", "keycard"]),
    ("twenty-five points", ["twenty-five", "points"]),
    ("Box 42a, (shut)!", ["Box", "42a", ",", "(", "shut", ")", "!"]),
    # Apostrophes and hyphens belong to a word only between letters.
    ("'tis the cooks' -salad-", ["'", "tis", "the", "cooks", "'", "-", "salad", "-"]),
    ('He says "stop"', ["He", "says", '"', "stop", '"']),
    ("snake_case", ["snake", "_", "case"]),
    ("****", ["***", "*"]),
    ("-==-", ["-=", "=-"]),
    ("l’été", ["l’été"]),
]


@pytest.mark.parametrize(("text", "words"), GOLDEN)
def test_tokenize(text: str, words: list[str]) -> None:
    assert tokenize(text) == words


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], ""),
        (["Hello"], "Hello"),
        (["a", ",", "b", "and", "c", "."], "a, b and c."),
        ([".", "."], ".."),
        (["-=", "Kitchen", "=-", "You"], "-= Kitchen =- You"),
        (["(", "shut", ")"], "( shut)"),
    ],
)
def test_join(words: list[str], text: str) -> None:
    assert join(words) == text


def test_squeeze() -> None:
    assert squeeze(" a\tb\n\nc d ") == "abcd"


def test_numbers_start_at_one_in_the_order_of_the_words() -> None:
    vocabulary = Vocabulary.of(["You take the lettuce.", "the Lettuce"])
    assert vocabulary.words == (".", "Lettuce", "You", "lettuce", "take", "the")
    assert len(vocabulary) == 7
    assert vocabulary.numbers == {".": 1, "Lettuce": 2, "You": 3, "lettuce": 4, "take": 5, "the": 6}
    assert vocabulary.encode("You take the lettuce.") == [3, 5, 6, 4, 1]
    assert vocabulary.decode([3, 5, 6, 4, 1]) == "You take the lettuce."


def test_padding_is_nothing_wherever_it_stands() -> None:
    vocabulary = Vocabulary(("a", "b"))
    assert PADDING == 0
    assert vocabulary.decode([0, 1, 0, 2, 0, 0]) == "a b"
    assert vocabulary.decode([0, 0]) == ""
    assert vocabulary.encode("") == []


@pytest.mark.parametrize("word", ["xyzzy", "Lettuce", "#"])
def test_unknown_word_is_named(word: str) -> None:
    # "lettuce" is known: case is kept.
    with pytest.raises(ValueError, match=f"the word '{word}' is not in the vocabulary"):
        LEVEL_7.encode(f"take the lettuce {word}")


def test_no_number_beyond_the_vocabulary() -> None:
    with pytest.raises(IndexError):
        Vocabulary(("a", "b")).decode([3])


def test_levels_know_the_words_of_their_commands(level: int) -> None:
    game = grue.load(f"saladworld-{level}")
    vocabulary = load_compiled(compiled_path(game)).vocabulary
    for command in game.commands:
        assert vocabulary.decode(vocabulary.encode(command)) == command
    assert list(vocabulary.words) == sorted(set(vocabulary.words))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(LEVEL_7.words), SPACE), max_size=30))
def test_round_trip_of_the_games_words(pairs: list[tuple[str, str]]) -> None:
    words = [word for word, _ in pairs]
    text = spaced(words, [gap for _, gap in pairs])
    numbers = LEVEL_7.encode(text)
    assert numbers == [LEVEL_7.words.index(word) + 1 for word in words]
    assert squeeze(LEVEL_7.decode(numbers)) == squeeze(text)
    # What is printed reads back as the same words.
    assert LEVEL_7.encode(LEVEL_7.decode(numbers)) == numbers


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60) | st.text("ab-='* _.\n’7é", max_size=30))
def test_round_trip_of_any_text(text: str) -> None:
    vocabulary = Vocabulary.of([text])
    numbers = vocabulary.encode(text)
    assert squeeze(vocabulary.decode(numbers)) == squeeze(text)
    assert vocabulary.encode(vocabulary.decode(numbers)) == numbers
    assert PADDING not in numbers
