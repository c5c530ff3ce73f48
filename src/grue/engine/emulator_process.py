"""A process that holds emulators, started by ``workers.Pool``.

It is told whole histories (seed, commands so far, next command) and answers with what the last
command did. Each place keeps its game where it is: mostly the history is the one it is at, and else
the game is played again from its seed. So an answer depends on the question alone.
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
"""So long a process with a core of its own looks for the next question before it sleeps: to be
woken takes longer than a step of the game."""


class Spec(NamedTuple):
    """What a worker plays."""

    game: Playable
    episode_steps: int
    vocabulary: Vocabulary
    observation_length: int
    informed: bool
    """Whether look and inventory are told with every step."""


class Facts(NamedTuple):
    """What only an emulator knows of a game."""

    knows: Knowledge
    max_score: int | None


class Turn(NamedTuple):
    """What a command did, as arrays; in a message the fields of a record, all whole numbers."""

    observation: Any
    score: Any
    terminated: Any
    admissible: Any
    failed: Any
    """The emulator gave up: the other fields say nothing."""
    admissible_set: Any
    """Empty where it is not known."""
    subtasks: Any
    looked: Any
    carried: Any


def turn_type(spec: Spec) -> np.dtype:
    """A record for one turn: whole messages are one array, which is read without a copy.

    All in it are numbers of 32 bits, so that many records are also one plain array.
    """
    length, told = spec.observation_length, spec.observation_length if spec.informed else 0
    commands = len(spec.game.commands) if spec.game.knows.admissible else 0
    columns = Turn(
        observation=(length,),
        score=(),
        terminated=(),
        admissible=(),
        failed=(),
        admissible_set=(commands,),
        subtasks=(len(spec.game.subtasks),),
        looked=(told,),
        carried=(told,),
    )
    return np.dtype([(name, np.int32, shape) for name, shape in columns._asdict().items()])


def question_type(spec: Spec) -> np.dtype:
    """A record for the next command of one game, and all that were before: 32 bits each."""
    numbers = ("place", "seed", "steps", "action")
    history = ("commands", np.int32, (spec.episode_steps,))
    return np.dtype([*((name, np.int32) for name in numbers), history])


OPENING = -1
"""In place of a command."""


def failed_turns(kind: np.dtype, rows: int) -> np.ndarray:
    turns = np.zeros(rows, kind)
    turns["failed"] = True
    return turns


class Answer(NamedTuple):
    turns: np.ndarray
    seconds: float
    """Spent in emulators and on their texts."""
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
    """One game, and the history that it is at."""

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
        self.turn = turn_type(spec)
        self.places: dict[int, Place] = {}
        self.tokens = Tokens(spec.vocabulary, spec.observation_length)
        """Of all places: they mostly print the same texts."""
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
                # The place may be anywhere now: the next question gets a new one.
                self.places.pop(place, None)
                errors.append(f"{type(error).__name__}: {error}")
        return Answer(turns, time.perf_counter() - start, errors)

    def _write(self, turn: Any, place: Place, question: Any) -> None:
        history = question["commands"][: question["steps"]]
        step = place.take(int(question["seed"]), history, int(question["action"]))
        turn["observation"] = step.observation
        turn["score"] = step.score
        turn["terminated"] = step.terminated
        turn["admissible"] = step.admissible
        turn["subtasks"] = step.subtasks
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
    """Serves until the other end of the pipe is gone; ``awake`` with a core of its own."""
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    connection = Connection(handle)
    try:
        server = Server(connection.recv())
    except GrueError as error:
        connection.send(error)
        return
    connection.send(server.facts)
    question, ready = question_type(server.spec), Ready(connection)
    while True:
        ready.wait(None, AWAKE_SECONDS if awake else 0.0)
        try:
            message = connection.recv_bytes()
        except EOFError:
            return
        asked = np.frombuffer(message, question)
        connection.send_bytes(server.answer(asked).pack())


class Ready:
    """Waits for something to read."""

    def __init__(self, connection: Connection) -> None:
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def wait(self, seconds: float | None, awake: float) -> bool:
        """Whether it came in time. In the first ``awake`` seconds it looks again and again."""
        begun = time.perf_counter()
        while (waited := time.perf_counter() - begun) < awake:
            if self._poll.poll(0):
                return True
        left = None if seconds is None else 1e3 * max(seconds - waited, 0.0)
        return bool(self._poll.poll(left))


def _end_with_parent(parent: int) -> None:
    """Also when an emulator never comes back: its calls leave other threads running."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)
