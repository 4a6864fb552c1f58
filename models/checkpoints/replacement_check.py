"""Checks that a layer in a linear layer's place gives what that did: kernels rely on it without a check."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["ReplacementCheck"]


class ReplacementCheck:
    """Tries the first layer of each shape that a quantizer made, with a row of zeros and a row of ones."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._checked: set[tuple[int, int]] = set()

    def checked(self, made: object, like: nn.Linear) -> nn.Module:
        """Returns `made`, which replaces `like`. Raises TypeError or ValueError unless it can."""
        if not isinstance(made, nn.Module):
            raise TypeError(f"it returned {made!r}; expected the module that takes the layer's place")
        shape = like.in_features, like.out_features
        if shape not in self._checked:
            with torch.no_grad():
                self._try(made, *shape)
            self._checked.add(shape)
        return made

    def _try(self, made: nn.Module, inputs: int, outputs: int) -> None:
        maps = f"{type(made).__name__} maps [1, {inputs}]"
        out = made(torch.zeros(1, inputs, device=self._device, dtype=self._dtype))
        if not isinstance(out, Tensor) or out.shape != (1, outputs):
            given = list(out.shape) if isinstance(out, Tensor) else repr(out)
            raise ValueError(f"{maps} to {given}; expected [1, {outputs}]")
        if out.dtype != self._dtype:
            raise ValueError(f"{maps} of {self._dtype} to {out.dtype}; expected the same dtype")
        # Not of zeros: of them a layer that scales its inputs by their maximum may make 0 / 0.
        if not made(torch.ones(1, inputs, device=self._device, dtype=self._dtype)).isfinite().all():
            raise ValueError(f"{maps} of ones to numbers that are not finite")
