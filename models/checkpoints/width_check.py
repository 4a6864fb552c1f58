"""What takes a linear layer's place must be as wide: kernels trust it, and read and write whole rows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["WidthCheck"]


class WidthCheck:
    """Puts a row of zeros through the first layer of each shape that a quantizer has made."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._checked: set[tuple[int, int]] = set()

    def checked(self, made: object, like: nn.Linear) -> nn.Module:
        """`made`, in the place of `like`. Raises TypeError or ValueError where it is no such layer."""
        if not isinstance(made, nn.Module):
            raise TypeError(f"it gave {made!r}; expected the module that takes the layer's place")
        inputs, outputs = shape = like.in_features, like.out_features
        if shape not in self._checked:
            with torch.no_grad():
                out = made(torch.zeros(1, inputs, device=self._device, dtype=self._dtype))
            if not isinstance(out, Tensor) or out.shape != (1, outputs):
                given = list(out.shape) if isinstance(out, Tensor) else repr(out)
                raise ValueError(
                    f"{type(made).__name__} makes {given} of [1, {inputs}]; expected [1, {outputs}]"
                )
            self._checked.add(shape)
        return made
