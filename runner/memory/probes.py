"""Probe sequences, which belong to no client's request, to measure steps with."""

from __future__ import annotations

from typing import ClassVar

from turnout.core.types.request import Request, RequestSpec, Sequence
from turnout.core.types.sampling_params import SamplingParams

__all__ = ["probe"]


class _OneSequence:
    """Stands for a decoding strategy, which a probe never asks: nothing is chosen after it. A `Strategy`."""

    streams: ClassVar[bool] = True

    def width(self, params: SamplingParams) -> int:
        return 1


def probe(length: int) -> Sequence:
    """Returns a sequence of `length` tokens 0. While none is committed, such sequences share no memory."""
    spec = RequestSpec(id="probe", prompt=[0] * length, params=SamplingParams(), seed=0)
    (sequence,) = Request(spec, _OneSequence(), 0.0, length, frozenset()).live
    return sequence
