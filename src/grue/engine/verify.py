"""Plays the compiled and the real game side by side and compares every step.

Each episode chooses commands in one of three ways: at random from the whole set, mostly admissible
ones, or a prefix of the walkthrough with detours and omissions. At some states every command of the
set is tried on both sides. Of a game that is compiled near, commands that
are not exact out of sight are compared only while their things are in sight.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from grue.engine.compiled import CompiledEnv, State
from grue.engine.hosted import INVENTORY, LOOK, HostedState
from grue.engine.hosted_textworld import HostedEnv
from grue.engine.make import compiled
from grue.engine.step import Step
from grue.errors import UsageError
from grue.games.game import Game
from grue.games.logic import Facts
from grue.games.registry import load_textworld
from grue.games.tokens import squeeze
from grue.processes import stop_with_parent

FIELDS = ("reward", "score", "terminated", "truncated", "admissible")
LOOKING = (LOOK, INVENTORY)
TURNS_SHOWN = 4
JOBS_PER_CORE = 4
LEAST_SHARE = 100
"""The least number of steps for which a further process is worthwhile."""
SWEEP_SHARE = 8
"""One step in this many belongs to a sweep over all commands."""


@dataclass(frozen=True)
class Mismatch:
    commands: tuple[str, ...]
    """The commands of the episode up to the difference."""
    differences: tuple[str, ...]
    real: tuple[str, ...]
    """The last turns of the real game."""
    compiled: tuple[str, ...]

    def __str__(self) -> str:
        lines = ["commands: " + " / ".join(self.commands), *self.differences]
        lines += ["--- real", *self.real, "--- compiled", *self.compiled]
        return "\n".join(lines)


@dataclass
class Report:
    steps: int = 0
    mismatches: int = 0
    first: Mismatch | None = None
    rules: set[str] = field(default_factory=set)
    """Rules of the game that fired at least once."""
    skipped: int = 0
    """Commands that were not compared: the game is near, and their things were out of sight."""

    def __add__(self, other: Report) -> Report:
        return Report(
            self.steps + other.steps,
            self.mismatches + other.mismatches,
            self.first or other.first,
            self.rules | other.rules,
            self.skipped + other.skipped,
        )


class RealTurn(NamedTuple):
    """A turn of the real game."""

    action: int
    facts: Facts
    """Of the world before it."""
    step: Step
    swept: list[tuple[str, Step]]
    """Every command that was tried after it, with what it gave, and the two that only look."""


class Verifier:
    def __init__(self, game: Game) -> None:
        self.game = game
        self.real = HostedEnv(game)
        self.compiled = CompiledEnv(compiled(game))
        self.near = {c: told["things"] for c, told in self.compiled.near.items()}
        self._reset = jax.jit(self.compiled.reset)
        self._step = jax.jit(self.compiled.step)
        self._look = jax.jit(self.compiled.look)
        self._inventory = jax.jit(self.compiled.inventory)
        looking: dict[str, Any] = {LOOK: self._look, INVENTORY: self._inventory}
        self._without_a_step = looking
        self._replay = jax.jit(self._replayed)
        self._sweep = jax.jit(self._swept)

    def _replayed(self, actions: Any) -> tuple[Step, tuple[State, Step]]:
        """The opening of the compiled game, and the states and steps that commands lead to."""
        start, opening = self.compiled.reset()

        def one(state: State, action: Any) -> tuple[State, tuple[State, Step]]:
            state, step = self.compiled.step(state, action)
            return state, (state, step)

        return opening, jax.lax.scan(one, start, actions)[1]

    def _swept(self, states: State, number: Any) -> tuple[State, Step]:
        """One of many states, and the step that each command leads to."""
        state = _row(states, number)
        commands = jnp.arange(len(self.game.commands))
        every = jax.vmap(lambda action: self.compiled.step(state, action)[1])
        return state, every(commands)

    def run(self, steps: int, seed: int, tick: Callable[[int], None] | None = None) -> Report:
        """Compares at least ``steps`` steps; an episode ends at its first difference."""
        report = Report()
        chance = random.Random(seed)
        while report.steps < steps:
            before = report.steps
            self._episode(report, chance, steps)
            if (
                report.steps == before
            ):  # They differ before the first command, so they will always differ.
                break
            if tick is not None:
                tick(report.steps - before)
        return report

    def _episode(self, report: Report, chance: random.Random, steps: int) -> None:
        """The real game plays first, because it alone decides; then the compiled one, at once."""
        opening, turns = self._play(report, chance, steps - report.steps)
        actions = np.zeros(self.real.episode_steps, np.int32)
        actions[: len(turns)] = [turn.action for turn in turns]
        first, (states, others) = self._replay(actions)
        others = jax.tree.map(np.asarray, others)
        played: list[str] = []
        if self._differ(report, played, opening, jax.tree.map(np.asarray, first)):
            return
        for number, turn in enumerate(turns):
            played.append(self.game.commands[turn.action])
            report.steps += 1
            report.rules |= self._rules(turn.facts, played[-1])
            if self._differ(report, played, turn.step, _row(others, number)):
                return
            if turn.swept and self._sweep_differs(report, played, turn, states, number):
                return

    def _play(
        self, report: Report, chance: random.Random, most: int
    ) -> tuple[Step, list[RealTurn]]:
        """An episode of the real game: its opening, and its turns up to ``most`` steps."""
        state, step = self.real.reset()
        opening, turns, taken = step, [], 0
        choices = self._choices(chance)
        while not (step.terminated or step.truncated) and taken < most:
            action = next(choices)(np.flatnonzero(step.admissible_set))
            facts = state.facts
            if not self._is_compared(facts, self.game.commands[action]):
                report.skipped += 1
                continue
            state, step = self.real.step(state, action)
            sweeps = chance.random() * SWEEP_SHARE * len(self.game.commands) < 1
            swept = self._every(report, state) if sweeps and not step.terminated else []
            turns.append(RealTurn(action, facts, step, swept))
            taken += 1 + len(swept)
        return opening, turns

    def _every(self, report: Report, state: HostedState) -> list[tuple[str, Step]]:
        """The answers of the real game to every command in one state, then to look."""
        found = []
        for command in self.game.commands:
            if not self._is_compared(state.facts, command):
                report.skipped += 1
                continue
            found.append((command, self.real.step(state, command)[1]))
        return found + [(command, self.real.step(state, command)[1]) for command in LOOKING]

    def _choices(self, chance: random.Random) -> Iterator[Callable[[np.ndarray], int]]:
        """How each command of an episode is picked, given the admissible ones."""
        count = len(self.game.commands)
        admissible_share = chance.choice((0.0, 0.5, 0.9))
        follow = chance.choice((0.0, 0.8, 0.97))
        script = list(self.game.walkthrough)
        ahead = script[: chance.randint(0, len(script))] if follow else []
        # What was left out shows later: an ingredient is missing, a door is still locked.
        leave_out = chance.choice((0.0, 0.05, 0.15))
        ahead = [command for command in ahead if chance.random() >= leave_out]

        def explore(admissible: np.ndarray) -> int:
            if len(admissible) and chance.random() < admissible_share:
                return int(chance.choice(admissible.tolist()))
            return chance.randrange(count)

        while True:
            if ahead and ahead[0] not in self.game.commands:
                ahead.pop(0)
            elif ahead and chance.random() < follow:
                command = self.game.commands.index(ahead.pop(0))
                yield lambda _, command=command: command
            else:
                yield explore

    def _sweep_differs(
        self, report: Report, played: list[str], turn: RealTurn, states: State, number: int
    ) -> bool:
        """Compares every command from one state, and looking and inventory without a step."""
        state, steps = self._sweep(states, number)
        steps = jax.tree.map(np.asarray, steps)
        for command, real in turn.swept[: -len(LOOKING)]:
            report.steps += 1
            step = _row(steps, self.game.commands.index(command))
            if self._differ(report, [*played, command], real, step):
                return True
        for command, real in turn.swept[-len(LOOKING) :]:
            text = self.compiled.decode(np.asarray(self._without_a_step[command](state)))
            if squeeze(text) != squeeze(real.text or ""):
                self._note(report, [*played, command], ("text differs",))
                return True
        return False

    def _is_compared(self, facts: Facts, command: str) -> bool:
        things = self.near.get(command, ())
        if "from" in command.split() and things:
            return _holds(facts, *things) and _in_sight(facts, things[0])
        return all(_in_sight(facts, thing) for thing in things)

    def _rules(self, facts: Any, command: str) -> set[str]:
        actions = self.real.logic.actions.get(command, ())
        return {a.rule for a in actions if a.changes_state and a.needs <= facts}

    def _differ(self, report: Report, played: list[str], real: Step, step: Step) -> bool:
        text = self.compiled.decode(step.observation)
        found = [] if squeeze(text) == squeeze(real.text or "") else ["text differs"]
        for name in FIELDS:
            ours, theirs = int(getattr(step, name)), int(getattr(real, name))
            if ours != theirs:
                found.append(f"{name}: real {theirs}, compiled {ours}")
        wrong = np.flatnonzero(np.asarray(step.admissible_set) != real.admissible_set)
        if len(wrong):
            found.append(f"admissible set: {', '.join(self.game.commands[i] for i in wrong)}")
        if (np.asarray(step.subtasks) != real.subtasks).any():
            found.append(f"subtasks: real {real.subtasks}, compiled {np.asarray(step.subtasks)}")
        if found:
            self._note(report, played, tuple(found))
        return bool(found)

    def _note(self, report: Report, played: list[str], found: tuple[str, ...]) -> None:
        report.mismatches += 1
        if report.first is None:
            report.first = Mismatch(tuple(played), found, *self._transcripts(played))

    def _transcripts(self, played: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The last turns as printed by each engine."""
        real_state, real = self.real.reset()
        state, step = self._reset()
        told = [("", real.text or "", self.compiled.decode(step.observation))]
        for command in played:
            real_state, real = self.real.step(real_state, command)
            if command in self.game.commands:
                state, step = self._step(state, self.game.commands.index(command))
                words = step.observation
            else:  # Queried without a step.
                words = self._without_a_step[command](state)
            told.append((command, real.text or "", self.compiled.decode(words)))
        last = told[-TURNS_SHOWN:]
        return (
            tuple(f"> {command}\n{text}" for command, text, _ in last),
            tuple(f"> {command}\n{text}" for command, _, text in last),
        )


