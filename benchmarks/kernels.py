"""Times the context LSTM's kernels on a GPU with different tiles.

    python benchmarks/kernels.py [RUNS...]

One run, 20 and 50, of which half use one head and half up to three. The tiles in
``grue/agents/kernels/gpu/tile.py`` were chosen from its output, all but the cell's.
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
    "STEP": [(64, 64, 4, 3), (32, 64, 4, 4), (64, 64, 4, 4), (64, 64, 8, 3), (64, 32, 4, 4)],
    "BACK": [(32, 128, 4, 3), (32, 128, 4, 5), (16, 256, 4, 4), (32, 256, 4, 4)],
    "CELL": [(8, 64, 4, 1), (4, 128, 4, 1), (16, 32, 4, 1), (32, 64, 4, 1)],
    "GRADIENT": [(128, 128, 8, 3), (128, 128, 8, 4), (128, 128, 4, 3), (128, 256, 8, 3)],
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
    inputs = jax.random.normal(keys[1], (runs, STEPS, BATCH, ROWS - GATES // 4), half)
    return (
        jax.random.normal(keys[0], (runs, HEADS, ROWS, GATES), half) * 0.02,
        jnp.zeros((runs, HEADS, GATES)),
        jnp.asarray(heads),
        inputs,
        jax.random.normal(keys[2], (runs, STEPS, BATCH, GATES), half),
        jax.random.normal(keys[3], (runs, STEPS + 1, BATCH, GATES // 4), half),
    )


def forward(weights: Any, bias: Any, heads: Any, inputs: Any, dz: Any, h: Any) -> Any:
    return context._unroll(bias, weights, heads, inputs, False, False).h


def backward(weights: Any, bias: Any, heads: Any, inputs: Any, dz: Any, h: Any) -> Any:
    back = context.Back(dz, jnp.zeros((STEPS + 1, BATCH, ROWS)), jnp.zeros((BATCH, GATES // 4)))
    for t in reversed(range(STEPS)):
        back = context._through_product(t, weights, heads, back, False)
    return back.d_left


def cells(weights: Any, bias: Any, heads: Any, inputs: Any, dz: Any, h: Any) -> Any:
    gates, c = dz.astype(jnp.float32), h.astype(jnp.float32)
    back = context.Back(dz, jnp.zeros((STEPS + 1, BATCH, ROWS)), jnp.zeros((BATCH, GATES // 4)))
    along = context.Along(c[1:], c, h, gates)
    for t in reversed(range(STEPS)):
        back = context._through_cell(t, along, c[1:], back, inputs.shape[2], False)
    return back.dz


def gradient(weights: Any, bias: Any, heads: Any, inputs: Any, dz: Any, h: Any) -> Any:
    return context._weight_gradient(inputs, h, dz, heads, HEADS, False)


FUNCTIONS = {"STEP": forward, "BACK": backward, "CELL": cells, "GRADIENT": gradient}


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
    runs = [int(number) for number in sys.argv[1:]] or [1, 20, 50]
    data = {number: some_runs(number) for number in runs}
    for name, function in FUNCTIONS.items():
        for numbers in TILES[name]:
            setattr(context, name, Tile(*numbers))
            taken = {n: round(milliseconds(function, given), 3) for n, given in data.items()}
            print(name, numbers, taken, flush=True)
        setattr(context, name, Tile(*TILES[name][0]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
