"""All requests that clients wait for, and how they go from an engine that died to the next.

Suspects of a death (see `blame`) are handed over one by one, each once the one before has had a few tokens.
An engine that has just started gets nothing else meanwhile. A request that alone can have caused two deaths
is ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from turnout.core.clock import monotonic
from turnout.core.errors import EngineError
from turnout.core.types.request import RequestSpec
from turnout.server.engine.streams.blame import blame
from turnout.server.engine.streams.request_stream import RequestStream

__all__ = ["RequestStreams"]

CERTAIN_DEATHS = 2
"""Of engines, until the request that alone can have caused them is ended."""
INTERVALS = 2
"""Of events, in which tokens prove nothing of a request that was in an engine which died. One that kills
engines at a token of its answer would seem to survive, since it has to make the last ones before anew."""
TRIAL_SECONDS = 5.0
"""How long a suspect keeps others waiting: a long prompt, or an answer sent whole, has no tokens yet."""


class RequestStreams:
    """The streams by request id, from when a request is submitted until its generator is left."""

    def __init__(self, event_interval: float = 0.0) -> None:
        """event_interval: as `SetEventInterval`; so much of its work is lost with an engine that dies."""
        self._lost = INTERVALS * event_interval
        """Seconds until a request has again made what was lost with an engine, and more."""
        self._streams: dict[str, RequestStream] = {}
        self._waiting: list[str] = []
        """Not handed over to the engine yet."""
        self._tried: str | None = None
        """The suspect that was handed over last and is being tried."""
        self._tried_since = 0.0
        self._holds = False
        """The engine is new, and gets no other requests before the last suspect has been tried."""
        self.progressed = True
        """An engine has sent something since a request was last ended for killing engines."""

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def unfinished(self) -> list[RequestStream]:
        """The requests that the engine still has something to do for."""
        return [stream for stream in self._streams.values() if not stream.over]

    def get(self, id: str) -> RequestStream | None:
        return self._streams.get(id)

    def all(self) -> Iterable[RequestStream]:
        return self._streams.values()

    @property
    def closed(self) -> bool:
        """Suspects are tried, and what comes has to wait."""
        return self._holds

    def add(self, stream: RequestStream) -> Sequence[RequestSpec]:
        """Take on a request; returns those to hand over to the engine now."""
        self._streams[stream.spec.id] = stream
        if not self._holds and stream.suspicion is None:
            return [stream.resumed()]
        self._waiting.append(stream.spec.id)
        return () if self._holds or self.trying else self._next()

    def remove(self, id: str) -> None:
        del self._streams[id]

    def fail(self, error: Exception) -> None:
        """End all requests with an error."""
        for stream in self._streams.values():
            stream.fail(error)

    # -------------------------------------------------------------- when an engine dies

    def interrupt(
        self, *, fault: bool, reason: str, begun: Collection[str] | None = None
    ) -> RequestStream | None:
        """Note that the engine has died; `fault`: one of those that it had `begun` with may be the reason.

        Returns the request that is ended now because it alone can have caused this death and another.
        """
        waiting = set(self._waiting)
        served = [stream for stream in self.unfinished if stream.spec.id not in waiting]
        found = self._suspect(served, reason, begun) if fault else None
        for stream in served:
            if not stream.end_if_complete():
                stream.interrupt()
        self._tried = None
        return found

    def _suspect(
        self, served: list[RequestStream], reason: str, begun: Collection[str] | None
    ) -> RequestStream | None:
        suspects, certain, apart = blame(sorted(served, key=_arrival), begun, self._lost)
        for place, stream in enumerate(suspects):
            stream.suspect(place, certain=certain, apart=apart and not place)
        if not certain or suspects[0].certain_deaths < CERTAIN_DEATHS:
            return None
        (killer,) = suspects
        killer.fail(EngineError(f"the engine died each time that it served this request alone: {reason}"))
        for stream in self._streams.values():
            if stream is not killer:
                stream.clear()  # what they were suspected of is explained
        self.progressed = False
        return killer

    @property
    def trying(self) -> bool:
        """Whether the engine has a suspect that is being tried."""
        stream = None if self._tried is None else self._streams.get(self._tried)
        return stream is not None and not stream.over

    @property
    def explains_death(self) -> bool:
        """Whether a suspect that is tried is likelier the reason of a death than the engine itself."""
        return self.trying and self.progressed

    @property
    def suspects(self) -> list[RequestStream]:
        return [stream for stream in self.unfinished if stream.suspicion is not None]

    def movable(self) -> list[RequestStream]:
        """The requests that another engine may take over at once, suspects last.

        One that is to be tried apart is none of them: it would take another engine along.
        """
        free = [stream for stream in self.unfinished if not stream.apart and not stream.complete]
        return sorted(free, key=_suspicion)

    def hand_over(self) -> Sequence[RequestSpec]:
        """The requests to give to the engine that takes over."""
        left = self.unfinished
        self._waiting = [stream.spec.id for stream in left]
        self._holds = any(stream.suspicion is not None for stream in left)
        return self._next()

    def next_suspects(self, after: str) -> Sequence[RequestSpec]:
        """What to hand over once `after` has survived its trial or was left, if that was being tried."""
        if after != self._tried:
            return ()
        stream = self._streams.get(after)
        if stream is not None and not stream.over:
            late = not stream.apart and monotonic() > self._tried_since + TRIAL_SECONDS
            if not stream.survived(self._lost) and not late:
                return ()
            stream.clear()
        return self._next()

    def when_late(self) -> Sequence[RequestSpec]:
        """What to hand over if the trial takes too long; to be asked now and then."""
        return () if self._tried is None else self.next_suspects(self._tried)

    def _next(self) -> Sequence[RequestSpec]:
        """The likeliest suspect that waits; all that wait if there is none."""
        left = [s for id in self._waiting if (s := self._streams.get(id)) is not None and not s.over]
        left.sort(key=_suspicion)
        suspects = [stream for stream in left if stream.suspicion is not None]
        if not suspects:
            self._tried, self._holds, self._waiting = None, False, []
            return [stream.resumed() for stream in left]
        first = suspects[0]
        self._tried, self._tried_since = first.spec.id, monotonic()
        self._waiting = [stream.spec.id for stream in left if stream is not first]
        return [first.resumed()]


def _arrival(stream: RequestStream) -> float:
    return stream.spec.arrival or 0.0


def _suspicion(stream: RequestStream) -> tuple[int, int, float]:
    """Those free of it first; then the likeliest suspects."""
    if stream.suspicion is None:
        return 0, 0, _arrival(stream)
    return 1 + (not stream.apart), stream.suspicion, _arrival(stream)
