"""What is watched: the runs and games of the command line. The page refers to them by number."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from grue.agents.replay import lighter
from grue.engine.compiled import CompiledEnv
from grue.engine.hosted_story import host
from grue.errors import GrueError, UsageError
from grue.files import expanded
from grue.games.gamefile import SUFFIX
from grue.games.playable import Playable
from grue.games.registry import load
from grue.training import metrics
from grue.training.config import TrainConfig
from grue.training.player import Player
from grue.training.programs import game_of
from grue.training.runs import (
    CONFIG,
    METRICS,
    load_state,
    read_config,
    read_run,
    run_folders,
    stored_steps,
)
from grue.training.sets import is_set
from grue.watch.session import Mind
from grue.watch.stage import StageView

MOST_POINTS = 600
"""Of a curve on the page."""
KEPT_MINDS = 8
CURVES = ("fraction", "score", "q_loss", "classifier_loss", "precision", "recall", "candidates")
"""Shown first, if a run has them; others follow."""


class GameSubject:
    """A game to be played by hand. The real game, so that any text is a command."""

    kind = "game"

    def __init__(self, number: int, game: Playable) -> None:
        self.number, self.game = number, game
        self.name = game.name

    @cached_property
    def stage(self) -> StageView:
        env = host(self.game, sys.maxsize, one_life=False)
        return StageView(env, self.game)

    def told(self) -> dict[str, Any]:
        return {"number": self.number, "kind": "game", "name": self.name, "game": self.game.name}

    def mind(self, step: int | None = None) -> Mind:
        raise UsageError(f"{self.name} is a game without an agent; give a run to watch one")


class RunSubject:
    """A run folder, which may still be trained, or not be there yet."""

    kind = "run"

    def __init__(self, number: int, folder: Path) -> None:
        self.number, self.folder = number, folder
        self.name = folder.name
        self._minds: dict[int, Mind] = {}
        self._rows: tuple[Any, dict[str, Any]] = (None, {})

    @property
    def config(self) -> TrainConfig:
        return read_config(self.folder)[0]

    @cached_property
    def stage(self) -> StageView:
        config = self.config
        if is_set(config):
            raise UsageError(
                f"{self.name} was trained on a folder of games, and the page shows one game; "
                "grue eval --transcript prints its episodes"
            )
        compiled = config.game.endswith(SUFFIX)
        game = None if compiled else load(config.game, config.story, config.commands)
        return StageView(game_of(config), game)

    @property
    def compiled(self) -> bool:
        return isinstance(self.stage.env, CompiledEnv)

    def told(self) -> dict[str, Any]:
        """With ``problem`` instead of more if the folder cannot be used."""
        told: dict[str, Any] = {"number": self.number, "kind": "run", "name": self.name}
        if not (self.folder / CONFIG).exists():
            return told | {"waiting": True, "problem": f"{self.name} is not there yet"}
        try:
            config = self.config
            return told | {
                "game": config.game,
                "agent": config.agent,
                "gate": config.gate,
                "explore": config.explore,
                "heads": config.heads_in_use,
                "seed": config.seeds[0],
                "steps": config.steps,
                "epsilonEnd": config.settings.epsilon_end,
                "judges": config.gate_kind.classifier,
                "checkpoints": stored_steps(self.folder),
            }
        except (GrueError, OSError) as error:
            return told | {"problem": " ".join(str(error).split())}

    def mind(self, step: int | None = None) -> Mind:
        """The agent at a checkpoint, by default the latest."""
        steps = stored_steps(self.folder)
        at = steps[-1] if step is None and steps else step
        if at is None or at not in self._minds:
            env, agent, state, parameters, at = load_state(self.folder, at)
            player = Player((env, agent, lighter(state), parameters, at), self.config)
            self._minds[at] = Mind(player, (self.number, at))
            while len(self._minds) > KEPT_MINDS:
                del self._minds[next(iter(self._minds))]
        return self._minds[at]

    def curves(self) -> dict[str, Any]:
        """The metrics so far, in at most ``MOST_POINTS`` rows."""
        stamp = _stamp(self.folder / METRICS)
        if stamp != self._rows[0] or not self._rows[1]:
            self._rows = stamp, self._curves()
        return self._rows[1]

    def _curves(self) -> dict[str, Any]:
        run = read_run(self.folder)
        names = metrics.averaged(run.config)
        names = [*(n for n in CURVES if n in names), *(n for n in names if n not in CURVES)]
        steps = run.metrics["step"]
        rows = _spread(len(steps))
        shown = {name: _numbers(run.curve(name)[1][rows]) for name in names}
        heads = np.atleast_2d(run.metrics["heads"])[rows] if len(steps) else np.zeros((0, 0))
        return {
            "steps": steps[rows].tolist(),
            "planned": run.config.steps,
            "columns": shown,
            "epsilon": _numbers(run.metrics["epsilon"][rows]),
            "heads": [_numbers(head) for head in heads.T],
            "episodes": int(run.metrics["episodes"].sum()),
            "wins": int(run.metrics["wins"].sum()),
            "checkpoints": stored_steps(self.folder),
        }


Subject = GameSubject | RunSubject


def find_subjects(
    given: Sequence[str], story: Path | None = None, commands: Path | None = None
) -> list[Subject]:
    """The runs in folders, and games by name or path. A damaged run is one that tells so."""
    found: list[Subject] = []
    for text in given:
        path = expanded(text)
        if path.is_dir():
            folders = run_folders(path)
            if not folders:
                raise UsageError(
                    f"{path} is no run folder and holds none: a run folder has a {CONFIG}, and "
                    "grue train makes it"
                )
            for folder in folders:
                found.append(RunSubject(len(found), folder.resolve()))
        else:
            found.append(GameSubject(len(found), load(text, story, commands)))
    return found


def _stamp(path: Path) -> Any:
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_size, about.st_mtime_ns


def _spread(rows: int) -> np.ndarray:
    """Row numbers, evenly spread, the last one among them."""
    return np.unique(np.linspace(0, rows - 1, min(rows, MOST_POINTS)).round().astype(int))


def _numbers(values: Any) -> list[float | None]:
    """For JSON, which has no nan."""
    return [None if not np.isfinite(value) else round(float(value), 5) for value in values]
