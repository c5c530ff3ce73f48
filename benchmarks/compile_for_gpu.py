"""Compiles the training program for an H200, on a machine that has none.

    pip install -e '.[cuda]' && python benchmarks/compile_for_gpu.py --precision float32
    python benchmarks/compile_for_gpu.py --game saladworld-5 --variant archive-double

XLA and Triton need the CUDA toolkit, which the extra installs, but no GPU and no driver. This finds
errors that only a real compilation shows, such as a kernel that needs more memory than the chip
has. Autotuning, which needs a device, is off.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

# Before JAX is imported: else it looks for a driver.
os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"

import jax
import jax.numpy as jnp
from jax.experimental import topologies

from grue.training.config import TrainConfig
from grue.training.programs import build, parameters_of

sys.path.append(str(Path(__file__).parent.parent / "studies"))
from exploration import VARIANTS

H200 = """
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  registers_per_block_limit: 65536
  registers_per_core_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  l2_cache_size: 62914560
  memory_bandwidth: 4800000000000
  device_memory_size: 150000000000
}
platform_name: "CUDA"
runtime_version { major: 13 }
dnn_version_info { major: 9 minor: 7 }
device_description_str: "NVIDIA H200"
"""


def a_device() -> Any:
    try:
        found = topologies.get_topology_desc("h200", "cuda", target_config=H200, topology="1x1x1")
    except NotImplementedError:
        sys.exit("install the extra cuda: pip install -e '.[cuda]'")
    return found.devices[0]


def compile_for_gpu(config: TrainConfig, runs: int) -> Any:
    """The program of some runs side by side, as `grue train` has it on a GPU."""
    there = jax.sharding.SingleDeviceSharding(a_device())
    jax.default_backend = lambda: "gpu"
    program = build(config, config.heads_in_use, many=True).program
    parameters = jax.tree.map(lambda leaf: jnp.stack([leaf] * runs), parameters_of(config))
    shapes = jax.eval_shape(program.init, jnp.arange(runs), parameters), jnp.int32(0)
    run, step = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=there), shapes
    )
    traced = program.advance.trace(run, step, True, config.target_every)
    return traced.lower(lowering_platforms=("cuda",)).compile()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--game", default="saladworld-3")
    parser.add_argument("--agent", default="sc")
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--variant", help="one of studies/exploration.py, such as archive-double")
    given = parser.parse_args()
    own = {} if given.variant is None else {"gate": "masking", **VARIANTS[given.variant]}
    named = {"game": given.game, "agent": given.agent, "precision": given.precision}
    config = TrainConfig(**{**named, **own})
    start = time.perf_counter()
    compiled = compile_for_gpu(config, given.runs)
    text, memory = compiled.as_text(), compiled.memory_analysis()
    print(
        f"compiled in {time.perf_counter() - start:.0f} s: {text.count(' fusion(')} fusions and "
        f"{text.count(' custom-call(')} kernels and library calls, "
        f"{memory.argument_size_in_bytes / 1e9:.1f} GB that {given.runs} runs carry and "
        f"{memory.temp_size_in_bytes / 1e9:.1f} GB beside"
    )


if __name__ == "__main__":
    main()
