"""Walks the code of a Z-machine story, to find the texts in it.

Routines lie one after the other from the start of the code, and the texts that are not part of
them behind. A routine is read instruction by instruction up to one that does not go on and that
nothing jumps over. Sections 4, 5, 14 and 15 of the Z-Machine Standards Document 1.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from grue.games.zmachine.text import TextDecoder

PACKED_UNIT = {1: 2, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 4, 8: 8}
LARGE, SMALL, VARIABLE, OMITTED = range(4)
MOST_LOCALS = 15

# Opcodes by count of operands: "2OP", "1OP", "0OP", "VAR", and "EXT" from version 5 on.
STORES = {
    "2OP": {8, 9, *range(0x0F, 0x1A)},
    "1OP": {1, 2, 3, 4, 8, 14},
    "0OP": set[int](),
    "VAR": {0x00, 0x07, 0x0C, 0x16, 0x17, 0x18},
    "EXT": {0, 1, 2, 3, 4, 9, 10, 12, 0x13, 0x1D},
}
BRANCHES = {
    "2OP": {*range(1, 8), 10},
    "1OP": {0, 1, 2},
    "0OP": {13, 15},
    "VAR": {0x17, 0x1F},
    "EXT": {6, 0x18, 0x1B},
}
ENDS = {
    "2OP": {0x1C},
    "1OP": {0x0B, 0x0C},
    "0OP": {0, 1, 3, 7, 8, 10},
    "VAR": set[int](),
    "EXT": set[int](),
}
CALLS = {
    "2OP": {0x19, 0x1A},
    "1OP": {8, 15},
    "0OP": set[int](),
    "VAR": {0x00, 0x0C, 0x19, 0x1A},
    "EXT": set[int](),
}
PRINTS = {2, 3}  # print and print_ret, of the opcodes without operands
PRINT_PACKED, JUMP = 0x0D, 0x0C  # with one operand
TWO_TYPE_BYTES = {0x0C, 0x1A}  # call_vs2 and call_vn2


class Instruction(NamedTuple):
    kind: str
    number: int
    operands: tuple[tuple[int, int], ...]
    """Type and value of each."""
    text: str | None
    """What is printed, of an instruction that holds its text."""
    target: int | None
    """Where it may jump to within the routine."""
    after: int

    @property
    def goes_on(self) -> bool:
        return self.number not in ENDS[self.kind]

    @property
    def calls(self) -> bool:
        """Whether it calls a routine by its address."""
        return self.number in CALLS[self.kind] and self._by_address

    @property
    def prints_packed(self) -> bool:
        """Whether it prints a text by its address."""
        return (self.kind, self.number) == ("1OP", PRINT_PACKED) and self._by_address

    @property
    def _by_address(self) -> bool:
        return bool(self.operands) and self.operands[0][0] == LARGE and self.operands[0][1] > 0


class Code(NamedTuple):
    """What a walk over the code finds."""

    routines: tuple[int, ...]
    """Where each begins."""
    texts: tuple[str, ...]
    """Printed by instructions that hold them."""
    packed: frozenset[int]
    """Where texts begin that instructions print by their address."""
    end: int
    """Where the last routine ends."""


class CodeReader:
    def __init__(self, memory: bytes, decoder: TextDecoder) -> None:
        self.memory = memory
        self.version = memory[0]
        self.decoder = decoder
        self.unit = PACKED_UNIT[self.version]
        self._opcodes = _opcodes(self.version)
        self._routines: dict[int, list[Instruction] | None] = {}

    def word(self, address: int) -> int:
        return self.decoder.word(address)

    def packed(self, value: int, offset: int) -> int:
        """A packed address as a plain one; ``offset`` is where the header states a shift."""
        shift = 8 * self.word(offset) if self.version in (6, 7) else 0
        return value * self.unit + shift

    def walk(self) -> Code:
        """All routines in order of their addresses.

        Up to the last that is called what is no routine is passed over; after it the first such
        place is the end of the code.
        """
        last = max(self._called())
        routines, texts, strings = [], [], set[int]()
        at = end = self._first_routine()
        while at < len(self.memory):
            instructions = self.routine(at)
            if instructions is None:
                if at > last:
                    break
                at += self.unit
                continue
            routines.append(at)
            for instruction in instructions:
                if instruction.text is not None:
                    texts.append(instruction.text)
                elif instruction.prints_packed:
                    strings.add(self.packed(instruction.operands[0][1], 0x2A))
            end = instructions[-1].after
            at = self.aligned(end)
        return Code(tuple(routines), tuple(texts), frozenset(strings), end)

    def _called(self) -> set[int]:
        """The routines that are called by their address, from the one that is run first on."""
        first = self._main_routine()
        found, waiting = {first}, [first]
        while waiting:
            for instruction in self.routine(waiting.pop()) or ():
                if not instruction.calls:
                    continue
                address = self.packed(instruction.operands[0][1], 0x28)
                if address not in found and self.routine(address) is not None:
                    found.add(address)
                    waiting.append(address)
        return found

    def aligned(self, address: int) -> int:
        return -(-address // self.unit) * self.unit

    def strings(self, start: int) -> Iterator[tuple[int, str]]:
        """The texts that lie one after the other from an address to the end of the story."""
        at = self.aligned(start)
        while at + 2 <= len(self.memory):
            try:
                text, after = self.decoder.text(at)
            except ValueError:
                return
            yield at, text
            at = self.aligned(after)

    def first_instructions(self) -> list[Instruction]:
        """The routine that is run first."""
        return self.routine(self._main_routine()) or []

    def _main_routine(self) -> int:
        """Given as its first instruction, after its count of locals; a routine in version 6."""
        start = self.word(0x06)
        return self.packed(start, 0x28) if self.version == 6 else start - 1

    def _first_routine(self) -> int:
        """Code begins with high memory; the routine that is run first may lie before."""
        return self.aligned(min(self.word(0x04), self._main_routine()))

    def routine(self, address: int) -> list[Instruction] | None:
        """The instructions of a routine; none where there cannot be one."""
        if address not in self._routines:
            self._routines[address] = self._read_routine(address)
        return self._routines[address]

    def _read_routine(self, address: int) -> list[Instruction] | None:
        if not 0 < address < len(self.memory) or self.memory[address] > MOST_LOCALS:
            return None
        locals_bytes = 2 * self.memory[address] if self.version <= 4 else 0
        at = furthest = address + 1 + locals_bytes
        found = []
        try:
            while True:
                instruction = self.instruction(at)
                found.append(instruction)
                at = instruction.after
                if instruction.target is not None:
                    if instruction.target <= address:
                        return None
                    furthest = max(furthest, instruction.target)
                if not instruction.goes_on and at > furthest:
                    return found
        except (IndexError, ValueError):
            return None

    def instruction(self, at: int) -> Instruction:
        """The instruction at an address; an IndexError or ValueError where there is none."""
        opcode = self.memory[at]
        at += 1
        if opcode == 0xBE and self.version >= 5:
            kind, number = "EXT", self.memory[at]
            types, at = self._types(at + 1, 1)
        elif opcode >= 0xC0:
            kind, number = "VAR" if opcode & 0x20 else "2OP", opcode & 0x1F
            two = kind == "VAR" and number in TWO_TYPE_BYTES
            types, at = self._types(at, 2 if two else 1)
        elif opcode >= 0x80:
            types = [] if opcode & 0x30 == 0x30 else [opcode >> 4 & 3]
            kind, number = "1OP" if types else "0OP", opcode & 0x0F
        else:
            kind, number = "2OP", opcode & 0x1F
            types = [VARIABLE if opcode & bit else SMALL for bit in (0x40, 0x20)]
        if (kind, number) not in self._opcodes:
            raise ValueError("not an instruction")
        stores, branches = self._opcodes[kind, number]

        operands = []
        for operand in types:
            size = 2 if operand == LARGE else 1
            operands.append((operand, int.from_bytes(self.memory[at : at + size], "big")))
            at += size
        at += stores
        target = text = None
        if branches:
            target, at = self._branch(at)
        elif kind == "0OP" and number in PRINTS:
            text, at = self.decoder.text(at)
        elif (kind, number) == ("1OP", JUMP) and operands[0][0] == LARGE:
            target = at + _signed(operands[0][1], 16) - 2
        if at > len(self.memory):
            raise IndexError("an instruction runs past the end of the story")
        return Instruction(kind, number, tuple(operands), text, target, at)

    def _types(self, at: int, count: int) -> tuple[list[int], int]:
        bits = self.memory[at : at + count]
        types = [byte >> shift & 3 for byte in bits for shift in (6, 4, 2, 0)]
        there = [kind for kind in types if kind != OMITTED]
        if types[: len(there)] != there:
            raise ValueError("an operand is there after one that is not")
        return there, at + count

    def _branch(self, at: int) -> tuple[int | None, int]:
        first = self.memory[at]
        if first & 0x40:
            offset, at = first & 0x3F, at + 1
        else:
            offset = _signed((first & 0x3F) << 8 | self.memory[at + 1], 14)
            at += 2
        # 0 and 1 return from the routine.
        return (None if offset in (0, 1) else at + offset - 2), at


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


@cache
def _opcodes(version: int) -> dict[tuple[str, int], tuple[bool, bool]]:
    """The instructions of a version: whether each stores a result, and whether it branches."""
    return {
        (kind, number): (_stores(version, kind, number), _branches(version, kind, number))
        for kind in STORES
        for number in range(0x20)
        if _is_known(version, kind, number)
    }


def _is_known(version: int, kind: str, number: int) -> bool:
    if kind == "2OP":
        return 1 <= number <= (0x1C if version >= 5 else 0x19 if version == 4 else 0x18)
    if kind == "1OP":
        return number != 8 or version >= 4
    if kind == "0OP":
        return number not in ((5, 6, 14) if version >= 5 else (14,))
    if kind == "EXT":
        return number <= 0x1D
    early = number in (*range(0x0C), 0x13, 0x14, 0x15)
    return early or version >= 5 or (version == 4 and number <= 0x17)


def _stores(version: int, kind: str, number: int) -> bool:
    if (kind, number) == ("1OP", 15):
        return version <= 4  # "not"; later a call without a result
    if kind == "0OP":
        return (number == 9 and version >= 5) or (number in (5, 6) and version == 4)
    if kind == "VAR" and number in (4, 8):
        return version >= 5 if number == 4 else version == 6
    return number in STORES[kind]


def _branches(version: int, kind: str, number: int) -> bool:
    if kind == "0OP" and number in (5, 6):
        return version <= 3
    return number in BRANCHES[kind]
