"""Measures how many steps a second the engines make, all in one run on one machine.

Every engine plays commands of the game's set at random and starts again when an episode ends. The
compiled engine gives the whole feedback and the admissible set at every step, and both are used.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

from grue.games.game import Game
from grue.games.registry import game_names, load_textworld

BATCHES = (1, 32, 1024, 16384)


class Row(NamedTuple):
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
) -> Iterator[Row]:
    """Rows as they are measured; each measurement takes about ``seconds``."""
    _use_all_cores()
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
    if device.platform != "cpu":
        return device.device_kind
    return f"CPU, {os.cpu_count()} cores"


def _use_all_cores() -> None:
    """On a CPU, one JAX device for each core, so that a batch is spread over them."""
    import jax

    if jax.config.jax_num_cpu_devices <= 1:  # pyright: ignore[reportAttributeAccessIssue]
        try:
            jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
        except RuntimeError:
            return  # JAX runs already; one device it is.


# The compiled engine


def compiled_row(game: Game, batch: int, seconds: float) -> Row:
    import jax

    shards = jax.device_count() if batch >= 32 else 1
    rollout, carry = _rollout(game, batch // shards, shards)
    steps = 8
    carry = rollout(carry, steps)  # Compiles.
    carry, taken = _timed(rollout, carry, steps)
    # Long enough to time, and the number of steps is no part of the program.
    steps = max(8, int(steps * seconds / max(taken, 1e-6)))
    _, taken = _timed(rollout, carry, steps)
    rate = batch // shards * shards * steps / taken
    return Row("grue compiled", game.name, batch, round(rate, 1), device_name())


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

        # Sums keep the compiler from leaving out what is not otherwise used.
        words = step.observation.astype(jnp.int32).sum(1)
        seen = seen + words + step.admissible_set.sum(1) + step.reward
        return jax.tree.map(again, first, state), key, seen

    def run(carry: Any, steps: Any) -> Any:
        return jax.lax.fori_loop(0, steps, one_step, carry)

    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (shards, batch, *leaf.shape)), first)
    keys = jax.random.split(jax.random.key(0), shards)
    carry = (many, keys, jnp.zeros((shards, batch), jnp.int32))
    return jax.pmap(run, in_axes=(0, None), donate_argnums=0), carry


# The others


def textworld_row(game: Game, admissible: bool, seconds: float) -> Row:
    """Real TextWorld on the same story, as its users run it."""
    import textworld

    infos = textworld.EnvInfos(score=True, admissible_commands=admissible)
    env = textworld.start(str(game.story), infos)
    chance = random.Random(0)
    env.reset()
    count, turn, start = 0, 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        _, _, done = env.step(chance.choice(game.commands))
        count, turn = count + 1, turn + 1
        if done or turn == game.episode_steps:
            env.reset()
            turn = 0
    taken = time.perf_counter() - start
    env.close()
    name = "textworld, admissible commands" if admissible else "textworld"
    return Row(name, game.name, 1, round(count / taken, 1), f"CPU, {os.cpu_count()} cores")


def textworld_express_rows(seconds: float) -> Iterator[Row]:
    """TextWorldExpress on games of its own: it cannot play a story file."""
    # An extra: it needs Java.
    from textworld_express import (  # pyright: ignore[reportMissingImports]
        TextWorldExpressEnv,
    )

    env = TextWorldExpressEnv(envStepLimit=200)
    chance = random.Random(0)
    for name in ("coin", "cookingworld"):
        env.load(gameName=name, gameParams="")
        _, info = env.reset(seed=0, gameFold="train", generateGoldPath=False)
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            _, _, done, info = env.step(chance.choice(sorted(info["validActions"])))
            count += 1
            if done:
                _, info = env.reset(seed=0, gameFold="train", generateGoldPath=False)
        rate = count / (time.perf_counter() - start)
        yield Row("textworld-express", name, 1, round(rate, 1), f"CPU, {os.cpu_count()} cores")
    env.close()
