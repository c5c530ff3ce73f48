"""The operations as Pallas kernels for NVIDIA GPUs.

A program of the encoder reads 16 whole texts in one launch. A program of the context LSTM computes
some units of one head, and exits early if no sequence uses that head. All sums have a fixed order,
so results are deterministic.
"""

from grue.agents.kernels.gpu.adam import adam, sum_of_squares
from grue.agents.kernels.gpu.context import step_one, unroll
from grue.agents.kernels.gpu.encoder import encode
from grue.agents.kernels.gpu.scorer import score

__all__ = ["adam", "encode", "score", "step_one", "sum_of_squares", "unroll"]
