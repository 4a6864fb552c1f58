"""Memory of a KV pool that the system gives before it is written to."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from turnout.kernels import CpuKernels

__all__ = ["MemoryAhead"]

BYTES_AHEAD = 64 << 20
"""Of all tensors together, at most."""


class MemoryAhead:
    """Has the system give a pool's memory a little ahead of the slots that are written.

    A pool takes memory as it is first written to, large page by large page. All layers come to the ends of
    theirs in the same step, which would wait while the system clears tens of megabytes: 80 ms were measured.
    """

    def __init__(
        self, kernels: CpuKernels, tensors: Sequence[Tensor], bytes_ahead: int = BYTES_AHEAD
    ) -> None:
        """tensors: [layers, slots, …] each."""
        self._kernels, self._tensors = kernels, tensors
        self._slots = tensors[0].shape[1]
        each = sum(tensor[:, :1].nbytes for tensor in tensors)
        self._stride = max(2, bytes_ahead // (2 * each))
        self._asked = self._stride
        self._when = self._stride // 2

    def reach(self, slot: int) -> None:
        """Says that slots up to this one are written to now."""
        if slot < self._when:
            return
        first = max(self._asked, slot)
        self._asked = min(first + self._stride, self._slots)
        self._when = self._asked - self._stride // 2 if self._asked < self._slots else self._slots
        if first < self._asked:
            self._kernels.populate([layer[first : self._asked] for each in self._tensors for layer in each])
