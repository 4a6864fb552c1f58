"""All requests that clients wait for, and how they go from an engine that died to the next.

Any request that an engine had when it died may have killed it. A request that saw two engines die is a
suspect. Suspects are handed over one by one, each once the one before has survived a step, so that the
request that kills engines is found.
"""

from __future__ import annotations

from collections.abc import Iterable

from turnout.core.errors import EngineError, EngineGone
from turnout.core.types.request import RequestSpec
from turnout.server.engine.request_stream import RequestStream

__all__ = ["RequestStreams"]


class RequestStreams:
    """The streams by request id, from when a request is submitted until its generator is left."""

    def __init__(self) -> None:
        self._streams: dict[str, RequestStream] = {}
        self._suspects: list[str] = []
        """Not handed over yet, but for the first, which is being tried."""

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def unfinished(self) -> list[RequestStream]:
        """The requests that the engine still has something to do for."""
        return [stream for stream in self._streams.values() if not stream.over]

    def add(self, spec: RequestSpec) -> RequestStream:
        stream = self._streams[spec.id] = RequestStream(spec)
        return stream

    def get(self, id: str) -> RequestStream | None:
        return self._streams.get(id)

    def remove(self, id: str) -> None:
        del self._streams[id]

    def fail(self, error: Exception) -> None:
        """End all requests with an error."""
        for stream in self._streams.values():
            stream.fail(error)

    # -------------------------------------------------------------- when an engine dies

    def interrupt(self) -> None:
        """Note that the engine has died, which any of its requests may have caused.

        Of the suspects the engine had only the first, which now has killed an engine by itself: it ends.
        """
        if self._suspects and (suspect := self._streams.get(self._suspects[0])) is not None:
            suspect.fail(EngineError("the engine died each time that it served this request"))
        waiting = set(self._suspects)
        for id, stream in self._streams.items():
            if id not in waiting:
                stream.interrupt()

    def hand_over(self) -> Iterable[RequestSpec]:
        """The requests to give to the engine that takes over: all but the suspects, and the first suspect."""
        for stream in self._streams.values():
            if stream.complete:
                stream.fail(EngineGone("only the engine that is gone knew its timing"))
        left = sorted(self.unfinished, key=lambda stream: stream.spec.arrival or 0.0)
        suspects = [stream for stream in left if stream.crashes > 1]
        self._suspects = [stream.spec.id for stream in suspects]
        others = [stream for stream in left if stream.crashes <= 1]
        return [stream.resumed() for stream in (*others, *suspects[:1])]

    def next_suspect(self, after: str) -> RequestSpec | None:
        """The next suspect to try, once `after` has survived a step or was left; None if there is none.

        Also None if `after` is not the suspect being tried.
        """
        if not self._suspects or after != self._suspects[0]:
            return None
        del self._suspects[0]
        while self._suspects:
            stream = self._streams.get(self._suspects[0])
            if stream is not None and not stream.over:
                return stream.resumed()
            del self._suspects[0]
        return None
