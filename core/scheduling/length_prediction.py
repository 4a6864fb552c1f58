"""Guards a length predictor: its faults are logged, and no request fails because of them."""

from __future__ import annotations

import logging
import math

from turnout.core.interfaces.scheduling import LengthPredictor
from turnout.core.plugin_faults import PluginFaults, plugin_errors
from turnout.core.types.request import RequestView

__all__ = ["GuardedPredictor"]

logger = logging.getLogger(__name__)


class GuardedPredictor:
    """Asks a length predictor, and falls back to the client's `max_tokens` where it fails."""

    def __init__(self, predictor: LengthPredictor) -> None:
        self.predictor = predictor
        self.faults = 0
        self._plugin_faults = PluginFaults("length_predictor", logger)

    def predict(self, request: RequestView) -> float:
        try:
            guess = float(self.predictor.predict(request))
            if math.isfinite(guess) and guess >= 0:
                return guess
            raise ValueError(f"predicted {guess} tokens for {request!r}")
        except plugin_errors() as error:
            self._fault("predict", error)
            return float(request.choices * request.max_tokens)

    def observe(self, request: RequestView) -> None:
        try:
            self.predictor.observe(request)
        except plugin_errors() as error:
            self._fault("observe", error)

    def _fault(self, method: str, error: BaseException) -> None:
        self.faults += 1
        self._plugin_faults.report(self.predictor, method, error)
