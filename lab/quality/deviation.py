"""How well a model predicts a text, and how far its predictions are from another's. Needs no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Deviation", "Quality"]


@dataclass(frozen=True)
class Quality:
    tokens: int
    """Predicted."""
    nats: float
    """Per token."""

    @property
    def perplexity(self) -> float:
        return math.exp(self.nats)


@dataclass(frozen=True)
class Deviation:
    """A model beside a reference, on the same text."""

    reference: Quality
    own: Quality
    agreement: float
    """Share of positions where both models find the same token most likely."""
    divergence: float
    """KL divergence from the reference's distribution to this one's, nats per token."""

    @property
    def change(self) -> float:
        """Of the perplexity: 0.01 is 1% more than the reference's."""
        return self.own.perplexity / self.reference.perplexity - 1

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """For a table: perplexity, its change, agreement, divergence."""
        return (
            f"{self.own.perplexity:.3f}",
            f"{100 * self.change:+.2f}%",
            f"{100 * self.agreement:.2f}%",
            f"{self.divergence:.5f}",
        )
