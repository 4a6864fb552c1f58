"""What a step does for requests that generate nothing: hidden states are read, and results are sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from turnout.core.clock import Clock
from turnout.core.engine.pooling.dispatch import PoolingDispatch
from turnout.core.types.messages import Delta
from turnout.core.types.plan import Chunk, Logits
from turnout.core.types.pooling import Pooled
from turnout.core.types.request import Request

__all__ = ["PoolingSteps"]


class Requests(Protocol):
    """The part of the request table that is used here."""

    def finish(self, request: Request, now: float) -> None: ...
    def end_pooled(self, request: Request, pooled: Pooled, now: float) -> list[Delta]: ...
    def fail(self, request: Request, fault: str, now: float) -> list[Delta]: ...


class PoolingSteps:
    """Reads the hidden states of each step, and ends the requests whose prompts are complete."""

    def __init__(
        self, dispatch: PoolingDispatch, requests: Requests, clock: Clock, *, overlaps: bool
    ) -> None:
        """overlaps: whether results are waited for in the next step only."""
        self._dispatch = dispatch
        self._requests = requests
        self._clock = clock
        self._overlaps = overlaps
        self._in_flight: list[tuple[Request, Callable[[], Pooled]]] = []

    def take_in(self, chunks: Sequence[Chunk], logits: Logits) -> list[Delta]:
        """Reads what a step computed; returns the deltas of the requests that it ended."""
        deltas: list[Delta] = []
        for chunk in chunks:
            request = chunk.sequence.request
            if chunk.pooled is None or request.status == "gone":
                continue
            fault = self._dispatch.read(request, logits.hidden[chunk.sequence])
            if fault is not None:
                deltas += self._requests.fail(request, fault, self._clock())
            elif chunk.end == len(request.prompt):
                deltas += self._complete(request)
        return deltas

    def resolve(self) -> list[Delta]:
        """Returns the deltas of results that the step before left in flight."""
        in_flight, self._in_flight = self._in_flight, []
        return [
            delta
            for request, wait in in_flight
            if request.status != "gone"
            for delta in self._requests.end_pooled(request, wait(), self._clock())
        ]

    def _complete(self, request: Request) -> list[Delta]:
        result = self._dispatch.result(request)
        if isinstance(result, str):
            return self._requests.fail(request, result, self._clock())
        if not self._overlaps:
            return self._requests.end_pooled(request, result(), self._clock())
        self._in_flight.append((request, result))
        self._requests.finish(request, self._clock())
        return []
