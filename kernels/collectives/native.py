"""The functions of native/collectives.cpp, as functions of tensors."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence

from torch import Tensor

from turnout.core.meeting import Meeting
from turnout.kernels.compiled import CpuKernels

__all__ = ["NativeGroup"]

POINTER, LONG, INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
SIGNATURES = {
    "turnout_group_memory": ([LONG], LONG),
    "turnout_group_bytes": ([], LONG),
    "turnout_group_join": ([POINTER, POINTER, LONG, LONG], None),
    "turnout_group_abort": ([POINTER], None),
    "turnout_group_all_reduce": ([POINTER, POINTER, LONG, INT, INT, INT], INT),
    "turnout_group_reduce_scatter": ([POINTER] * 3 + [LONG, INT], INT),
    "turnout_group_gather": ([POINTER] * 3 + [LONG, POINTER, INT], INT),
    "turnout_group_send": ([POINTER, POINTER, LONG, LONG], INT),
    "turnout_group_receive": ([POINTER, POINTER, LONG, LONG], INT),
    "turnout_group_barrier": ([POINTER], INT),
}
REGION = 1 << 35
"""Bytes between the beginnings of two groups' memory in a file. Only what is written takes memory."""
LINE = 64
"""A group lies on cache lines of its own."""


class NativeGroup:
    """A rank of a group. Tensors are contiguous; methods return True unless the group was aborted."""

    def __init__(self, kernels: CpuKernels, meeting: Meeting, group: int, rank: int, size: int) -> None:
        self._library = kernels.library
        for name, (arguments, result) in SIGNATURES.items():
            function = getattr(self._library, name)
            function.argtypes, function.restype = arguments, result
        self._size = size
        length = self._library.turnout_group_memory(size)
        meeting.lengthen(group * REGION + length)
        self._memory = mmap.mmap(meeting.descriptor, length, offset=group * REGION)
        self._bytes = ctypes.create_string_buffer(self._library.turnout_group_bytes() + LINE)
        self.address = -(-ctypes.addressof(self._bytes) // LINE) * LINE
        """What C functions know the group by."""
        shared = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._library.turnout_group_join(self.address, shared, rank, size)

    def all_reduce(self, x: Tensor, kind: int, *, largest: bool, threads: int) -> bool:
        """Overwrites x."""
        return not self._library.turnout_group_all_reduce(
            self.address, x.data_ptr(), x.numel(), kind, largest, threads
        )

    def reduce_scatter(self, x: Tensor, out: Tensor, kind: int) -> bool:
        return not self._library.turnout_group_reduce_scatter(
            self.address, x.data_ptr(), out.data_ptr(), out.numel(), kind
        )

    def gather(self, x: Tensor, out: Tensor | None, rows: int, widths: Sequence[int], everyone: bool) -> bool:
        """widths: bytes of a row, for each rank; out: None on a rank that gets nothing."""
        return not self._library.turnout_group_gather(
            self.address,
            x.data_ptr(),
            None if out is None else out.data_ptr(),
            rows,
            ctypes.byref((LONG * self._size)(*widths)),
            everyone,
        )

    def send(self, x: Tensor, to: int) -> bool:
        return not self._library.turnout_group_send(self.address, x.data_ptr(), x.nbytes, to)

    def receive(self, x: Tensor, source: int) -> bool:
        return not self._library.turnout_group_receive(self.address, x.data_ptr(), x.nbytes, source)

    def barrier(self) -> bool:
        return not self._library.turnout_group_barrier(self.address)

    def abort(self) -> None:
        self._library.turnout_group_abort(self.address)
