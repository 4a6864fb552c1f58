"""A rank's part of a parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Part"]


@dataclass(frozen=True)
class Part:
    """A rank's part of a parameter: the numbers from `start` to `stop` along `dim`."""

    dim: int
    start: int
    stop: int
    whole: int
    """How many there are on all ranks."""
    group: int = 0
    """The dimension consists of groups of so many numbers, of each of which the rank has this part; 0: it is
    one group."""

    @property
    def width(self) -> int:
        """How many numbers of a group it has."""
        return self.stop - self.start

    def shape_of(self, whole: Sequence[int]) -> torch.Size:
        """Returns the shape of the part."""
        groups = whole[self.dim] // self.group if self.group else 1
        return torch.Size([*whole[: self.dim], groups * self.width, *whole[self.dim + 1 :]])

    def of(self, whole: Tensor) -> Tensor:
        """Returns the part: a view, but where there are several groups."""
        if not self.group:
            return whole.narrow(self.dim, self.start, self.width)
        groups = torch.split(whole, self.group, self.dim)
        return torch.cat([each.narrow(self.dim, self.start, self.width) for each in groups], self.dim)
