"""Which bytes of a story's memory are its world: e_t for stories that nobody has described.

The world is where every object is (its parent), what is true of it (its attributes), and the
global variables. Some of these change by themselves, or with whatever is typed: clocks, wanderers
such as Zork's thief, and the parser's notes. They are found by play, the same in every process:

- while the player only looks and waits, whatever changes is the story's own doing; an object that
  moves by itself is left out altogether;
- while the player types commands at random, a global that changes although no object moves is a
  note of the parser's. What such a global means for the world shows in an attribute, mostly.
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
        memory = story.file.memory
        early = story.file.version <= 3
        # Attributes, then parent, sibling and child, then the properties' address.
        size, attributes, link = (9, 4, 1) if early else (14, 6, 2)
        table = _word(memory, 0x0A) + 2 * (31 if early else 63)
        entries = table + size * np.arange(len(story.file.objects))
        self.objects = entries[:, None] + np.arange(attributes + link)
        self.parents = self.objects[:, attributes:]
        self.globals = _word(memory, 0x0C) + np.arange(480)


def world_bytes(story: Story, emulator: Any) -> np.ndarray:
    """The addresses whose change is a change of the world. Plays, and leaves the game anywhere."""
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


def _word(memory: bytes, address: int) -> int:
    return int.from_bytes(memory[address : address + 2], "big")
