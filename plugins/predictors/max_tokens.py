"""Predicts that a request produces all that it may."""

from __future__ import annotations

from turnout.core.interfaces.scheduling import LengthPredictor
from turnout.core.types.request import RequestView

__all__ = ["MaxTokens"]


class MaxTokens(LengthPredictor):
    """Predicts ``max_tokens`` for each choice."""

    def predict(self, request: RequestView) -> float:
        return float(request.choices * request.max_tokens)
