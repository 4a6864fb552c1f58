"""A Python module run as a child process that does not outlive us."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

__all__ = ["Child"]

EXIT_SECONDS = 2.0
"""Seconds that a signal may take to work."""


class Child:
    """It holds the reading end of a pipe from us, and leaves when the pipe closes.

    Its standard error is ours, so that what it says before it dies is seen.
    """

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        # -P: the working folder is the user's, and nothing in it may stand in for a module of ours.
        command = [sys.executable, "-P", "-m", module, *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)

    @property
    def pid(self) -> int:
        return self._process.pid

    def write_line(self, line: str) -> None:
        """A child that is gone already is noticed elsewhere."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def when_ended(self, loop: asyncio.AbstractEventLoop, call: Callable[[str], None]) -> None:
        """`call` is told how it ended, in the event loop."""

        def wait() -> None:
            self._process.wait()
            with contextlib.suppress(RuntimeError):  # the loop may be closed by then
                loop.call_soon_threadsafe(call, self._how())

        threading.Thread(target=wait, name="child-wait", daemon=True).start()

    def _how(self) -> str:
        code = self._process.returncode
        if code >= 0:
            return f"exited with code {code}"
        hint = "; was memory short?" if -code == signal.SIGKILL else ""
        return f"was ended by {signal.Signals(-code).name}{hint}"

    def kill(self) -> None:
        """At once; nothing if it is gone."""
        self._process.kill()
        self._process.wait()
        self.release()

    async def stop(self, grace: float) -> None:
        """It has been asked to leave; after `grace` seconds insist."""
        if not await self._wait(grace):
            self._process.kill()
            await self._wait(EXIT_SECONDS)
        self.release()

    def release(self) -> None:
        """Close our end of the pipe to one that is gone."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    async def _wait(self, seconds: float) -> bool:
        try:
            await asyncio.to_thread(self._process.wait, seconds)
        except subprocess.TimeoutExpired:
            return False
        return True
