"""How far the layers of a model see: what a step's attention reads where some have windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from turnout.core.types.model_spec import ModelSpec

__all__ = ["EVERYTHING", "Reach", "reaches_of"]


@dataclass(frozen=True)
class Reach:
    """Layers of equal window, and their share in the attention of all layers."""

    share: float
    window: int | None

    def read(self, start: int, length: int) -> int:
        """Positions that a chunk of `length` tokens at `start` reads in such a layer."""
        end = start + length
        return end if self.window is None else min(end, self.window + length - 1)

    def pairs(self, start: int, length: int) -> float:
        """Pairs of its queries and the positions that they see."""
        if self.window is None or start + length <= self.window:
            return length * (start + (length + 1) / 2)
        growing = max(0, self.window - start)
        return growing * (start + (growing + 1) / 2) + (length - growing) * self.window


EVERYTHING = (Reach(1, None),)
"""Layers without windows."""


def reaches_of(spec: ModelSpec) -> Sequence[Reach]:
    """Returns the reaches of a model's layers; a layer counts by the numbers of its heads."""
    weights: Counter[int | None] = Counter()
    for rule in spec.layer_attention():
        weights[rule.window] += rule.heads * (rule.key_dim + rule.value_dim)
    if set(weights) == {None}:
        return EVERYTHING
    return tuple(Reach(weight / weights.total(), window) for window, weight in weights.items())
