"""Subprocesses that end with their parent."""

from __future__ import annotations

import os
import signal
import threading
from multiprocessing import connection, parent_process


def stop_with_parent() -> None:
    """Sends SIGTERM to this process when its parent ends."""
    threading.Thread(target=_wait, daemon=True).start()


def _wait() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
