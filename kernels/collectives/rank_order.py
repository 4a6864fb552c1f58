"""What ranks compute of each other's tensors: in rank order, so that all find the same bits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["largest", "part_of", "summed"]


def summed(parts: Sequence[Tensor]) -> Tensor:
    """Returns the sum of `parts`, added from the first to the last, 16-bit ones in float32."""
    dtype = parts[0].dtype
    narrow = dtype.is_floating_point and dtype.itemsize < 4
    total = parts[0].to(torch.float32) if narrow else parts[0].clone()
    for part in parts[1:]:
        total += part
    return total.to(dtype)


def largest(parts: Sequence[Tensor]) -> Tensor:
    """Returns the largest of `parts`, element by element."""
    most = parts[0]
    for part in parts[1:]:
        most = torch.maximum(most, part)
    return most


def part_of(x: Tensor, rank: int, size: int) -> slice:
    """Returns the part of x's first dimension that is `rank`'s. Raises ValueError if it cannot be divided."""
    if x.shape[0] % size:
        raise ValueError(f"{x.shape[0]} rows cannot be divided evenly among {size} ranks")
    rows = x.shape[0] // size
    return slice(rank * rows, (rank + 1) * rows)
