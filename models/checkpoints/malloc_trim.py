"""Memory that was freed, back to the system."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["FreedMemory"]

EVERY = 2**24
"""Bytes: returning them takes milliseconds, so not after each tensor."""


class FreedMemory:
    """Keeps the heap from growing while large tensors are replaced by smaller ones that stay.

    Those land in the gaps that the large ones leave, glibc then cannot reuse these for the next large one,
    and ends up with several times the memory that is in use.
    """

    def __init__(self) -> None:
        self._freed = 0

    def add(self, count: int) -> None:
        """So many bytes have been freed; they go back once there are enough of them."""
        self._freed += count
        if self._freed >= EVERY:
            self.give_back()

    def give_back(self) -> None:
        if self._freed and sys.platform == "linux":
            self._freed = 0
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl does not
            if trim is not None:
                trim(0)
