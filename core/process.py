"""Settings of a process: no pauses for garbage collection, quick turns, an end together with its parent."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from turnout.core.errors import Overloaded, TurnoutError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = [
    "STOP_SIGNALS",
    "bar_disabled",
    "begin_program",
    "check_room",
    "check_temporary_folder",
    "done_in",
    "exit_with_parent",
    "exit_with_spawner",
    "freeze_garbage",
    "ignore_stop_signals",
    "no_collections",
    "quick_turns",
    "start_thread",
    "stop_signals",
    "stop_signals_blocked",
]

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C in a terminal, a supervisor's stop, and the end of the terminal."""
NEW_OBJECTS = 10_000
"""How many more there are until a collection, which looks at them in a millisecond."""
DESCRIPTORS, THREADS = 24, 4
"""More than a channel needs, with its threads' own. ZeroMQ ends the process if it runs out of either."""

T = TypeVar("T")


@contextmanager
def freeze_garbage() -> Iterator[None]:
    """Keeps the garbage collector from looking at the objects that exist already.

    A full collection visits every object of torch, transformers and the model: 100 ms in which no request
    gets a token. Objects that exist now are left out of collections; those created later are not, but less
    often than Python has it by default: collections would take a twelfth of a server's time, to find next to
    nothing. The settings are the process's, so only its main program should enter this.
    """
    gc.collect()
    gc.freeze()
    first, *others = gc.get_threshold()
    gc.set_threshold(max(first, NEW_OBJECTS), *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)
        gc.unfreeze()


@contextmanager
def no_collections() -> Iterator[None]:
    """Keeps the garbage collector out of what only makes objects, and so would start it again and again.

    Importing large libraries takes a fifth less time, and decoding a large body a fraction. The switch is the
    process's.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def quick_turns(seconds: float = 0.0005) -> Iterator[None]:
    """Has a thread that computes give way to a waiting one after so long, not after Python's 5 ms.

    An event loop wants its turn after each system call, so several times for a request. The setting is the
    process's, as that of `freeze_garbage` is.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def begin_program() -> None:
    """Prepares the process of a main program, which calls this before it opens anything.

    A standard input, output or error that was closed when Python began becomes the null device: otherwise a
    socket or a file gets the descriptor, and is sent what a library prints; and `sys.stdout`, which is None
    then, cannot be written to. Child processes inherit the descriptors.

    When the process ends, nothing looks for garbage any more, which with torch took a third of a second: the
    system takes back all memory anyway.
    """
    _open_standard_streams()
    atexit.register(gc.freeze)


def _open_standard_streams() -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # In this order: the system gives the lowest free descriptor, which is the one that was closed.
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def bar_disabled(wanted: bool) -> bool | None:
    """Returns tqdm's `disable` for a bar in any program: None, by which tqdm looks for a terminal itself, or
    True where no bar is wanted or standard error is closed, of which tqdm knows nothing."""
    return None if wanted and sys.stderr is not None else True


def exit_with_parent(before: Callable[[], object] | None = None) -> None:
    """Ends this process when its parent has ended, in whatever way: standard input then reaches its end.

    `before`: what to do then, such as to remove what the parent, which was killed, could not.
    """

    def read_to_its_end() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        if before is not None:
            before()

    _exit_after(read_to_its_end)


def exit_with_spawner() -> None:
    """Ends this process, which `multiprocessing` started, when the one that started it has ended, in whatever
    way: a pool's process waits for work forever, since it has the sending end of its queue open itself."""
    from multiprocessing import parent_process  # not at the start of what starts no such process

    if (parent := parent_process()) is not None:
        _exit_after(parent.join)


def stop_signals() -> Sequence[signal.Signals]:
    """Returns the signals at which a server is to stop: SIGHUP only unless ``nohup`` has it ignored."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [number for number in STOP_SIGNALS if hangs_up or number != signal.SIGHUP]


@contextmanager
def stop_signals_blocked() -> Iterator[None]:
    """Blocks `STOP_SIGNALS` in this thread, and in each child process that it starts meanwhile until the
    child calls `ignore_stop_signals`: while it imports its libraries it could not ignore them itself."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_stop_signals() -> None:
    """Ignores `STOP_SIGNALS`, which a terminal or a supervisor may send here too: the process that started
    this one says when to stop. Only the main thread may call this."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _exit_after(wait: Callable[[], object]) -> None:
    """Ends this process when `wait`, which a thread calls, returns."""

    def watch() -> None:
        wait()
        os._exit(1)

    start_thread(watch, "parent-watch")


def start_thread(work: Callable[[], object], name: str) -> threading.Thread:
    """Starts a thread that the process need not wait for at its end. Raises OSError if the system has no room
    for it, where Python raises a RuntimeError."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from None
    return thread


async def done_in(threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    """The result of `work`, done in one of the threads. Raises Overloaded if the system has no room for one,
    each of which is started when it is first needed."""
    import asyncio  # not at the start of what has no event loop

    try:
        result = asyncio.get_running_loop().run_in_executor(threads, work)
    except RuntimeError as error:
        raise Overloaded(f"no thread can be started for the request: {error}; try again later") from error
    return await result


def check_room() -> None:
    """Raises OSError unless the process may open `DESCRIPTORS` more files and start `THREADS` threads."""
    opened: list[int] = []
    started: list[threading.Thread] = []
    over = threading.Event()
    try:
        opened += (os.open(os.devnull, os.O_RDONLY) for _ in range(DESCRIPTORS))
        started += (start_thread(over.wait, "room") for _ in range(THREADS))
    finally:
        over.set()
        for thread in started:
            thread.join()
        for descriptor in opened:
            os.close(descriptor)


def check_temporary_folder() -> None:
    """Raises TurnoutError unless temporary files can be made, as for the sockets between processes."""
    try:
        with tempfile.TemporaryFile():
            pass
    except OSError as error:
        raise TurnoutError(
            f"no temporary file can be made: {error.strerror}. The server's processes meet in a folder for "
            "such files; set TMPDIR to one that can be written, or mount one at /tmp (in Kubernetes: an "
            "emptyDir)"
        ) from None
