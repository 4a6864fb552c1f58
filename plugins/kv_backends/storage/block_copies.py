"""Block copies: carries out the moves of a plan, inside a KV pool and between it and host memory.

The copiers own the swap memory; nothing else reads it. Both have the outcome of the moves one by one, in
order.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from turnout.core.types.plan import Move
from turnout.kernels.gpu.staging import to_device
from turnout.kernels.ragged import ranges
from turnout.plugins.kv_backends.storage.merged_moves import batched, merged
from turnout.plugins.kv_backends.storage.tensors import zeros

__all__ = ["BlockCopier", "SliceCopier", "StagedCopier", "block_copier"]

HOST = torch.device("cpu")

STAGE_BYTES = 64 * 2**20
"""Most device memory for positions in transit, for each tensor of the pool."""


class BlockCopier(ABC):
    """Copies positions of tensors [layers, slots, …], the same positions in all of them."""

    @abstractmethod
    def carry_out(self, moves: Iterable[Move]) -> None: ...


def block_copier(pool: Sequence[Tensor], swap: int) -> BlockCopier:
    """The copier for the pool's device. swap: positions of host memory to allocate."""
    on_cpu = all(tensor.device.type == "cpu" for tensor in pool)
    return SliceCopier(pool, swap) if on_cpu else StagedCopier(pool, swap)


class SliceCopier(BlockCopier):
    """For a CPU, where a call costs little and a second copy much: copies one slice after the other."""

    def __init__(self, pool: Sequence[Tensor], swap: int) -> None:
        host = [zeros((tensor.shape[0], swap, *tensor.shape[2:]), HOST, tensor.dtype) for tensor in pool]
        self._ends = {
            "copy": list(zip(pool, pool, strict=True)),
            "swap_out": list(zip(pool, host, strict=True)),
            "swap_in": list(zip(host, pool, strict=True)),
        }

    def carry_out(self, moves: Iterable[Move]) -> None:
        for source, target, length, way in merged(moves):
            for origin, goal in self._ends[way]:
                goal[:, target : target + length] = origin[:, source : source + length]


class StagedCopier(BlockCopier):
    """For a GPU, where each call costs much: gathers or scatters many positions in one call.

    Data that crosses the bus is contiguous on both sides of it, with all layers of a position together, so
    that it is copied at the speed of the bus. The copies run on a stream of their own, in order: a swap-out
    runs while the step computes, and the device waits only for a swap-in.

    ::

        pool [layers, slots, …]  ── gather ──>  stage [n, layers, …]  ── copy ──>  host [swap, layers, …]
    """

    def __init__(self, pool: Sequence[Tensor], swap: int) -> None:
        self._pool = pool
        self._host = [
            zeros((swap, tensor.shape[0], *tensor.shape[2:]), HOST, tensor.dtype) for tensor in pool
        ]
        if swap and pool[0].device.type == "cuda":
            _pin(self._host, self)
        self._bus = _Bus(pool[0].device)
        position = max(tensor[:, :1].nbytes for tensor in pool)
        self._limit = max(1, STAGE_BYTES // position)

    def carry_out(self, moves: Iterable[Move]) -> None:
        for run in batched(merged(moves), self._limit):
            sources, targets = self._positions(run)
            for pool, host in zip(self._pool, self._host, strict=True):
                if run[0].way == "copy":
                    pool.index_copy_(1, targets, pool.index_select(1, sources))
                elif run[0].way == "swap_out":
                    self._swap_out(run, pool.index_select(1, sources), host)
                else:
                    pool.index_copy_(1, targets, self._swapped_in(run, host, pool))

    def _swap_out(self, run: list[Move], positions: Tensor, host: Tensor) -> None:
        stage = positions.transpose(0, 1).contiguous()
        with self._bus.crossing(stage):
            for move, piece in _pieces(run, stage):
                host[move.target : move.target + move.length].copy_(piece, non_blocking=True)

    def _swapped_in(self, run: list[Move], host: Tensor, pool: Tensor) -> Tensor:
        """The positions to swap in, [layers, positions, …], on the pool's device."""
        stage = pool.new_empty(sum(move.length for move in run), *host.shape[1:])
        with self._bus.crossing(stage):
            for move, piece in _pieces(run, stage):
                piece.copy_(host[move.source : move.source + move.length], non_blocking=True)
        self._bus.wait()
        return stage.transpose(0, 1)

    def _positions(self, run: list[Move]) -> tuple[Tensor, Tensor]:
        """The source positions and the target positions of a run."""
        device = self._pool[0].device
        lengths = np.array([move.length for move in run])
        sources, targets = (
            ranges(np.array(starts), lengths) for starts in zip(*(move[:2] for move in run), strict=True)
        )
        return to_device(sources, device), to_device(targets, device)


class _Bus:
    """A GPU's stream for copies to and from host memory; does nothing on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    @contextmanager
    def crossing(self, stage: Tensor) -> Iterator[None]:
        """Copies queued within start after all work that was queued on the device before."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(stage.device))
        with torch.cuda.stream(self._stream):
            yield
        stage.record_stream(self._stream)  # keeps its memory from being reused before

    def wait(self) -> None:
        """Makes the device wait for the copies that are queued."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)


def _pieces(run: list[Move], stage: Tensor) -> Iterable[tuple[Move, Tensor]]:
    return zip(run, stage.split_with_sizes([move.length for move in run]), strict=True)


def _pin(tensors: Iterable[Tensor], owner: object) -> None:
    """Pins the tensors' memory until `owner` is gone: copies to memory that is not pinned block.

    They are pinned in place, since torch allocates pinned memory in powers of two, up to twice as much.
    """
    for tensor in tensors:
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        torch.cuda.check_error(runtime.cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0))
        weakref.finalize(owner, _unpin, tensor).atexit = False


def _unpin(tensor: Tensor) -> None:
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaHostUnregister(tensor.data_ptr())  # type: ignore[no-untyped-call]
