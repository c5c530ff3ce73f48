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
    """Records a signal in ``asked``. A second signal acts at once."""

    def __init__(self, active: bool = True) -> None:
        self.asked = False
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
        if process_is_ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _end)


def _end(number: int, frame: Any) -> None:
    # print is not safe in a signal handler.
    os.write(2, b"grue: interrupted\n")
    os._exit(INTERRUPTED)
