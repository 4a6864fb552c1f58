"""All requests that are awaited, and how they go from an engine that died to the next.

Whoever was with an engine that died may have killed it. Requests that saw two engines die are suspects: they
are handed over one by one, each when the one before has survived a step, so that one that kills is found.
"""

from __future__ import annotations

from collections.abc import Iterable

from turnout.core.errors import EngineError, EngineGone
from turnout.core.types.request import RequestSpec
from turnout.server.engine.request_stream import LiveRequest

__all__ = ["LiveRequests"]


class LiveRequests:
    """By id, from when they are submitted until nobody awaits them any more."""

    def __init__(self) -> None:
        self._live: dict[str, LiveRequest] = {}
        self._suspects: list[str] = []
        """Not handed over yet, but for the first, which is being tried."""

    def __len__(self) -> int:
        return len(self._live)

    @property
    def owed(self) -> list[LiveRequest]:
        """Those for which the engine has something left to do."""
        return [live for live in self._live.values() if not live.over]

    def add(self, spec: RequestSpec) -> LiveRequest:
        live = self._live[spec.id] = LiveRequest(spec)
        return live

    def get(self, id: str) -> LiveRequest | None:
        return self._live.get(id)

    def remove(self, id: str) -> None:
        del self._live[id]

    def fail(self, error: Exception) -> None:
        for live in self._live.values():
            live.fail(error)

    # -------------------------------------------------------------- when an engine dies

    def blame(self) -> None:
        """The engine died. Any of those it had may have killed it; of the suspects it had only the first."""
        if self._suspects and (suspect := self._live.get(self._suspects[0])) is not None:
            suspect.fail(EngineError("the engine died each time that it served this request"))
        waiting = set(self._suspects)
        for id, live in self._live.items():
            if id not in waiting:
                live.interrupt()

    def hand_over(self) -> Iterable[RequestSpec]:
        """What to ask of the engine that takes over at once: all but the suspects, and the first of those."""
        for live in self._live.values():
            if live.complete:
                live.fail(EngineGone("only the engine that is gone knew its timing"))
        left = sorted(self.owed, key=lambda live: live.spec.arrival or 0.0)
        suspects = [live for live in left if live.crashes > 1]
        self._suspects = [live.spec.id for live in suspects]
        return [live.resumed() for live in (*(live for live in left if live.crashes <= 1), *suspects[:1])]

    def next_suspect(self, after: str) -> RequestSpec | None:
        """Whom to try now that `after`, if it was being tried, has survived a step, or left; None: nobody."""
        if not self._suspects or after != self._suspects[0]:
            return None
        del self._suspects[0]
        while self._suspects:
            live = self._live.get(self._suspects[0])
            if live is not None and not live.over:
                return live.resumed()
            del self._suspects[0]
        return None
