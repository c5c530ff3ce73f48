"""Reads a story's grammar: verbs, prepositions and names of objects.

Two formats are known: Infocom's of version 3 (lines of eight bytes), and that of Inform 6 and 7
(grammar version 2). In both, static memory begins with a table of pointers to each verb's lines,
and the dictionary has each verb's number.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from grue.errors import UsageError
from grue.games.tokens import tokenize
from grue.games.zmachine.code import LARGE, SMALL
from grue.games.zmachine.story_file import StoryFile, StoryObject

USUAL_VERBS = (
    *("take", "open", "drop", "put", "insert", "unlock", "close", "enter", "climb", "read", "move"),
    *("turn", "push", "pull", "attack", "light", "give", "tie", "eat", "drink", "cut", "lock"),
    *("dig", "throw", "wear", "remove", "cook", "slice", "chop", "dice", "prepare", "touch"),
    *("exit", "wait", "look", "inventory", "pray", "jump", "listen", "examine"),
)
"""Verbs that most often make progress, best first."""
# Commands to the interpreter or about the program.
NOT_PLAYED = frozenset(
    (
        *("save", "restore", "restart", "quit", "undo", "script", "unscript", "transcript"),
        *("verbose", "brief", "superbrief", "version", "verify", "score", "full", "notify"),
        *("pronouns", "recording", "replay", "again", "oops", "$verify", "#record", "#unrecord"),
        *("#command", "#random", "diagnose", "time", "bug", "help", "about", "credits", "q"),
        *("short", "long", "normal", "nouns", "verbs", "actions", "enable", "disable", "restrict"),
        *("print_state", "trace", "goal"),
    )
)
SELF = frozenset(("self", "me", "myself", "yourself", "it"))
# Infocom's flags of a dictionary word, and the value of the low bits if its number comes first.
NOUN, VERB, ADJECTIVE, DIRECTION, PREPOSITION = 0x80, 0x40, 0x20, 0x10, 0x08
FIRST_NUMBER = {PREPOSITION: 0, VERB: 1, ADJECTIVE: 2, DIRECTION: 3}
FIXED_LINE = 8
# Inform's.
INFORM_VERB, INFORM_META, INFORM_PLURAL = 0x01, 0x02, 0x04
NAME_PROPERTY, CLASS_PROPERTY = 1, 2
ROOM_CLASS = "K1_room"
END_OF_LINE = 15
ELEMENTARY, WORD_TOKEN, ROUTINE_TOKEN = 1, 2, 6
LAST_OBJECT_TOKEN = 6  # Elementary tokens up to here are objects, then text and numbers.
STORE, FIRST_GLOBAL = ("2OP", 0x0D), 16

Pattern = tuple[str | None, ...]
"""Words, and None for each object: ("put", None, "in", None)."""


class Grammar(NamedTuple):
    directions: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    names: tuple[str, ...]
    """Objects' names, nearest to the start first."""


def read_grammar(story: StoryFile) -> Grammar:
    """A story's grammar in either format."""
    compiler = story.memory[0x3C:0x40]
    try:
        if compiler[:1].isdigit() and compiler[1:2] == b".":
            return _Inform(story).grammar()
        if story.version <= 3:
            return _Infocom(story).grammar()
    except (LookupError, ValueError) as error:
        raise UsageError(
            f"cannot propose commands: the story's grammar cannot be read ({error}); "
            "give the commands in a file"
        ) from None
    raise UsageError(
        f"cannot propose commands: grammars of version {story.version} can be read only in stories "
        "compiled by Inform 6 or 7; give the commands in a file"
    )


class _Reader:
    """Shared by both formats."""

    def __init__(self, story: StoryFile) -> None:
        self.story = story
        self.memory = story.memory
        self.code = story.code
        self.by_address = {entry.address: entry for entry in story.entries}
        self.resolution = 9 if story.version >= 4 else 6

    def word(self, address: int) -> int:
        return self.story.text.word(address)

    @cached_property
    def _longer(self) -> dict[str, str]:
        """For each cut word, the most common printed word that begins with it."""
        printed = Counter(word for text in self.story.printed for word in tokenize(text.lower()))
        common_last = sorted(printed.items(), key=lambda item: (item[1], item[0]))
        return {word[: self.resolution]: word for word, _ in common_last}

    def whole(self, word: str) -> str:
        """The full form of a word: the dictionary cuts long words."""
        return self._longer.get(word, word) if len(word) == self.resolution else word

    def played(self, words: Iterable[str]) -> bool:
        cut = {word[: self.resolution] for word in NOT_PLAYED}
        return not any(word in cut or word.startswith(("$", "#", "tw-")) for word in words)

    def choose(self, words: list[str]) -> str:
        """The most usual of a verb's synonyms, or else the longest, as the dictionary cuts it.

        Printed words do not complete verbs: "disemb" is not "disembodied".
        """
        usual = {verb[: self.resolution]: verb for verb in reversed(USUAL_VERBS)}
        known = [usual[word] for word in words if word in usual]
        if known:
            return min(known, key=USUAL_VERBS.index)
        return max(words, key=lambda word: (len(word), word))

    def pointers(self) -> list[int]:
        """Addresses of each verb's lines. The table ends where the first lines begin."""
        base = self.word(0x0E)
        end = self.word(base)
        if not base < end <= base + 512 or (end - base) % 2:
            raise ValueError("there is no table of verbs at the start of static memory")
        return [self.word(at) for at in range(base, end, 2)]

    def most_common(self, fits: Callable[[bytes], object]) -> int:
        """The property whose data fits for most objects; 0 if none does."""
        properties = [pair for thing in self.story.objects for pair in thing.properties.items()]
        counts = Counter(number for number, data in properties if fits(data))
        return counts.most_common(1)[0][0] if counts else 0


