"""Runs a command as a child process that does not outlive this one."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from turnout.core.interfaces.launcher import Death
from turnout.core.process import start_thread, stop_signals_blocked
from turnout.plugins.launchers.begun_file import BegunFile
from turnout.plugins.launchers.exit_codes import OomKills, death_of

__all__ = ["Child"]

EXIT_SECONDS = 2.0
"""Seconds that a signal may take to work."""


class Child:
    """The child reads from a pipe that this process holds, and exits when the pipe closes.

    It shares standard error with this process, so that its last messages are seen. Signals to stop are
    blocked in it until it calls `ignore_stop_signals`.
    """

    def __init__(
        self,
        command: Sequence[str],
        death: Future[Death],
        begun: BegunFile | None = None,
        inherited: Sequence[int] = (),
    ) -> None:
        """`death` is set when the child has ended, with what it has noted in the file that it inherits.
        `inherited`: other descriptors that it has.

        Raises OSError if the system has no room for it.
        """
        self._oom_kills = OomKills()
        self._begun = begun
        inherited = [*inherited, *(() if begun is None else (begun.fd,))]
        with stop_signals_blocked():
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=inherited)
        try:
            start_thread(partial(self._wait, death), "child-wait")
        except OSError:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def write_line(self, line: str) -> None:
        """Does nothing if the child is gone, which is noticed elsewhere."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def kill(self) -> None:
        """Kill the child at once, if it lives, and close this end of the pipe to it."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_SECONDS)
        self._close_pipe()

    def _wait(self, death: Future[Death]) -> None:
        code = self._process.wait()
        self._close_pipe()
        ended = death_of(code, out_of_memory=self._oom_kills.happened())
        if self._begun is not None:
            with self._begun as file:
                ended = replace(ended, begun=file.read())
        death.set_result(ended)

    def _close_pipe(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
