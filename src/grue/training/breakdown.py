"""Splits the time of training into parts, from a profile of the real program.

``jax.named_scope`` names the part of every operation. Operations that run at the same time share
it, so the parts add up to the time that the device was busy.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from grue.training.bench import Bench

PARTS = ("act", "env", "remember", "sample", "encode", "context", "score", "optimise")

# Kernels in a CUDA graph appear under their own names.
KERNELS = {
    "act_": "act",
    "encode": "encode",
    "sum_by_word": "encode",
    "sum_products": "encode",
    "context_": "context",
    "adam": "optimise",
    "sum_of_squares": "optimise",
}


def breakdown(bench: Bench) -> dict[str, float]:
    """Milliseconds of an update and the steps before it, by part; the rest is "other"."""
    settings = bench.settings
    arguments = (bench.run, jnp.int32(bench.step), True, settings.metrics_every)
    compiled = bench.program.advance.lower(*arguments).compile()
    parts = _parts_of_operations(compiled.as_text())
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, create_perfetto_trace=True):
            bench.advance(learn=True)
        events = _events(Path(folder))
    spent: defaultdict[str, float] = defaultdict(float)
    for event, time in zip(events, own_times(events), strict=True):
        names = (event["args"].get("hlo_op", ""), event["name"])
        known = [parts[name] for name in names if name in parts]
        own = [part for start, part in KERNELS.items() if event["name"].startswith(start)]
        spent[[*known, *own, "other"][0]] += time
    cycles = settings.metrics_every // settings.update_every
    return {part: round(spent[part] / cycles / 1e3, 4) for part in (*PARTS, "other")}


def own_times(events: Sequence[Mapping[str, Any]]) -> list[float]:
    """The duration of each event. Events at the same time share it."""
    turns = [(event["ts"], i) for i, event in enumerate(events)]
    turns += [(event["ts"] + event["dur"], i) for i, event in enumerate(events)]
    times, running, before = [0.0] * len(events), set[int](), 0.0
    for now, i in sorted(turns):
        for each in running:
            times[each] += (now - before) / len(running)
        running ^= {i}
        before = now
    return times


def _parts_of_operations(text: str) -> dict[str, str]:
    """The part of each operation of a compiled program, from the scopes in its name."""
    found: dict[str, str] = {}
    for name, scopes in re.findall(r'%?([\w.-]+) = .*?op_name="([^"]*)"', text):
        inside = [scope for scope in re.split(r"[/()]", scopes) if scope in PARTS]
        if inside:
            # Kernels are named like operations, with underscores.
            found[name] = found[re.sub("[.-]", "_", name)] = inside[0]
    return found


def _events(folder: Path) -> list[Mapping[str, Any]]:
    """The operations that ran on the device."""
    (path,) = folder.rglob("perfetto_trace.json.gz")
    with gzip.open(path) as file:
        trace = json.load(file)
    rows = trace["traceEvents"] if isinstance(trace, dict) else trace
    names: dict[Any, str] = {}
    for row in rows:
        if row.get("ph") == "M" and row["name"] in ("process_name", "thread_name"):
            at = row["pid"] if row["name"] == "process_name" else (row["pid"], row["tid"])
            names[at] = row["args"]["name"]
    return [
        row
        for row in rows
        if row.get("ph") == "X"
        and "GPU" in names.get(row["pid"], "")
        and "Stream" in names.get((row["pid"], row.get("tid")), "")
    ]
