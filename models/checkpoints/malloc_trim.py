"""Returns freed memory to the operating system, by glibc's malloc_trim."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["MallocTrim"]

TRIM_EVERY_BYTES = 2**24
"""Trimming takes milliseconds, too long after each tensor."""


class MallocTrim:
    """Keeps the heap from growing while large tensors are replaced by smaller ones that stay.

    The small tensors land in the gaps that large ones leave, which glibc then cannot reuse for the next large
    tensor: the heap would grow to several times the memory in use.
    """

    def __init__(self) -> None:
        self._freed = 0

    def add(self, freed: int) -> None:
        """Count `freed` bytes, and trim when enough have been freed."""
        self._freed += freed
        if self._freed >= TRIM_EVERY_BYTES:
            self.trim()

    def trim(self) -> None:
        """Return all freed memory now."""
        if self._freed and sys.platform == "linux":
            self._freed = 0
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl does not
            if trim is not None:
                trim(0)
