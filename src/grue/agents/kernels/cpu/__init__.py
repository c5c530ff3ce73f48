"""The operations for a CPU."""

from grue.agents.kernels.cpu.context import Heads, by_one_head, score, side_by_side, unroll
from grue.agents.kernels.cpu.encoder import encode, encode_from

__all__ = ["Heads", "by_one_head", "encode", "encode_from", "score", "side_by_side", "unroll"]
