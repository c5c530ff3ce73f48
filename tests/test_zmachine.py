"""Story files read as data: against the standard by hand, and against what emulators print."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import grue
from grue.games.tokens import tokenize
from grue.games.zmachine.code import CodeReader
from grue.games.zmachine.story_file import StoryFile
from grue.games.zmachine.text import TextDecoder

RELEASES = (88, 119)


@pytest.fixture(scope="module")
def zork(zork_file: Callable[[int], Path]) -> Callable[[int], StoryFile]:
    stories: dict[int, StoryFile] = {}

    def get(release: int) -> StoryFile:
        if release not in stories:
            stories[release] = StoryFile.read(zork_file(release))
        return stories[release]

    return get


@pytest.fixture(scope="module")
def salad() -> StoryFile:
    return StoryFile.read(grue.load("saladworld-7").story)


def emulator(path: Path) -> Any:
    import jericho

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jericho.UnsupportedGameWarning)
        return jericho.FrotzEnv(str(path), seed=12)


def known_to_jericho() -> dict[str, Any]:
    from jericho.game_info import zork1

    return zork1


# Texts


def coded(characters: list[int]) -> bytes:
    """Characters of five bits as a story keeps them, padded with 5."""
    characters = characters + [5] * (-len(characters) % 3)
    words = [
        first << 10 | second << 5 | third
        for first, second, third in zip(*(iter(characters),) * 3, strict=True)
    ]
    words[-1] |= 0x8000
    return b"".join(word.to_bytes(2, "big") for word in words)


@pytest.mark.parametrize(
    ("version", "characters", "text"),
    [
        (3, [13, 10, 17, 17, 20], "hello"),
        (3, [4, 13, 14, 5, 20], "Hi!"),
        (3, [5, 7, 6, 0, 7], "\na b"),
        (3, [5, 6, 1, 31, 6], "?a"),  # character 63 by its number
        (3, [5, 6, 4, 27], "ä"),  # 155, the first of the extra ones
        (3, [6, 5], "a"),
        (3, [5, 6, 2], ""),  # a number that is cut off
        (2, [4, 6, 7, 5, 8], "ABc"),  # 4 and 5 lock in versions 1 and 2
        (2, [2, 6, 7], "Ab"),
        (1, [6, 1, 7], "a\nb"),
        (1, [3, 27], "<"),
    ],
)
def test_texts_by_hand(version: int, characters: list[int], text: str) -> None:
    memory = bytes([version, *[0] * 63]) + coded(characters)
    assert TextDecoder(memory).text(64) == (text, len(memory))


def test_abbreviations_are_put_in() -> None:
    memory = bytearray(64) + bytes(2 * 96)
    memory[0] = 3
    memory[0x18:0x1A] = (64).to_bytes(2, "big")
    place = len(memory)
    memory += coded([25, 13, 10, 0])  # "the "
    memory[64 + 2 * 33 : 64 + 2 * 33 + 2] = (place // 2).to_bytes(2, "big")
    start = len(memory)
    memory += coded([2, 1, 8, 6, 25])  # 32 · (2 - 1) + 1, then "cat"
    assert TextDecoder(bytes(memory)).text(start) == ("the cat", len(memory))


def test_own_alphabet_and_characters() -> None:
    memory = bytearray(512)
    memory[0] = 5
    letters = [*range(ord("z"), ord("a") - 1, -1)] * 2 + [0, 13, *[155] * 24]
    memory[0x34:0x36] = (128).to_bytes(2, "big")
    memory[128 : 128 + 78] = bytes(letters)
    memory[0x36:0x38] = (256).to_bytes(2, "big")  # the header's extension, of three words
    memory[256:264] = bytes([0, 3, 0, 0, 0, 0, 1, 64])  # the table of characters, at 320
    memory[320:323] = bytes([1, 0x03, 0xB1])
    memory[400:404] = coded([6, 7, 5, 8, 5, 7])
    assert TextDecoder(bytes(memory)).text(400) == ("zyα\n", 404)


def test_text_without_an_end() -> None:
    with pytest.raises(ValueError, match="runs past the end"):
        TextDecoder(bytes([3, *[0] * 99])).text(90)


# Header, dictionary, objects


@pytest.mark.parametrize(
    ("release", "serial", "checksum", "words", "mailbox"),
    [(88, "840726", 0xA129, 697, 160), (119, "880429", 0xBF44, 684, 230)],
)
def test_zork(
    zork: Callable[[int], StoryFile],
    release: int,
    serial: str,
    checksum: int,
    words: int,
    mailbox: int,
) -> None:
    story = zork(release)
    assert (story.version, story.release, story.serial) == (3, release, serial)
    assert story.checksum == checksum
    dictionary = story.dictionary()
    assert len(dictionary) == words
    assert {"mailbo", "open", "north", "lanter", "grue", "xyzzy"} <= set(dictionary)
    assert max(map(len, dictionary)) == 6
    assert len(story.objects) == 250
    found = story.objects[mailbox - 1]
    assert (found.number, found.name) == (mailbox, "small mailbox")
    assert story.objects[found.parent - 1].name == "West of House"


def test_dictionary_is_that_of_jericho(
    zork: Callable[[int], StoryFile], zork_file: Callable[[int], Path]
) -> None:
    theirs = [str(word) for word in emulator(zork_file(88)).get_dictionary()]
    assert sorted(zork(88).dictionary()) == sorted(theirs)


def test_objects_are_those_of_jericho(
    zork: Callable[[int], StoryFile], zork_file: Callable[[int], Path]
) -> None:
    game = emulator(zork_file(88))
    theirs = {thing.num: thing for thing in game.get_world_objects() if thing.num}
    assert len(theirs) == 247  # those without a name are left out there
    ours = {thing.number: thing for thing in zork(88).objects if thing.number in theirs}
    moved = [n for n, thing in ours.items() if thing.parent != theirs[n].parent]
    # The game has begun there: it has put the player into the first room.
    assert [ours[number].name for number in moved] == ["cretin"]
    for number, thing in ours.items():
        bits = [i for i in range(32) if thing.attributes >> (31 - i) & 1]
        assert bits == list(theirs[number].attr.nonzero()[0]) or number == 180
        assert sorted(thing.properties) == sorted(n for n in theirs[number].properties if n)


def test_saladworld(salad: StoryFile) -> None:
    assert (salad.version, salad.release) == (8, 1)
    assert {"lettuce", "go", "vegetable"} <= set(salad.dictionary())
    assert max(map(len, salad.dictionary())) == 9


@pytest.mark.parametrize("data", [b"", b"\x03" * 63, b"\x09" + bytes(99)])
def test_not_a_story(data: bytes) -> None:
    with pytest.raises(grue.BrokenFileError, match="not a Z-machine story"):
        StoryFile(data)


@pytest.mark.parametrize("version", [3, 5, 8])
def test_story_of_zeros_is_refused(version: int) -> None:
    story = StoryFile(bytes([version, *[0] * 199]))
    assert story.objects == ()
    for read in (story.dictionary, lambda: story.words):
        with pytest.raises(grue.BrokenFileError, match="the story's dictionary cannot be read"):
            read()


@pytest.mark.parametrize("seed", range(1, 4))
def test_damaged_story_is_read_or_refused(
    zork: Callable[[int], StoryFile], rng: random.Random, seed: int
) -> None:
    """Nothing but grue's own errors, whatever the bytes; ``read_story`` refuses most before."""
    data = bytearray(zork(88).memory)
    for _ in range(10**seed):
        data[rng.randrange(64, len(data))] = rng.randrange(256)
    data[0] = 3
    story = StoryFile(bytes(data))
    attributes = (lambda: story.objects, lambda: story.words)
    for read in (story.dictionary, story.propose_commands, *attributes):
        with contextlib.suppress(grue.GrueError):
            assert isinstance(read(), tuple)


