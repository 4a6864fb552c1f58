"""All requests that clients wait for, and how they go from an engine that died to the next.

If an engine's death looks like a fault, any of its requests may have caused it. Those that were in two such
engines are suspects, and are handed over one by one, each once the one before has survived a step. The one
that was being tried when an engine died is then tried alone, while all others wait. A request that was alone
in two engines that died is ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnout.core.errors import EngineError, EngineGone
from turnout.core.types.request import RequestSpec
from turnout.server.engine.request_stream import RequestStream

__all__ = ["RequestStreams"]

LONE_DEATHS = 2
"""Engines that died while they served nothing but one request, until that request is ended."""


class RequestStreams:
    """The streams by request id, from when a request is submitted until its generator is left."""

    def __init__(self) -> None:
        self._streams: dict[str, RequestStream] = {}
        self._waiting: list[str] = []
        """Not handed over to the engine yet."""
        self._tried: str | None = None
        """The suspect that was handed over last and has not survived a step yet."""
        self._alone = False
        """The suspect is tried alone."""
        self.progressed = True
        """An engine has sent something since a request was last ended for killing engines."""

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def unfinished(self) -> list[RequestStream]:
        """The requests that the engine still has something to do for."""
        return [stream for stream in self._streams.values() if not stream.over]

    def add(self, stream: RequestStream) -> None:
        self._streams[stream.spec.id] = stream
        if self._alone:
            self._waiting.append(stream.spec.id)

    def get(self, id: str) -> RequestStream | None:
        return self._streams.get(id)

    @property
    def closed(self) -> bool:
        """A suspect is tried alone, so that all others wait."""
        return self._alone

    def waits(self, id: str) -> bool:
        """Whether the request is kept from the engine for now."""
        return bool(self._waiting) and id in self._waiting

    def remove(self, id: str) -> None:
        del self._streams[id]

    def all(self) -> Iterable[RequestStream]:
        return self._streams.values()

    def fail(self, error: Exception) -> None:
        """End all requests with an error."""
        for stream in self._streams.values():
            stream.fail(error)

    # -------------------------------------------------------------- when an engine dies

    def interrupt(self, *, fault: bool, reason: str) -> RequestStream | None:
        """Note that the engine has died; `fault`: one of its requests may have caused it.

        Returns the request that is ended now because it was alone in too many of these engines.
        """
        waiting = set(self._waiting)
        served = [stream for stream in self.unfinished if stream.spec.id not in waiting]
        for stream in served:
            stream.interrupt(fault=fault, alone=len(served) == 1)
        if not fault:
            return None  # a request that the engine was trying is tried again
        if len(served) != 1:
            self._alone = self.trying
            return None
        (suspect,) = served
        self._tried, self._alone = suspect.spec.id, True
        if suspect.lone_deaths < LONE_DEATHS:
            return None
        suspect.fail(EngineError(f"the engine died each time that it served this request alone: {reason}"))
        self._tried, self._alone, self.progressed = None, False, False
        return suspect

    @property
    def trying(self) -> bool:
        """Whether the engine has a suspect that has not survived a step yet."""
        stream = None if self._tried is None else self._streams.get(self._tried)
        return stream is not None and not stream.over

    def movable(self) -> list[RequestStream]:
        """The requests that another engine may take over at once: no suspects; in order of arrival.

        One that was alone in an engine that died of a fault is none of them: it would take another along.
        """
        free = [s for s in self.unfinished if s.deaths <= 1 and s.spec.id != self._tried and not s.complete]
        return sorted(free, key=_arrival)

    def hand_over(self) -> Sequence[RequestSpec]:
        """The requests to give to the engine that takes over."""
        for stream in self._streams.values():
            if stream.complete:
                stream.fail(EngineGone("only the engine that is gone knew its timing"))
        left = sorted(self.unfinished, key=_arrival)
        self._waiting = [stream.spec.id for stream in left]
        if self._alone and self.trying:
            assert self._tried is not None
            self._waiting.remove(self._tried)
            return [self._streams[self._tried].resumed()]
        return self._next()

    def next_suspects(self, after: str) -> Sequence[RequestSpec]:
        """What to hand over once `after` has survived a step or was left, if that was being tried."""
        return self._next() if after == self._tried else ()

    def _next(self) -> Sequence[RequestSpec]:
        """Those waiting that are no suspects, and the first suspect."""
        left = [s for id in self._waiting if (s := self._streams.get(id)) is not None and not s.over]
        suspects = [stream for stream in left if stream.deaths > 1]
        others = [stream for stream in left if stream.deaths <= 1]
        self._alone = False
        self._tried = suspects[0].spec.id if suspects else None
        self._waiting = [stream.spec.id for stream in suspects[1:]]
        return [stream.resumed() for stream in (*others, *suspects[:1])]


def _arrival(stream: RequestStream) -> float:
    return stream.spec.arrival or 0.0
