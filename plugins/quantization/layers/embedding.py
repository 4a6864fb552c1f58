"""An embedding with 8-bit weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Int8Embedding"]


class Int8Embedding(nn.Module):
    """8-bit weights with a scale for each token."""

    codes: Tensor
    scale: Tensor

    def __init__(self, codes: Tensor, scale: Tensor, dtype: torch.dtype) -> None:
        """codes: int8 [tokens, size]; scale: float32 [tokens]; dtype: what is computed in."""
        super().__init__()
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self._dtype = dtype

    def forward(self, tokens: Tensor) -> Tensor:
        return (self.codes[tokens].float() * self.scale[tokens, None]).to(self._dtype)
