"""Settings of a process: no pauses for garbage collection, and an end together with its parent."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["exit_with_parent", "freeze_garbage"]


@contextmanager
def freeze_garbage() -> Iterator[None]:
    """Keeps the garbage collector from looking at the objects that exist already.

    A full collection visits every object of torch, transformers and the model: 100 ms in which no request
    gets a token. Objects that exist now are left out of collections; those created later are not. The
    setting is the process's, so only its main program should enter this.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def exit_with_parent() -> None:
    """Ends this process when its parent has ended, in whatever way: standard input then reaches its end."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