# Code


@pytest.mark.parametrize("release", RELEASES)
def test_walk_finds_the_code_and_the_texts_behind(
    zork: Callable[[int], StoryFile], release: int
) -> None:
    story = zork(release)
    code = story.walked
    assert {88: (443, 1108), 119: (450, 1093)}[release] == (len(code.routines), len(code.texts))
    behind = [text for _, text in story.code.strings(code.end)]
    opening = "You are standing in an open field west of a white house, with a boarded front door."
    assert opening in story.printed
    first = {88: "Lying in one corner of the room", 119: "An old leather bag, bulging with coins"}
    assert behind[0].startswith(first[release])
    assert all(text.isprintable() or "\n" in text for text in behind)


def test_texts_that_are_printed_by_address_begin_where_one_ends(salad: StoryFile) -> None:
    starts = {address for address, _ in salad.code.strings(salad.walked.end)}
    assert len(salad.walked.packed) == 414
    assert salad.walked.packed <= starts


@pytest.mark.parametrize(
    ("version", "code", "number", "length", "target"),
    [
        (3, "b0", ("0OP", 0), 1, None),
        (3, "a00080", None, 0, None),  # jz and a branch that is not there
        (3, "a004c5", ("1OP", 0), 3, 6),
        (3, "a0048005", ("1OP", 0), 4, 7),
        (3, "a0040005", ("1OP", 0), 4, 7),
        (3, "a004bfff", ("1OP", 0), 4, 1),
        (3, "8c0010", ("1OP", 12), 3, 17),
        (3, "e03f123400", ("VAR", 0), 5, None),
        (5, "be01ff00", ("EXT", 1), 4, None),
        (4, "ec03ff123456789abc00", ("VAR", 12), 10, None),
        (4, "eccf123400", None, 0, None),  # an operand after one that is left out
        (5, "8f1234", ("1OP", 15), 3, None),  # a call without a result; "not" before
        (3, "8f123400", ("1OP", 15), 4, None),
        (3, "be", None, 0, None),
    ],
)
def test_instructions(
    version: int, code: str, number: tuple[str, int] | None, length: int, target: int | None
) -> None:
    memory = bytes([version, *[0] * 63]) + bytes.fromhex(code)
    reader = CodeReader(memory, TextDecoder(memory))
    if number is None:
        with pytest.raises((IndexError, ValueError)):
            reader.instruction(64)
    else:
        found = reader.instruction(64)
        assert (found.kind, found.number) == number
        assert found.after == 64 + length
        assert found.target == (None if target is None else 64 + target)


