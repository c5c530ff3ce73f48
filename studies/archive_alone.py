"""How far the archive comes without learning: random commands after each return.

    python studies/archive_alone.py --games saladworld-5,saladworld-6 --seeds 0-4 --jobs 2
    python studies/archive_alone.py --games zork1 --story STORY --variants seen-rare-0.3
    python studies/archive_alone.py --only-table

There is no network. Commands are drawn from the admissible ones, or with probability 0.1 from all
commands, as by a gate that makes no errors. In the variants ``seen...`` the gate is more like one
that learns: it believes a command admissible where it is, but only once that was so at this score
in SEEN_TIMES episodes. Zork I does not tell which commands are admissible, so only these variants
make sense there. The explorer ``achievements`` sends most episodes back to entries of its archive.
So the settings of the archive are compared in minutes, apart from what learning adds. Each row is
written down as soon as it is done, and the same command goes on where the last one stopped. Rows
are in OUT/archive-alone.json, the table is in OUT/archive-alone.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

import grue
from grue.agents.agent import Episode
from grue.agents.explorers import AchievementExplorer, AchievementSettings
from grue.agents.exploring import Candidates
from grue.engine.environment import Environment
from grue.engine.pooled import PooledEnv
from grue.files import write_atomically
from grue.training.config import parse_seeds
from grue.training.provenance import about

ARCHIVE: dict[str, Any] = {"return_share": 0.8, "archive_share": 1.0, "novel_share": 0.8}
JOINED = {**ARCHIVE, "archive_joined": 0.5, "archive_lower": 0.25}
VARIANTS: dict[str, dict[str, Any]] = {
    "no-archive": {"novel_share": 0.8},
    "archive": ARCHIVE,
    "lower": {**ARCHIVE, "archive_lower": 0.25},
    "joined": {**ARCHIVE, "archive_joined": 0.5},
    "joined-lower": JOINED,
    "seen": JOINED,
    "seen-rare-0.1": {**JOINED, "rare_share": 0.1},
    "seen-rare-0.3": {**JOINED, "rare_share": 0.3},
    "seen-rare-0.5": {**JOINED, "rare_share": 0.5},
    "words": {**JOINED, "archive_words": 6},
    "seen-words": {**JOINED, "rare_share": 0.3, "archive_words": 3},
    "seen-none": {"novel_share": 0.8, "rare_share": 0.3},
}
SEEN_TIMES = 10
SOFTNESS = 0.1
"""ε₁ of the gate that makes no errors."""
CHUNK = 20_000
"""Steps in one call of the program."""


class Playing(NamedTuple):
    episode: Episode
    known: Any
    wins: Int[Array, ""]
    first_win: Int[Array, ""]
    """The number of steps at the first win; 0: there is none yet."""


def opened(game: str, story: str | None) -> Environment:
    """Hosted games play in one subprocess."""
    found = grue.load(game, story)
    return PooledEnv(found, workers=1) if story else grue.make(found)


def begin(env: Environment, explorer: AchievementExplorer, seed: int) -> Playing:
    zero = jnp.int32(0)
    first = Episode(*env.reset(jax.random.key(seed)), jnp.int32(-1), zero, ())
    start = Playing(first, explorer.init(), zero, zero)
    # Copies: the program overwrites them.
    return jax.tree.map(jnp.array, start)


def step(
    env: Environment,
    explorer: AchievementExplorer,
    only_seen: bool,
    key: PRNGKeyArray,
    playing: Playing,
    number: Int[Array, ""],
) -> tuple[Playing, None]:
    before, known = playing.episode, playing.known
    soften, pick = jax.random.split(jax.random.fold_in(key, number))
    believed = before.seen.admissible_set
    if only_seen:
        believed &= explorer.times_admissible(known, before) >= SEEN_TIMES
    allowed = believed | (jax.random.uniform(soften) < SOFTNESS) | ~believed.any()
    odds = explorer.exploratory(known, before, Candidates(allowed, believed.astype(jnp.float32)))
    assert odds is not None, "novel_share is 0"
    action = jax.random.categorical(pick, jnp.log(odds)).astype(jnp.int32)
    action = explorer.override(known, before, action)
    world, seen = env.step(before.game, action)
    after = Episode(world, seen, action, before.time + 1, ())
    known, _, _ = explorer.notice(known, before, action, after)
    over = seen.terminated | seen.truncated
    won = over & env.won(world, seen)
    first = jnp.where((playing.wins == 0) & won, number + 1, playing.first_win)
    fresh = Episode(*env.restart(world), jnp.int32(-1), jnp.int32(0), ())
    episode = jax.tree.map(partial(jnp.where, over), fresh, after)
    return Playing(episode, known, playing.wins + won, first), None


def play(game: str, variant: str, seed: int, steps: int, story: str | None) -> dict[str, Any]:
    env, begun = opened(game, story), time.monotonic()
    explorer = AchievementExplorer(env, AchievementSettings(**VARIANTS[variant]))
    only_seen = variant.startswith("seen")

    @partial(jax.jit, donate_argnums=0)
    def advance(playing: Playing, number: Int[Array, ""], key: PRNGKeyArray) -> Playing:
        numbers = number + jnp.arange(CHUNK)
        return jax.lax.scan(partial(step, env, explorer, only_seen, key), playing, numbers)[0]

    playing, best = begin(env, explorer, seed), dict[int, int]()
    for number in range(0, steps, CHUNK):
        playing = advance(playing, jnp.int32(number), jax.random.key(seed))
        best.setdefault(int(playing.known.best), number + CHUNK)
    return {
        "game": game,
        "variant": variant,
        "seed": seed,
        "steps": number + CHUNK,
        "wins": int(playing.wins),
        "first_win": int(playing.first_win) or None,
        "best": int(playing.known.best),
        "best_by": best,
        "seconds": round(time.monotonic() - begun, 1),
        "settings": VARIANTS[variant],
        "command": f"python studies/archive_alone.py --games {game} --variants {variant} "
        f"--seeds {seed} --steps {steps}" + (" --story STORY" if story else ""),
        "about": about(),
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| game | variant | seeds | steps | seeds that won | first win, median | wins, median | "
        "highest score |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for game in sorted({row["game"] for row in rows}):
        for variant in VARIANTS:
            own = [r for r in rows if (r["game"], r["variant"]) == (game, variant)]
            if not own:
                continue
            won = [row["first_win"] for row in own if row["wins"]]
            first = f"{statistics.median(won):,.0f}" if won else ""
            best = [row["best"] for row in own]
            scores = ", ".join(f"{n} × {best.count(n)}" for n in sorted(set(best), reverse=True))
            lines.append(
                f"| {game} | `{variant}` | {len(own)} | {min(r['steps'] for r in own):,} | "
                f"{len(won)} | {first} | {statistics.median(r['wins'] for r in own):g} | {scores} |"
            )
    return "\n".join(lines) + "\n"


def write(rows: list[dict[str, Any]], out: Path) -> None:
    lines = ",\n ".join(json.dumps(row) for row in rows)
    for name, text in (("json", f"[\n {lines}\n]\n"), ("md", table(rows))):
        given = text.encode()
        write_atomically(out / f"archive-alone.{name}", lambda file, given=given: file.write(given))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--games", default="saladworld-5,saladworld-6,saladworld-7")
    parser.add_argument("--story", help="the story file of zork1")
    parser.add_argument("--seeds", type=parse_seeds, default=(0, 1, 2, 3, 4))
    parser.add_argument("--steps", type=int, default=1_300_000)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/exploration"))
    parser.add_argument("--only-table", action="store_true")
    given = parser.parse_args()
    file = given.out / "archive-alone.json"
    rows = json.loads(file.read_text()) if file.exists() else []
    there = {(row["game"], row["variant"], row["seed"]) for row in rows}
    variants = given.variants.split(",")
    for name in set(variants) - set(VARIANTS):
        parser.error(f"there is no variant {name!r}; there are {', '.join(VARIANTS)}")
    wanted = [(n, v, s) for s in given.seeds for n in given.games.split(",") for v in variants]
    wanted = [] if given.only_table else [one for one in wanted if one not in there]
    given.out.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        for ended in as_completed(
            [pool.submit(play, *one, given.steps, given.story) for one in wanted]
        ):
            rows.append(ended.result())
            write(rows, given.out)
            print({name: rows[-1][name] for name in ("game", "variant", "seed", "wins", "best")})
    write(rows, given.out)
    print(table(rows))


if __name__ == "__main__":
    main()
