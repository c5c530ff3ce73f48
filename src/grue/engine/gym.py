"""Gymnasium environments, registered by ``import grue``.

gymnasium.make("grue/SaladWorld-v0", level=3)
gymnasium.make("grue/TextGame-v0", game="path/to/story.z8")
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import read_from_shared_memory

from grue.engine.environment import check_episode_steps
from grue.engine.hosted_story import host
from grue.engine.step import Step
from grue.errors import UsageError
from grue.games.playable import Playable
from grue.games.registry import LEVELS, load

# Jericho decodes the output of stories as Latin-1.
ASCII = "".join(chr(code) for code in range(0x20, 0x7F))
LATIN = "".join(chr(code) for code in range(0xA1, 0x100))
CHARSET = "\n" + ASCII + LATIN
ALLOWED = frozenset(CHARSET)
MAX_LENGTH = 2048
"""Longer texts are cut. SaladWorld's longest text has 402 characters."""
OTHER_CHARACTER = "?"


class StoryText(spaces.Text):
    """The observation space: what a story may print."""

    def __init__(self) -> None:
        super().__init__(MAX_LENGTH, min_length=0, charset=CHARSET)


class _SharedTexts(Sequence[str]):
    """The texts of all environments in memory shared with worker processes.

    AsyncVectorEnv reads the shared memory once and copies the result after every step. For a Text
    space that result is plain strings, which never change (Gymnasium's issue 1164). This class
    reads the memory whenever it is copied.
    """

    def __init__(self, space: StoryText, memory: Any, count: int) -> None:
        self._characters = np.array(space.character_list)
        codes = np.frombuffer(memory.get_obj(), dtype=np.int32)
        self._codes = codes.reshape(count, space.max_length)

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self)[index]
        row = self._codes[index]
        # Larger codes are padding.
        return "".join(self._characters[row[row < len(self._characters)]])

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[str, ...]:
        return tuple(self)


@read_from_shared_memory.register(StoryText)  # pyright: ignore[reportArgumentType]
def _read_texts(space: StoryText, shared_memory: Any, n: int = 1) -> _SharedTexts:
    return _SharedTexts(space, shared_memory, n)


class TextGameEnv(gymnasium.Env[str, np.int64]):
    """A text game on its real interpreter: observations are texts, actions are commands.

    ``info`` has ``score``, ``subtasks`` (which are done), ``admissible`` (whether the command
    changed the state) and, with ``admissible=True``, ``admissible_set``: a mask for
    ``action_space.sample``. It checks every command, and exists for TextWorld games only.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        game: str | Path | Playable,
        episode_steps: int | None = None,
        admissible: bool = False,
        render_mode: str | None = None,
    ) -> None:
        check_episode_steps(episode_steps)
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise UsageError(f"there is no render_mode {render_mode!r}; use 'ansi' or None")
        self.game: Playable = load(game)
        if admissible and not self.game.knows.admissible:
            raise UsageError(
                f"the admissible commands of {self.game.name} are unknown: make it without "
                "admissible=True, which is for TextWorld games"
            )
        self.commands = self.game.commands
        self.admissible = admissible
        self.render_mode = render_mode
        self.observation_space = StoryText()
        self.action_space = spaces.Discrete(len(self.commands))
        self._env = host(self.game, episode_steps)
        self._state: Any = None
        self._screen = ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        # The interpreter's seeds have 31 bits; Gymnasium's may be larger.
        self._state, step = self._env.reset(int(self.np_random.integers(2**31 - 1)))
        self._screen = observation(step)
        return observation(step), self._info(step)

    def step(self, action: np.int64) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset before the first step")
        if not self.action_space.contains(action):
            raise UsageError(f"there is no action {action!r}: use 0 to {len(self.commands) - 1}")
        self._state, step = self._env.step(self._state, int(action))
        self._screen = f"> {self.commands[int(action)]}\n\n{observation(step)}"
        return (
            observation(step),
            float(step.reward),
            bool(step.terminated),
            bool(step.truncated),
            self._info(step),
        )

    def render(self) -> str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The last command and the game's answer, in mode "ansi"."""
        return self._screen if self.render_mode == "ansi" else None

    def close(self) -> None:
        self._state = None
        self._env.close()

    def _info(self, step: Step) -> dict[str, Any]:
        info: dict[str, Any] = {
            "score": int(step.score),
            "subtasks": step.subtasks,
            "admissible": bool(step.admissible),
        }
        if self.admissible:
            info["admissible_set"] = step.admissible_set.astype(np.int8)
        return info


class SaladWorldEnv(TextGameEnv):
    """One of the seven levels of SaladWorld."""

    def __init__(self, level: int = 1, **options: Any) -> None:
        """``options`` are those of TextGameEnv."""
        super().__init__(level_name(level), **options)


def level_name(level: int) -> str:
    """The name of a SaladWorld level."""
    if level not in LEVELS:
        raise UsageError(
            f"SaladWorld has no level {level!r}; the levels are {LEVELS[0]} to {LEVELS[-1]}"
        )
    return f"saladworld-{int(level)}"


def observation(step: Step) -> str:
    """The step's text, within the observation space."""
    text = step.text or ""
    if not ALLOWED.issuperset(text):
        text = "".join(c if c in ALLOWED else OTHER_CHARACTER for c in text)
    return text[:MAX_LENGTH]
