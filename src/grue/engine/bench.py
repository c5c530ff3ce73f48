"""Measures the engines' steps per second, all in one run on one machine.

Every engine plays random commands of the game and restarts when an episode ends. The compiled
engine computes the full observation and the admissible set at every step.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, NamedTuple

from grue.games.game import Game
from grue.games.registry import game_names, load_textworld

BATCHES = (1, 32, 1024, 16384)
CPU = f"CPU, {os.cpu_count()} cores"


class EnvSpeed(NamedTuple):
    engine: str
    game: str
    batch: int
    steps_per_s: float
    device: str


def bench_env(
    games: Sequence[str] = game_names(),
    batches: Sequence[int] = BATCHES,
    seconds: float = 2.0,
    hosted: bool = True,
) -> Iterator[EnvSpeed]:
    """Yields rows as they are measured. Each takes about ``seconds``."""
    use_all_cores()
    for name in games:
        game = load_textworld(name)
        for batch in batches:
            yield compiled_row(game, batch, seconds)
        if hosted and find_spec("textworld") is not None:
            for admissible in (False, True):
                yield textworld_row(game, admissible, seconds)
    if hosted and find_spec("textworld_express") is not None:
        yield from textworld_express_rows(seconds)


def device_name() -> str:
    import jax

    device = jax.devices()[0]
    return CPU if device.platform == "cpu" else device.device_kind


def use_all_cores() -> None:
    """On a CPU, one JAX device per core, so that a batch uses all cores."""
    import jax

    if jax.config.jax_num_cpu_devices <= 1:  # pyright: ignore[reportAttributeAccessIssue]
        with suppress(RuntimeError):  # JAX is already running with one device.
            jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)


# The compiled engine


def bytes_of_games(game: Game, batch: int) -> int:
    """The least memory that a batch takes: states and observations, before and after a step."""
    import jax

    from grue.engine.compiled import CompiledEnv
    from grue.engine.make import compiled

    leaves = jax.tree.leaves(jax.eval_shape(CompiledEnv(compiled(game)).reset))
    return 2 * batch * sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def compiled_row(game: Game, batch: int, seconds: float) -> EnvSpeed:
    import jax

    shards = jax.device_count() if batch >= 32 else 1
    rollout, carry = _rollout(game, batch // shards, shards)
    steps = 8
    carry = rollout(carry, steps)  # Compiles.
    carry, taken = _timed(rollout, carry, steps)
    # The number of steps is an argument: the program is not compiled again.
    steps = max(8, int(steps * seconds / max(taken, 1e-6)))
    _, taken = _timed(rollout, carry, steps)
    rate = batch // shards * shards * steps / taken
    return EnvSpeed("grue compiled", game.name, batch, round(rate, 1), device_name())


def _timed(rollout: Callable, carry: Any, steps: int) -> tuple[Any, float]:
    import jax

    start = time.perf_counter()
    carry = jax.block_until_ready(rollout(carry, steps))
    return carry, time.perf_counter() - start


def _rollout(game: Game, batch: int, shards: int) -> tuple[Callable, Any]:
    import jax
    import jax.numpy as jnp

    from grue.engine.compiled import CompiledEnv
    from grue.engine.make import compiled

    env = CompiledEnv(compiled(game))
    first, _ = jax.jit(env.reset)()

    def one_step(_: Any, carry: Any) -> Any:
        state, key, seen = carry
        key, draw = jax.random.split(key)
        action = jax.random.randint(draw, (batch,), 0, len(env.commands))
        state, step = jax.vmap(env.step)(state, action)
        over = step.terminated | step.truncated

        def again(fresh: Any, old: Any) -> Any:
            return jnp.where(over.reshape(-1, *[1] * (old.ndim - 1)), fresh, old)

        # The sums keep the compiler from removing unused results.
        words = step.observation.astype(jnp.int32).sum(1)
        seen = seen + words + step.admissible_set.sum(1) + step.reward
        return jax.tree.map(again, first, state), key, seen

    def run(carry: Any, steps: Any) -> Any:
        return jax.lax.fori_loop(0, steps, one_step, carry)

    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (shards, batch, *leaf.shape)), first)
    keys = jax.random.split(jax.random.key(0), shards)
    carry = (many, keys, jnp.zeros((shards, batch), jnp.int32))
    return jax.pmap(run, in_axes=(0, None), donate_argnums=0), carry


# Other engines


def _rate(plays: Iterator[None], seconds: float) -> float:
    """Steps per second of an endless game."""
    next(plays)
    count, start = 0, time.perf_counter()
    while (taken := time.perf_counter() - start) < seconds:
        next(plays)
        count += 1
    return round(count / taken, 1)


def textworld_row(game: Game, admissible: bool, seconds: float) -> EnvSpeed:
    """Real TextWorld on the same story."""
    import textworld

    infos = textworld.EnvInfos(score=True, admissible_commands=admissible)
    env = textworld.start(str(game.story), infos)
    chance = random.Random(0)

    def plays() -> Iterator[None]:
        while True:
            env.reset()
            for _ in range(game.episode_steps):
                yield
                if env.step(chance.choice(game.commands))[2]:
                    break

    rate = _rate(plays(), seconds)
    env.close()
    name = "textworld, admissible commands" if admissible else "textworld"
    return EnvSpeed(name, game.name, 1, rate, CPU)


def textworld_express_rows(seconds: float) -> Iterator[EnvSpeed]:
    """TextWorldExpress on its own games: it cannot play story files."""
    # An optional package, which needs Java.
    import textworld_express  # pyright: ignore[reportMissingImports]

    env = textworld_express.TextWorldExpressEnv(envStepLimit=200)
    chance = random.Random(0)

    def plays() -> Iterator[None]:
        while True:
            _, info = env.reset(seed=0, gameFold="train", generateGoldPath=False)
            done = False
            while not done:
                yield
                _, _, done, info = env.step(chance.choice(sorted(info["validActions"])))

    for name in ("coin", "cookingworld"):
        env.load(gameName=name, gameParams="")
        yield EnvSpeed("textworld-express", name, 1, _rate(plays(), seconds), CPU)
    env.close()
