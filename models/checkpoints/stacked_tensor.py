"""A parameter that several tensors of a checkpoint fill, such as the experts of a layer."""

from __future__ import annotations

import torch

from turnout.core.errors import ModelError
from turnout.models.checkpoints.index import TensorEntry, read_tensor

__all__ = ["StackedTensor"]


class StackedTensor:
    """Takes parts until all numbers are there."""

    def __init__(self, shape: torch.Size, device: torch.device, dtype: torch.dtype) -> None:
        self.tensor = torch.empty(shape, device=device, dtype=dtype)
        self.size = shape.numel()
        self.filled = 0

    def fill(self, entry: TensorEntry) -> bool:
        """Reads a part into its place; says if it was the last. Raises ModelError if parts overlap."""
        place = self.tensor[entry.placement.into]
        place.copy_(read_tensor(entry, place.shape, place.device, place.dtype))
        self.filled += place.numel()
        if self.filled > self.size:
            raise ModelError(
                f"{entry.described} fills a part of {entry.name!r} that another tensor fills; the model "
                "family's `rename` should give each its own place (`into`)"
            )
        return self.filled == self.size
