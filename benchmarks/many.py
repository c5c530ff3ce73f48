"""Many different games in one program, against the same games one at a time.

    grue make-games cooking --level gata-4 --count 100 --seed 1000 --split 80,0,20 -o GAMES
    grue compile GAMES
    python benchmarks/many.py GAMES --batches 1024 --seconds 7 --out results/bench/many-cpu.json
    python benchmarks/many.py GAMES --check 500
    python benchmarks/many.py GAMES --resets 1000000
    python benchmarks/many.py GAMES/train --train 8 --out results/bench/many-train-h200.json
    python benchmarks/many.py saladworld-1 saladworld-7 --arguments

Needs JAX, NumPy and the compiled files alone. The games together and those one at a time are
timed in turn, ``--rounds`` times, and the ratio is the median of the rounds. ``--check`` compares
every game of the set with the game by itself, step by step. ``--train`` times so many runs of drrn
with masking side by side, at the paper's sizes. ``--arguments`` plays single games whose tables
are constants of the program, and arguments of it.
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


class Played:
    """Games under way in a compiled program, to be timed again and again."""

    def __init__(self, env: Any, batch: int, constants: bool) -> None:
        """On all devices: those of a CPU are its cores."""
        shards = jax.device_count() if batch >= 32 else 1
        mesh = jax.make_mesh((shards,), ("d",), devices=jax.devices()[:shards])
        split, whole = jax.P("d"), jax.P()
        run = player(*own_commands(env))
        keys = jax.random.split(jax.random.key(SEED), shards)
        self.keys = jax.device_put(keys, jax.NamedSharding(mesh, split))
        begin = jax.jit(lambda env, keys: jax.vmap(env.reset)(keys)[0])
        states = begin(env, jax.random.split(jax.random.key(SEED + 1), batch))
        games = states, jnp.zeros(batch, jnp.int32)
        self.games = jax.device_put(games, jax.NamedSharding(mesh, split))
        shared = jax.shard_map(
            partial(run, env) if constants else run,
            mesh=mesh,
            in_specs=(split, split, whole) if constants else (whole, split, split, whole),
            out_specs=split,
            check_vma=False,
        )
        self.play = jax.jit(shared)
        if not constants:
            self.play = partial(self.play, jax.device_put(env, jax.NamedSharding(mesh, whole)))
        self.batch, self.steps = batch, 8
        self.turn()  # Compiles.

    def turn(self) -> float:
        """The seconds that its steps take."""
        start = time.perf_counter()
        self.games = jax.block_until_ready(self.play(self.games, self.keys, self.steps))
        return time.perf_counter() - start

    def last(self, seconds: float) -> None:
        """From now on a turn takes about so long."""
        self.steps = max(8, int(self.steps * seconds / self.turn()))

    def rate(self) -> float:
        """Steps a second."""
        return self.batch * self.steps / self.turn()


def rate(env: Any, batch: int, seconds: float, constants: bool) -> float:
    played = Played(env, batch, constants)
    played.last(seconds)
    return played.rate()


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
    told["rows"] = [row_of(env, some, batch, given) for batch in given.batches]
    return told


def row_of(
    env: StackedEnv, some: Sequence[Path], batch: int, given: argparse.Namespace
) -> dict[str, Any]:
    """In turn, so that what else runs on the machine slows both: ``seconds`` of each."""
    together = Played(env, batch, constants=False)
    alone = [Played(grue.make(file, "compiled"), batch, constants=True) for file in some]
    together.last(given.seconds / given.rounds)
    for one in alone:
        one.last(given.seconds / given.rounds / len(alone))
    rounds = []
    for _ in range(given.rounds):
        # The time of as many steps of each.
        rates = together.rate(), len(alone) / max(sum(1 / one.rate() for one in alone), 1e-12)
        rounds.append((*rates, rates[0] / max(rates[1], 1e-12)))
    speed, by_itself, ratio = np.median(rounds, axis=0)
    row = {"batch": batch, "together": round(speed)}
    print(f"{len(env.names)} games together, batch {batch:,}: {speed:,.0f} steps/s", flush=True)
    if alone:
        row |= {"one_at_a_time": round(by_itself), "of": len(some), "ratio": round(ratio, 3)}
        print(f"one at a time ({len(some)} of them): {by_itself:,.0f}, ratio {ratio:.2f}")
    return row


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
    start = jax.jit(lambda env, games: jax.vmap(lambda g: env.reset(None, g))(games))
    turn = jax.jit(
        lambda env, states, actions: _turn(jax.vmap(env.step), start(env, games), states, actions)
    )
    states, now = start(env, games)
    log = [(np.zeros(len(files), int), jax.device_get(now))]
    for _ in range(steps):
        possible = np.asarray(now.admissible_set) & (chance.random((len(files), 1)) < 0.7)
        drawn = own[games, (chance.random(len(files)) * counts).astype(int)]
        better = (possible * chance.random(possible.shape)).argmax(1)
        actions = np.where(possible.any(1), better, drawn)
        (states, now), seen = turn(env, states, actions)
        log.append((actions, jax.device_get(seen)))
    differences = sum(differs(env, game, log) for game in range(len(files)))
    ends = sum(int((seen.terminated | seen.truncated).sum()) for _, seen in log)
    print(f"{len(files)} games, {steps} steps of each: {differences} differences, {ends} ended")
    return {"games": len(files), "steps": steps, "differences": differences, "ended": ends}


def _turn(step: Any, fresh: Any, states: Any, actions: Any) -> tuple[Any, Any]:
    """A step. A game that ends begins again, so that every step is one of a game under way."""
    after = step(states, actions)
    over = after[1].terminated | after[1].truncated

    def chosen(new: Any, old: Any) -> Any:
        return jnp.where(over.reshape(over.shape + (1,) * (old.ndim - over.ndim)), new, old)

    return jax.tree.map(chosen, fresh, after), after[1]


def differs(env: StackedEnv, game: int, log: Sequence[Any]) -> int:
    """How many steps of a game are not those of the game by itself."""
    alone = env.single(game)
    numbers = {command: i for i, command in enumerate(alone.commands)}
    mine = [env.commands.index(command) for command in alone.commands]
    actions = np.array([numbers[env.commands[a[game]]] if i else 0 for i, (a, _) in enumerate(log)])
    first = jax.jit(alone.reset)()

    @jax.jit
    def play(first: Any, actions: Any) -> Any:
        turn = partial(_turn, alone.step, first)
        return jax.lax.scan(lambda now, action: turn(now[0], action), first, actions)[1]

    rest = jax.device_get(play(first, actions[1:]))
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
    parser.add_argument("--rounds", type=int, default=7, help="so many turns of each")
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
