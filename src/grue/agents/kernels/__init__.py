"""The hot path: texts read once each, and heads without copies of their weights.

``texts`` finds the distinct texts of a batch, ``cpu`` and ``gpu`` hold the two implementations of
the same two operations, and ``select`` gives the one for the machine. The plain scans they must
agree with are in ``agents/network.py``.
"""
