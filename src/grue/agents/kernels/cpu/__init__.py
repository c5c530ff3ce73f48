"""The operations for a CPU."""

from grue.agents.kernels.cpu.context import (
    Heads,
    by_head,
    by_one_head,
    reach,
    score,
    side_by_side,
    unroll,
)
from grue.agents.kernels.cpu.encoder import encode, encode_from

__all__ = [
    "Heads",
    "by_head",
    "by_one_head",
    "encode",
    "encode_from",
    "reach",
    "score",
    "side_by_side",
    "unroll",
]
