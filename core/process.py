"""What a process of Turnout's asks of its surroundings: no pauses for garbage, and an end with its parent."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["exit_with_parent", "steady"]


@contextmanager
def steady() -> Iterator[None]:
    """Without pauses in which Python looks through what has long been there for garbage.

    A full collection goes through every object of torch, transformers and the model: 100 ms, in which nobody
    gets a token. What is there now is left out of it; what is made from now on is not. For whoever owns the
    process.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def exit_with_parent() -> None:
    """However the parent ends, SIGKILL included, its end of the pipe on standard input closes."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
