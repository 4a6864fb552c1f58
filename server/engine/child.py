"""Runs a Python module as a child process that does not outlive this one."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from turnout.server.engine.death import Death, OomKills

__all__ = ["Child"]

EXIT_SECONDS = 2.0
"""Seconds that a signal may take to work."""


class Child:
    """The child reads from a pipe that this process holds, and exits when the pipe closes.

    It shares standard error with this process, so that its last messages are seen.
    """

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        # -P: no file in the user's working folder may stand in for one of Turnout's modules.
        command = [sys.executable, "-P", "-m", module, *arguments]
        self._oom_kills = OomKills()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)

    @property
    def pid(self) -> int:
        return self._process.pid

    def write_line(self, line: str) -> None:
        """Does nothing if the child is gone, which is noticed elsewhere."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def when_ended(self, loop: asyncio.AbstractEventLoop, call: Callable[[Death], None]) -> None:
        """Have `call` called in the event loop with how the child ended."""

        def wait() -> None:
            self._process.wait()
            with contextlib.suppress(RuntimeError):  # the loop may be closed by then
                loop.call_soon_threadsafe(call, self._death())

        threading.Thread(target=wait, name="child-wait", daemon=True).start()

    def _death(self) -> Death:
        return Death.of(self._process.returncode, out_of_memory=self._oom_kills.happened())

    def kill(self) -> None:
        """Kill the child at once; does nothing if it is gone."""
        self._process.kill()
        self._process.wait()
        self.release()

    async def stop(self, grace: float) -> None:
        """Wait for a child that was asked to leave; kill it after `grace` seconds."""
        if not await self._wait(grace):
            self._process.kill()
            await self._wait(EXIT_SECONDS)
        self.release()

    def release(self) -> None:
        """Close this end of the pipe to a child that is gone."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    async def _wait(self, seconds: float) -> bool:
        try:
            await asyncio.to_thread(self._process.wait, seconds)
        except subprocess.TimeoutExpired:
            return False
        return True
