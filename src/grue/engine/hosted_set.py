"""A set of games in this process, not for jit: real games, or some real and some compiled ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from grue.engine.drawing import Draw
from grue.engine.emulator import LARGEST_SEED
from grue.engine.environment import Environment, check_count
from grue.engine.hosted import OBSERVATION_LENGTH, Tokens
from grue.engine.hosted_story import host
from grue.engine.stacked import CompiledEntry, StackedEnv, joined_digest, names_of_subtasks
from grue.engine.step import Step
from grue.errors import UsageError
from grue.games.logic import Facts
from grue.games.playable import Knowledge, Playable
from grue.games.tokens import SharedVocabulary

OPEN = 32
"""The number of games open at once; the one played least recently is closed."""


@dataclass(frozen=True)
class GameOfSet:
    """A game of a set before it is played."""

    name: str
    commands: tuple[str, ...]
    words: tuple[str, ...]
    subtasks: tuple[str, ...]
    max_score: int | None
    episode_steps: int
    observation_length: int
    digest: str
    knows: Knowledge
    entry: CompiledEntry | None
    """The compiled game, if it is compiled."""
    game: Playable | None
    """The game with its story, if it is known."""

    @classmethod
    def compiled(cls, entry: CompiledEntry, game: Playable | None = None) -> GameOfSet:
        file, told = entry.compiled, entry.compiled.header
        texts = tuple(text for text, _ in told["subtasks"])
        numbers = told["max_score"], told["episode_steps"], told["observation_length"]
        return cls(file.name, file.commands, file.vocabulary.words, texts, *numbers,
                   told["game_hash"], Knowledge(), entry, game)  # fmt: skip

    @classmethod
    def real(cls, game: Playable) -> GameOfSet:
        texts = tuple(subtask.text for subtask in game.subtasks)
        numbers = game.max_score, game.episode_steps, OBSERVATION_LENGTH
        return cls(game.name, game.commands, game.words.words, texts, *numbers,
                   game.digest, game.knows, None, game)  # fmt: skip


class HostedSetState(NamedTuple):
    """A game of a set under way."""

    game: int
    stream: np.ndarray
    """Random bits, for the games of all episodes."""
    episode: int
    world: Any

    @property
    def score(self) -> Any:
        return self.world.score

    @property
    def steps(self) -> Any:
        return self.world.steps

    @property
    def over(self) -> Any:
        return self.world.over


class HostedSetEnv(Environment):
    """The interface of ``StackedEnv``. Compiled games are stepped compiled, the others are real."""

    def __init__(
        self,
        members: Sequence[GameOfSet],
        vocabulary: SharedVocabulary,
        commands: tuple[str, ...],
        episode_steps: int | None = None,
        draw: Draw | None = None,
        left_out: tuple[tuple[str, str], ...] = (),
        real: bool = False,
    ) -> None:
        """With ``real``, compiled games are played from their stories too."""
        self.members = tuple(members)
        self.commands, self.vocabulary, self.left_out = commands, vocabulary, left_out
        self.draw = Draw.of(len(members)) if draw is None else draw
        self._real, self._limit = real, episode_steps
        self._numbers = {command: i for i, command in enumerate(commands)}
        self.names = tuple(member.name for member in members)
        self.observation_length = max(member.observation_length for member in members)
        self._tokens = Tokens(vocabulary, self.observation_length)
        self.max_scores = [member.max_score for member in members]
        """Of each game."""
        known = [score for score in self.max_scores if score is not None]
        self.max_score = max(known) if len(known) == len(members) else None
        self.episode_steps = max(map(self._steps_of, members))
        self.subtask_names = names_of_subtasks([member.subtasks for member in members])
        self.digest = joined_digest([member.digest for member in members])
        self.knows = Knowledge(
            admissible=all(member.knows.admissible for member in members),
            subtasks=all(member.knows.subtasks for member in members),
            chance=len(members) > 1 or members[0].knows.chance,
        )
        self._open: OrderedDict[int, Any] = OrderedDict()
        stacked = [number for number, member in enumerate(members) if member.entry and not real]
        self._number_of = {number: i for i, number in enumerate(stacked)}
        entries = [entry for number in stacked if (entry := members[number].entry) is not None]
        self._stacked = (
            _Compiled(StackedEnv(entries, vocabulary, commands, episode_steps)) if entries else None
        )

    def _steps_of(self, member: GameOfSet) -> int:
        return member.episode_steps if self._limit is None else self._limit

    def reset(self, key: Any = None, game: int | None = None) -> tuple[HostedSetState, Step]:
        """Begins a game that is drawn by the key or integer, or the game with a given number."""
        if key is None:
            stream = np.zeros(2, np.uint32)
        else:
            key = jax.random.key(key) if isinstance(key, int | np.integer) else key
            stream = np.asarray(jax.random.bits(key, (2,), np.uint32))
        number = int(self.draw.first(stream)) if game is None else int(game)
        if not 0 <= number < len(self.members):
            raise UsageError(f"there is no game {number}; use 0 to {len(self.members) - 1}")
        return self._begin(number, stream, 0)

    def restart(self, state: HostedSetState) -> tuple[HostedSetState, Step]:
        """Draws the next game and begins it."""
        episode = state.episode + 1
        number = self.draw.next(state.stream, np.int32(episode), np.int32(state.game))
        return self._begin(int(number), state.stream, episode)

    def _begin(self, game: int, stream: np.ndarray, episode: int) -> tuple[HostedSetState, Step]:
        if game in self._number_of:
            world, step = self._of(game).reset(self._number_of[game])
        else:
            seed = (int(stream[1]) + episode) % (LARGEST_SEED + 1)
            world, step = self._of(game).reset(seed)
        return HostedSetState(game, stream, episode, world), self._of_set(game, step)

    def step(self, state: HostedSetState, action: int | str) -> tuple[HostedSetState, Step]:
        """Takes a command by its number, or as a text. A real game answers any text itself."""
        command = action if isinstance(action, str) else self.commands[int(action)]
        world, step = self._of(state.game).step(state.world, command)
        return state._replace(world=world), self._of_set(state.game, step)

    def fork(self, state: HostedSetState, count: int) -> list[HostedSetState]:
        check_count(count)
        return [state] * count

    def look(self, state: HostedSetState) -> np.ndarray:
        return self._long(self._of(state.game).look(state.world))

    def inventory(self, state: HostedSetState) -> np.ndarray:
        return self._long(self._of(state.game).inventory(state.world))

    def exists(self, state: HostedSetState) -> np.ndarray:
        """For each command of the set, whether it is one of the state's game."""
        own = set(self.members[state.game].commands)
        return np.array([command in own for command in self.commands])

    def facts(self, state: HostedSetState) -> Facts:
        """The facts of the world now; of TextWorld games."""
        return self._of(state.game).facts(state.world)

    def close(self) -> None:
        for env in self._open.values():
            env.close()
        self._open.clear()

    def _of(self, game: int) -> Any:
        """The environment of a game. A real game that was closed is opened again."""
        if game in self._number_of:
            return self._stacked
        if game not in self._open:
            member = self.members[game]
            if member.game is None:
                raise UsageError(f"there is no story of {member.name}; the hosted engine needs it")
            self._open[game] = host(member.game, self._steps_of(member), tokens=self._tokens)
            if len(self._open) > OPEN:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(game)
        return self._open[game]

    def _of_set(self, game: int, step: Step) -> Step:
        """The step, with the commands and subtasks of the set."""
        possible = np.asarray(step.admissible_set)
        if game not in self._number_of:
            own = [self._numbers[command] for command in self.members[game].commands]
            possible = np.zeros(len(self.commands), bool)
            possible[own] = step.admissible_set
        known = min(len(self.subtask_names), len(np.asarray(step.subtasks)))
        done = np.zeros(len(self.subtask_names), bool)
        done[:known] = np.asarray(step.subtasks)[:known]
        words = self._long(step.observation)
        text = self.decode(words) if step.text is None else step.text
        return step._replace(observation=words, text=text, admissible_set=possible, subtasks=done)

    def _long(self, words: Any) -> np.ndarray:
        found = np.zeros(self.observation_length, np.int32)
        found[: len(words)] = words
        return found


class _Compiled:
    """The compiled games of a set, with the interface of a hosted set."""

    def __init__(self, env: StackedEnv) -> None:
        self.env = env
        self._numbers = {command: i for i, command in enumerate(env.commands)}
        self._step: Any = jax.jit(lambda env, state, action: env.step(state, action))
        self._look: Any = jax.jit(lambda env, state: (env.look(state), env.inventory(state)))

    def reset(self, game: int) -> tuple[Any, Step]:
        return jax.device_get(self.env.reset(None, game))

    def step(self, state: Any, command: str) -> tuple[Any, Step]:
        if state.over:
            raise UsageError("the game is over; call reset to start again")
        action = self._numbers.get(command, self.env.no_command)
        return jax.device_get(self._step(self.env, state, action))

    def look(self, state: Any) -> Any:
        return self._look(self.env, state)[0]

    def inventory(self, state: Any) -> Any:
        return self._look(self.env, state)[1]

    def facts(self, state: Any) -> Facts:
        return self.env.facts(state)
