"""A request's claim to the compilation of its form."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Claim"]


class Claim:
    """Holds until its client leaves."""

    def __init__(self, client: str = "", *, bounded: bool = True) -> None:
        """client: whose request it is, as far as the server can tell.

        bounded: whether the claim may be refused where too many wait.
        """
        self.client = client
        self.bounded = bounded
        self._lock = threading.Lock()
        self._on_end: Callable[[], object] | None = None
        self.ended = False

    def end(self) -> None:
        """Ends what is done for it. Called from any thread, at any time."""
        with self._lock:
            self.ended = True
            call = self._on_end
        if call is not None:
            call()

    @contextmanager
    def ends(self, how: Callable[[], object]) -> Iterator[None]:
        """Has `end` call a function while the block runs, or a moment later."""
        with self._lock:
            self._on_end = how
        if self.ended:
            how()
        try:
            yield
        finally:
            with self._lock:
                self._on_end = None