def _row(tree: Any, number: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[number], tree)


def _in_sight(facts: Facts, thing: str) -> bool:
    if _holds(facts, thing, "I"):
        return True
    room = next(f[2] for f in facts if f[:2] == ("at", "P"))
    holders = [f[2] for f in facts if f[0] in ("at", "in", "on") and f[1] == thing]
    for holder in holders:
        shows = ("at", holder, room) in facts
        closed = {("closed", holder), ("locked", holder)} & facts
        if holder == room or (shows and not closed):
            return True
    return any(f[:3] == ("link", room, thing) for f in facts)


def _holds(facts: Facts, thing: str, holder: str) -> bool:
    return ("in", thing, holder) in facts or ("on", thing, holder) in facts


def check_jobs(jobs: int) -> None:
    """Refuses many more processes than there are cores."""
    most = JOBS_PER_CORE * len(os.sched_getaffinity(0))
    if jobs > most:
        raise UsageError(f"--jobs is at most {most} here, {JOBS_PER_CORE} for a core, not {jobs}")


def verify(
    name: str,
    steps: int,
    seed: int = 0,
    jobs: int = 1,
    tick: Callable[[int], None] | None = None,
) -> Report:
    """Compares a game's two engines; with several jobs, in as many processes."""
    check_jobs(jobs)
    jobs = min(jobs, max(steps // LEAST_SHARE, 1))
    if jobs == 1:
        return Verifier(load_textworld(name)).run(steps, seed, tick)
    # A forked process would share locks that JAX's threads hold.
    spawn = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=stop_with_parent) as pool:
        shares = [steps // jobs + (job < steps % jobs) for job in range(jobs)]
        total = Report()
        for report in pool.map(verify, [name] * jobs, shares, range(seed, seed + jobs)):
            total += report
            if tick is not None:
                tick(report.steps)
    return total
