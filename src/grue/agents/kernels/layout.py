"""How each kind of device lays out the context LSTM's weights in a checkpoint.

A CPU has an array for each head and multiplies in float32. A GPU has all heads in one array, and
beside it working weights in the type in which it multiplies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

WORKING = re.compile(r"learned/working/weights$")
HEAD = re.compile(r"(.*context/weights)/(\d+)")
"""The weights of one head, where each has an array of its own."""
Arrays = dict[str, np.ndarray]


def as_bits(array: np.ndarray) -> np.ndarray:
    """NumPy's files know no bfloat16: its bits as whole numbers."""
    return array.view(np.uint16) if array.dtype == jnp.bfloat16 else array


def adapted(stored: Mapping[str, np.ndarray], wanted: Mapping[str, Any]) -> Arrays:
    """The arrays of a checkpoint in this device's layout; ``wanted`` has shapes and types."""
    arrays = _join_or_split_heads(stored, wanted)
    for name in [name for name in arrays if name not in wanted and WORKING.search(name)]:
        del arrays[name]
    for name, like in wanted.items():
        found = arrays.get(name)
        if found is None and WORKING.search(name):
            source = name.replace("working/weights", "network/context/weights")
            if source in arrays:
                arrays[name] = arrays[source].astype(like.dtype)
        elif found is not None and found.dtype == np.uint16 != like.dtype:
            arrays[name] = found.view(jnp.bfloat16).astype(like.dtype)
        elif found is not None and like.dtype == jnp.bfloat16:
            arrays[name] = found.astype(like.dtype)
    return arrays


def _join_or_split_heads(stored: Mapping[str, np.ndarray], wanted: Mapping[str, Any]) -> Arrays:
    arrays = dict(stored)
    apart = {match[1] for name in arrays if (match := HEAD.fullmatch(name))}
    needed = {match[1] for name in wanted if (match := HEAD.fullmatch(name))}
    for base in needed - apart:
        if base in arrays:
            arrays |= {f"{base}/{k}": head for k, head in enumerate(arrays.pop(base))}
    for base in apart - needed:
        names = sorted((n for n in arrays if n.startswith(f"{base}/")), key=_number)
        arrays[base] = np.stack([arrays.pop(name) for name in names])
    return arrays


def _number(name: str) -> int:
    return int(name.rpartition("/")[2])
