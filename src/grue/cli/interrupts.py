"""Ctrl-C at the command line, pressed more than once.

Python raises an interrupt wherever it is, also where nobody can catch it, and JAX's shutdown may
crash if it is interrupted.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from grue.errors import INTERRUPTED
from grue.training import stop


def whole_process(run: Callable[[], int]) -> int:
    """Runs the CLI; ignores Ctrl-C during shutdown."""
    stop.process_is_ours = True
    code = run()
    if code == INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code
