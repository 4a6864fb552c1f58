"""Predicts lengths from the outputs of similar requests."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from math import ceil
from typing import Annotated

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.scheduling import LengthPredictor
from turnout.core.types.request import RequestView

__all__ = ["History"]

Key = tuple[str, str, int]
"""A client, and a prompt length in powers of two."""


class History(LengthPredictor):
    """Predicts the `quantile` of recent outputs of the same client and prompt length, learnt online.

    Prompts are grouped by length in powers of two; output lengths are tokens per choice. With fewer than
    `min_samples` for a client and prompt length, the outputs of all clients for that prompt length count,
    then those of all requests, then ``max_tokens``. A guess is never below what a request has produced nor
    above what it may produce.

    The median is the default because ranking asks which of two requests is longer: the median errs to either
    side equally often, and a few very long outputs do not move it. Use 0.9 to underestimate rarely.

    Memory is bounded: the latest `samples` lengths of a client and prompt length, for the `keys` of those
    that were seen last.
    """

    def __init__(
        self,
        quantile: Annotated[
            float, Field(description="Quantile of the recent output lengths; 0.9 rarely predicts too little.")
        ] = 0.5,
        min_samples: Annotated[
            int, Field(description="Outputs of a client and prompt length before these alone are trusted.")
        ] = 8,
        samples: Annotated[
            int, Field(description="Latest output lengths kept for a client and prompt length.")
        ] = 64,
        keys: Annotated[int, Field(description="Clients and prompt lengths that are remembered.")] = 1024,
    ) -> None:
        if not 0 < quantile <= 1:
            raise ConfigError(f"quantile must be above 0 and at most 1, not {quantile:g}")
        if not 1 <= min_samples <= samples:
            raise ConfigError(f"min_samples must be from 1 to samples ({samples}), not {min_samples}")
        if keys < 1:
            raise ConfigError(f"keys must be at least 1, not {keys}")
        self._quantile, self._min_samples, self._samples, self._keys = quantile, min_samples, samples, keys
        self._of_client: OrderedDict[Key, _Ring] = OrderedDict()
        self._of_bucket: dict[int, _Ring] = {}
        self._of_all = _Ring(samples)

    def predict(self, request: RequestView) -> float:
        bucket = request.prompt_tokens.bit_length()
        ring = self._of_client.get((request.client, request.user, bucket))
        if ring is None or ring.guess is None:
            ring = self._of_bucket.get(bucket)
            if ring is None or ring.guess is None:
                ring = self._of_all
        choices, produced = request.choices, request.output_tokens
        most = float(choices * request.max_tokens)
        if ring.guess is None:
            return most
        guess = choices * ring.guess
        if guess < produced:
            guess = float(produced)
        return guess if guess < most else most

    def observe(self, request: RequestView) -> None:
        length = request.output_tokens / request.choices
        bucket = request.prompt_tokens.bit_length()
        of_client = self._client_ring((request.client, request.user, bucket))
        of_bucket = self._of_bucket.setdefault(bucket, _Ring(self._samples))
        for ring in (of_client, of_bucket, self._of_all):
            ring.add(length, self._quantile, self._min_samples)

    def _client_ring(self, key: Key) -> _Ring:
        ring = self._of_client.pop(key, None) or _Ring(self._samples)
        self._of_client[key] = ring
        if len(self._of_client) > self._keys:
            self._of_client.popitem(last=False)
        return ring


class _Ring:
    """The latest output lengths, and their quantile."""

    __slots__ = ("_latest", "_sorted", "guess")

    def __init__(self, size: int) -> None:
        self._latest: deque[float] = deque(maxlen=size)
        self._sorted: list[float] = []
        self.guess: float | None = None
        """The quantile; None while there are too few lengths."""

    def add(self, length: float, quantile: float, least: int) -> None:
        if len(self._latest) == self._latest.maxlen:
            del self._sorted[bisect_left(self._sorted, self._latest[0])]
        self._latest.append(length)
        insort(self._sorted, length)
        count = len(self._sorted)
        if count >= least:
            self.guess = self._sorted[ceil(quantile * count) - 1]
