"""Plays many games in one process by texts: for players that read and write, such as LLMs.

games = grue.TextGames(grue.make_many("games/train"))
now = games.begin(1000, seed=0)
now = games.play(now, [player(text, commands) for text, commands in zip(now.texts, now.commands)])
group = games.fork(now, 7, 16)  # sixteen games from the moment of game 7
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from grue.engine.environment import check_count
from grue.engine.stacked import SetState, StackedEnv
from grue.engine.step import Step
from grue.errors import UsageError
from grue.games.tokens import Vocabulary, join


@dataclass(frozen=True)
class TextMoment:
    """Games being played. It is a value: you can keep it and play on from it many times."""

    state: SetState
    """On the host: a row for each game."""
    step: Step
    env: StackedEnv

    def __len__(self) -> int:
        return len(self.state.game)

    @cached_property
    def texts(self) -> list[str]:
        """What each game printed last."""
        words = _words(self.env.vocabulary)
        return [join(words[row[row > 0]]) for row in self.step.observation]

    @cached_property
    def commands(self) -> list[list[str]]:
        """The commands of each game that would change it now; none after its end."""
        names = self.env.commands
        return [[names[i] for i in np.flatnonzero(row)] for row in self.step.admissible_set]

    @cached_property
    def all_commands(self) -> list[list[str]]:
        """All commands that each game has."""
        return [list(self.env.single(int(game)).commands) for game in self.games]

    @property
    def games(self) -> np.ndarray:
        """The number of each game in the set."""
        return np.asarray(self.state.game)

    @property
    def names(self) -> list[str]:
        return [self.env.names[game] for game in self.games]

    @property
    def rewards(self) -> np.ndarray:
        return self.step.reward

    @property
    def scores(self) -> np.ndarray:
        return self.step.score

    @property
    def shares(self) -> np.ndarray:
        """The scores, divided by the maximal scores."""
        return self.step.score / np.maximum(self.env.max_scores[self.state.game], 1)

    @property
    def ended(self) -> np.ndarray:
        """Which games are won, lost or at the limit of their steps."""
        return self.step.terminated | self.step.truncated


class TextGames:
    def __init__(self, env: StackedEnv) -> None:
        if not isinstance(env, StackedEnv):
            raise UsageError("TextGames plays compiled games: give the result of grue.make_many")
        self.env = env
        self._on_device = jax.device_put(env)
        self._numbers = {command: i for i, command in enumerate(env.commands)}
        self._begin: Any = jax.jit(lambda env, games: jax.vmap(lambda g: env.reset(None, g))(games))
        self._draw: Any = jax.jit(lambda env, keys: jax.vmap(env.reset)(keys)[0].game)
        self._play: Any = jax.jit(lambda env, state, a: jax.vmap(env.step)(state, a))

    def begin(self, count: int, seed: int = 0, games: Sequence[int] | None = None) -> TextMoment:
        """Begins ``count`` games that the set draws, or those of some numbers.

        The same seed, or the same numbers, give the same games.
        """
        if count < 0:
            raise UsageError(f"there are no {count} games; give a number from 0 on")
        if games is None:
            keys = jax.random.split(jax.random.key(seed), _size(count))
            numbers = np.asarray(self._draw(self._on_device, keys))[:count]
        else:
            numbers = _numbers(games, len(self.env.names), "games of the set")
            if len(numbers) != count:
                raise UsageError(f"there are {len(numbers)} numbers for {count} games")
        return self._moment(self._begin(self._on_device, _padded(numbers)), count)

    def play(self, moment: TextMoment, commands: Sequence[str]) -> TextMoment:
        """Takes a command in each game. A game that has ended stays as it is and prints nothing.

        A text that is no command of the game spends a step and changes nothing.
        """
        if isinstance(commands, str) or not all(isinstance(c, str) for c in commands):
            raise UsageError("give a list of texts, a command for each game")
        if len(commands) != len(moment):
            raise UsageError(f"there are {len(commands)} commands for {len(moment)} games")
        none = self.env.no_command
        actions = np.array([self._numbers.get(c.strip(), none) for c in commands], np.int32)
        state = jax.tree.map(_padded, moment.state)
        after = self._moment(self._play(self._on_device, state, _padded(actions)), len(moment))
        silent = jax.tree.map(np.zeros_like, moment.step)
        stays = moment.step._replace(
            **{name: getattr(silent, name) for name in ("observation", "reward", "admissible")}
        )

        def kept(old: np.ndarray, new: np.ndarray) -> np.ndarray:
            return np.where(moment.ended.reshape(-1, *[1] * (new.ndim - 1)), old, new)

        state, step = jax.tree.map(kept, (moment.state, stays), (after.state, after.step))
        return TextMoment(state, step, self.env)

    def fork(self, moment: TextMoment, index: int, count: int) -> TextMoment:
        """A group of ``count`` games that all continue from the current state of one game."""
        check_count(count)
        return self.take(moment, [index] * count)

    def take(self, moment: TextMoment, indices: Sequence[int]) -> TextMoment:
        """Some games of a moment, in this order, each as often as it is named."""
        where = _numbers(indices, len(moment), "games of the moment")
        state, step = jax.tree.map(lambda leaf: leaf[where], (moment.state, moment.step))
        return TextMoment(state, step, self.env)

    def facts(self, moment: TextMoment, index: int) -> Any:
        """The facts of the world in one game, as TextWorld states them."""
        (number,) = _numbers([index], len(moment), "games of the moment")
        return self.env.facts(jax.tree.map(lambda leaf: leaf[number], moment.state))

    def _moment(self, found: Any, count: int) -> TextMoment:
        state, step = jax.tree.map(lambda leaf: leaf[:count], jax.device_get(found))
        return TextMoment(state, step, self.env)


def _numbers(given: Sequence[int], count: int, what: str) -> np.ndarray:
    """Whole numbers from 0 to count - 1."""
    found = np.asarray(given)
    right = found.ndim == 1 and (np.issubdtype(found.dtype, np.integer) or not len(found))
    if not right or not ((found >= 0) & (found < count)).all():
        raise UsageError(f"{given!r} are no numbers of {what}, which are 0 to {count - 1}")
    return found.astype(np.int32)


def _size(count: int) -> int:
    """Programs are compiled for few sizes only: powers of two."""
    return 1 << max(count - 1, 0).bit_length()


def _padded(rows: Any) -> Any:
    """Padded to a power of two with copies of the first row."""
    rows = np.asarray(rows)
    more = _size(len(rows)) - len(rows)
    return rows if not more else np.concatenate([rows, np.repeat(rows[:1], more, 0)])


def _words(vocabulary: Vocabulary) -> np.ndarray:
    return np.array(["", *vocabulary.words], object)
