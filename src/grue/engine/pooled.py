"""Real games in subprocesses, as pure functions on arrays for jit and vmap.

The state of a game is its history: the seed and the commands so far. ``step`` asks a pool of
subprocesses for the result of the next command. A subprocess that is at another history replays
the game from the seed. So a step depends on its arguments alone, a checkpoint holds only arrays,
and a run can be resumed elsewhere with identical results.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from grue.engine.emulator import check_command, check_seed
from grue.engine.emulator_pool import EmulatorPool
from grue.engine.emulator_process import Spec, Turn, failed_turns
from grue.engine.environment import episode_seed
from grue.engine.hosted import OBSERVATION_LENGTH, RealGame, Tokens
from grue.engine.step import Step
from grue.errors import UsageError
from grue.games.playable import Playable
from grue.games.tokens import StoryVocabulary
from grue.games.zmachine.story_file import StoryFile

MOST_COMMANDS = 2**15
WORD = np.dtype(np.int32)
"""The type of all parts of questions and answers."""
TRUTHS = ("terminated", "admissible", "failed", "admissible_set", "subtasks")
"""The boolean parts of an answer."""


class History(NamedTuple):
    stream: Array
    """The data of the random key for the seeds of all episodes."""
    episode: Array
    seed: Array
    commands: Array
    """The commands of the episode; the first ``steps`` of them have been taken."""
    steps: Array
    score: Array
    subtasks: Array
    over: Array
    lost: Array
    """The emulator failed, and the episode ends here."""
    looked: Array
    carried: Array
    """The output of look and inventory, if the game is ``informed``."""


class PooledEnv(RealGame[Playable]):
    """``env.reset(key) -> state, step`` and ``env.step(state, action) -> state, step``."""

    def __init__(
        self,
        game: Playable,
        episode_steps: int | None = None,
        game_seed: int | None = None,
        informed: bool = False,
        observation_length: int = OBSERVATION_LENGTH,
        vocabulary: StoryVocabulary | None = None,
        workers: int | None = None,
        why: str = "",
    ) -> None:
        """``game_seed`` is for every episode; None draws each from the key of ``reset``.

        ``informed`` runs look and inventory with every step, which costs two more commands. The
        default vocabulary is every word of the story. ``why`` says why it is not compiled.
        """
        words = game.words if vocabulary is None else vocabulary
        super().__init__(game, episode_steps, Tokens(words, observation_length))
        self.why = why
        self.game_seed = game_seed
        if len(self.commands) > MOST_COMMANDS:
            raise UsageError(f"{game.name} has more than {MOST_COMMANDS} commands; give fewer")
        for command in self.commands:
            check_command(command)
        if game_seed is not None:
            check_seed(game_seed)
        spec = Spec(game, self.episode_steps, self.vocabulary, observation_length, informed)
        self.pool = EmulatorPool(spec, workers)
        self.processes = self.pool.size
        self.knows, self.max_score = self.pool.facts()
        self._opening = self._find_opening()

    @property
    def about(self) -> dict[str, Any]:
        story = StoryFile.read(self.game.story)
        return {
            "engine": "hosted",
            "jericho": metadata.version("jericho"),
            "release": story.release,
            "serial": story.serial,
        }

    # The pure functions

    def reset(self, key: Any = None) -> tuple[History, Step]:
        """The first episode of a random stream, by default that of key 0."""
        key = jax.random.key(0) if key is None else key
        return self._begin(jax.random.key_data(key), jnp.int32(0))

    def restart(self, state: History) -> tuple[History, Step]:
        """The next episode, with a new seed unless ``game_seed`` is given."""
        return self._begin(state.stream, state.episode + 1)

    def step(self, state: History, action: Array | int) -> tuple[History, Step]:
        """Takes a command by its number. A game that is over does not change."""
        action = jnp.asarray(action, jnp.int32)
        done = state.over | state.lost | (state.steps >= self.episode_steps)
        turn = self._ask(state, action, done)
        going = ~done
        lost = turn.failed & going
        played = going & ~lost
        score = jnp.where(played, turn.score, state.score)
        place = jnp.where(going, state.steps, self.episode_steps)
        following = state._replace(
            commands=state.commands.at[place].set(action.astype(jnp.int16), mode="drop"),
            steps=state.steps + going,
            score=score,
            subtasks=jnp.where(played, turn.subtasks, state.subtasks),
            over=state.over | (turn.terminated & played),
            lost=state.lost | lost,
            looked=jnp.where(played, turn.looked, state.looked),
            carried=jnp.where(played, turn.carried, state.carried),
        )
        return following, self._report(
            following,
            turn.observation * played,
            score - state.score,
            turn.admissible & played,
            turn.admissible_set & played,
        )

    def look(self, state: History) -> Array:
        return self._told(state.looked)

    def inventory(self, state: History) -> Array:
        return self._told(state.carried)

    # On the host

    def notes(self) -> list[str]:
        return self.pool.notes()

    def check(self) -> None:
        if self.pool.error is not None:
            raise self.pool.error

    def close(self) -> None:
        self.pool.close()

    def _begin(self, stream: Array, episode: Array) -> tuple[History, Step]:
        turn = jax.tree.map(jnp.asarray, self._opening)
        state = History(
            stream=stream,
            episode=episode,
            seed=self._seed(stream, episode),
            commands=jnp.zeros(self.episode_steps, jnp.int16),
            steps=jnp.int32(0),
            score=turn.score,
            subtasks=turn.subtasks,
            over=jnp.bool_(False),
            lost=jnp.bool_(False),
            looked=turn.looked,
            carried=turn.carried,
        )
        nothing, no = jnp.int32(0), jnp.bool_(False)
        return state, self._report(state, turn.observation, nothing, no, turn.admissible_set)

    def _seed(self, stream: Array, episode: Array) -> Array:
        if self.game_seed is not None:
            return jnp.int32(self.game_seed)
        return episode_seed(jax.random.wrap_key_data(stream), episode)

    def _ask(self, state: History, action: Array, done: Array) -> Turn:
        """Sends and receives one array each, because each costs as much as a step."""
        question = jnp.concatenate(
            [jnp.stack([done, state.seed, state.steps, action]), state.commands]
        )
        turn = jax.pure_callback(
            self._answer,
            jax.ShapeDtypeStruct((self.pool.turn.itemsize // WORD.itemsize,), WORD),
            question.astype(WORD),
            vmap_method="broadcast_all",
        )
        return _fields(turn, self.pool.turn)

    def _answer(self, questions: Any) -> np.ndarray:
        """The callback. Leading axes are batches of games."""
        rows = np.asarray(questions)
        shape = rows.shape[:-1]
        rows = rows.reshape(-1, rows.shape[-1])
        asking = np.flatnonzero(rows[:, 0] == 0)
        asked = rows[asking]
        asked[:, 0] = asking
        turns = failed_turns(self.pool.turn, len(rows))
        if len(asking):
            turns[asking] = self.pool.ask(asked.view(self.pool.question)[:, 0])
        return turns.view(WORD).reshape(*shape, -1)

    def _find_opening(self) -> Turn:
        """Must be the same for all episodes, because it is a constant of the program."""
        first = self.pool.opening(self.game_seed or 0)
        if self.game_seed is None and first != self.pool.opening(1):
            raise UsageError(
                f"{self.game.name} has a random opening; fix its seed, as with --set game_seed=0"
            )
        return _fields(first.view(WORD), first.dtype)

    def _report(
        self, state: History, words: Array, reward: Array, admissible: Array, possible: Array
    ) -> Step:
        if not self.knows.admissible:
            possible = jnp.broadcast_to(~state.over, len(self.commands))
        return Step(
            observation=words,
            text=None,
            reward=reward,
            score=state.score,
            terminated=state.over,
            truncated=~state.over & (state.lost | (state.steps >= self.episode_steps)),
            admissible=admissible,
            admissible_set=possible,
            subtasks=state.subtasks,
        )

    def _told(self, words: Array) -> Array:
        if not self.knows.look:
            raise UsageError("look and inventory need a game that is opened with informed=True")
        return words


def _fields(turn: Any, kind: np.dtype) -> Turn:
    """A record's fields, from one array of numbers."""
    found = {}
    for name in Turn._fields:
        part, offset = kind.fields[name][:2]  # type: ignore[index]
        first = offset // WORD.itemsize
        value = turn[first : first + part.itemsize // WORD.itemsize].reshape(part.shape)
        found[name] = value != 0 if name in TRUTHS else value
    return Turn(**found)
