"""Converts the context LSTM's weights in checkpoints between CPU and GPU layout.

CPU: one float32 array per head. GPU: one array for all heads, and a copy of it (``working``) in the
type used for multiplication.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

WORKING = re.compile(r"learned/working/weights$")
HEAD = re.compile(r"(.*context/weights)/(\d+)")
"""The weights of one head in the CPU layout."""
Arrays = dict[str, np.ndarray]


def as_bits(array: np.ndarray) -> np.ndarray:
    """bfloat16 as uint16, because NumPy files have no bfloat16."""
    return array.view(np.uint16) if array.dtype == jnp.bfloat16 else array


def adapted(stored: Mapping[str, np.ndarray], wanted: Mapping[str, Any]) -> Arrays:
    """A checkpoint's arrays in this device's layout, with the shapes and types of ``wanted``."""
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
        count = sum(name.startswith(f"{base}/") for name in arrays)
        arrays[base] = np.stack([arrays.pop(f"{base}/{k}") for k in range(count)])
    return arrays
