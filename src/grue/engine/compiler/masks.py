"""The admissible set as masks: one row of bits for each value of each variable.

Bit c of a row says that the value does not rule out command c. The admissible commands are the bits
that are set in all rows of the current values. This works where a command
is admissible under a product of conditions, each on one variable; a command under several such
products gets several bits, in planes that are joined by "or".
"""

from __future__ import annotations

import itertools

import numpy as np

from grue.engine.compiler.model import Model

Product = tuple[frozenset[int], ...]
"""For each variable of a command, the values that it may have."""


def admissible_masks(
    model: Model, commands: dict[str, np.ndarray], changes: np.ndarray
) -> dict[str, np.ndarray]:
    """Rows of bits, and which variables have rows."""
    products = [_products(model, commands, changes, c) for c in range(len(model.game.commands))]
    planes = max(1, *(len(found) for found in products))
    words = -(-len(products) // 32)
    used = sorted({v for c in range(len(products)) for v in _variables(commands, c)})
    offsets, rows = {}, 0
    for variable in used:
        offsets[variable] = rows
        rows += model.domain(model.variables[variable])

    masks = np.full((rows, planes, words), 0xFFFFFFFF, np.uint32)
    possible = np.zeros((planes, words), np.uint32)
    for command, found in enumerate(products):
        word, bit = command // 32, np.uint32(1 << (command % 32))
        for plane, product in enumerate(found):
            possible[plane, word] |= bit
            which = _variables(commands, command)
            for variable, values in zip(which, product, strict=True):
                for value in range(model.domain(model.variables[variable])):
                    if value not in values:
                        masks[offsets[variable] + value, plane, word] &= ~bit
    return {
        "mask_variables": np.array(used, np.int32),
        "mask_offset": np.array([offsets[v] for v in used], np.int32),
        "masks": masks,
        "mask_possible": possible,
    }


def _variables(commands: dict[str, np.ndarray], command: int) -> list[int]:
    used = commands["command_strides"][command] > 0
    return commands["command_variables"][command][used].tolist()


def _products(
    model: Model, commands: dict[str, np.ndarray], changes: np.ndarray, command: int
) -> list[Product]:
    """The values under which a command changes the state, as few products as come easily."""
    which = _variables(commands, command)
    sizes = [model.domain(model.variables[v]) for v in which]
    start = commands["command_offset"][command]
    count = int(np.prod(sizes, dtype=int))
    outcomes = commands["decision_table"][start : start + count]
    left = {
        values
        for values, outcome in zip(itertools.product(*map(range, sizes)), outcomes, strict=True)
        if changes[outcome]
    }
    found = []
    while left:
        product = _grow(min(left), left, sizes)
        found.append(product)
        left -= set(itertools.product(*product))
    return found


def _grow(seed: tuple[int, ...], inside: set[tuple[int, ...]], sizes: list[int]) -> Product:
    """A product around a point that stays inside."""
    product = [frozenset({value}) for value in seed]
    for axis, size in enumerate(sizes):
        for value in range(size):
            slab = [*product[:axis], frozenset({value}), *product[axis + 1 :]]
            if all(point in inside for point in itertools.product(*slab)):
                product[axis] |= {value}
    return tuple(product)
