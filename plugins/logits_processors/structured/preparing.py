"""What a server does for a request's form before the request is admitted."""

from __future__ import annotations

from turnout.core.interfaces.logits_processor import CancellableWork
from turnout.core.types.request import RequestSpec
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.plugins.logits_processors.structured.claims import Claim
from turnout.plugins.logits_processors.structured.compiler import Grammar
from turnout.plugins.logits_processors.structured.grammars import Grammars

__all__ = ["Preparing"]


class Preparing(CancellableWork):
    """Compiles a form, and holds it until the request is checked."""

    def __init__(self, grammars: Grammars, form: StructuredOutputs, spec: RequestSpec) -> None:
        self._grammars = grammars
        self._form = form
        # A request that another engine had admitted is not refused for how many others wait.
        self._claim = Claim(spec.origin or spec.client, bounded=spec.resume is None)
        self.grammar: Grammar | None = None

    def __call__(self) -> None:
        self.grammar = self._grammars.get(self._form, self._claim)

    def cancel(self) -> None:
        self._claim.end()