# Words


def unknown(words: Iterable[str], texts: Iterable[str]) -> tuple[float, set[str]]:
    """The share of the words in some texts that are not known, and which these are."""
    known = set(words)
    seen = [word for text in texts for word in tokenize(text.lower())]
    missing = [word for word in seen if word not in known]
    return len(missing) / len(seen), set(missing)


def random_play(game: Any, commands: list[str], steps: int, seed: int) -> Iterable[str]:
    rng = random.Random(seed)
    yield game.reset()[0]
    for number in range(1, steps + 1):
        text, _, done, _ = game.step(rng.choice(commands))
        yield text
        if done or number % 200 == 0:
            game.seed(number)
            yield game.reset()[0]


def test_words_cover_the_walkthrough(
    zork: Callable[[int], StoryFile], zork_file: Callable[[int], Path]
) -> None:
    story, game = zork(88), emulator(zork_file(88))
    texts = [game.reset()[0]]
    for command in known_to_jericho()["walkthrough"].split("/"):
        text, _, _, info = game.step(command)
        texts.append(text)
        memory = game._get_ram().tobytes()
        assert story.score(memory) == info["score"]
    assert info["score"] == 350
    share, missing = unknown(story.words, texts)
    assert share < 0.001
    assert all(word.isdigit() for word in missing)


@pytest.mark.parametrize("release", RELEASES)
def test_words_cover_random_play(
    zork: Callable[[int], StoryFile], zork_file: Callable[[int], Path], release: int
) -> None:
    commands = known_to_jericho()["minimal_actions"].split("/")
    texts = list(random_play(emulator(zork_file(release)), commands, 10_000, release))
    _, missing = unknown(zork(release).words, texts)
    # A status line is printed with release 119, and it counts moves.
    assert all(word.isdigit() for word in missing)


