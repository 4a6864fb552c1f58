"""A command in a terminal: what is typed, and what shows."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

__all__ = ["Terminal", "shell", "terminal"]


class Terminal:
    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self.screen = ""

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, lines: int, columns: int) -> None:
        termios.tcsetwinsize(self._master, (lines, columns))

    @property
    def echoes(self) -> bool:
        """Whether what is typed shows by itself."""
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def wait_for(self, text: str, since: int = 0) -> int:
        """Read until `text` shows after position `since` of the screen; returns where it ends."""
        self._read(lambda: text in self.screen[since:], text)
        return self.screen.index(text, since) + len(text)

    def wait_for_end(self) -> int:
        self._read(lambda: self.process.poll() is not None, "the end")
        return self.process.wait()

    def _read(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 30
        while not done():
            assert time.monotonic() < deadline, f"{what!r} never came:\n{self.screen}"
            try:
                self.screen += os.read(self._master, 4096).decode()
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:  # the other end is closed
                self.process.wait(5)
                assert done(), f"{what!r} never came:\n{self.screen}"


@contextmanager
def terminal(*arguments: str, size: tuple[int, int] | None = None, **environment: str) -> Iterator[Terminal]:
    """size: lines and columns."""
    with _started("from turnout.cli.main import main; main()", arguments, size, environment) as shown:
        yield shown


@contextmanager
def shell(*, size: tuple[int, int] | None = None, **environment: str) -> Iterator[Terminal]:
    """A shell, which has jobs."""
    code = "os.execvp('bash', ['bash', '--norc', '--noprofile', '-i'])"
    with _started(code, (), size, environment) as shown:
        yield shown


@contextmanager
def _started(
    code: str, arguments: Sequence[str], size: tuple[int, int] | None, environment: Mapping[str, str]
) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    if size is not None:
        termios.tcsetwinsize(slave, size)
    os.set_blocking(master, False)
    # A session's first terminal opened is the one that Ctrl-C reaches it from.
    code = f"import os; os.open(os.ttyname(0), os.O_RDWR); {code}"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "TERM": "dumb", **environment},
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
