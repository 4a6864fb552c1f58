"""What embedded tokens and logits go through in some models."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from turnout.models.decoder.layers import Embedding

__all__ = ["LearnedPositions", "Scaled", "SoftCapped"]


class Scaled(nn.Module):
    """Multiplies by a number."""

    def __init__(self, factor: float, *, rounded: bool = False) -> None:
        """rounded: the number is rounded to the dtype of what it multiplies (Gemma)."""
        super().__init__()
        self.factor, self.rounded = factor, rounded

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        return x * (torch.tensor(self.factor, dtype=x.dtype).item() if self.rounded else self.factor)


class SoftCapped(nn.Module):
    """Bounds logits smoothly (Gemma 2)."""

    def __init__(self, cap: float) -> None:
        super().__init__()
        self.cap = cap

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x / self.cap) * self.cap


class LearnedPositions(nn.Module):
    """Adds an embedding of each token's position (GPT-2)."""

    def __init__(self, positions: int, size: int) -> None:
        super().__init__()
        self.embed_positions = Embedding(positions, size)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        added: Tensor = self.embed_positions(positions)
        return x + added
