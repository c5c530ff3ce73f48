"""Processes that do not outlive the one that started them."""

from __future__ import annotations

import os
import signal
import threading
from multiprocessing import connection, parent_process


def stop_with_parent() -> None:
    """From now on this process gets SIGTERM when the one that started it is gone."""
    threading.Thread(target=_wait, daemon=True).start()


def _wait() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
