"""A subprocess with emulators, started by ``emulator_pool.EmulatorPool``.

A question is a whole history (seed, past commands, next command). The answer is the result of the
next command, and depends on the question alone. Each place keeps its game. If the game is not at
that history, it is replayed from the seed.
"""

from __future__ import annotations

import os
import select
import threading
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from grue.engine.hosted import Tokens
from grue.engine.hosted_story import host
from grue.engine.step import Step
from grue.errors import GrueError
from grue.games.playable import Knowledge, Playable
from grue.games.tokens import Vocabulary

AWAKE_SECONDS = 0.01
"""How long a subprocess with its own core polls before it sleeps: waking up is slow."""


class Spec(NamedTuple):
    """What a subprocess plays."""

    game: Playable
    episode_steps: int
    vocabulary: Vocabulary
    observation_length: int
    informed: bool
    """Whether every step also returns the output of look and inventory."""

    def turn_type(self) -> np.dtype:
        """The record of a turn. All fields are int32, so many records are also one plain array."""
        told = self.observation_length if self.informed else 0
        sizes = {
            "observation": self.observation_length,
            "admissible_set": len(self.game.commands) if self.game.knows.admissible else 0,
            "subtasks": len(self.game.subtasks),
            "looked": told,
            "carried": told,
        }
        columns = ((name, (sizes[name],) if name in sizes else ()) for name in Turn._fields)
        return np.dtype([(name, np.int32, shape) for name, shape in columns])

    def question_type(self) -> np.dtype:
        """The record of a question: a game's next command and all before, as int32."""
        numbers = ("place", "seed", "steps", "action")
        history = ("commands", np.int32, (self.episode_steps,))
        return np.dtype([*((name, np.int32) for name in numbers), history])


class Facts(NamedTuple):
    """Facts about a game that only the emulator knows."""

    knows: Knowledge
    max_score: int | None


class Turn(NamedTuple):
    """The result of a command, as arrays; in messages, the fields of a record."""

    observation: Any
    score: Any
    terminated: Any
    admissible: Any
    failed: Any
    """The emulator failed; the other fields are meaningless."""
    admissible_set: Any
    """Empty if it is unknown."""
    subtasks: Any
    looked: Any
    carried: Any


OPENING = -1
"""Instead of a command: asks for the first turn."""


def failed_turns(kind: np.dtype, rows: int) -> np.ndarray:
    turns = np.zeros(rows, kind)
    turns["failed"] = True
    return turns


class Answer(NamedTuple):
    turns: np.ndarray
    seconds: float
    """Time spent in emulators and on their texts."""
    errors: list[str]

    def pack(self) -> bytes:
        told = "\0".join(self.errors).encode()
        return np.float64(self.seconds).tobytes() + self.turns.tobytes() + told

    @classmethod
    def unpack(cls, message: bytes, kind: np.dtype, rows: int) -> Answer:
        end = 8 + rows * kind.itemsize
        turns = np.frombuffer(message[8:end], kind)
        told = message[end:].decode()
        errors = told.split("\0") if told else []
        return cls(turns, float(np.frombuffer(message[:8])[0]), errors)


class Place:
    """One game and its current history."""

    def __init__(self, spec: Spec, tokens: Tokens) -> None:
        self.env = host(spec.game, spec.episode_steps, snapshots=spec.informed, tokens=tokens)
        self.at: tuple[int, bytes] | None = None
        self.state: Any = None

    def take(self, seed: int, history: np.ndarray, action: int) -> Step:
        past = history.tobytes()
        if self.at != (seed, past):
            self.at = None
            self.state, step = self.env.reset(seed)
            for command in history.tolist():
                self.state, step = self.env.step(self.state, command)
            if action == OPENING:
                self.at = seed, past
                return step
        self.state, step = self.env.step(self.state, action)
        self.at = seed, past + np.asarray(action, history.dtype).tobytes()
        return step


class Server:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.turn = spec.turn_type()
        self.places: dict[int, Place] = {}
        self.tokens = Tokens(spec.vocabulary, spec.observation_length)
        """Shared by all places, which mostly print the same texts."""
        env = self._place(0).env
        env.prepare()
        self.facts = Facts(env.knows._replace(look=spec.informed), env.max_score)

    def answer(self, asked: np.ndarray) -> Answer:
        start = time.perf_counter()
        turns, errors = failed_turns(self.turn, len(asked)), []
        for question, turn in zip(asked, turns, strict=True):
            place = int(question["place"])
            try:
                self._write(turn, self._place(place), question)
            except Exception as error:
                # The state is unknown now: the next question gets a new place.
                self.places.pop(place, None)
                errors.append(f"{type(error).__name__}: {error}")
        return Answer(turns, time.perf_counter() - start, errors)

    def _write(self, turn: Any, place: Place, question: Any) -> None:
        history = question["commands"][: question["steps"]]
        step = place.take(int(question["seed"]), history, int(question["action"]))
        for name in ("observation", "score", "terminated", "admissible", "subtasks"):
            turn[name] = getattr(step, name)
        if place.env.knows.admissible:
            turn["admissible_set"] = step.admissible_set
        if self.spec.informed:
            turn["looked"] = place.env.look(place.state)
            turn["carried"] = place.env.inventory(place.state)
        turn["failed"] = False

    def _place(self, number: int) -> Place:
        if number not in self.places:
            self.places[number] = Place(self.spec, self.tokens)
        return self.places[number]


def main(handle: int, awake: bool) -> None:
    """Serves until the pipe is closed. ``awake``: it has its own core."""
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    connection = Connection(handle)
    try:
        server = Server(connection.recv())
    except GrueError as error:
        connection.send(error)
        return
    connection.send(server.facts)
    question, ready = server.spec.question_type(), Ready(connection, awake)
    while True:
        ready.wait(None)
        try:
            message = connection.recv_bytes()
        except EOFError:
            return
        asked = np.frombuffer(message, question)
        connection.send_bytes(server.answer(asked).pack())


class Ready:
    """Waits for a message."""

    def __init__(self, connection: Connection, awake: bool) -> None:
        self._awake = AWAKE_SECONDS if awake else 0.0
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def wait(self, seconds: float | None) -> bool:
        """Whether it came in time. If ``awake``, the wait begins with a busy loop."""
        begun = time.perf_counter()
        while (waited := time.perf_counter() - begun) < self._awake:
            if self._poll.poll(0):
                return True
        left = None if seconds is None else 1e3 * max(seconds - waited, 0.0)
        return bool(self._poll.poll(left))


def _end_with_parent(parent: int) -> None:
    """Ends this process with its parent, even if an emulator hangs."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)
