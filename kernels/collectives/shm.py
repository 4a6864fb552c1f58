"""Collectives over memory that processes of one machine share, by the native kernels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from turnout.core.errors import CollectiveError, ConfigError
from turnout.core.interfaces.collective import Collective
from turnout.core.meeting import Meeting
from turnout.kernels.choice import native_kernels
from turnout.kernels.collectives.native import NativeGroup
from turnout.kernels.collectives.rank_order import largest, part_of, summed
from turnout.kernels.compiled import CpuKernels
from turnout.kernels.threads import kernel_threads

__all__ = ["MOST_RANKS", "SharedMemory", "native_group"]

MOST_RANKS = 64
"""As in native/collectives.cpp."""
KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.int32: 3}


class SharedMemory:
    """Implements Collective. Waits end soon after `abort` was called in any rank."""

    def __init__(
        self, meeting: Meeting, rank: int, size: int, group: int = 0, kernels: CpuKernels | None = None
    ) -> None:
        """Does not wait for the other ranks: the first sum does, and `abort` can end that.

        kernels: None: those of this machine. Raises ConfigError where ranks cannot share memory.
        """
        if meeting.host:
            raise ConfigError(
                f"the collective shm is for processes of one machine, not for ranks that meet at {meeting}; "
                "use gloo"
            )
        if size > MOST_RANKS:
            raise ConfigError(f"the collective shm is for at most {MOST_RANKS} ranks, not {size}; use gloo")
        if kernels is None:
            try:
                kernels = native_kernels()
            except ConfigError as error:
                raise ConfigError(f"the collective shm needs the native kernels: {error}; use gloo") from None
        self.rank, self.size = rank, size
        self._group = NativeGroup(kernels, meeting, group, rank, size)

    @property
    def native_group(self) -> int:
        """The group as native kernels know it: an address, for native/collectives.h."""
        return self._group.address

    def all_reduce(self, x: Tensor) -> Tensor:
        if x.dtype not in KINDS:
            return x.copy_(summed(self._of_all(x)))
        return self._reduced(x, largest=False)

    def all_reduce_max(self, x: Tensor) -> Tensor:
        if x.dtype not in KINDS:
            return x.copy_(largest(self._of_all(x)))
        return self._reduced(x, largest=True)

    def gather(self, x: Tensor, sizes: Sequence[int] | None = None) -> Tensor | None:
        widths = [x.shape[-1]] * self.size if sizes is None else sizes
        rows = x.shape[:-1]
        out = None if self.rank else x.new_empty(*rows, sum(widths))
        nbytes = [width * x.itemsize for width in widths]
        x = x.contiguous()
        _check(self._group.gather(x, out, rows.numel(), nbytes, everyone=False))
        return out

    def all_gather(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        out = x.new_empty(self.size * x.shape[0], *x.shape[1:])
        nbytes = [x.numel() * x.itemsize] * self.size
        _check(self._group.gather(x, out, 1, nbytes, everyone=True))
        return out

    def reduce_scatter(self, x: Tensor) -> Tensor:
        part = part_of(x, self.rank, self.size)
        if x.dtype not in KINDS:
            return summed([each[part] for each in self._of_all(x)])
        x = x.contiguous()
        out = torch.empty_like(x[part])
        _check(self._group.reduce_scatter(x, out, KINDS[x.dtype]))
        return out

    def send(self, x: Tensor, to: int) -> None:
        _check(self._group.send(x.contiguous(), to))

    def receive(self, like: Tensor, source: int) -> Tensor:
        received = torch.empty_like(like, memory_format=torch.contiguous_format)
        _check(self._group.receive(received, source))
        return received

    def barrier(self) -> None:
        _check(self._group.barrier())

    def abort(self) -> None:
        self._group.abort()

    def close(self) -> None:
        """The memory itself goes with the last rank that has it."""
        del self._group

    def _reduced(self, x: Tensor, *, largest: bool) -> Tensor:
        x = x.contiguous()
        _check(self._group.all_reduce(x, KINDS[x.dtype], largest=largest, threads=kernel_threads()))
        return x

    def _of_all(self, x: Tensor) -> Sequence[Tensor]:
        return self.all_gather(x[None]).unbind()


def native_group(collective: Collective) -> int | None:
    """Returns the group as native kernels know it; None: they cannot add up over this collective."""
    return collective.native_group if isinstance(collective, SharedMemory) else None


def _check(done: bool) -> None:
    if not done:
        raise CollectiveError("another rank of the engine is gone")
