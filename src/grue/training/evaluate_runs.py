"""Plays trained runs for ``grue eval``: on their game, or on every game of a folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from grue.agents.agent import Agent
from grue.agents.replay import lighter
from grue.engine.stacked import StackedEnv
from grue.errors import GrueError, UsageError
from grue.training import memory
from grue.training.evaluate import (
    Evaluation,
    check_episodes,
    check_fits,
    evaluate_player,
    play_episodes,
)
from grue.training.player import Player, load_agent
from grue.training.playing import Finals, play_each_game
from grue.training.programs import agent_for, explorers_of
from grue.training.runs import read_run, some_run_folders
from grue.training.sets import about_set, unseen
from grue.training.splits import normalised
from grue.training.stop import Stop


@dataclass(frozen=True)
class HowToPlay:
    """The options of ``grue eval``."""

    episodes: int = 100
    """Episodes with the final ε; for a set of games, of each game."""
    seed: int = 0
    greedy_only: bool = False
    best: bool = False
    """Play the agent that was best on the validation games, not the last one."""
    games: Path | None = None
    """A folder of games to play, in place of the training games."""
    transcript: bool = False
    leave_out: bool = False
    """Leave out games of the folder that are damaged or cannot be compiled."""

    def __post_init__(self) -> None:
        check_episodes(self.episodes)

    def to_json(self) -> dict[str, Any]:
        """The options as JSON, for a process on another machine."""
        games = None if self.games is None else str(self.games.resolve())
        return {**vars(self), "games": games}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> HowToPlay:
        known = {field.name: values[field.name] for field in dataclasses.fields(cls)}
        return cls(**{**known, "games": known["games"] and Path(known["games"])})


@dataclass(frozen=True)
class RunEvaluation:
    """A trained run, played greedily and, if asked for, with the final ε of its training."""

    name: str
    steps: int
    """Training steps."""
    greedy: Evaluation
    exploring: Evaluation | None
    notes: tuple[str, ...] = ()
    """Messages about failures of a hosted game."""

    columns = ("run", "steps", "play", "score", "max", "fraction", "won")

    def rows(self) -> Iterator[tuple[str, ...]]:
        """One table row for greedy play, one for ε-greedy play."""
        for play in (self.greedy, self.exploring):
            if play is None:
                continue
            many = play is self.exploring
            mean = float(play.score.mean())
            yield (
                self.name,
                f"{self.steps:,}",
                f"ε {play.epsilon:g}" if many else "greedy",
                f"{mean:.2f}" if many else f"{mean:g}",
                "-" if play.max_score is None else str(play.max_score),
                f"{play.fraction.mean():.3f}",
                f"{play.won.sum()} of {len(play)}" if many else ("yes" if play.won[0] else "no"),
            )

    def to_json(self, transcript: bool = False) -> dict[str, Any]:
        told: dict[str, Any] = {"run": self.name, "steps": self.steps}
        told["max_score"] = self.greedy.max_score
        for name, play in (("greedy", self.greedy), ("exploring", self.exploring)):
            if play is not None:
                told[name] = {
                    "epsilon": play.epsilon,
                    "episodes": len(play),
                    "score": float(play.score.mean()),
                    "fraction": float(play.fraction.mean()),
                    "wins": int(play.won.sum()),
                }
        if transcript:
            told["transcript"] = [dataclasses.asdict(step) for step in self.greedy.record()]
        return told

    def transcripts(self) -> Iterator[tuple[str, Evaluation, int]]:
        """A title, and an episode of an evaluation."""
        yield self.name, self.greedy, 0


@dataclass(frozen=True)
class GamesEvaluation:
    """A trained run on every game of a set, greedily and, if asked for, with its final ε."""

    name: str
    steps: int
    """Training steps."""
    folder: str
    env: StackedEnv
    greedy: Finals
    """One episode for each game."""
    exploring: Finals | None
    """Episodes × games."""
    epsilon: float
    """ε of the exploring play."""
    traced: Evaluation | None = None
    """The greedy episodes with all their steps, for transcripts."""
    notes: tuple[str, ...] = ()

    columns = ("run", "steps", "game", "play", "score", "max", "normalised", "won")

    def rows(self) -> Iterator[tuple[str, ...]]:
        """One row for each game and one for all; the same again for ε-greedy play."""
        for title, play in self._plays():
            many = np.ndim(play.score) > 1
            shares, wins = self._each(normalised(play, self.env)), self._each(play.won)
            scores = self._each(play.score)
            for number, name in enumerate(self.env.names):
                of = f"{wins[number] * len(play.won):.0f} of {len(play.won)}"
                yield (
                    self.name,
                    f"{self.steps:,}",
                    name,
                    title,
                    f"{scores[number]:.2f}" if many else f"{scores[number]:g}",
                    str(self.env.max_scores[number]),
                    f"{shares[number]:.3f}",
                    of if many else ("yes" if wins[number] else "no"),
                )
            yield (
                self.name,
                f"{self.steps:,}",
                f"all {len(self.env.names)}",
                title,
                f"{scores.mean():.2f}",
                f"{self.env.max_scores.mean():.2f}",
                f"{shares.mean():.3f}",
                f"{int(np.sum(play.won))} of {np.size(play.won)}",
            )

    def _plays(self) -> Iterator[tuple[str, Finals]]:
        yield "greedy", self.greedy
        if self.exploring is not None:
            yield f"ε {self.epsilon:g}", self.exploring

    def _each(self, values: Any) -> np.ndarray:
        """The mean of each game."""
        return np.atleast_2d(np.asarray(values, float)).mean(0)

    def to_json(self, transcript: bool = False) -> dict[str, Any]:
        told: dict[str, Any] = {"run": self.name, "steps": self.steps, "folder": self.folder}
        told["games"] = games = [
            {"game": name, "max_score": int(most)}
            for name, most in zip(self.env.names, self.env.max_scores, strict=True)
        ]
        for (_, play), name in zip(self._plays(), ("greedy", "exploring"), strict=False):
            shares, scores = self._each(normalised(play, self.env)), self._each(play.score)
            wins = np.atleast_2d(play.won).sum(0)
            told[name] = {
                "epsilon": 0.0 if name == "greedy" else self.epsilon,
                "episodes": np.size(play.score),
                "score": float(scores.mean()),
                "normalised": float(shares.mean()),
                "wins": int(wins.sum()),
            }
            for number, game in enumerate(games):
                game[name] = {
                    "score": float(scores[number]),
                    "normalised": float(shares[number]),
                    "wins": int(wins[number]),
                }
        if transcript and self.traced is not None:
            for number, game in enumerate(games):
                record = self.traced.record(number)
                game["transcript"] = [dataclasses.asdict(step) for step in record]
        return told

    def transcripts(self) -> Iterator[tuple[str, Evaluation, int]]:
        assert self.traced is not None
        for number, name in enumerate(self.env.names):
            yield f"{self.name}: {name}", self.traced, number


Played = RunEvaluation | GamesEvaluation


def evaluate_runs(folder: Path, how: HowToPlay) -> Iterator[Played | GrueError]:
    """Evaluates every run in a folder, or the run that the folder is.

    If a run in a folder cannot be played, its error is returned and the others are still played.
    """
    for path in some_run_folders(folder):
        inside = path != folder and path.is_relative_to(folder)
        name = str(path.relative_to(folder)) if inside else path.name
        try:
            read_run(path)
            player = load_agent(path, how.seed, "best" if how.best else None)
            found = _evaluated(name, player, how)
        except GrueError as error:
            if path == folder:
                raise
            found = error
        yield found


def _evaluated(name: str, player: Player, how: HowToPlay) -> Played:
    if how.games is not None or isinstance(player.env, StackedEnv):
        return _on_games(name, player, how)
    greedy, exploring = evaluate_player(player, 1, 0.0, how.seed), None
    if not how.greedy_only:
        exploring = evaluate_player(player, how.episodes, player.config.epsilon_end, how.seed)
    player.close()
    notes = tuple(player.env.notes())
    return RunEvaluation(name, player.trained_steps, greedy, exploring, notes)


def _on_games(name: str, player: Player, how: HowToPlay) -> GamesEvaluation:
    env, agent, state, parameters, at = player.trained
    folder, config = player.config.game, player.config
    if not isinstance(env, StackedEnv):
        raise UsageError(
            f"{name} was trained on one game, {folder}, and does not know the words of others; "
            "--games is for runs on a folder of games"
        )
    if how.games is not None:
        folder = str(how.games)
        config = dataclasses.replace(config, leave_out=config.leave_out or how.leave_out)
        env = unseen(folder, config, env)
        agent = _agent_of(player, env)
    given, exploring, traced = (env, agent, lighter(state), parameters), None, None
    greedy = play_each_game(*given, seed=how.seed)
    if not how.greedy_only:
        check_fits(how.episodes, memory.bytes_of(greedy))
        # A KeyboardInterrupt inside a JAX program may be lost, or crash Python.
        with Stop() as stop:
            times = []
            for time in range(how.episodes):
                times.append(play_each_game(*given, config.epsilon_end, how.seed, time))
                stop.heed()
        exploring = jax.tree.map(lambda *each: np.stack(each), *times)
    if how.transcript:
        games, able = range(len(env.names)), jax.jit(agent.for_play)(lighter(state))
        traced = play_episodes(
            env, agent, able, parameters, config, len(games), seed=how.seed, games=games
        )
    notes = (about_set(folder, env),) if env.left_out else ()
    played = greedy, exploring, config.epsilon_end, traced, notes
    return GamesEvaluation(name, at, folder, env, *played)


def _agent_of(player: Player, env: StackedEnv) -> Agent:
    """The player's agent, for other games. Its explorer does not matter for play."""
    agent = player.trained[1]
    return agent_for(env, player.config, agent.heads, explorers_of([player.config]))
