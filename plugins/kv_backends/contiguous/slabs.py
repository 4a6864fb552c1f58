"""Slabs of the contiguous backend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from turnout.plugins.kv_backends.contiguous.first_fit import Range

__all__ = ["Slab", "runs"]


@dataclass(eq=False, slots=True)
class Slab:
    """Consecutive positions of the pool, as many as its request's limit."""

    start: int
    length: int
    readers: int = 0
    """Sequences that use it: more than one between a fork and its first write."""


def runs(slabs: Iterable[Slab], free: Iterable[Range]) -> list[tuple[str, int]]:
    """The states of the pool's positions in order, run-length encoded."""
    ranges = [(slab.start, slab.length, "shared" if slab.readers > 1 else "held") for slab in slabs]
    ranges += [(start, length, "free") for start, length in free]
    merged: list[tuple[str, int]] = []
    for _, length, state in sorted(ranges):
        if merged and merged[-1][0] == state:
            merged[-1] = (state, merged[-1][1] + length)
        else:
            merged.append((state, length))
    return merged
