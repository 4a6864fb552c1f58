"""The queues: who runs, who waits, in which order. Views of them are made only when they changed."""

from __future__ import annotations

from turnout.core.request import Place, Request
from turnout.core.view import RequestView

__all__ = ["Queues"]

Views = tuple[RequestView, ...]


class Queues:
    """Running in order of admission; waiting with the preempted first, then in order of arrival."""

    def __init__(self) -> None:
        self._running: dict[Request, None] = {}
        self._preempted: dict[Request, None] = {}
        self._arrived: dict[Request, None] = {}
        self._width = 0
        self._running_views: Views | None = ()
        self._waiting_views: Views | None = ()

    def __bool__(self) -> bool:
        return bool(self._running or self._preempted or self._arrived)

    @property
    def running(self) -> tuple[Request, ...]:
        return tuple(self._running)

    @property
    def waiting(self) -> tuple[Request, ...]:
        return (*self._preempted, *self._arrived)

    @property
    def running_count(self) -> int:
        return len(self._running)

    @property
    def running_width(self) -> int:
        """Sequences that those who run keep alive at most."""
        return self._width

    @property
    def waiting_count(self) -> int:
        return len(self._preempted) + len(self._arrived)

    @property
    def running_views(self) -> Views:
        if self._running_views is None:
            self._running_views = tuple(request.view for request in self._running)
        return self._running_views

    @property
    def waiting_views(self) -> Views:
        if self._waiting_views is None:
            self._waiting_views = tuple(request.view for request in self.waiting)
        return self._waiting_views

    @property
    def newest(self) -> Request:
        """The latest admission among the running."""
        return next(reversed(self._running))

    # -------------------------------------------------------------- transitions

    def arrive(self, request: Request) -> None:
        self._arrived[request] = None
        self._moved(request, "waiting")

    def admit(self, request: Request) -> None:
        self._preempted.pop(request, None)
        self._arrived.pop(request, None)
        self._running[request] = None
        self._moved(request, "running")

    def preempt(self, request: Request) -> None:
        """Back to the front of those who wait."""
        del self._running[request]
        self._preempted = {request: None, **self._preempted}
        self._moved(request, "waiting")

    def remove(self, request: Request) -> None:
        for queue in (self._running, self._preempted, self._arrived):
            queue.pop(request, None)
        self._moved(request, "gone")

    def _moved(self, request: Request, place: Place) -> None:
        self._width += request.width * ((place == "running") - (request.place == "running"))
        request.place = place
        self._running_views = self._waiting_views = None
