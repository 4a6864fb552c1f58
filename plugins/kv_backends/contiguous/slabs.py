"""Slabs of the contiguous backend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from turnout.plugins.kv_backends.contiguous.first_fit import Gap

__all__ = ["Slab", "runs"]


@dataclass(eq=False, slots=True)
class Slab:
    """Pool positions from `start` on, as many as its request's limit."""

    start: int
    length: int
    readers: int = 0
    """Sequences that use it: more than one between a fork and its first write."""


def runs(slabs: Iterable[Slab], gaps: Iterable[Gap]) -> list[tuple[str, int]]:
    """The pool from its start on: neighbours of one state, counted together."""
    pieces = [(slab.start, slab.length, "shared" if slab.readers > 1 else "held") for slab in slabs]
    pieces += [(start, length, "free") for start, length in gaps]
    merged: list[tuple[str, int]] = []
    for _, length, state in sorted(pieces):
        if merged and merged[-1][0] == state:
            merged[-1] = (state, merged[-1][1] + length)
        else:
            merged.append((state, length))
    return merged
