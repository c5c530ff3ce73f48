"""Picks the CPU or GPU version of each operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from grue.agents.kernels import cpu
from grue.agents.kernels.adam import Rates, moved, moved_heads
from grue.agents.kernels.cell import cell
from grue.agents.kernels.texts import BLOCK, Pool, WordWeights, padded, rows_of
from grue.games.tokens import PADDING

PRECISIONS = ("auto", "float32", "bfloat16")
Stacked = Float[Array, "heads rows gates"]
Weights = Any
"""GPU: one array for all heads (``Stacked``). CPU: one array per head (``cpu.Heads``)."""


def laid_out(weights: Stacked) -> Weights:
    """Weights in this machine's layout."""
    return weights if _has_gpu() else tuple(weights)


def working_dtype(precision: str) -> jnp.dtype:
    """The type for products with the context LSTM's weights."""
    if precision == "auto":
        precision = "bfloat16" if _has_gpu() else "float32"
    return jnp.dtype(precision)


def in_working_type(weights: Weights, precision: str) -> Weights | None:
    """Weights in the type for products; None if they have that type already."""
    dtype = working_dtype(precision)
    if isinstance(weights, tuple) or weights.dtype == dtype:
        return None
    return weights.astype(dtype)


def vectors_of(
    table: Float[Array, "words vector"], words: Int[Array, "*texts"]
) -> Float[Array, "*texts vector"]:
    """The vector of each word. ``rows_of`` makes the gradient deterministic on a GPU."""
    return rows_of(table, words) if _has_gpu() else table[words]


def encode(
    words: WordWeights,
    recurrent: Float[Array, "encoder gates"],
    pool: Pool,
    table: Float[Array, "words gates"] | None = None,
) -> Float[Array, "texts encoder"]:
    """The mean of the encoder's states over the words of each text.

    With a ``table`` (``words.table()``) there is no gradient with respect to the words.
    """
    if _has_gpu() and _is_power(len(recurrent)):
        return _gpu().encode(words.table() if table is None else table, recurrent, pool)
    if table is None:
        return cpu.encode(words, recurrent, pool)
    return cpu.encode_from(table, recurrent, pool)


def unroll(
    weights: Weights,
    working: Weights,
    bias: Float[Array, "heads gates"],
    heads: Int[Array, "steps batch"],
    inputs: Float[Array, "steps batch inputs"],
) -> Float[Array, "steps batch context"]:
    """The context LSTM along sequences. ``working`` are the weights in the type for products.

    On a GPU the gradient of heads that are not in ``heads`` is undefined.
    """
    if _fits(weights) and _is_power(heads.shape[1]):
        return _gpu().unroll(weights, bias, working, heads, inputs)
    return cpu.unroll(tuple(weights), bias, heads, inputs)


def side_by_side(heads: Int[Array, "steps batch"]) -> Int[Array, " batch"] | None:
    """The fastest order of sequences for the context LSTM; None if it does not matter."""
    return None if _has_gpu() else cpu.side_by_side(heads)


class Layers(NamedTuple):
    """The weights of the action scorers."""

    first: Float[Array, "heads context hidden"]
    first_bias: Float[Array, "heads hidden"]
    second: Float[Array, "heads hidden commands"]
    second_bias: Float[Array, "heads commands"]


def score(
    layers: Layers,
    head: Int[Array, "*batch"],
    h: Float[Array, "*batch context"],
    activation: Callable[[Array], Array],
) -> Float[Array, "*batch commands"]:
    """Q-values of each state, from its head."""
    return (_gpu() if _has_gpu() else cpu).score(layers, head, h, activation)


