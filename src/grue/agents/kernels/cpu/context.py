"""The context LSTM H(k) and the action scorer Φ_A(k) on a CPU.

The backward pass is written by hand, so that each sum over all steps is one large product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from grue.agents.kernels.cell import cell, cell_backward
from grue.agents.kernels.cpu.rows import cut, flat

SIZES = 8
"""How many batch sizes each head has a compiled product for."""

Heads = tuple[Array, ...]
"""One array per head, because indexing into a larger array would copy."""


@jax.custom_vjp
def unroll(
    weights: Heads,
    bias: Float[Array, "heads gates"],
    heads: Int[Array, "steps batch"],
    inputs: Float[Array, "steps batch inputs"],
) -> Float[Array, "steps batch context"]:
    """The states of the context LSTM along sequences, from a zero state."""
    return _unroll(weights, bias, heads, inputs)[0]


def _unroll(weights: Heads, bias: Array, heads: Array, inputs: Array):
    zeros = jnp.zeros((heads.shape[1], weights[0].shape[1] // 4))

    def one(carry: Any, at: Any) -> Any:
        h, c = carry
        by, x = at
        z = by_head(jnp.concatenate([x, h], axis=1), by, weights, bias)
        h, c = cell(z, c)
        return (h, c), (h, c, z)

    return jax.lax.scan(one, (zeros, zeros), (reach(heads, len(weights)), inputs))[1]


class Reach(NamedTuple):
    """The range of each head's rows, from first to last.

    Rows of other heads in between cost time; ``side_by_side`` avoids them.
    """

    head: Int[Array, "*sets rows"]
    firsts: Int[Array, "*sets heads"]
    spans: Int[Array, "*sets heads"]
    in_use: Int[Array, "*sets heads"]
    """Head indices, those with rows first."""


def reach(heads: Int[Array, "*sets rows"], count: int) -> Reach:
    mine = heads[..., None] == jnp.arange(count)
    used = mine.any(-2)
    firsts = jnp.argmax(mine, -2)
    ends = heads.shape[-1] - jnp.argmax(mine[..., ::-1, :], -2)
    spans = jnp.where(used, ends - firsts, 0)
    return Reach(heads, firsts, spans, jnp.argsort(~used, axis=-1, stable=True))


def side_by_side(heads: Int[Array, "steps batch"]) -> Int[Array, " batch"]:
    """An order that groups sequences by head, even if the head changes along a sequence."""
    return jnp.argsort(heads.sum(0), stable=True)


def _sizes(total: int, apart: int) -> tuple[int, ...]:
    """At most ``SIZES`` numbers of rows up to ``total``, in steps of a multiple of ``apart``."""
    apart *= -(-total // (apart * SIZES))
    return (*range(apart, total, apart), total)


def by_head(
    rows: Float[Array, "rows columns"],
    by: Reach,
    weights: Heads,
    bias: Float[Array, "heads gates"] | None = None,
    transposed: bool = False,
) -> Array:
    """Each row times the (transposed) weights of its head, one product for each head in use."""

    def times(left: Array, k: int) -> Array:
        inner = (((1,), (1 if transposed else 0,)), ((), ()))
        out = jax.lax.dot_general(left, weights[k], inner)
        return out if bias is None else out + bias[k]

    if len(weights) == 1:
        return times(rows, 0)
    sizes = _sizes(len(rows), 4)

    def product(k: int, size: int):
        def put(out: Array, first: Array) -> Array:
            start = jnp.minimum(first, len(rows) - size)
            some = times(cut(rows, start, size), k)
            mine = cut(by.head, start, size)[:, None] == k
            both = jnp.where(mine, some, cut(out, start, size))
            return jax.lax.dynamic_update_slice(out, both, (start, 0))

        return put

    products = [product(k, size) for k in range(len(weights)) for size in sizes]

    def add(number: Array, out: Array) -> Array:
        k = by.in_use[number]
        which = k * len(sizes) + (jnp.array(sizes) < by.spans[k]).sum()
        return jax.lax.switch(which, products, out, by.firsts[k])

    out = jax.lax.empty((len(rows), weights[0].shape[0 if transposed else 1]), rows.dtype)
    return jax.lax.fori_loop(0, (by.spans > 0).sum(), add, out)


def by_one_head(
    rows: Float[Array, "batch columns"], head: Int[Array, ""], weights: Heads
) -> Float[Array, "batch gates"]:
    """Rows times the weights of one head."""
    products = [lambda left, each=each: left @ each for each in weights]
    return jax.lax.switch(head, products, rows) if len(products) > 1 else products[0](rows)


def _unroll_forward(weights: Heads, bias: Array, heads: Array, inputs: Array):
    hs, cs, z = _unroll(weights, bias, heads, inputs)
    return hs, (weights, heads, inputs, hs, cs, z)


def _unroll_backward(residuals: Any, d_hs: Float[Array, "steps batch context"]):
    weights, heads, inputs, hs, cs, z = residuals
    wide = inputs.shape[2]
    zeros = jnp.zeros_like(hs[0])
    h_before = jnp.concatenate([zeros[None], hs[:-1]])
    c_before = jnp.concatenate([zeros[None], cs[:-1]])

    def one(carry: Any, at: Any) -> Any:
        dh, dc = carry
        by, d_h, z, before, c = at
        dz, dc = cell_backward(z, before, c, dh + d_h, dc)
        d_rows = by_head(dz, by, weights, transposed=True)
        return (d_rows[:, wide:], dc), (dz, d_rows[:, :wide])

    at = (reach(heads, len(weights)), d_hs, z, c_before, cs)
    dz, d_inputs = jax.lax.scan(one, (zeros, zeros), at, reverse=True)[1]
    left = jnp.concatenate([inputs, h_before], axis=2)
    d_weights, d_bias = _sum_by_head(left, dz, heads, len(weights))
    return d_weights, d_bias, None, d_inputs


def _sum_by_head(
    left: Float[Array, "steps batch columns"],
    dz: Float[Array, "steps batch gates"],
    heads: Int[Array, "steps batch"],
    count: int,
) -> tuple[Heads, Float[Array, "heads gates"]]:
    """The sums of left · dz and of dz over the rows of each head."""
    if count == 1:
        left, dz = flat(left), flat(dz)
        return (left.T @ dz,), dz.sum(0)[None]
    # In this order the rows of a head are contiguous.
    left, dz = (flat(steps.swapaxes(0, 1)) for steps in (left, dz))
    head = heads.T.reshape(-1)
    by = reach(head, count)
    sizes = _sizes(len(left), 32)

    def product(k: int, size: int):
        def add(first: Array) -> tuple[Array, Array]:
            start = jnp.minimum(first, len(left) - size)
            mine = cut(head, start, size) == k
            rows, right = cut(left, start, size), cut(dz, start, size)
            rows = jnp.where(mine[:, None], rows, 0.0)
            return rows.T @ right, mine.astype(jnp.float32) @ right

        return add

    def nothing(first: Array) -> tuple[Array, Array]:
        return jnp.zeros((left.shape[1], dz.shape[1])), jnp.zeros(dz.shape[1])

    def total(k: int) -> tuple[Array, Array]:
        products = [nothing, *[product(k, size) for size in sizes]]
        which = (jnp.array((0, *sizes[:-1])) < by.spans[k]).sum()
        return jax.lax.switch(which, products, by.firsts[k])

    weights, biases = zip(*map(total, range(count)), strict=True)
    return weights, jnp.stack(biases)


unroll.defvjp(_unroll_forward, _unroll_backward)


def score(
    layers: tuple[Array, Array, Array, Array],
    head: Int[Array, "*batch"],
    h: Float[Array, "*batch context"],
    activation: Callable[[Array], Array],
) -> Float[Array, "*batch commands"]:
    """Q-values of each state, from its head. Heads that are not in use are skipped."""

    def scored(mine: Array, h: Array, *own: Array) -> Array:
        first, first_bias, second, second_bias = own
        scores = activation(h @ first + first_bias) @ second + second_bias
        return jnp.where(mine[..., None], scores, 0.0)

    def nothing(mine: Array, h: Array, *own: Array) -> Array:
        return jnp.zeros((*h.shape[:-1], own[-1].shape[-1]))

    if len(layers[0]) == 1:
        return scored(jnp.full(head.shape, True), h, *(layer[0] for layer in layers))
    total = jnp.zeros((*h.shape[:-1], layers[-1].shape[-1]))
    for k in range(len(layers[0])):
        mine = head == k
        own = (layer[k] for layer in layers)
        total = total + jax.lax.cond(mine.any(), scored, nothing, mine, h, *own)
    return total
