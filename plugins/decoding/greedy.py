"""Greedy decoding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from turnout.core.interfaces.decoding import Decoding
from turnout.core.types.decision import Continuation
from turnout.core.types.plan import Logits
from turnout.core.types.request import Request
from turnout.core.types.sampling_params import SamplingParams

if TYPE_CHECKING:
    from torch import Tensor

    from turnout.core.interfaces.logits_processor import Row

__all__ = ["Greedy"]


class Greedy(Decoding):
    """Chooses the most likely token at every position; serves requests with temperature 0."""

    resumes = True

    @property
    def defaults(self) -> Mapping[str, Any]:
        return {"temperature": 0.0}

    def accepts(self, params: SamplingParams) -> bool:
        return params.greedy

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterable[Continuation]:
        from turnout.plugins.decoding.candidates import continue_each

        return continue_each(requests, logits, _argmax)


def _argmax(logits: Tensor, rows: list[Row]) -> Tensor:
    from turnout.sampling.argmax import argmax

    return argmax(logits)
