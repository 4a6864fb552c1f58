"""The decoding strategy of requests that generate nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnout.core.interfaces.decoding import Decoding
from turnout.core.types.decision import Continuation
from turnout.core.types.plan import Logits
from turnout.core.types.request import Request
from turnout.core.types.sampling_params import SamplingParams

__all__ = ["NoDecoding"]


class NoDecoding(Decoding):
    """Decides nothing: no row of logits is ever computed for its requests."""

    resumes = True

    def accepts(self, params: SamplingParams) -> bool:
        return False

    def width(self, params: SamplingParams) -> int:
        return 1

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterable[Continuation]:
        raise NotImplementedError(f"{requests} generate nothing")
