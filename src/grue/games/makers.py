"""Makes sets of games with TextWorld's own generators, at settings known from the literature."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from grue.errors import GrueError, UsageError
from grue.files import write_atomically

SPLITS = ("train", "valid", "test")
MANIFEST = "manifest.json"
LIMIT_S = 180
"""The generators search for a world, and sometimes do not find one."""
TRIES = 3
"""So many seeds are tried for each game that is wanted."""


@dataclass(frozen=True)
class Kind:
    """One of TextWorld's generators: ``settings`` are tw-make's, by the name of the level."""

    maker: str
    source: str
    """Where the levels come from."""
    levels: Mapping[str, str] = field(default_factory=dict)
    numbers: tuple[range, ...] = ()
    """The levels that are numbers."""
    splits_foods: bool = False
    """Whether tw-make has foods that only some of train, valid and test know."""

    @property
    def first(self) -> str:
        """The level that is made by default."""
        return next(iter(self.levels), "1")

    def settings(self, level: str) -> list[str]:
        if level in self.levels:
            return shlex.split(self.levels[level])
        if level.isdecimal() and any(int(level) in numbers for numbers in self.numbers):
            return ["--level", level]
        numbers = [f"{numbers[0]} to {numbers[-1]}" for numbers in self.numbers]
        raise UsageError(
            f"there is no level {level!r} of {self.maker}; there are "
            f"{', '.join([*numbers, *self.levels])}"
        )


KINDS = {
    "cooking": Kind(
        "tw-cooking",
        "gata-…: levels 1 to 4 of GATA (Adhikari et al. 2020), which are difficulty_level_3, 7, 5 "
        "and 9 of its games rl.0.2 (README of github.com/xingdi-eric-yuan/GATA-public); ftwp-…: "
        "skills of the First TextWorld Problems, in combinations of grue's own",
        {
            "gata-1": "--recipe 1 --take 1 --open --cut",
            "gata-2": "--recipe 1 --take 1 --open --cut --cook",
            "gata-3": "--recipe 1 --take 1 --open --go 9",
            "gata-4": "--recipe 3 --take 3 --open --cut --cook --go 6",
            "ftwp-easy": "--recipe 1 --take 1 --go 1",
            "ftwp-medium": "--recipe 2 --take 2 --go 6 --open --cook --cut",
            "ftwp-hard": "--recipe 3 --take 3 --go 12 --open --cook --cut --drop",
        },
        splits_foods=True,
    ),
    "custom": Kind(
        "custom",
        "kg-dqn-…: the small and the large game of KG-DQN (Ammanabrolu and Riedl 2019), as others "
        "cite them; tiny: grue's own",
        {
            "tiny": "--world-size 3 --nb-objects 6 --quest-length 3",
            "kg-dqn-small": "--world-size 10 --nb-objects 20 --quest-length 5",
            "kg-dqn-large": "--world-size 20 --nb-objects 40 --quest-length 10",
        },
    ),
    "simple": Kind(
        "tw-simple",
        "the rewards of textworld/challenges/tw_simple/simple.py, with a detailed goal",
        {
            rewards: f"--rewards {rewards} --goal detailed"
            for rewards in ("dense", "balanced", "sparse")
        },
    ),
    "coin": Kind(
        "tw-coin_collector",
        "textworld/challenges/tw_coin_collector/coin_collector.py (the game of Yuan et al. 2018): "
        "the level is the length of the way; from 101 and 201 on it counts anew, with two and "
        "three rooms for each step of the way; since TextWorld 1.7 at most 100 rooms",
        numbers=(range(1, 151), range(201, 234)),
    ),
    "hunter": Kind(
        "tw-treasure_hunter",
        "textworld/challenges/tw_treasure_hunter/treasure_hunter.py (after Parisotto and "
        "Salakhutdinov 2017): 5 rooms; from 11 on 10, with closed doors and containers; from 21 on "
        "20, with locked ones",
        numbers=(range(1, 31),),
    ),
}


@dataclass
class Made:
    """What came of one call."""

    folder: Path
    games: list[dict[str, Any]]
    failed: list[dict[str, Any]]
    """Seeds that the generator built no game from, and why."""


def make_games(
    kind: str,
    level: str | None,
    count: int,
    seed: int,
    folder: Path,
    split: Sequence[int] | None = None,
    jobs: int | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Made:
    """Makes games from the seeds ``seed``, ``seed + 1`` and so on, and a manifest of them.

    Where the generator fails, the next seed after the others is taken instead. ``split`` gives
    percentages of train, valid and test games, which get folders of their own.
    """
    check(kind, level, count, folder, split)
    level = level or KINDS[kind].first
    settings = KINDS[kind].settings(level)
    shares = _shares(count, split)
    parts = [part for part, share in shares.items() for _ in range(share)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        made = _make_all(KINDS[kind], settings, parts, seed, Path(scratch), jobs, tick)
        for game in made.games:
            game["file"] = _name(kind, level, game)
            _place(game, Path(scratch), Path(scratch) / "set")
        head = {
            **{"kind": kind, "level": level, "settings": shlex.join(settings)},
            **{"source": KINDS[kind].source, "seed": seed, "count": count},
            "textworld": version("textworld"),
        }
        told = {**head, "games": made.games, "failed": made.failed}
        text = json.dumps(told, indent=1).encode() + b"\n"
        write_atomically(Path(scratch) / "set" / MANIFEST, lambda file: file.write(text))
        if folder.exists():
            folder.rmdir()
        (Path(scratch) / "set").rename(folder)
    made.folder = folder
    return made


def check(
    kind: str, level: str | None, count: int, folder: Path, split: Sequence[int] | None
) -> None:
    """Refuses what cannot be made, before anything is started."""
    if kind not in KINDS:
        raise UsageError(f"there is no kind {kind!r} of games; there are {', '.join(KINDS)}")
    KINDS[kind].settings(level or KINDS[kind].first)
    _shares(count, split)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty folder: give a new one")


def _shares(count: int, split: Sequence[int] | None) -> dict[str, int]:
    if split is None:
        return {"": count}
    if len(split) != len(SPLITS) or sum(split) != 100 or min(split) < 0:
        raise UsageError(
            f"the split {','.join(map(str, split))} is not of train, valid and test games in "
            "percent, which add up to 100: give one such as 80,10,10"
        )
    ends = [round(count * sum(split[: i + 1]) / 100) for i in range(len(split))]
    shares = {name: end - start for name, start, end in zip(SPLITS, [0, *ends], ends, strict=False)}
    for (name, share), percent in zip(shares.items(), split, strict=True):
        if percent and not share:
            raise UsageError(
                f"{percent}% of {count} games are none, so there would be no {name} games; give a "
                "larger --count or another --split"
            )
    return shares


def _make_all(
    kind: Kind,
    settings: list[str],
    parts: Sequence[str],
    seed: int,
    folder: Path,
    jobs: int | None,
    tick: Callable[[], None],
) -> Made:
    """The same games for the same seed, in any number of processes."""
    made = Made(folder, [], [])
    missing, following = list(parts), seed
    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        while missing:
            if following - seed >= TRIES * len(parts):
                raise GrueError(
                    f"{kind.maker} built only {len(made.games)} of {len(parts)} games from "
                    f"{following - seed} seeds: {made.failed[-1]['why']}"
                )
            wave = [
                {"seed": following + i, **({"split": part} if part else {})}
                for i, part in enumerate(missing)
            ]
            following += len(wave)
            calls = [pool.submit(_make_one, kind, settings, game, folder, tick) for game in wave]
            try:
                reasons = [call.result() for call in calls]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            built = list(zip(wave, reasons, strict=True))
            made.games += [game for game, why in built if why is None]
            made.failed += [{"seed": game["seed"], "why": why} for game, why in built if why]
            missing = [game.get("split", "") for game, why in built if why]
    return made


def _make_one(
    kind: Kind, settings: list[str], game: dict[str, Any], folder: Path, tick: Callable[[], None]
) -> str | None:
    """Builds one game with tw-make; returns why it could not."""
    story = folder / f"{game['seed']}.z8"
    foods = ["--split", game["split"]] if kind.splits_foods and "split" in game else []
    line = [sys.executable, Path(sys.executable).parent / "tw-make", kind.maker, *settings, *foods]
    line += ["--seed", game["seed"], "--output", story, "--silent"]
    try:
        done = subprocess.run(
            list(map(str, line)), capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not done after {LIMIT_S} s"
    except OSError as error:
        raise GrueError(f"cannot run tw-make ({error.strerror}); install textworld") from None
    if not story.exists():
        return (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    tick()
    return None


def _name(kind: str, level: str, game: Mapping[str, Any]) -> str:
    name = f"{kind}-{level}-{game['seed']}.z8"
    return f"{game['split']}/{name}" if "split" in game else name


def _place(game: dict[str, Any], scratch: Path, goal: Path) -> None:
    """Moves a game's two files to where they belong, and notes their hashes."""
    story = goal / game["file"]
    story.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".z8", ".json"):
        path = story.with_suffix(suffix)
        shutil.move(scratch / f"{game['seed']}{suffix}", path)
        game[f"sha256{suffix}"] = hashlib.sha256(path.read_bytes()).hexdigest()


def games_in(folder: Path) -> Iterator[Path]:
    """The TextWorld games of a folder and those below it, in order."""
    yield from (path for path in sorted(folder.rglob("*.z8")) if path.with_suffix(".json").exists())