class _Infocom(_Reader):
    def grammar(self) -> Grammar:
        patterns = []
        verbs, prepositions = self.numbered(VERB), self.prepositions()
        for index, at in enumerate(self.pointers()):
            words = verbs.get(255 - index, [])
            lines = list(self.lines(at))
            if words and self.played(words):
                verb = self.choose(words)
                patterns += [self.pattern(verb, line, prepositions) for line in lines]
        return Grammar(self.directions(), tuple(dict.fromkeys(patterns)), self.names())

    def numbered(self, kind: int) -> dict[int, list[str]]:
        """The words of a kind by their number."""
        found = defaultdict(list)
        for entry in self.story.entries:
            flags = entry.data[0]
            if flags & kind:
                first = flags & 3 == FIRST_NUMBER[kind]
                found[entry.data[1 if first else 2]].append(entry.word)
        return found

    def prepositions(self) -> dict[int, str]:
        """One word for each preposition, from the table just before the dictionary."""
        end = self.word(0x08)
        for count in range(1, 256):
            start = end - 4 * count
            entries = {self.word(at + 2): self.word(at) for at in range(start, end, 4)}
            if self.word(start - 2) == count and set(entries.values()) <= set(self.by_address):
                return {
                    number: self.whole(self.by_address[address].word)
                    for number, address in entries.items()
                }
        raise ValueError("there is no table of prepositions before the dictionary")

    def lines(self, at: int) -> Iterator[bytes]:
        for start in range(at + 1, at + 1 + FIXED_LINE * self.memory[at], FIXED_LINE):
            line = self.memory[start : start + FIXED_LINE]
            if line[0] > 2:
                raise ValueError("a line has more than two objects")
            yield line

    def pattern(self, verb: str, line: bytes, prepositions: dict[int, str]) -> Pattern:
        parts: list[str | None] = [verb]
        for slot in range(2):
            preposition = line[1 + slot]
            if preposition:
                parts.append(prepositions[preposition])
            if slot < line[0]:
                parts.append(None)
        return tuple(parts)

    def directions(self) -> tuple[str, ...]:
        """One word for each direction, highest property first, so north is first."""
        found = self.numbered(DIRECTION)
        return tuple(
            self.whole(max(words, key=lambda word: (len(word), word)))
            for _, words in sorted(found.items(), reverse=True)
        )

    def names(self) -> tuple[str, ...]:
        adjectives = {e.word for e in self.story.entries if e.data[0] & ADJECTIVE}
        synonyms = {thing.number: self.synonyms(thing) for thing in self.story.objects}
        owners = Counter(word for words in synonyms.values() for word in words)
        found = []
        for thing in self.near_first():
            own = synonyms[thing.number]
            if own and not SELF & set(own):
                called = [word[: self.resolution] for word in thing.name.lower().split()]
                noun = next((word for word in reversed(called) if word in own), own[0])
                before = [word for word in called if word in adjectives and word != noun]
                shared = owners[noun] > 1 and before
                parts = [before[-1], noun] if shared else [noun]
                found.append(" ".join(map(self.whole, parts)))
        return tuple(dict.fromkeys(found))

    def synonyms(self, thing: StoryObject) -> list[str]:
        addresses = _words(thing.properties.get(self.synonym_property, b""))
        return [self.nouns[address] for address in addresses if address in self.nouns]

    @cached_property
    def nouns(self) -> dict[int, str]:
        return {e.address: e.word for e in self.story.entries if e.data[0] & NOUN}

    @cached_property
    def synonym_property(self) -> int:
        """The property that, for most objects, holds only addresses of nouns."""
        found = self.most_common(lambda data: all(a in self.nouns for a in _words(data)))
        if not found:
            raise ValueError("no object has a noun")
        return found

    def near_first(self) -> list[StoryObject]:
        """Objects by distance from the first room; objects that are nowhere come last."""
        things = self.story.objects
        distance = self.distances()
        far = len(things) + 1

        def place(thing: StoryObject) -> int:
            for _ in things:
                if thing.number in distance or not thing.parent:
                    break
                thing = things[thing.parent - 1]
            return distance.get(thing.number, far)

        return sorted((thing for thing in things if thing.number not in distance), key=place)

    def distances(self) -> dict[int, int]:
        """How many exits each room is from the first."""
        start = self.first_room()
        exits = self.numbered(DIRECTION)
        distance = {start: 0} if start else {}
        waiting = deque(distance)
        while waiting:
            room = waiting.popleft()
            for number in exits:
                data = self.story.objects[room - 1].properties.get(number, b"")
                # 1 byte is an exit; 4 or 5 bytes are an exit with a condition or a door.
                there = data[0] if len(data) in (1, 4, 5) else 0
                if 0 < there <= len(self.story.objects) and there not in distance:
                    distance[there] = distance[room] + 1
                    waiting.append(there)
        return distance

    def first_room(self) -> int:
        """The room that the main routine stores in the first global; 0 if none."""
        for instruction in self.code.first_instructions():
            if (instruction.kind, instruction.number) == STORE:
                variable, (kind, value) = instruction.operands[0][1], instruction.operands[1]
                if variable == FIRST_GLOBAL and kind == SMALL:
                    return value if 0 < value <= len(self.story.objects) else 0
        return 0


