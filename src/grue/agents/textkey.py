"""Hash keys of texts."""

from __future__ import annotations

import hashlib

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt32

Key = UInt32[Array, "*texts 2"]


def text_key(tokens: Int[Array, "*texts words"]) -> Key:
    """The key of a text: Σ_i c_i · token_i mod 2³², for two rows of fixed odd random numbers c.

    Texts that differ in one word never collide. Two others do with probability 2⁻⁶² over the draw
    of c, or 2⁻⁴⁸ if all their differences are multiples of 128.
    """
    drawn = hashlib.shake_256(b"grue: the keys of texts").digest(8 * tokens.shape[-1])
    factors = np.frombuffer(drawn, "<u4").reshape(-1, 2) | np.uint32(1)
    return (tokens.astype(jnp.uint32)[..., None] * factors).sum(-2, dtype=jnp.uint32)
