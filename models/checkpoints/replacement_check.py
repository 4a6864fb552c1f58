"""Checks that a layer in a linear layer's place has the same width, which kernels rely on without a check."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["ReplacementCheck"]


class ReplacementCheck:
    """Tries the first layer of each shape that a quantizer made with a row of zeros."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._checked: set[tuple[int, int]] = set()

    def checked(self, made: object, like: nn.Linear) -> nn.Module:
        """Returns `made`, which replaces `like`. Raises TypeError or ValueError unless it can."""
        if not isinstance(made, nn.Module):
            raise TypeError(f"it returned {made!r}; expected the module that takes the layer's place")
        inputs, outputs = shape = like.in_features, like.out_features
        if shape not in self._checked:
            with torch.no_grad():
                out = made(torch.zeros(1, inputs, device=self._device, dtype=self._dtype))
            if not isinstance(out, Tensor) or out.shape != (1, outputs):
                given = list(out.shape) if isinstance(out, Tensor) else repr(out)
                raise ValueError(
                    f"{type(made).__name__} maps [1, {inputs}] to {given}; expected [1, {outputs}]"
                )
            self._checked.add(shape)
        return made
