"""Estimates the memory of a program from its shapes, before anything is compiled or allocated.

The estimate is the state of all runs plus the largest amount of intermediate values that are alive
at the same time. A compiled program needs about this much, a little less on a GPU. If it does not
fit, the error names the settings that make it large.
"""

from __future__ import annotations

import math
import resource
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from grue.errors import UsageError
from grue.training.config import PARTS, TrainConfig
from grue.training.programs import Explorers, build, parameters_of

IN_PLACE = ("while", "cond", "scatter", "scatter-add", "dynamic_update_slice")
"""Operations that update an array in place and so need no new memory."""
CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint")


def check_fits(config: TrainConfig, heads: int, runs: int, explorers: Explorers) -> None:
    """Refuses runs that need more memory together than the device has."""
    free = free_bytes()
    if free is None:
        return

    def needed(config: TrainConfig) -> int:
        return program_bytes(config, heads, runs, explorers, free)

    most = needed(config)
    if most <= free:
        return
    large = [
        f"{name}={getattr(config, name)}"
        for name, smaller in _smaller(config).items()
        if needed(smaller) <= most / 2
    ]
    large += [f"{runs} runs side by side"] * (runs > 1)
    made = " and ".join(large) or "the sizes of the network and of the replay memory"
    raise UsageError(
        f"this needs about {told(most)} of memory, and {told(free)} are free, because of "
        f"{made}; choose smaller values"
    )


def program_bytes(
    config: TrainConfig, heads: int, runs: int, explorers: Explorers, enough: int
) -> int:
    """The bytes of a program; only those of its state if they already exceed ``enough``."""
    program = build(config, heads, runs > 1, explorers).program
    start = jnp.int32(0), parameters_of(config, explorers)
    if runs > 1:
        start = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((runs, *leaf.shape), leaf.dtype), start
        )
    run = jax.eval_shape(program.init, *start)
    if (state := bytes_of(run)) > enough:
        return state
    sums = jax.eval_shape(program.no_sums, run)
    longest = min(config.metrics_every, config.target_every)
    traced: Any = program.advance
    return state + peak(traced.trace(run, jnp.int32(0), True, longest, sums).jaxpr)


def _smaller(config: TrainConfig) -> Mapping[str, TrainConfig]:
    """For each integer setting above its default, the config with the default instead."""
    found: dict[str, TrainConfig] = {}
    for part in (config, *(getattr(config, name) for name in PARTS)):
        for field in fields(part):
            value, default = getattr(part, field.name), field.default
            if isinstance(value, int) and isinstance(default, int) and value > default:
                # The default may contradict the other settings.
                with suppress(UsageError):
                    found[field.name] = replace(config, **{field.name: default})
    return found


def told(count: int | float) -> str:
    """A number of bytes as text."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:,.0f} {unit}" if count >= 100 or unit == "bytes" else f"{count:.1f} {unit}"


# The memory of a program


def bytes_of(tree: Any) -> int:
    """The size of all arrays of a tree, or of their shapes."""
    leaves = jax.tree.leaves(tree)
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def peak(jaxpr: Any) -> int:
    """The largest number of bytes of stored values that are alive at once."""
    jaxpr = _jaxpr(jaxpr)
    last = {v: at for at, eqn in enumerate(jaxpr.eqns) for v in eqn.invars if _is_variable(v)}
    last |= dict.fromkeys((v for v in jaxpr.outvars if _is_variable(v)), len(jaxpr.eqns))
    alive: dict[Any, int] = {}
    most = 0
    for at, eqn in enumerate(jaxpr.eqns):
        name, before = eqn.primitive.name, sum(alive.values())
        new = {} if name in IN_PLACE else {v: bytes_of(v.aval) for v in _made(eqn)}
        # The outputs of a call are counted inside it.
        beside = 0 if name in CALLS else sum(new.values())
        inside = max(map(peak, _inner(eqn)), default=0)
        most = max(most, before + beside + inside, before + sum(new.values()))
        alive = {v: size for v, size in (alive | new).items() if last.get(v, -1) > at}
    return most


def _made(eqn: Any) -> list[Any]:
    """The outputs that are new arrays: of a scan, only the stacked ones, not its state."""
    if eqn.primitive.name != "scan":
        return eqn.outvars
    pairs = zip(eqn.outvars, _jaxpr(eqn.params["jaxpr"]).outvars, strict=True)
    return [whole for whole, part in pairs if whole.aval.shape != part.aval.shape]


def _inner(eqn: Any) -> list[Any]:
    found = []
    for value in eqn.params.values():
        for one in value if isinstance(value, tuple | list) else [value]:
            one = _jaxpr(one)
            if hasattr(one, "eqns"):
                found.append(one)
    return found


def _jaxpr(value: Any) -> Any:
    """The jaxpr inside a closed jaxpr; another value is returned unchanged."""
    return getattr(value, "jaxpr", value)


def _is_variable(value: Any) -> bool:
    return not hasattr(value, "val")  # Literals have an attribute val.


# The memory of the machine


def free_bytes() -> int | None:
    """Free memory of JAX's device; None if it is not known."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        limit = stats.get("bytes_limit")
        return None if limit is None else limit - stats.get("bytes_in_use", 0)
    return free_host_bytes()


def free_host_bytes() -> int | None:
    known = [found for found in (_of_machine(), _of_group(), _of_process()) if found is not None]
    return min(known, default=None)


def _of_machine() -> int | None:
    lines = _read("/proc/meminfo").splitlines()
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found else None


def _of_group() -> int | None:
    """Free memory under the limit of a container."""
    limit, used = (_read(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
    return int(limit) - int(used) if limit.isdigit() and used.isdigit() else None


def _of_process() -> int | None:
    """Free memory under ``ulimit -v``."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    pages = _read("/proc/self/statm").split()
    if limit == resource.RLIM_INFINITY or not pages:
        return None
    return limit - int(pages[0]) * resource.getpagesize()


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
