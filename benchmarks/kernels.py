"""Times the context LSTM's kernels on a GPU with different tiles.

    python benchmarks/kernels.py [RUNS...] [--only STEP,BACK]

One run, 20 and 50, of which half use one head and half up to three. The tiles in
``grue/agents/kernels/gpu/tile.py`` were chosen from its output, all but the cell's.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from grue.agents.kernels.gpu import by_head, context
from grue.agents.kernels.gpu.tile import Tile, floats

STEPS, BATCH, ROWS, GATES, HEADS = 15, 32, 640, 2048, 5
INPUTS = ROWS - GATES // 4
TILES = {
    "STEP": [(64, 64, 4, 3), (64, 64, 4, 4), (64, 32, 4, 3), (64, 32, 4, 4), (128, 32, 4, 3)],
    "OUTWARD": [(128, 128, 4, 2), (128, 128, 8, 2), (64, 128, 4, 2), (128, 64, 4, 2)],
    "BACK": [(32, 128, 4, 4), (32, 128, 4, 3), (16, 256, 4, 3), (32, 64, 4, 4), (64, 64, 4, 4)],
    "INWARD": [(128, 64, 4, 3), (128, 128, 8, 3), (64, 64, 4, 3), (128, 32, 4, 3)],
    "CELL": [(8, 64, 4, 1), (4, 128, 4, 1), (16, 32, 4, 1), (32, 64, 4, 1)],
    "GRADIENT": [(128, 128, 4, 4), (128, 128, 4, 3), (128, 128, 8, 3), (128, 64, 4, 3)],
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
    inputs = jax.random.normal(keys[1], (runs, STEPS, BATCH, INPUTS), half)
    return (
        jax.random.normal(keys[0], (runs, HEADS, ROWS, GATES), half) * 0.02,
        jnp.zeros((runs, HEADS, GATES)),
        jnp.asarray(heads),
        inputs,
        jax.random.normal(keys[2], (runs, STEPS, BATCH, GATES), half),
        jax.random.normal(keys[3], (runs, STEPS, BATCH, GATES // 4), half),
    )


def forward(weights: Any, bias: Any, heads: Any, inputs: Any, dz: Any, h: Any) -> Any:
    return context._unroll(bias, weights, heads, inputs, False, False).h


def outward(weights: Any, bias: Any, heads: Any, inputs: Any, dz: Any, h: Any) -> Any:
    return by_head.outward(inputs, weights, bias, heads, False)


def back() -> context.Back:
    dz = floats(STEPS, BATCH, GATES, dtype=jnp.bfloat16)
    return context.Back(dz, floats(BATCH, GATES // 4), floats(STEPS, BATCH, GATES // 4))


def backward(weights: Any, bias: Any, heads: Any, inputs: Any, dz: Any, h: Any) -> Any:
    found = back()._replace(dz=dz)
    for t in reversed(range(1, STEPS)):
        found = context._through_product(t, weights, heads, found, INPUTS, False)
    return found.d_before


def inward(weights: Any, bias: Any, heads: Any, inputs: Any, dz: Any, h: Any) -> Any:
    return by_head.inward(dz, weights, heads, INPUTS, False)


def cells(weights: Any, bias: Any, heads: Any, inputs: Any, dz: Any, h: Any) -> Any:
    gates, c = dz.astype(jnp.float32), h.astype(jnp.float32)
    found = back()._replace(d_before=c)
    for t in reversed(range(STEPS)):
        found = context._through_cell(t, context.Along(c, c, h, gates), c, found, False)
    return found.dz


def gradient(weights: Any, bias: Any, heads: Any, inputs: Any, dz: Any, h: Any) -> Any:
    return by_head.gradient([(inputs, 0), (h, 1)], dz, heads, HEADS, False)


FUNCTIONS = {
    "STEP": forward,
    "OUTWARD": outward,
    "BACK": backward,
    "INWARD": inward,
    "CELL": cells,
    "GRADIENT": gradient,
}


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
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="*", type=int, default=[1, 20, 50])
    parser.add_argument("--only", default=",".join(FUNCTIONS))
    given = parser.parse_args()
    data = {number: some_runs(number) for number in given.runs}
    for name in given.only.split(","):
        home = context if hasattr(context, name) else by_head
        for numbers in TILES[name]:
            setattr(home, name, Tile(*numbers))
            taken = {n: round(milliseconds(FUNCTIONS[name], some), 3) for n, some in data.items()}
            print(name, numbers, taken, flush=True)
        setattr(home, name, Tile(*TILES[name][0]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
