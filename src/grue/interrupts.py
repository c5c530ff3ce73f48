"""Ctrl-C at the command line, pressed more than once.

Python raises an interrupt wherever it is, also where nobody can catch it, and JAX's own end may
crash if it is interrupted.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

INTERRUPTED = 130
_process_is_ours = False


def whole_process(run: Callable[[], int]) -> int:
    """The exit code of what is all that this process does; its end is not interrupted."""
    global _process_is_ours
    _process_is_ours = True
    code = run()
    if code == INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


def end_at_the_next() -> None:
    """One has been noted, and what it waits for may take long: another ends a process of ours."""
    if _process_is_ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def _end(number: int, frame: Any) -> None:
    # Not by print, which may be what was interrupted.
    os.write(2, b"grue: interrupted\n")
    os._exit(INTERRUPTED)
