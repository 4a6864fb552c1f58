"""Which positions a mask function of transformers shows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["MaskFunction", "two_sided_window_of", "window_of"]

MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Says for (batch, head, query, key), int64 indices, whether the query sees the key."""

MOST = 2**17
"""Positions that are looked at, at most, unless a window is longer."""


def window_of(function: MaskFunction, positions: int) -> int | None:
    """Returns how many positions a query sees, its own among them; None: all up to its own.

    Raises ValueError where the function shows neither: later positions, or chunks.
    """
    last = _looked_at(function, positions) - 1
    shown = int(_row(function, last, last + 1).sum())
    window = shown if shown <= last else None
    rows = {0, 1, 2, 3, last // 3, last // 2, last, *((shown - 1, shown, shown + 1) if window else ())}
    for query in sorted(row for row in rows if 0 <= row <= last):
        keys = torch.arange(last + 1)
        expected = keys <= query
        if window is not None:
            expected &= keys > query - window
        if not torch.equal(_row(function, query, last + 1), expected):
            raise ValueError(
                f"its attention mask is neither causal nor a sliding window (seen from position {query})"
            )
    return window


def two_sided_window_of(function: MaskFunction, positions: int) -> int | None:
    """Returns how many positions a query sees to either side, its own among them; None: all.

    Raises ValueError where the function shows neither: no later positions, or chunks.
    """
    count = _looked_at(function, positions)
    shown = int(_row(function, 0, count).sum())
    window = shown if shown < count else None
    last = count - 1
    rows = {0, 1, 2, 3, last // 3, last // 2, last, *((shown - 1, shown, shown + 1) if window else ())}
    for query in sorted(row for row in rows if 0 <= row <= last):
        apart = (torch.arange(count) - query).abs()
        expected = torch.ones(count, dtype=torch.bool) if window is None else apart < window
        if not torch.equal(_row(function, query, count), expected):
            raise ValueError(
                "its attention mask shows neither a whole text nor a sliding window to both sides (seen from "
                f"position {query})"
            )
    return window


def _looked_at(function: MaskFunction, positions: int) -> int:
    """Returns how many positions are looked at: all where a window shows only beyond the first `MOST`."""
    most = min(positions, MOST)
    within, beyond = (bool(_row(function, count - 1, 1).all()) for count in (most, positions))
    return positions if within and not beyond else most


def _row(function: MaskFunction, query: int, keys: int) -> Tensor:
    zero = torch.zeros((), dtype=torch.int64)
    seen = function(zero, zero, torch.tensor(query), torch.arange(keys))
    if seen.is_meta:
        raise ValueError("its attention mask depends on a batch's padding")
    return seen.expand(keys)
