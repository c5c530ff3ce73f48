"""Joins a Ray cluster, or starts one, and examines its nodes. Nothing here imports JAX."""

from __future__ import annotations

import logging
import os
import platform
import socket
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from grue import __version__
from grue.errors import GrueError, UsageError
from grue.experiments.storage import Storage, address_at, address_in

HERE = "here"
"""Stands for a cluster on this machine that is started for this command only."""
NAMESPACE = "grue"
LIBRARIES = ("jax", "jaxlib", "equinox")
ACCELERATOR = "accelerator_type:"
CONNECT_SECONDS = 10.0
CHECK_SECONDS = 120.0


def imported() -> Any:
    try:
        import ray
    except ImportError:
        raise UsageError(
            "--ray needs the package ray; install it with pip install 'grue[ray]'"
        ) from None
    return ray


def connect(address: str, cores: int | None = None) -> None:
    """Joins a cluster, or starts one on this machine."""
    ray = imported()
    if ray.is_initialized():
        return
    quiet = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": logging.ERROR}
    if address == HERE:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        ray.init("local", num_cpus=cores, include_dashboard=False, **quiet)
        return
    _check_answers(address)
    try:
        ray.init(address=address, **quiet)
    except ConnectionError:
        raise UsageError(_nowhere(address)) from None
    except (RuntimeError, ValueError) as error:
        text = " ".join(str(error).split())
        if "ersion mismatch" in text:
            raise GrueError(f"{text}; install the same versions on all machines") from None
        raise UsageError(f"{_nowhere(address)} ({text[:200]})") from None


def _check_answers(address: str) -> None:
    """Refuses an address that does not answer. Ray itself would wait for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise UsageError(_nowhere(address))
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError:
        raise UsageError(_nowhere(address)) from None


def _nowhere(address: str) -> str:
    return (
        f"no Ray cluster answers at {address}; give auto, or HOST:PORT as ray start --head shows "
        "it, or leave the address out to start one on this machine"
    )


def versions() -> dict[str, str]:
    """The versions on which the results depend."""
    python = ".".join(platform.python_version_tuple()[:2])
    found = {"grue": __version__, "python": python}
    return found | {name: metadata.version(name) for name in LIBRARIES}


def examine(here: Mapping[str, str], files: Sequence[str], marker: str) -> str | None:
    """What is wrong with the node on which this function runs; None if nothing is."""
    name = socket.gethostname()
    try:
        there = versions()
    except metadata.PackageNotFoundError as error:
        return f"the node {name} lacks the package {error.name}; install grue there"
    differing = [part for part in here if there.get(part) != here[part]]
    if differing:
        part = differing[0]
        return (
            f"the node {name} has {part} {there[part]}, this machine has {here[part]}; "
            "install the same versions on all machines"
        )
    for file in files:
        if not Path(file).exists():
            return f"the file {file} is missing on the node {name}; copy it to the same path there"
    folder, _, file = marker.rpartition("/")
    try:
        seen = Storage(folder).exists(file) if address_in(marker) else Path(marker).exists()
    except GrueError as error:
        return f"the node {name}: {error}"
    if not seen:
        return (
            f"the node {name} does not see {folder}; give an --out on a file system that all nodes "
            "share, or an address such as s3://BUCKET/FOLDER"
        )
    return None


def check_nodes(out: Path, files: Sequence[str]) -> None:
    """Examines every node before anything starts."""
    ray = imported()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(num_cpus=0, max_retries=1)(examine)
    marker, remove = _marked(out)
    try:
        asked = {
            look.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(versions(), list(files), marker): node
            for node in ray.nodes()
            if node["Alive"]
        }
        ready, late = ray.wait(list(asked), num_returns=len(asked), timeout=CHECK_SECONDS)
        for answer in ready:
            if found := _answer(ray, answer, asked[answer]):
                raise GrueError(found)
        if late:
            name = asked[late[0]]["NodeManagerHostname"]
            raise GrueError(f"the node {name} does not answer; stop Ray there, or start it again")
    finally:
        remove()


def _marked(out: Path) -> tuple[str, Callable[[], object]]:
    """A file that all nodes must see, and the function that removes it."""
    name, address = f".seen-{os.getpid()}", address_at(out)
    if address is not None:
        storage = Storage(address)
        storage.write(name, b"")
        return f"{address}/{name}", lambda: storage.remove(name)
    out.mkdir(parents=True, exist_ok=True)
    (out / name).touch()
    return str(out / name), lambda: (out / name).unlink(missing_ok=True)


def _answer(ray: Any, answer: Any, node: Mapping[str, Any]) -> str | None:
    try:
        return ray.get(answer)
    except ray.exceptions.RayTaskError as error:
        last = str(error).strip().splitlines()[-1]
        name = node["NodeManagerHostname"]
        return f"the node {name} cannot run grue ({last}); install the same grue there"
    except ray.exceptions.RayError:
        return None  # The node has just died; the others continue.


def shares(cores: int | None, gpus: float | None) -> tuple[int, float, str]:
    """Cores and GPUs of a task, by default a whole GPU if there are any; the device's name.

    A GPU's task gets its share of the node's cores, where the emulators of a hosted game run, too.
    """
    nodes = [node["Resources"] for node in imported().nodes() if node["Alive"]]
    with_gpus = [node for node in nodes if node.get("GPU")]
    if gpus is None:
        gpus = 1.0 if with_gpus else 0.0
    if gpus and not with_gpus:
        raise UsageError(f"no node of the cluster has a GPU: --gpus-per-group is 0, not {gpus:g}")
    if gpus > 1:
        raise UsageError(
            "a group of runs is one program on one GPU: --gpus-per-group is at most 1, "
            f"not {gpus:g}"
        )
    if cores is None:
        each = (int(node.get("CPU", 1) * gpus / node["GPU"]) for node in with_gpus)
        cores = max(min(each), 1) if gpus else 1
    kinds = [key for node in with_gpus for key in node if key.startswith(ACCELERATOR)]
    return cores, gpus, kinds[0].removeprefix(ACCELERATOR) if gpus and kinds else "CPU"
