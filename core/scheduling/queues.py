"""The queues of running and waiting requests. The views of a queue are rebuilt only after it changed."""

from __future__ import annotations

from turnout.core.scheduling.step_view import WaitingChanges
from turnout.core.types.request import Request, RequestStatus, RequestView

__all__ = ["Queues"]

Views = tuple[RequestView, ...]

HOLDING: tuple[RequestStatus, ...] = ("running", "finishing")
"""The statuses in which a request has sequence slots."""

SCHEDULED: tuple[RequestStatus, ...] = ("running", "waiting")
"""The statuses in which steps are planned for a request."""


class Queues:
    """Running requests in order of admission; waiting ones in order of arrival, the preempted first.

    A finishing request runs, but only waits for in-flight tokens, its last ones. It keeps its sequence slots
    and its KV memory until it is removed, and the policy does not see it any more.
    """

    def __init__(self) -> None:
        self._running: dict[Request, RequestView] = {}
        self._preempted: dict[Request, RequestView] = {}
        """The latest preemption last, which waits before the others."""
        self._arrived: dict[Request, RequestView] = {}
        self._finishing: dict[Request, None] = {}
        self._width = 0
        self.generating = 0
        """How many of the running and waiting requests generate; the others' prompts are pooled."""
        self.generating_waiting = 0
        self._running_views: Views | None = ()
        self._waiting_views: Views | None = ()
        self._arrived_views: Views | None = ()
        """Kept by themselves: where memory is full, preemptions are far more frequent than arrivals."""
        self.changes = WaitingChanges()
        """Of the waiting requests."""

    def __bool__(self) -> bool:
        return bool(self._running or self._finishing or self._preempted or self._arrived)

    @property
    def running(self) -> tuple[Request, ...]:
        """The requests to schedule, in order of admission; without those that are finishing."""
        return tuple(self._running)

    @property
    def held(self) -> tuple[Request, ...]:
        """Those that have sequence slots: the running ones, and those that are finishing."""
        return (*self._running, *self._finishing)

    @property
    def waiting(self) -> tuple[Request, ...]:
        return (*reversed(self._preempted), *self._arrived)

    @property
    def running_count(self) -> int:
        """How many requests run, those that are finishing included."""
        return len(self._running) + len(self._finishing)

    @property
    def finishing(self) -> int:
        """How many requests only wait for in-flight tokens."""
        return len(self._finishing)

    @property
    def only_finishing(self) -> bool:
        """Some requests are finishing, and there are no others."""
        return bool(self._finishing) and not (self._running or self._preempted or self._arrived)

    @property
    def must_schedule(self) -> bool:
        """A step has to schedule something: there are requests, and none will free memory by itself."""
        return bool(self) and not self._finishing

    @property
    def running_width(self) -> int:
        """Sequences that the running requests keep alive at most, those of finishing requests included."""
        return self._width

    @property
    def waiting_count(self) -> int:
        return len(self._preempted) + len(self._arrived)

    @property
    def running_views(self) -> Views:
        if self._running_views is None:
            self._running_views = tuple(self._running.values())
        return self._running_views

    @property
    def waiting_views(self) -> Views:
        if self._waiting_views is None:
            if self._arrived_views is None:
                self._arrived_views = tuple(self._arrived.values())
            self._waiting_views = tuple(reversed(self._preempted.values())) + self._arrived_views
        return self._waiting_views

    @property
    def newest(self) -> Request:
        """The latest admission among `running`."""
        return next(reversed(self._running))

    # -------------------------------------------------------------- transitions

    def arrive(self, request: Request) -> None:
        self._arrived[request] = request.view
        self._arrived_views = None
        self.changes.arrive(request.view)
        self._set_status(request, "waiting")

    def admit(self, request: Request) -> None:
        self._leave_waiting(request)
        self._running[request] = request.view
        self._set_status(request, "running")

    def preempt(self, request: Request) -> None:
        """Moves a running request to the front of the waiting ones."""
        del self._running[request]
        self._preempted[request] = request.view
        self.changes.preempt(request.view)
        self._set_status(request, "waiting")

    def finish(self, request: Request) -> None:
        """Marks a running request as finishing: there is nothing left to schedule for it."""
        del self._running[request]
        self._finishing[request] = None
        self._set_status(request, "finishing")

    def remove(self, request: Request) -> None:
        self._running.pop(request, None)
        self._finishing.pop(request, None)
        self._leave_waiting(request)
        self._set_status(request, "gone")

    def _leave_waiting(self, request: Request) -> None:
        if self._arrived.pop(request, None) is not None:
            self._arrived_views = None
        elif self._preempted.pop(request, None) is None:
            return
        self.changes.leave(request.view)

    def _set_status(self, request: Request, status: RequestStatus) -> None:
        self._width += request.width * ((status in HOLDING) - (request.status in HOLDING))
        if request.pooling is None:
            self.generating += (status in SCHEDULED) - (request.status in SCHEDULED)
            self.generating_waiting += (status == "waiting") - (request.status == "waiting")
        if "running" in (status, request.status):
            self._running_views = None
        if "waiting" in (status, request.status):
            self._waiting_views = None
        request.status = status
