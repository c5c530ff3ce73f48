"""Many different games in one program, against the same games one at a time.

    grue make-games cooking --level gata-4 --count 100 --seed 1000 --split 80,0,20 -o GAMES
    grue compile GAMES
    python benchmarks/many.py GAMES --out results/bench/many-cpu.json
    python benchmarks/many.py GAMES --check 500
    python benchmarks/many.py GAMES --resets 1000000
    python benchmarks/many.py GAMES/train --train 8 --out results/bench/many-train-h200.json
    python benchmarks/many.py saladworld-1 saladworld-7 --arguments

Needs JAX, NumPy and the compiled files alone. ``--check`` compares every game of the set with the
game by itself, step by step. ``--train`` times so many runs of drrn with masking side by side, at
the paper's sizes. ``--arguments`` plays single games whose tables are constants of the
program, and arguments of it.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from env import commit

import grue
from grue.engine.bench import device_name, use_all_cores
from grue.engine.compiled import CompiledEnv
from grue.engine.stacked import StackedEnv
from grue.games.game import SUFFIX

SEED = 0


def files_of(folder: Path) -> list[Path]:
    """All compiled files, train and test."""
    found = sorted(folder.rglob(f"*{SUFFIX}"))
    if not found:
        sys.exit(f"there are no compiled games in {folder}; run grue compile {folder}")
    return found


def own_commands(env: Any) -> tuple[np.ndarray, np.ndarray]:
    """For each game the numbers of its commands, and how many they are."""
    if isinstance(env, CompiledEnv):
        return np.arange(len(env.commands))[None], np.array([len(env.commands)])
    numbers = {command: i for i, command in enumerate(env.commands)}
    lists = [[numbers[c] for c in env.single(g).commands] for g in range(len(env.names))]
    counts = np.array([len(one) for one in lists])
    return np.array([one + [0] * (counts.max() - len(one)) for one in lists]), counts


def player(own: np.ndarray, counts: np.ndarray) -> Callable[..., Any]:
    """Plays random commands of the games and restarts them when they end."""

    def turn(env: Any, state: Any, seen: Any, key: Any) -> Any:
        which = getattr(state, "game", 0)
        action = jnp.asarray(own)[which, jax.random.randint(key, (), 0, jnp.asarray(counts)[which])]
        state, step = env.step(state, action)
        over = step.terminated | step.truncated
        anew, _ = env.restart(state)
        state = jax.tree.map(lambda new, old: jnp.where(over, new, old), anew, state)
        # The sums keep the compiler from removing unused results.
        words = step.observation.astype(jnp.int32).sum()
        return state, seen + words + step.admissible_set.sum() + step.reward

    def run(env: Any, games: Any, keys: Any, steps: Any) -> Any:
        def one_step(number: Any, games: Any) -> Any:
            draw = jax.random.split(jax.random.fold_in(keys[0], number), len(games[1]))
            return jax.vmap(partial(turn, env))(games[0], games[1], draw)

        return jax.lax.fori_loop(0, steps, one_step, games)

    return run


def rate(env: Any, batch: int, seconds: float, constants: bool) -> float:
    """Steps a second, on all devices: those of a CPU are its cores."""
    shards = jax.device_count() if batch >= 32 else 1
    mesh = jax.make_mesh((shards,), ("d",), devices=jax.devices()[:shards])
    split, whole = jax.P("d"), jax.P()
    run = player(*own_commands(env))
    keys = jax.device_put(
        jax.random.split(jax.random.key(SEED), shards), jax.NamedSharding(mesh, split)
    )
    begin = jax.jit(lambda env, keys: jax.vmap(env.reset)(keys)[0])
    states = begin(env, jax.random.split(jax.random.key(SEED + 1), batch))
    games = states, jnp.zeros(batch, jnp.int32)
    games = jax.device_put(games, jax.NamedSharding(mesh, split))
    if constants:
        shared = jax.shard_map(
            partial(run, env), mesh=mesh, in_specs=(split, split, whole), out_specs=split,
            check_vma=False,
        )  # fmt: skip
        play = jax.jit(shared)
    else:
        shared = jax.shard_map(
            run, mesh=mesh, in_specs=(whole, split, split, whole), out_specs=split,
            check_vma=False,
        )  # fmt: skip
        play = partial(jax.jit(shared), jax.device_put(env, jax.NamedSharding(mesh, whole)))
    steps = 8
    games = jax.block_until_ready(play(games, keys, steps))  # Compiles.
    games, taken = timed(play, games, keys, steps)
    steps = max(8, int(steps * seconds / taken))
    _, taken = timed(play, games, keys, steps)
    return batch * steps / taken


def timed(play: Callable[..., Any], games: Any, keys: Any, steps: int) -> tuple[Any, float]:
    start = time.perf_counter()
    games = jax.block_until_ready(play(games, keys, steps))
    return games, time.perf_counter() - start


def speeds(files: Sequence[Path], given: argparse.Namespace) -> dict[str, Any]:
    """Of all games together, and of some of them one at a time."""
    env = grue.make_many(files, "compiled")
    table_bytes = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(env))
    told: dict[str, Any] = {"games": len(files), "commands": len(env.commands)}
    told |= {
        "words": len(env.vocabulary),
        "kilobytes_a_game": round(table_bytes / len(files) / 1e3),
    }
    some = [files[i] for i in np.linspace(0, len(files) - 1, given.singles).astype(int)]
    told["rows"] = []
    for batch in given.batches:
        together = rate(env, batch, given.seconds, constants=False)
        row = {"batch": batch, "together": round(together)}
        print(f"{len(files)} games together, batch {batch:,}: {together:,.0f} steps/s", flush=True)
        if given.singles:
            singles = [
                rate(grue.make(file, "compiled"), batch, given.seconds, constants=True)
                for file in some
            ]
            # The time of as many steps of each.
            alone = len(singles) / sum(1 / one for one in singles)
            row |= {"one_at_a_time": round(alone), "of": len(some)}
            row["ratio"] = round(together / alone, 3)
            print(
                f"one at a time ({len(some)} of them): {alone:,.0f}, ratio {together / alone:.2f}"
            )
        told["rows"].append(row)
    return told


def constants_and_arguments(given: argparse.Namespace) -> dict[str, Any]:
    """Single games both ways."""
    rows = []
    for name in given.games:
        env = grue.make(name, "compiled")
        for batch in given.batches:
            row = {"game": env.game.name, "batch": batch}
            for way in ("constants", "arguments"):
                row[way] = round(rate(env, batch, given.seconds, way == "constants"))
            print(row, flush=True)
            rows.append(row)
    return {"rows": rows}


def check(files: Sequence[Path], steps: int) -> dict[str, Any]:
    """Each game of the set and the same game by itself, with the same random commands."""
    env = grue.make_many(files, "compiled")
    own, counts = own_commands(env)
    chance = np.random.default_rng(SEED)
    games = np.arange(len(files))
    turn = jax.jit(lambda env, states, actions: jax.vmap(env.step)(states, actions))
    start = jax.jit(lambda env, games: jax.vmap(lambda g: env.reset(None, g))(games))
    states, seen = start(env, games)
    log = [(np.zeros(len(files), int), jax.device_get(seen))]
    for _ in range(steps):
        possible = np.asarray(seen.admissible_set) & (chance.random((len(files), 1)) < 0.7)
        drawn = own[games, (chance.random(len(files)) * counts).astype(int)]
        better = (possible * chance.random(possible.shape)).argmax(1)
        actions = np.where(possible.any(1), better, drawn)
        states, seen = turn(env, states, actions)
        log.append((actions, jax.device_get(seen)))
    differences = sum(differs(env, game, log) for game in range(len(files)))
    ends = int(np.asarray(seen.terminated).sum())
    print(f"{len(files)} games, {steps} steps of each: {differences} differences, {ends} ended")
    return {"games": len(files), "steps": steps, "differences": differences, "ended": ends}


def differs(env: StackedEnv, game: int, log: Sequence[Any]) -> int:
    """How many steps of a game are not those of the game by itself."""
    alone = env.single(game)
    numbers = {command: i for i, command in enumerate(alone.commands)}
    mine = [env.commands.index(command) for command in alone.commands]
    actions = np.array([numbers[env.commands[a[game]]] if i else 0 for i, (a, _) in enumerate(log)])
    first = jax.jit(alone.reset)()
    _, rest = jax.jit(lambda state, actions: jax.lax.scan(alone.step, state, actions))(
        first[0], actions[1:]
    )
    rest = jax.device_get(rest)
    found = 0
    for i, (_, steps) in enumerate(log):
        one = jax.device_get(first[1]) if i == 0 else jax.tree.map(lambda leaf: leaf[i - 1], rest)  # noqa: B023
        many = jax.tree.map(lambda leaf: leaf[game], steps)
        same = alone.decode(one.observation) == env.decode(many.observation)
        same &= np.array_equal(many.admissible_set[mine], one.admissible_set)
        same &= many.admissible_set.sum() == one.admissible_set.sum()
        same &= np.array_equal(many.subtasks[: len(one.subtasks)], one.subtasks)
        for name in ("reward", "score", "terminated", "truncated", "admissible"):
            same &= bool(getattr(one, name) == getattr(many, name))
        found += not same
    return found


def resets(files: Sequence[Path], count: int) -> dict[str, Any]:
    """The memory of the process over many resets, each a call of a program, as trainers do."""
    env = jax.device_put(grue.make_many(files, "compiled"))
    batch = 1000
    begin = jax.jit(lambda env, keys: jax.vmap(env.reset)(keys))
    turn = jax.jit(lambda env, states, actions: jax.vmap(env.step)(states, actions))

    def some(number: int) -> None:
        keys = jax.random.split(jax.random.key(number), batch)
        states, _ = begin(env, keys)
        jax.block_until_ready(turn(env, states, np.zeros(batch, np.int32)))

    rows = []
    for done in range(0, count, batch):
        some(done)
        if (done + batch) % max(count // 10, batch) == 0:
            size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            rows.append({"resets": done + batch, "megabytes": size})
            print(rows[-1], flush=True)
    return {"rows": rows}


def training(folder: Path, runs: int) -> dict[str, Any]:
    """The speed of training on all games of a folder."""
    from grue.cli.bench import measure

    (row,) = measure(str(folder), "drrn", "masking", str(runs), "paper", (), parts=False)
    row |= {"game": folder.name, "games": len(files_of(folder))}
    print(row, flush=True)
    return {"rows": [row]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "games", nargs="+", help="a folder of compiled games; with --arguments, games"
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--batches", type=int, nargs="+", default=[1024, 16384])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--singles", type=int, default=10, help="so many games one at a time")
    parser.add_argument("--check", type=int, metavar="STEPS")
    parser.add_argument("--resets", type=int, metavar="COUNT")
    parser.add_argument("--train", type=int, metavar="RUNS")
    parser.add_argument("--arguments", action="store_true")
    parser.add_argument("--commit", help="where there is no git to ask")
    given = parser.parse_args()
    if not (given.check or given.resets or given.train):
        use_all_cores()
    warnings.simplefilter("ignore")  # Near games are as near in both.
    if given.arguments:
        found = constants_and_arguments(given)
    elif given.train:
        found = training(Path(given.games[0]), given.train)
    else:
        files = files_of(Path(given.games[0]))
        if given.check:
            found = check(files, given.check)
        else:
            found = resets(files, given.resets) if given.resets else speeds(files, given)
    record = {
        "command": " ".join(["python", *sys.argv]),
        "commit": given.commit or commit(),
        "seed": SEED,
        "device": device_name(),
        "versions": {"grue": grue.__version__, "jax": jax.__version__},
        **found,
    }
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
