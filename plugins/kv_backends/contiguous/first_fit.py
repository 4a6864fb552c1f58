"""First-fit allocation: free memory in ranges of any length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["FirstFit", "Range"]

Range = tuple[int, int]
"""Start and length."""


class FirstFit:
    """The free ranges of `size` positions: ordered by start, and never adjacent."""

    def __init__(self, size: int) -> None:
        self.ranges: list[Range] = [(0, size)] if size else []

    @property
    def free(self) -> int:
        return sum(length for _, length in self.ranges)

    def fits(self, lengths: Sequence[int]) -> bool:
        """Whether `take` would succeed."""
        return _placed(self.ranges, lengths) is not None

    def take(self, lengths: Sequence[int]) -> list[int] | None:
        """Takes a range of each length and returns their starts; None if one does not fit."""
        placed = _placed(self.ranges, lengths)
        if placed is None:
            return None
        starts, self.ranges = placed
        return starts

    def give_back(self, ranges: Iterable[Range]) -> None:
        merged: list[Range] = []
        for start, length in sorted([*self.ranges, *ranges]):
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self.ranges = merged


def _placed(ranges: list[Range], lengths: Sequence[int]) -> tuple[list[int], list[Range]] | None:
    """A start for each length, and the free ranges that remain; None if one does not fit."""
    remaining, starts = list(ranges), []
    for need in lengths:
        index = next((i for i, (_, length) in enumerate(remaining) if length >= need), None)
        if index is None:
            return None
        start, length = remaining[index]
        starts.append(start)
        remaining[index : index + 1] = [(start + need, length - need)] if length > need else []
    return starts, remaining
