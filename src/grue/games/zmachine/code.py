"""Disassembles a Z-machine story, to find the texts in its code.

Routines follow each other from the start of the code; other texts follow after the last routine. A
routine ends with an instruction that does not continue and that no branch jumps past. The format is
in sections 4, 5, 14 and 15 of the Z-Machine Standards Document 1.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from functools import cache
from typing import NamedTuple

from grue.games.zmachine.text import TextDecoder

PACKED_UNIT = {1: 2, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 4, 8: 8}
LARGE, SMALL, VARIABLE, OMITTED = range(4)
MOST_LOCALS = 15


class Opcodes(NamedTuple):
    """Numbers of the opcodes that store a result, branch, end a routine or call one."""

    stores: Set[int]
    branches: Set[int]
    ends: Set[int] = frozenset()
    calls: Set[int] = frozenset()


# By their operands; "EXT" exists from version 5 on.
OPCODES = {
    "2OP": Opcodes({8, 9, *range(0x0F, 0x1A)}, {*range(1, 8), 10}, {0x1C}, {0x19, 0x1A}),
    "1OP": Opcodes({1, 2, 3, 4, 8, 14}, {0, 1, 2}, {0x0B, 0x0C}, {8, 15}),
    "0OP": Opcodes(set(), {13, 15}, ends={0, 1, 3, 7, 8, 10}),
    "VAR": Opcodes({0, 7, 0x0C, 0x16, 0x17, 0x18}, {0x17, 0x1F}, calls={0, 0x0C, 0x19, 0x1A}),
    "EXT": Opcodes({0, 1, 2, 3, 4, 9, 10, 12, 0x13, 0x1D}, {6, 0x18, 0x1B}),
}
PRINTS = {2, 3}  # 0OP: print and print_ret
PRINT_PACKED, JUMP = 0x0D, 0x0C  # 1OP
TWO_TYPE_BYTES = {0x0C, 0x1A}  # call_vs2 and call_vn2


class Instruction(NamedTuple):
    kind: str
    number: int
    operands: tuple[tuple[int, int], ...]
    """Type and value of each."""
    text: str | None
    """The text inside the instruction, if any."""
    target: int | None
    """The branch target within the routine, if any."""
    after: int

    @property
    def goes_on(self) -> bool:
        return self.number not in OPCODES[self.kind].ends

    @property
    def calls(self) -> bool:
        """Whether it calls a routine at a constant address."""
        return self.number in OPCODES[self.kind].calls and self._by_address

    @property
    def prints_packed(self) -> bool:
        """Whether it prints a text at a constant address."""
        return (self.kind, self.number) == ("1OP", PRINT_PACKED) and self._by_address

    @property
    def _by_address(self) -> bool:
        return bool(self.operands) and self.operands[0][0] == LARGE and self.operands[0][1] > 0


class Code(NamedTuple):
    routines: tuple[int, ...]
    """Start addresses."""
    texts: tuple[str, ...]
    """Texts inside instructions."""
    packed: frozenset[int]
    """Addresses of texts that instructions print."""
    end: int
    """End of the last routine."""


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
        """Unpacks an address; ``offset`` is the header field with the shift of versions 6 and 7."""
        shift = 8 * self.word(offset) if self.version in (6, 7) else 0
        return value * self.unit + shift

    def walk(self) -> Code:
        """All routines by address. Gaps are skipped up to the last routine that is called.

        After it, the first gap is the end of the code.
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
        """Routines reached from the main routine by calls to constant addresses."""
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
        """The consecutive texts from an address to the end of the story."""
        at = self.aligned(start)
        while at + 2 <= len(self.memory):
            try:
                text, after = self.decoder.text(at)
            except ValueError:
                return
            yield at, text
            at = self.aligned(after)

    def first_instructions(self) -> list[Instruction]:
        """The main routine."""
        return self.routine(self._main_routine()) or []

    def _main_routine(self) -> int:
        """The header has its first instruction, and in version 6 the routine itself."""
        start = self.word(0x06)
        return self.packed(start, 0x28) if self.version == 6 else start - 1

    def _first_routine(self) -> int:
        """Code begins with high memory, or with the main routine if that is earlier."""
        return self.aligned(min(self.word(0x04), self._main_routine()))

    def routine(self, address: int) -> list[Instruction] | None:
        """The instructions of a routine; None if there is no valid routine."""
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
        """The instruction at an address; raises IndexError or ValueError if it is invalid."""
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
            target = at + signed(operands[0][1]) - 2
        if at > len(self.memory):
            raise IndexError("an instruction runs past the end of the story")
        return Instruction(kind, number, tuple(operands), text, target, at)

    def _types(self, at: int, count: int) -> tuple[list[int], int]:
        bits = self.memory[at : at + count]
        types = [byte >> shift & 3 for byte in bits for shift in (6, 4, 2, 0)]
        there = [kind for kind in types if kind != OMITTED]
        if types[: len(there)] != there:
            raise ValueError("an operand follows an omitted one")
        return there, at + count

    def _branch(self, at: int) -> tuple[int | None, int]:
        first = self.memory[at]
        if first & 0x40:
            offset, at = first & 0x3F, at + 1
        else:
            offset = signed((first & 0x3F) << 8 | self.memory[at + 1], 14)
            at += 2
        # Offsets 0 and 1 mean return.
        return (None if offset in (0, 1) else at + offset - 2), at


def signed(value: int, bits: int = 16) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


@cache
def _opcodes(version: int) -> dict[tuple[str, int], tuple[bool, bool]]:
    """A version's instructions: whether each stores a result, and whether it branches."""
    return {
        (kind, number): (_stores(version, kind, number), _branches(version, kind, number))
        for kind in OPCODES
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
        return version <= 4  # "not" in early versions, then a call without a result
    if kind == "0OP":
        return (number == 9 and version >= 5) or (number in (5, 6) and version == 4)
    if kind == "VAR" and number in (4, 8):
        return version >= 5 if number == 4 else version == 6
    return number in OPCODES[kind].stores


def _branches(version: int, kind: str, number: int) -> bool:
    if kind == "0OP" and number in (5, 6):
        return version <= 3
    return number in OPCODES[kind].branches
