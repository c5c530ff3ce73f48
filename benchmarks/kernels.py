"""Times the context LSTM's kernels on a GPU with different tiles.

    python benchmarks/kernels.py

Fifty runs, of which half use one head and half up to three, and one run. The tiles in
``grue/agents/kernels/gpu/tile.py`` were chosen from its output.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from grue.agents.kernels.gpu import context
from grue.agents.kernels.gpu.tile import Tile

STEPS, BATCH, ROWS, GATES, HEADS = 15, 32, 640, 2048, 5
TILES = {
    "STEP": [(32, 64, 4, 4), (32, 64, 4, 3), (16, 64, 4, 6), (64, 64, 4, 2), (32, 128, 8, 3)],
    "BACK": [(32, 128, 4, 3), (32, 64, 4, 4), (64, 64, 4, 4), (32, 128, 2, 3), (64, 32, 4, 4)],
    "GRADIENT": [(128, 128, 4, 3), (64, 128, 4, 3), (128, 64, 4, 3), (128, 256, 8, 3)],
}


def some_runs(runs: int) -> tuple[Any, ...]:
    chance = np.random.default_rng(0)
    heads = np.zeros((runs, STEPS, BATCH), np.int32)
    for run in range(runs):
        if runs == 1 or run % 2:
            drawn = chance.choice(3, (STEPS, BATCH), p=[0.6, 0.35, 0.05])
            heads[run] = np.sort(drawn, axis=0)
    keys = jax.random.split(jax.random.key(0), 4)
    half = jnp.bfloat16
    return (
        jax.random.normal(keys[0], (runs, HEADS, ROWS, GATES), half) * 0.02,
        jnp.zeros((runs, HEADS, GATES)),
        jnp.asarray(heads),
        jax.random.normal(keys[1], (runs, STEPS, BATCH, ROWS - GATES // 4)),
        jax.random.normal(keys[2], (runs, STEPS, BATCH, GATES), half),
        jax.random.normal(keys[3], (runs, STEPS, BATCH, ROWS), half),
    )


def forward(weights: Any, bias: Any, heads: Any, inputs: Any, dz: Any, left: Any) -> Any:
    return context._unroll(bias, weights, heads, inputs, False, False)[-1].h


def backward(weights: Any, bias: Any, heads: Any, inputs: Any, dz: Any, left: Any) -> Any:
    out = jnp.zeros((BATCH, ROWS))
    for t in range(STEPS):
        waiting = dz[t] + 0 * out[:, :1].astype(dz.dtype)  # One after the other.
        out = context._back_through(weights, heads[t], waiting, False)
    return out


def gradient(weights: Any, bias: Any, heads: Any, inputs: Any, dz: Any, left: Any) -> Any:
    return context._weight_gradient(left, dz, heads, HEADS, False)


def milliseconds(function: Callable, arguments: tuple[Any, ...], times: int = 10) -> float:
    many = jax.jit(jax.vmap(function))
    jax.block_until_ready(many(*arguments))
    start = time.perf_counter()
    for _ in range(times):
        result = many(*arguments)
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / times * 1e3


def main() -> int:
    if jax.default_backend() != "gpu":
        print("there is no GPU here", file=sys.stderr)
        return 1
    data = {runs: some_runs(runs) for runs in (1, 50)}
    for name, function in (("STEP", forward), ("BACK", backward), ("GRADIENT", gradient)):
        for numbers in TILES[name]:
            setattr(context, name, Tile(*numbers))
            taken = {runs: round(milliseconds(function, given), 3) for runs, given in data.items()}
            print(name, numbers, taken, flush=True)
        setattr(context, name, Tile(*TILES[name][0]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
