"""Python's garbage collector, kept out of the way."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["steady"]


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
