"""Defers SIGINT and SIGTERM until no JAX program is running."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from grue.errors import INTERRUPTED

process_is_ours = False
"""Set by the command line: a second Ctrl-C may then end the process at once."""


class Stop:
    """Records a signal in ``asked``. A second signal acts at once.

    If two are nested, a signal is recorded in both. ``in_jax``: whether a JAX program may be
    running. A KeyboardInterrupt could crash it, so a second Ctrl-C ends the process instead.
    """

    def __init__(self, active: bool = True, in_jax: bool = True) -> None:
        self.asked, self.in_jax = False, in_jax
        self.active = active and threading.current_thread() is threading.main_thread()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if self.active:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def heed(self) -> None:
        if self.asked:
            raise KeyboardInterrupt

    def _ask(self, number: int, frame: Any) -> None:
        self.asked = True
        self.__exit__()
        outer = getattr(signal.getsignal(number), "__self__", None)
        if isinstance(outer, Stop):
            outer._ask(number, frame)
        is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self.in_jax and process_is_ours and is_default:
            signal.signal(signal.SIGINT, _end)


def _end(number: int, frame: Any) -> None:
    # print is not safe in a signal handler.
    os.write(2, b"grue: interrupted\n")
    os._exit(INTERRUPTED)
