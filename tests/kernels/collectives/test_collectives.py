"""Collectives between processes: sums have the same bits on every rank, in rank order, in any batch."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
import torch
from ranks_in_processes import run_ranks

from turnout.core.errors import ConfigError
from turnout.kernels.collectives import Meeting, open_collective


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("shm", (3,)),
        pytest.param("shm", (2, 4), marks=pytest.mark.slow),
        ("gloo", (2,)),
        pytest.param("gloo", (3, 4), marks=pytest.mark.slow),
        pytest.param("nccl over gloo", (2, 4), marks=pytest.mark.slow),
    ],
)
def test_processes_add_and_exchange(kind: str, sizes: tuple[int, ...]) -> None:
    run_ranks("everything", kind, *sizes)


def test_an_unknown_collective_is_refused_with_the_names_that_there_are() -> None:
    with pytest.raises(ConfigError, match="no collective is named 'glo'; there are gloo"):
        open_collective("glo", Meeting(host="localhost", port=1), 0, 2)
    with pytest.raises(ConfigError, match="rank 2 is not one of 2 ranks"):
        open_collective("gloo", Meeting(host="localhost", port=1), 2, 2)


def test_a_group_between_machines_keeps_no_other_file_open() -> None:
    """Each look for its connections left a duplicate of every file that is no socket: a pipe's end was never
    seen, and some groups later there were no descriptors left.
    """
    pipe = os.pipe()

    def duplicates() -> int:
        found = 0
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            with suppress(OSError):
                found += os.path.sameopenfile(descriptor, pipe[0])
        return found

    before = duplicates()
    try:
        group = open_collective("gloo", Meeting.at("127.0.0.1"), 0, 1)
        assert duplicates() == before
        group.abort()
        assert duplicates() == before
        group.close()
    finally:
        for end in pipe:
            os.close(end)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_nccl_without_gpus_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"nccl needs GPUs, .* use shm or gloo"):
        open_collective("nccl", Meeting(host="localhost", port=1), 0, 2)


def test_a_meeting_is_written_and_read() -> None:
    for text in ("fd:7", "tcp://127.0.0.1:5000", "tcp://[::1]:5000", "tcp://node-3:81"):
        assert str(Meeting.parse(text)) == text
    for text in ("fd:x", "7", "udp://host:1", "tcp://host", "tcp://host:99999", ""):
        with pytest.raises(ConfigError, match="ranks cannot meet at"):
            Meeting.parse(text)
