"""drrn: sc with commands scored by their text (He et al. 2016: deep reinforcement relevance).

    Q(h, a, u) = φ(W_k h + b_k) · V_k e_a + v_k · e_a + c_k,    e_a = norm(Φ_R(a)), k = J(u)

The scorer of sc has a column of weights for each command. Here the column is computed from the
command's words. So the commands are data: their number and order may change, and new ones may come.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from grue.agents.deep import DEEP, DeepAgent
from grue.agents.network import Columns, Network, NetworkSizes, Scorer, uniform
from grue.agents.registry import register


class TextScorer(Scorer):
    """Φ_A(k) on the encodings of the commands, made by the encoder that reads the feedback."""

    meaning: Float[Array, "heads hidden encoder"]
    """V"""
    worth: Float[Array, "heads encoder"]
    """v"""
    bias: Float[Array, " heads"]
    """c"""
    reads_commands: ClassVar[bool] = True

    def __init__(self, sizes: NetworkSizes, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key)
        super().__init__(sizes, keys[0])
        shape = (sizes.heads, sizes.hidden, sizes.encoder)
        # A column is then about as large as one of sc's scorer.
        self.meaning = uniform(keys[1], shape, sizes.hidden * sizes.encoder)
        self.worth = jnp.zeros((sizes.heads, sizes.encoder))
        self.bias = jnp.zeros(sizes.heads)

    def columns(self, vectors: Float[Array, "commands encoder"]) -> Columns:
        """The columns, computed once from the encodings for all states that are scored."""
        vectors = normed(vectors)
        return Columns(self.meaning @ vectors.T, self.worth @ vectors.T + self.bias[:, None])


def normed(vectors: Float[Array, "commands encoder"]) -> Float[Array, "commands encoder"]:
    """Each row scaled to mean 0 and deviation 1. Unscaled, they are small and nearly equal."""
    vectors = vectors - vectors.mean(-1, keepdims=True)
    return vectors / jnp.sqrt(jnp.square(vectors).mean(-1, keepdims=True) + 1e-6)


@register(
    "drrn",
    True,
    heads=5,
    reads_commands=True,
    summary="sc (K = 5) with commands scored by their text",
    **DEEP,
)
class TextAgent(DeepAgent):
    def make_network(self, key: PRNGKeyArray) -> Network:
        return Network(self.sizes, key, TextScorer)
