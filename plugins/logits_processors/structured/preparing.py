"""What a server does for a request's form before the request is admitted."""

from __future__ import annotations

import threading

from turnout.core import limits
from turnout.core.clock import monotonic
from turnout.core.errors import Overloaded
from turnout.core.interfaces.logits_processor import CancellableWork
from turnout.core.types.request import RequestSpec
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.plugins.logits_processors.structured.claims import Claim
from turnout.plugins.logits_processors.structured.compiler import ClaimEnded, Grammar
from turnout.plugins.logits_processors.structured.grammars import Grammars

__all__ = ["Preparing"]

RETRY_SECONDS = 0.5


class Preparing(CancellableWork):
    """Compiles a form, and holds it until the request is checked."""

    def __init__(self, grammars: Grammars, form: StructuredOutputs, spec: RequestSpec) -> None:
        self._grammars = grammars
        self._form = form
        # A request that another engine had admitted is not refused for how many others wait.
        self._claim = Claim(spec.origin or spec.client, bounded=spec.resume is None)
        self._left = threading.Event()
        self.grammar: Grammar | None = None

    def __call__(self) -> None:
        """A request that another engine had admitted waits for the room that the system lacks just now."""
        end = monotonic() + (0.0 if self._claim.bounded else limits.FORM_ROOM.most)
        while True:
            try:
                self.grammar = self._grammars.get(self._form, self._claim)
                return
            except Overloaded:
                if monotonic() >= end:
                    raise
            if self._left.wait(RETRY_SECONDS):
                raise ClaimEnded

    def cancel(self) -> None:
        self._left.set()
        self._claim.end()