def step(
    working: Weights,
    bias: Float[Array, "heads gates"],
    head: Int[Array, ""],
    inputs: Float[Array, " inputs"],
    h: Float[Array, " context"],
    c: Float[Array, " context"],
) -> tuple[Float[Array, " context"], Float[Array, " context"]]:
    """One step of the context LSTM: h and c."""
    if _fits(working):
        return _gpu().step_one(working, bias, head, inputs, h, c)
    rows = jnp.concatenate([inputs, h])[None]
    gates = cpu.by_one_head(rows, head, tuple(working))[0] + bias[head]
    return cell(gates, c)


def adam(
    theta: Weights,
    m: Weights,
    v: Weights,
    gradient: Weights,
    working: Weights | None,
    used: Bool[Array, " heads"],
    moving: Bool[Array, " heads"],
    now: Rates,
) -> tuple[Weights, Weights, Weights, Weights | None]:
    """One step of Adam on the ``moving`` heads, each with its own rates.

    ``used`` marks the heads with a gradient. On a GPU the gradient of others is undefined.
    """
    if working is not None and _fits(theta):
        return _gpu().adam(theta, m, v, gradient, working, used, moving, now)
    if isinstance(theta, tuple):
        return (*_adam_by_head((theta, m, v), gradient, moving, now), None)
    gradient = jnp.where(used[:, None, None], gradient, 0.0)
    theta, m, v = moved_heads(theta, m, v, gradient, moving, now)
    return theta, m, v, None if working is None else theta.astype(working.dtype)


def _adam_by_head(
    old: tuple[cpu.Heads, cpu.Heads, cpu.Heads],
    gradient: cpu.Heads,
    moving: Bool[Array, " heads"],
    now: Rates,
) -> tuple[cpu.Heads, cpu.Heads, cpu.Heads]:
    def stay(*given: Array) -> tuple[Array, Array, Array]:
        return given[0], given[1], given[2]

    new = [
        jax.lax.cond(moving[k], moved, stay, *each, now[k])
        for k, each in enumerate(zip(*old, gradient, strict=True))
    ]
    theta, m, v = zip(*new, strict=True)
    return theta, m, v


def sum_of_squares(gradient: Weights, used: Bool[Array, " heads"]) -> Float[Array, ""]:
    """Over the heads with a gradient."""
    if _fits(gradient):
        return _gpu().sum_of_squares(gradient, used)
    squares = [
        jax.lax.cond(used[k], lambda g: jnp.square(g).sum(), lambda g: jnp.float32(0), each)
        for k, each in enumerate(gradient)
    ]
    return sum(squares, jnp.float32(0))


def pair(one: Int[Array, " length"], two: Int[Array, " spoken"]) -> Pool:
    """A pool of two texts."""
    length = max(len(one), len(two))
    texts = jnp.concatenate([padded(one[None], length), padded(two[None], length)])
    if _has_gpu():
        texts = jnp.pad(texts, ((0, BLOCK - 2), (0, 0)), constant_values=PADDING)
    lengths = (texts != PADDING).sum(1).astype(jnp.int32)
    ends = jnp.cumsum(lengths)
    return Pool(texts, lengths, ends - lengths, ends[-1])


class Compilation(NamedTuple):
    """Compiler settings for a program of many small operations."""

    unroll: int
    """Loop unrolling."""
    options: dict[str, str] | None
    fixed_lengths: bool
    """Whether a loop's length is part of the program. Else one program does for all lengths."""


def compilation() -> Compilation:
    """On a GPU, independent operations overlap, and the host does not wait for a loop's length."""
    if not _has_gpu():
        return Compilation(1, None, False)
    return Compilation(4, {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}, True)


def _gpu():
    """Imported only where it is needed: Pallas is slow to import."""
    from grue.agents.kernels import gpu

    return gpu


def _has_gpu() -> bool:
    return jax.default_backend() == "gpu"


def _fits(weights: Weights) -> bool:
    """Whether there is a GPU and its kernels support these sizes."""
    rows, gates = weights[0].shape
    return _has_gpu() and rows % 128 == 0 and gates % 256 == 0


def _is_power(size: int) -> bool:
    return size >= 16 and size & (size - 1) == 0
