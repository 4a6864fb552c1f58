"""The thread of rank 0 that starts the followers, hears them, and notices when one is gone."""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress

from turnout.core.clock import monotonic
from turnout.runner.ranks.followers import Follower
from turnout.runner.ranks.silence import Timing

__all__ = ["Watcher"]

ENDING_SECONDS = 2.0
"""A process closes its channels this much earlier than it has ended."""


class Watcher:
    """Watches until a follower is lost, or until it is closed; then no follower lives."""

    def __init__(
        self,
        followers: Sequence[Follower],
        timing: Timing,
        said: Callable[[int, bytes], None],
        lose: Callable[[int, str], None],
    ) -> None:
        """said: called with a rank and its word; lose: once, with a rank and why it is lost, as a clause."""
        self.lost = threading.Event()
        """Set after `lose` was called."""
        self._followers, self._timing = followers, timing
        self._said, self._lose = said, lose
        self._closing = False
        self._bell, self._ring = os.pipe()
        self._thread: threading.Thread | None = None

    def start(self, configs: Sequence[str]) -> None:
        """Starts the followers, each with its configuration. Raises OSError."""
        started: Future[None] = Future()
        # Linux ends a child with the thread that started it, so the thread that lives longest does that.
        self._thread = threading.Thread(
            target=self._work, args=(configs, started), name="ranks-watcher", daemon=True
        )
        self._thread.start()
        started.result()

    def close(self) -> None:
        """Returns when no follower is left. May be called twice."""
        if not self._closing:
            self._closing = True
            os.write(self._ring, b".")
            if self._thread is not None:
                self._thread.join()
            for follower in self._followers:
                follower.close()
            os.close(self._bell)
            os.close(self._ring)

    def _work(self, configs: Sequence[str], started: Future[None]) -> None:
        try:
            for follower, config in zip(self._followers, configs, strict=True):
                follower.start(config)
        except OSError as error:
            self._kill_all()
            started.set_exception(error)
            return
        started.set_result(None)
        try:
            if gone := self._watch():
                self._lose(*gone)
                self.lost.set()
        finally:
            self._end_all()

    def _watch(self) -> tuple[int, str] | None:
        """Returns the rank that is lost, and why; None: this was closed."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._bell, selectors.EVENT_READ)
            for follower in self._followers:
                assert follower.process is not None
                assert follower.process.stderr is not None
                selector.register(follower.words, selectors.EVENT_READ)
                selector.register(follower.process.stderr, selectors.EVENT_READ, follower)
            while not self._closing:
                for key, _ in selector.select(self._timing.beat):
                    if isinstance(key.data, Follower) and not key.data.pass_on_errors():
                        selector.unregister(key.fileobj)
                for follower in self._followers:
                    if why := self._gone(follower):
                        return follower.rank, why
        return None

    def _gone(self, follower: Follower) -> str:
        """Hears what a follower said; returns why it is lost, or nothing."""
        messages = follower.words.arrived()
        if messages is None:
            return "" if self._closing else follower.end(ENDING_SECONDS)
        if messages:
            follower.silence.heard()
        for message in filter(None, messages):
            self._said(follower.rank, message)
        if follower.silence.too_long():
            seconds = follower.silence.seconds
            return follower.with_last_words(f"gave no sign of life for {seconds:.0f} seconds")
        return ""

    def _end_all(self) -> None:
        """Ends the followers: in good order if this was closed, at once if one is lost."""
        if self.lost.is_set():
            self._kill_all()
        for follower in self._followers:
            follower.frames.close()
        until = monotonic() + self._timing.exiting
        for follower in self._followers:
            follower.end(max(0.0, until - monotonic()))

    def _kill_all(self) -> None:
        for follower in self._followers:
            with suppress(OSError):
                follower.kill()
