"""Where a checkpoint's tensors go in a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Index", "Placement", "Renamed", "placements"]

Index = tuple[int | slice, ...]
"""What is taken of a tensor, as in ``tensor[index]``: a number or a slice for each first dimension."""


@dataclass(frozen=True)
class Placement:
    """Puts a tensor of a checkpoint, or a part of it, into a tensor of the module.

    Only what is taken is read. A tensor may have several placements, as ``qkv_proj`` that is split; several
    tensors may go into one, as experts that are stacked.
    """

    name: str
    """The module's tensor."""
    take: Index = ()
    """The part of the checkpoint's tensor, as ``(slice(0, 1024),)``; empty: all of it."""
    transposed: bool = False
    """Exchanges the last two dimensions of what was taken, as GPT-2's ``Conv1D`` needs it."""
    change: Callable[[Tensor], Tensor] | None = None
    """Another change, of what was taken and transposed: it returns a tensor or a view, and does not write."""
    into: Index = ()
    """The part of the module's tensor that is filled; empty: all of it."""

    @property
    def whole(self) -> bool:
        """Whether the tensor stays as it is, under another name at most."""
        return not (self.take or self.transposed or self.change or self.into)

    def takes_rows(self, dims: int) -> bool:
        """Says whether rows stay as they are, all or some, of a tensor with `dims` dimensions of rows."""
        return len(self.take) <= dims and not (self.transposed or self.change or self.into)

    def of(self, tensor: Tensor) -> Tensor:
        """Returns what is placed of `tensor`, the part that `take` says."""
        tensor = tensor.transpose(-2, -1) if self.transposed else tensor
        return tensor if self.change is None else self.change(tensor)


Renamed = str | Placement | Sequence[Placement] | None
"""What a family says about a tensor's name: the module's, where its parts go, or that it is skipped."""


def placements(renamed: Renamed) -> tuple[Placement, ...]:
    """Returns the same as placements. Raises TypeError for what is none of them."""
    if renamed is None:
        return ()
    if isinstance(renamed, str):
        return (Placement(renamed),)
    found = (renamed,) if isinstance(renamed, Placement) else tuple(renamed)
    for each in found:
        if not isinstance(each, Placement):
            raise TypeError(f"rename gave {each!r}; expected a name, None, a Placement or several of them")
    return found
