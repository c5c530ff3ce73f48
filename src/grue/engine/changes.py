"""Finds the bytes of a story's memory that hold its world, to compute e_t for unknown stories.

The world consists of every object's parent and attributes, and the global variables. Some of these
change by themselves or with any command: clocks, wanderers such as Zork's thief, and the parser's
variables. To exclude them, grue plays the story, with the same result in every process:

- While the player only looks and waits, all changes are the story's own. Objects that change are
  ignored.
- While the player types random commands, a global that changes although no object moves belongs to
  the parser. Most changes of the world that such globals track also show in attributes.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from grue.engine.emulator import restart_emulator
from grue.games.zmachine.story import Story

IDLE = ("look", "wait")
IDLE_EPISODES, IDLE_STEPS = 8, 24
RANDOM_EPISODES, RANDOM_STEPS = 30, 100


class WorldBytes:
    """Addresses in the dynamic memory of a story."""

    def __init__(self, story: Story) -> None:
        early, word = story.file.version <= 3, story.file.text.word
        # Attributes, parent, sibling, child, address of the properties.
        size, attributes, link = (9, 4, 1) if early else (14, 6, 2)
        table = word(0x0A) + 2 * (31 if early else 63)
        entries = table + size * np.arange(len(story.file.objects))
        self.objects = entries[:, None] + np.arange(attributes + link)
        self.parents = self.objects[:, attributes:]
        self.globals = word(0x0C) + np.arange(480)


def world_bytes(story: Story, emulator: Any) -> np.ndarray:
    """The addresses of the world. Plays the game, and leaves it in an arbitrary state."""
    found = WorldBytes(story)
    own = np.zeros(len(emulator._get_ram()), bool)
    for seed in range(IDLE_EPISODES):
        restart_emulator(emulator, seed)
        for number in range(IDLE_STEPS):
            own |= _changed(emulator, IDLE[number % len(IDLE)])
    still = ~own[found.objects].any(1)
    parents = found.parents[still]
    draw = random.Random(0)
    for seed in range(RANDOM_EPISODES):
        restart_emulator(emulator, seed)
        for _ in range(RANDOM_STEPS):
            changed = _changed(emulator, draw.choice(story.commands))
            if emulator._emulator_halted():
                break
            if not changed[parents].any():
                own |= changed
    kept = found.globals[~own[found.globals]]
    return np.concatenate([found.objects[still].reshape(-1), kept])


def _changed(emulator: Any, command: str) -> np.ndarray:
    before = emulator._get_ram()
    emulator.step(command)
    return before != emulator._get_ram()
