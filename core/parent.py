"""A process that is of no use without the one that started it."""

from __future__ import annotations

import os
import sys
import threading

__all__ = ["exit_with_parent"]


def exit_with_parent() -> None:
    """However the parent ends, SIGKILL included, its end of the pipe on standard input closes."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
