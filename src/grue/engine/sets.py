"""Makes the environment of a set of games."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, overload

from grue.engine.drawing import Draw
from grue.engine.environment import Environment, check_episode_steps
from grue.engine.hosted_set import GameOfSet, HostedSetEnv
from grue.engine.layout import shared_words
from grue.engine.make import ENGINES, compiled, near_notice
from grue.engine.stacked import CompiledEntry, StackedEnv
from grue.errors import BrokenFileError, CannotCompileError, UsageError
from grue.files import expanded
from grue.games.game import SUFFIX
from grue.games.gamefile import CompiledGame, load_compiled
from grue.games.playable import Playable
from grue.games.registry import known_names, load
from grue.games.tokens import UNKNOWN_WORD, SharedVocabulary, Vocabulary

HOSTED = ("refuse", "leave out", "host")
DAMAGED = ("refuse", "leave out")
STORIES = (".z8", ".z5", ".z3")
OneGame = str | Path | Playable | CompiledGame


@dataclass
class _Set:
    """The games that were found, and the messages about them."""

    hosted: str
    damaged: str
    found: list[GameOfSet] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)

    def add(self, game: OneGame) -> None:
        name = game.name if isinstance(game, Playable | CompiledGame) else str(game)
        try:
            self.found.append(GameOfSet.compiled(*_read(game)))
        except BrokenFileError as error:
            if self.damaged == "refuse":
                raise BrokenFileError(f"{error}; damaged='leave out' leaves it out") from None
            self.left_out.append((name, str(error)))
        except CannotCompileError as error:
            self.refused.append((name, str(error)))
            if self.hosted == "leave out":
                self.left_out.append((name, f"it cannot be compiled ({error})"))
            else:
                assert not isinstance(game, CompiledGame)
                self.found.append(GameOfSet.real(load(game)))

    def tell(self, total: int) -> None:
        """Refuses unwanted games; else warns about games that are left out or compiled near."""
        if self.refused and self.hosted == "refuse":
            name, why = self.refused[0]
            raise CannotCompileError(
                f"{len(self.refused)} of {total} games cannot be compiled, such as {name} ({why}); "
                "hosted='leave out' leaves them out, hosted='host' plays them hosted"
            )
        if not self.found:
            name, why = self.left_out[0]
            if total == 1:
                raise UsageError(f"the only game, {name}, cannot be used: {why}")
            raise UsageError(f"none of the {total} games can be used; the first is {name}: {why}")
        if self.left_out:
            told = "; ".join(f"{name}: {why}" for name, why in self.left_out[:3])
            more = ", …" if len(self.left_out) > 3 else ""
            warnings.warn(
                f"left out {len(self.left_out)} of {total} games: {told}{more}", stacklevel=3
            )
        near = [one.entry.compiled for one in self.found if one.entry is not None]
        near = [game for game in near if game.header.get("near")]
        if near:
            warnings.warn(
                f"{len(near)} of {total} games are compiled near, first {near_notice(near[0])}",
                stacklevel=3,
            )


@overload
def make_many(
    games: str | Path | Sequence[OneGame],
    engine: Literal["compiled"],
    *,
    vocabulary: Vocabulary | None = None,
    commands: Sequence[str] = (),
    draw: str = "uniform",
    weights: Sequence[int | float] | None = None,
    hosted: str = "refuse",
    damaged: str = "refuse",
    episode_steps: int | None = None,
) -> StackedEnv: ...
@overload
def make_many(
    games: str | Path | Sequence[OneGame],
    engine: str = "auto",
    *,
    vocabulary: Vocabulary | None = None,
    commands: Sequence[str] = (),
    draw: str = "uniform",
    weights: Sequence[int | float] | None = None,
    hosted: str = "refuse",
    damaged: str = "refuse",
    episode_steps: int | None = None,
) -> Any: ...
def make_many(
    games: str | Path | Sequence[OneGame],
    engine: str = "auto",
    *,
    vocabulary: Vocabulary | None = None,
    commands: Sequence[str] = (),
    draw: str = "uniform",
    weights: Sequence[int | float] | None = None,
    hosted: str = "refuse",
    damaged: str = "refuse",
    episode_steps: int | None = None,
) -> Environment:
    """One environment for many games: a folder of them, or a list of names and paths.

    ``reset(key)`` draws a game and ``restart`` the next: "uniform", or with ``weights``, one for
    each game; "in order"; or the "same" again. ``vocabulary`` is that of a training set: all other
    words become unknown. ``commands`` are numbered before those of the games. Games that cannot be
    compiled are refused, or with ``hosted`` left out or played hosted, which is not for jit.
    ``damaged`` files are refused or left out.
    """
    for name, value, allowed in (
        ("engine", engine, ENGINES),
        ("hosted", hosted, HOSTED),
        ("damaged", damaged, DAMAGED),
    ):
        if value not in allowed:
            raise UsageError(f"{name} is {value!r}; use {', '.join(map(repr, allowed))}")
    check_episode_steps(episode_steps)
    if isinstance(commands, str | Path):
        raise UsageError(f"commands is {str(commands)!r}; give a list of commands")
    if engine == "compiled" and hosted == "host":
        raise UsageError("the compiled engine hosts no games; use engine='auto' or hosted='refuse'")
    listed = games_of(games)
    made = _Set("host" if engine == "hosted" else hosted, damaged)
    for game in listed:
        made.add(game)
    made.tell(len(listed))
    words = _vocabulary(made.found, vocabulary)
    theirs = (c for one in made.found for c in one.commands)
    every = tuple(dict.fromkeys((*commands, *theirs)))
    drawn = Draw.of(len(made.found), draw, weights)
    left_out = tuple(made.left_out)
    if engine != "hosted" and all(one.entry for one in made.found):
        entries = [one.entry for one in made.found if one.entry is not None]
        return StackedEnv(entries, words, every, episode_steps, drawn, left_out)
    real = engine == "hosted"
    return HostedSetEnv(made.found, words, every, episode_steps, drawn, left_out, real)


def games_of(games: str | Path | Sequence[OneGame]) -> list[OneGame]:
    """The games of a folder, by name, or of a list."""
    if not isinstance(games, str | Path):
        if not isinstance(games, Sequence):
            raise UsageError(f"games is {games!r}; give a folder or a list of games")
        if not games:
            raise UsageError("the list of games is empty; give at least one game")
        return list(games)
    folder = expanded(games)
    if folder.is_file() or (not folder.exists() and str(games) in known_names()):
        raise UsageError(f"{games} is no folder; give a folder of games, or in Python a list")
    if not folder.is_dir():
        raise UsageError(f"there is no folder {games}; give a folder of games")
    found = _in_folder(folder)
    if not found:
        inside = sorted(p.name for p in folder.iterdir() if p.is_dir() and _in_folder(p))
        hint = f"give a folder with stories ({', '.join(STORIES)}) or compiled files (*{SUFFIX})"
        if inside:
            hint = f"give one of its folders {', '.join(inside)}"
        raise UsageError(f"there are no games in {games}; {hint}")
    return found


def _in_folder(folder: Path) -> list[OneGame]:
    """Stories, and compiled files without a story beside them."""
    stories = [(p.stem, p) for p in folder.iterdir() if p.suffix in STORIES]
    known = {name for name, _ in stories}
    files = [p for p in folder.iterdir() if p.name.endswith(SUFFIX)]
    named = [(p.name.removesuffix(SUFFIX), p) for p in files]
    return [p for _, p in sorted([*stories, *(one for one in named if one[0] not in known)])]


def _read(game: OneGame) -> tuple[CompiledEntry, Playable | None]:
    if isinstance(game, CompiledGame):
        return CompiledEntry(game), None
    if str(game).endswith(SUFFIX):
        return CompiledEntry(load_compiled(expanded(str(game)))), None
    found: Playable = load(game)
    return CompiledEntry(_quietly(compiled, found), found.textworld()), found


def _quietly(read: Callable[[Playable], CompiledGame], game: Playable) -> CompiledGame:
    """The set says once how many of its games are near."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read(game)


def _vocabulary(found: Sequence[GameOfSet], given: Vocabulary | None) -> SharedVocabulary:
    if given is None:
        return shared_words(one.words for one in found)
    if not isinstance(given, Vocabulary) or given.words[:1] != (UNKNOWN_WORD,):
        raise UsageError(
            f"the vocabulary has no word {UNKNOWN_WORD}; give that of another grue.make_many"
        )
    return SharedVocabulary(given.words)
