"""Free memory in pieces of any length, handed out first fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["Gap", "Gaps"]

Gap = tuple[int, int]
"""Start and length."""


class Gaps:
    """The free pieces of `size` positions: ordered by start, never touching one another."""

    def __init__(self, size: int) -> None:
        self.pieces: list[Gap] = [(0, size)] if size else []

    @property
    def free(self) -> int:
        return sum(length for _, length in self.pieces)

    def hold(self, lengths: Sequence[int]) -> bool:
        """Would `take` find a place for each?"""
        return _place(self.pieces, lengths) is not None

    def take(self, lengths: Sequence[int]) -> list[int] | None:
        """A start for each of `lengths`; None, and nothing is taken, when one of them fits nowhere."""
        placed = _place(self.pieces, lengths)
        if placed is None:
            return None
        starts, self.pieces = placed
        return starts

    def give_back(self, pieces: Iterable[Gap]) -> None:
        merged: list[Gap] = []
        for start, length in sorted([*self.pieces, *pieces]):
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self.pieces = merged


def _place(gaps: list[Gap], lengths: Sequence[int]) -> tuple[list[int], list[Gap]] | None:
    """A start for each of `lengths` and the gaps left then; None when one does not fit."""
    left, starts = list(gaps), []
    for need in lengths:
        index = next((i for i, (_, length) in enumerate(left) if length >= need), None)
        if index is None:
            return None
        start, length = left[index]
        starts.append(start)
        left[index : index + 1] = [(start + need, length - need)] if length > need else []
    return starts, left
