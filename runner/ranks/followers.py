"""One follower as rank 0's process has it: a child, and this end of the channels to it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from turnout.core.meeting import Meeting
from turnout.plugins.launchers.exit_codes import OomKills, death_of
from turnout.runner.memory.numa import given_cores
from turnout.runner.ranks.channel import Receiver, Sender
from turnout.runner.ranks.silence import Silence, Timing

__all__ = ["Follower"]

KEPT_BYTES = 2000
"""So much of the end of a follower's standard error are its last words."""


class Follower:
    """Its process is started by `start`; until then there are only the channels."""

    def __init__(
        self,
        module: str,
        rank: int,
        size: int,
        meeting: Meeting,
        timing: Timing,
        more: Sequence[str] = (),
    ) -> None:
        """meeting: that of this machine; more: further arguments of its command."""
        self.rank = rank
        self.silence = Silence(timing)
        self.process: subprocess.Popen[bytes] | None = None
        self._module, self._size, self._meeting, self._timing = module, size, meeting, timing
        self._more = more
        mine, self._its_frames = socket.socketpair()
        self.frames = Sender(mine)
        mine, self._its_words = socket.socketpair()
        self.words = Receiver(mine)
        self._last = b""

    def start(self, config: str) -> None:
        """Starts the process and hands it its configuration, a line of JSON. Raises OSError.

        Linux ends the child with the thread that calls this, so the thread has to live as long.
        """
        inherited = [self._its_frames.fileno(), self._its_words.fileno()]
        command = [
            # -P: no file in the user's working folder may stand in for one of Turnout's modules.
            *(sys.executable, "-P", "-m", self._module),
            *(f"--rank={self.rank}", f"--size={self._size}", f"--meeting={self._meeting}"),
            *(f"--frames={inherited[0]}", f"--words={inherited[1]}", f"--beat={self._timing.beat}"),
            "--cores=" + ",".join(map(str, sorted(given_cores()))),
            *self._more,
        ]
        if not self._meeting.host:
            inherited.append(self._meeting.descriptor)
        self._oom_kills = OomKills()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=inherited,
            process_group=0,
        )
        self._its_frames.close()  # from now on only the child has that end, which closes when it ends
        self._its_words.close()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # its end is noticed elsewhere
            self.process.stdin.write(config.encode() + b"\n")
            self.process.stdin.flush()
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)

    def pass_on_errors(self) -> bool:
        """Copies what it wrote to standard error to this process's, and keeps the end of it.

        Returns whether more may come.
        """
        assert self.process is not None
        assert self.process.stderr is not None
        while some := self.process.stderr.read(1 << 16):
            self._last = (self._last + some)[-KEPT_BYTES:]
            with suppress(OSError):
                os.write(2, some)
        return some is None

    @property
    def ended(self) -> bool:
        """Its process has ended."""
        return self.process is not None and self.process.poll() is not None

    def end(self, seconds: float) -> str:
        """Waits so long for the process to end, then kills it; returns how it ended, with its last words."""
        assert self.process is not None
        killed = False
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            killed = True
            self.process.kill()
            code = self.process.wait()
        self.pass_on_errors()
        if killed and code == -signal.SIGKILL:
            return self.with_last_words("closed its channel and did not end")
        return self.with_last_words(death_of(code, out_of_memory=self._oom_kills.happened()).how)

    def with_last_words(self, why: str) -> str:
        words = self._last.decode(errors="replace").strip()
        return f"{why}; its last words were:\n{words}" if words else why

    def kill(self) -> None:
        """Ends it at once, stopped or not, and leaves no zombie."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """Closes this process's ends. The follower is gone by now."""
        for ending in (self.frames, self.words):
            ending.free()
        if self.process is None:
            self._its_frames.close()
            self._its_words.close()
            return
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        with suppress(OSError):
            self.process.stdin.close()
        self.process.stderr.close()
