"""The client's own bound as the guess."""

from __future__ import annotations

from turnout.core.interfaces.scheduling import LengthPredictor
from turnout.core.types.views import RequestView

__all__ = ["MaxTokens"]


class MaxTokens(LengthPredictor):
    """Every choice is as long as ``max_tokens`` lets it be."""

    def predict(self, request: RequestView) -> float:
        return float(request.choices * request.max_tokens)
