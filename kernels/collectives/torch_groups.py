"""Process groups of torch.distributed, each an object: no default group of the process is touched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

from torch import Tensor, distributed
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

from turnout.core.errors import CollectiveError
from turnout.core.meeting import Meeting

__all__ = ["TorchGroup", "as_collective_errors", "gloo_group", "nccl_group", "store_of"]

JOINING = timedelta(minutes=5)
"""A rank may come so late: it loads libraries before."""
WAITING = timedelta(days=7)
"""Longer than any wait. A rank that is gone is noticed by what watches its process, not by a clock here."""


class Work(Protocol):
    """An operation that was begun."""

    def wait(self) -> bool:
        """Returns when it is done; raises RuntimeError where it failed."""
        ...


class TorchGroup(Protocol):
    """What a backend of torch.distributed offers, as far as it is used here."""

    def allgather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor]) -> Work: ...
    def alltoall_base(
        self, output: Tensor, given: Tensor, output_sizes: Sequence[int], input_sizes: Sequence[int]
    ) -> Work: ...
    def send(self, tensors: Sequence[Tensor], to: int, tag: int) -> Work: ...
    def recv(self, tensors: Sequence[Tensor], source: int, tag: int) -> Work: ...
    def abort(self) -> None: ...


def gloo_group(meeting: Meeting, rank: int, size: int, group: int) -> TorchGroup:
    """Joins a group over sockets. Raises CollectiveError where a rank does not come."""
    backend: Any = distributed.ProcessGroupGloo
    options = backend._Options()
    # On one machine not by the host's name, which may have no address.
    options._devices = [backend.create_device(hostname=meeting.own if meeting.host else "127.0.0.1")]
    options._timeout = WAITING
    with as_collective_errors("gloo"):
        joined: TorchGroup = backend(store_of(meeting, rank, size, group), rank, size, options)
    return joined


def nccl_group(meeting: Meeting, rank: int, size: int, group: int) -> TorchGroup:
    """Joins a group of GPUs, of which this process has chosen its own.

    Raises CollectiveError where a rank does not come.
    """
    backend: Any = distributed.ProcessGroupNCCL
    options = backend.Options()
    options._timeout = WAITING
    with as_collective_errors("nccl"):
        joined: TorchGroup = backend(store_of(meeting, rank, size, group), rank, size, options)
    return joined


def store_of(meeting: Meeting, rank: int, size: int, group: int) -> Store:
    """Opens where the ranks of a group leave their addresses."""
    if meeting.host:
        store: Store = _tcp_store(meeting, rank)
    else:
        store = FileStore(meeting.path, size)
    return PrefixStore(f"group {group}", store)


def _tcp_store(meeting: Meeting, rank: int) -> Store:
    """Opens the store at a port: that of the engine's rank 0, for all groups, or a group's own."""
    listens = meeting.listener >= 0
    return TCPStore(
        meeting.host,
        meeting.port,
        None,
        listens or (rank == 0 and not meeting.own),
        JOINING,
        wait_for_workers=False,
        multi_tenant=True,
        master_listen_fd=meeting.listener if listens else None,
    )


@contextmanager
def as_collective_errors(name: str) -> Iterator[None]:
    """Turns what torch.distributed raises, RuntimeErrors and those that derive from it."""
    try:
        yield
    except RuntimeError as error:
        message = str(error).strip().partition("\n")[0]
        raise CollectiveError(f"{name} cannot reach another rank of the engine: {message}") from error
