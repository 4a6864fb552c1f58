"""`turnout top` on the screen: draws what comes, and does what is typed."""

from __future__ import annotations

import asyncio
import copy
import signal
import termios
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress

from rich.console import Console, Group
from rich.live import Live

from turnout.cli.top.feed import Feed, Lost
from turnout.cli.top.keys import pressed
from turnout.cli.top.rows import SORTS
from turnout.cli.top.screen import View, drawn
from turnout.cli.top.watched import Watched

__all__ = ["watch"]

DRAW_SECONDS = 1.0
"""At least so often: ages grow while nothing comes."""
ESCAPE, DELETE = "\x1b", ("\x7f", "\x08")
MOST_TYPED = 60
ENDING = (signal.SIGTERM, signal.SIGHUP)
SIGNALLED = 128
"""Exit codes beyond it are of signals."""
HUNG_UP = SIGNALLED + signal.SIGHUP


async def watch(feed: Feed, view: View, console: Console) -> int:
    """Until q, Ctrl-C or a signal. Returns the exit code: of a signal that which shells have for it.

    Raises TopError.
    """
    return await _Top(feed, view, console).run()


class _Top:
    def __init__(self, feed: Feed, view: View, console: Console) -> None:
        self._feed, self._view, self._console = feed, view, console
        self._watched = Watched()
        self._received = time.monotonic()
        self._changed = asyncio.Event()
        self._over = self._suspended = False
        self._exit_code = 0
        self._frozen: tuple[Watched, float] | None = None
        """What is shown while it is paused, and the server's time then."""

    async def run(self) -> int:
        reading = asyncio.create_task(self._read())
        reading.add_done_callback(lambda _: self._changed.set())
        try:
            with self._hearing_signals():
                while not self._over and not reading.done():
                    await self._show(reading)
                    if self._suspended:
                        self._suspend()
        except (OSError, termios.error):
            if self._exit_code != HUNG_UP:  # then the terminal is gone, and cannot be as before
                raise
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
        return self._exit_code

    async def _show(self, reading: asyncio.Task[None]) -> None:
        """Draws until it is over or suspended. The terminal is as before then."""
        with pressed(self._hear), Live(console=self._console, screen=True, auto_refresh=False) as live:
            while not self._over and not self._suspended and not reading.done():
                self._changed.clear()
                live.update(self._drawn(), refresh=True)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), DRAW_SECONDS)

    async def _read(self) -> None:
        async with aclosing(self._feed.events()) as events:
            async for event in events:
                if isinstance(event, Lost):
                    self._view.trouble = event
                else:
                    self._view.trouble = ""
                    self._watched.hear(event)
                    self._received = time.monotonic()
                self._changed.set()

    def _drawn(self) -> Group:
        self._watched.settle(self._now)
        watched, now = self._frozen or (self._watched, self._now)
        width, height = self._console.size
        return drawn(watched, self._view, now, width, height)

    @property
    def _now(self) -> float:
        """The server's time. It stands still while the server cannot be reached."""
        passed = 0.0 if self._view.trouble else time.monotonic() - self._received
        return self._watched.at + passed

    # -------------------------------------------------------------- signals

    @contextmanager
    def _hearing_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self._changed.set)
        loop.add_signal_handler(signal.SIGTSTP, self._ask_to_suspend)
        for ending in ENDING:
            loop.add_signal_handler(ending, self._end, ending)
        try:
            yield
        finally:
            for heard in (signal.SIGWINCH, signal.SIGTSTP, *ENDING):
                loop.remove_signal_handler(heard)

    def _end(self, by: signal.Signals) -> None:
        self._over, self._exit_code = True, SIGNALLED + by
        self._changed.set()

    def _ask_to_suspend(self) -> None:
        self._suspended = True
        self._changed.set()

    def _suspend(self) -> None:
        """Stops the process, as Ctrl-Z does; returns when it goes on."""
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGTSTP)  # so that the signal stops it
        signal.raise_signal(signal.SIGTSTP)
        loop.add_signal_handler(signal.SIGTSTP, self._ask_to_suspend)
        self._suspended = False

    # -------------------------------------------------------------- what is typed

    def _hear(self, typed: str) -> None:
        if not typed:
            self._over = True
        elif typed.startswith(ESCAPE) and typed != ESCAPE:
            pass  # an arrow, or the like
        else:
            for key in typed:
                (self._edit if self._view.typing else self._press)(key)
        self._changed.set()

    def _press(self, key: str) -> None:
        view = self._view
        if key == "q":
            self._over = True
        elif key == "p":
            view.paused = not view.paused
            self._frozen = (copy.deepcopy(self._watched), self._now) if view.paused else None
        elif key == "s":
            names = list(SORTS)
            view.sort = names[(names.index(view.sort) + 1) % len(names)]
        elif key in "f/":
            view.typing, view.chosen = True, ""

    def _edit(self, key: str) -> None:
        view = self._view
        if key in "\r\n":
            view.typing = False
        elif key == ESCAPE:
            view.typing, view.chosen = False, ""
        elif key in DELETE:
            view.chosen = view.chosen[:-1]
        elif key.isprintable():
            view.chosen = (view.chosen + key)[:MOST_TYPED]
