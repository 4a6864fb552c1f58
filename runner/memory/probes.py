"""Probe sequences, which belong to no client's request, to measure steps with."""

from __future__ import annotations

from turnout.core.types.request import Request, RequestSpec, Sequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.decoding.greedy import Greedy

__all__ = ["probe"]


def probe(length: int) -> Sequence:
    """Returns a sequence of `length` tokens 0. While none is committed, such sequences share no memory."""
    spec = RequestSpec(id="probe", prompt=[0] * length, params=SamplingParams(), seed=0)
    (sequence,) = Request(spec, Greedy(), 0.0, length, frozenset()).live
    return sequence