def test_words_cover_saladworld(salad: StoryFile) -> None:
    printed = {word.lower() for word in grue.load("saladworld-7").vocabulary}
    assert {word for word in printed if not word.isdigit()} <= set(salad.words)


@pytest.mark.parametrize("release", RELEASES)
def test_words_are_sorted_and_small(zork: Callable[[int], StoryFile], release: int) -> None:
    words = zork(release).words
    assert list(words) == sorted(set(words))
    assert all(word == word.lower() for word in words)
    assert len(words) == {88: 2826, 119: 2864}[release]


# Score


def test_score_from_globals_alone(zork: Callable[[int], StoryFile]) -> None:
    story = zork(119)
    assert story.score(b"\x00\x01\xff\xf6\x00\x07" + bytes(474)) == -10
    assert story.score(story.memory) == 0
    with pytest.raises(grue.UsageError, match="3 bytes are too few"):
        story.score(bytes(3))


def test_score_of_later_versions_is_refused(salad: StoryFile) -> None:
    with pytest.raises(grue.UsageError, match="not version 8"):
        salad.score(salad.memory)


def test_score_of_a_story_with_a_clock_is_refused(zork: Callable[[int], StoryFile]) -> None:
    story = zork(88)
    assert story.score_refusal() is None
    clock = bytearray(story.memory)
    clock[1] |= 2
    with pytest.raises(grue.UsageError, match="the time of day"):
        StoryFile(bytes(clock)).score(bytes(480))


# Commands


@pytest.mark.parametrize("release", RELEASES)
def test_commands_for_zork(zork: Callable[[int], StoryFile], release: int) -> None:
    commands = zork(release).propose_commands(200)
    assert len(set(commands)) == 200
    first = ("north", "east", "west", "south", "northeast", "northwest", "southeast", "southwest")
    assert commands[:8] == first
    assert {"up", "down", "look", "inventory", "open mailbox", "take leaflet"} <= set(commands)
    more = zork(release).propose_commands(20_000)
    assert more[:200] == commands
    wanted = {"take egg", "open trap door", "take brass lantern", "put leaflet in mailbox"}
    assert wanted | {"push yellow button", "climb tree", "give lunch to mailbox"} <= set(more)
    assert not {command.split()[0] for command in more} & {"save", "quit", "restart", "$ve"}


@pytest.mark.parametrize("release", RELEASES)
def test_proposed_commands_are_understood(
    zork: Callable[[int], StoryFile], zork_file: Callable[[int], Path], release: int
) -> None:
    """The parser knows every word, and every sentence is one of its own."""
    game = emulator(zork_file(release))
    refusals = ("don't know the word", "was a verb", "no verb", "don't understand that")
    game.reset()
    start = game.get_state()
    for command in zork(release).propose_commands(600):
        game.set_state(start)
        text = game.step(command)[0]
        assert not any(refusal in text for refusal in refusals), (command, text)


def test_commands_for_saladworld(salad: StoryFile) -> None:
    commands = salad.propose_commands(40_000)
    assert {"north", "south", "east", "west", "look", "prepare meal"} <= set(commands)
    assert {"take lettuce", "open fridge", "unlock blue door with blue key"} <= set(commands)
    assert {"put lettuce on counter", "take lettuce from fridge"} <= set(commands)
    assert not any("supermarket" in command for command in commands)


def test_commands_of_an_unknown_grammar_are_refused(salad: StoryFile) -> None:
    other = bytearray(salad.memory)
    other[0x3C:0x40] = bytes(4)
    with pytest.raises(grue.UsageError, match="give the commands in a file"):
        StoryFile(bytes(other)).propose_commands(10)
    broken = bytearray(salad.memory)
    base = salad.text.word(0x0E)
    broken[base : base + 2] = bytes(2)
    with pytest.raises(grue.UsageError, match="no table of verbs"):
        StoryFile(bytes(broken)).propose_commands(10)
    with pytest.raises(grue.UsageError, match="it must be at least 1"):
        salad.propose_commands(0)
