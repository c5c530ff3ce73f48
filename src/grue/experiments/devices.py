"""The cores and GPUs of this machine, and how processes share them.

Nothing here imports JAX: a process is given its devices before JAX is imported in it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.metadata import entry_points
from pathlib import Path

GPU_SHARE = 0.9
"""The fraction of a GPU's memory that all processes on it use together."""


def free_cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class Cores:
    """Some cores, held until ``close`` or until the process ends.

    Processes on a machine coordinate by locked files. If fewer cores are free than requested, the
    missing ones are shared with other processes.
    """

    def __init__(self, count: int, place: int = 0) -> None:
        self._locks = ExitStack()
        found = [core for core in free_cores() if self._lock(core, count)]
        others = [core for core in free_cores() if core not in found]
        shift = place % len(others) if others else 0
        self.numbers = (found + others[shift:] + others[:shift])[:count]

    def _lock(self, core: int, count: int) -> bool:
        if self._held == count:
            return False
        folder = Path(tempfile.gettempdir()) / f"grue-cores-{os.getuid()}"
        folder.mkdir(exist_ok=True)
        file = (folder / str(core)).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return False
        self._locks.enter_context(file)
        self._held += 1
        return True

    _held = 0

    def close(self) -> None:
        self._locks.close()


def gpus() -> list[str]:
    """The NVIDIA GPUs that JAX can use here, found without JAX."""
    if os.environ.get("JAX_PLATFORMS") == "cpu" or not entry_points(group="jax_plugins"):
        return []
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name.strip() not in ("", "-1")]
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return told.stdout.split()


def first_gpu() -> tuple[str, float]:
    """The name of a GPU and the bytes of its memory."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    name, _, mebibytes = told.stdout.splitlines()[0].rpartition(",")
    return name.strip(), float(mebibytes) * 2**20


def environment(gpu: str | None, share: float = 1.0) -> Mapping[str, str]:
    """The variables of a process on (a share of) a GPU, or on cores only.

    JAX reserves most of a GPU's memory when it starts. A process with half of the GPU reserves half
    of that, so that processes on the same GPU do not compete for its memory.
    """
    if gpu is None:
        return {"JAX_PLATFORMS": "cpu"}
    narrow = {"CUDA_VISIBLE_DEVICES": gpu}
    if share < 1:
        narrow["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{GPU_SHARE * share:.3f}"
    return narrow
