"""The operations as kernels for NVIDIA GPUs, in Pallas.

A program of the encoder reads sixteen texts from their first word to their last without leaving
the chip. A program of the context LSTM holds one head and some units of it, and does nothing if no
sequence is with its head. All sums are taken in a fixed order: the same seed gives the same bits.
"""

from grue.agents.kernels.gpu.adam import adam, sum_of_squares
from grue.agents.kernels.gpu.context import step_one, unroll
from grue.agents.kernels.gpu.encoder import encode
from grue.agents.kernels.gpu.scorer import score

__all__ = ["adam", "encode", "score", "step_one", "sum_of_squares", "unroll"]
