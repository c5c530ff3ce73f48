"""Networks small enough to be made in a test: all of one size, so that this is compiled once."""

from __future__ import annotations

import equinox as eqx

from grue.agents.network import Network, NetworkSizes

SIZES = NetworkSizes(words=11, commands=4, heads=3, embedding=2, encoder=7, context=5, hidden=6)
"""No two are equal, so that none can be taken for another."""
make_network = eqx.filter_jit(Network)
