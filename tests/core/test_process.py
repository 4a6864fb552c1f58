"""A process asks whether the system has room for what it is about to start."""

from __future__ import annotations

import os
import threading

import pytest

from turnout.core.process import THREADS, check_room, start_thread


def refuse_after(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Have the system start so many threads and no more, as under `ulimit -u`, which does not bind root."""
    started, start = [], threading.Thread.start

    def starts(thread: threading.Thread) -> None:
        if len(started) >= number:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts)


@pytest.mark.parametrize("number", [0, THREADS - 1])
def test_too_few_threads_for_a_channel(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """ZeroMQ ended the whole server by SIGABRT, as an engine of it was replaced."""
    before, threads = os.listdir("/proc/self/fd"), threading.active_count()
    refuse_after(monkeypatch, number)
    with pytest.raises(BlockingIOError, match="can't start new thread"):
        check_room()
    assert os.listdir("/proc/self/fd") == before and threading.active_count() == threads


def test_enough_threads_for_a_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_after(monkeypatch, THREADS)
    check_room()
    with pytest.raises(BlockingIOError):
        start_thread(list, "another")
