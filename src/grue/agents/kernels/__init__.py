"""Fast versions of the network's operations: each text is read once, weights are not copied.

``texts`` finds the distinct texts of a batch, ``cpu`` and ``gpu`` implement the operations, and
``select`` picks the version for the machine. The reference is in ``agents/network.py``.
"""