class _Inform(_Reader):
    def grammar(self) -> Grammar:
        verbs = defaultdict(list)
        for entry in self.story.entries:
            if entry.data[0] & INFORM_VERB and not entry.data[0] & INFORM_META:
                verbs[entry.data[1]].append(entry.word)
        pointers = self.pointers()
        patterns: list[Pattern] = []
        for index, at in enumerate(pointers):
            lines, end = self.lines(at)
            if index + 1 < len(pointers) and end != pointers[index + 1]:
                raise ValueError("the lines of its verbs are not of grammar version 2")
            words = verbs.get(255 - index, [])
            if words and self.played(words):
                verb = self.choose(words)
                for line in lines:
                    pattern = self.pattern(verb, line)
                    patterns += [pattern] if pattern is not None else []
        return Grammar(self.directions(), tuple(dict.fromkeys(patterns)), self.names())

    def lines(self, at: int) -> tuple[list[list[tuple[int, int]]], int]:
        """A verb's lines as (type, value) tokens, and their end."""
        count = self.memory[at]
        at += 1
        found = []
        for _ in range(count):
            at += 2  # the action
            line = []
            while self.memory[at] != END_OF_LINE:
                line.append((self.memory[at], self.word(at + 1)))
                at += 3
            found.append(line)
            at += 1
        return found, at

    def pattern(self, verb: str, line: list[tuple[int, int]]) -> Pattern | None:
        """A line as a pattern; None if it needs text, a number or a parser routine."""
        parts: list[str | None] = [verb]
        for kind, value in line:
            token, alternative = kind & 0x0F, kind & 0x10
            if token == WORD_TOKEN:
                # The first of several alternative prepositions.
                if not alternative:
                    parts.append(self.whole(self.by_address[value].word))
            elif (token == ELEMENTARY and value > LAST_OBJECT_TOKEN) or token >= ROUTINE_TOKEN:
                return None
            else:
                parts.append(None)
        return tuple(parts)

    def directions(self) -> tuple[str, ...]:
        """The first name of each object in the compass."""
        named = [self.named(thing) for thing in self.story.objects if self.in_compass(thing)]
        return tuple(self.whole(words[0]) for words in named if words)

    def names(self) -> tuple[str, ...]:
        """Placed objects first; rooms are left out if Inform 7 marks them."""
        found = []
        for thing in sorted(self.story.objects, key=lambda thing: not thing.parent):
            words = [] if self.in_compass(thing) or self.is_room(thing) else self.named(thing)
            if words and not SELF & set(words):
                called = {word[: self.resolution] for word in thing.name.lower().split()}
                own = [word for word in words if word in called]
                found.append(" ".join(map(self.whole, own if own else words)))
        return tuple(dict.fromkeys(found))

    def named(self, thing: StoryObject) -> list[str]:
        """An object's words, from its "name" property or its parser routine."""
        addresses = _words(thing.properties.get(NAME_PROPERTY, b""))
        if not addresses:
            addresses = self.asked(thing.properties.get(self.parse_property, b""))
        entries = [self.by_address[a] for a in addresses if a in self.by_address]
        return list(dict.fromkeys(e.word for e in entries if not e.data[0] & INFORM_PLURAL))

    @cached_property
    def parse_property(self) -> int:
        """The property that, for most objects, is a routine that compares with words."""
        return self.most_common(self.asked)

    def asked(self, data: bytes) -> list[int]:
        """Dictionary words that a property's routine compares with."""
        if len(data) != 2:
            return []
        address = self.code.packed(int.from_bytes(data, "big"), 0x28)
        return [
            value
            for instruction in self.code.routine(address) or ()
            for kind, value in instruction.operands
            if kind == LARGE and value in self.by_address
        ]

    def in_compass(self, thing: StoryObject) -> bool:
        return bool(thing.parent) and self.story.objects[thing.parent - 1].name == "compass"

    def is_room(self, thing: StoryObject) -> bool:
        classes = _words(thing.properties.get(CLASS_PROPERTY, b""))
        things = self.story.objects
        return any(0 < n <= len(things) and things[n - 1].name == ROOM_CLASS for n in classes)


def _words(data: bytes) -> list[int]:
    return [int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2)]
