"""The queues: who runs, who waits, in which order. Views of them are made only when they changed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from turnout.core.types.request import Request, RequestStatus
from turnout.core.types.views import RequestView

__all__ = ["Queues"]

Views = tuple[RequestView, ...]

HOLDING: tuple[RequestStatus, ...] = ("running", "finishing")
"""Places in which a request has sequence slots."""


class Queues:
    """Running in order of admission; waiting with the preempted first, then in order of arrival.

    Some of those who run may be put aside for a while, by who knows that each of them computes its next token
    in every step, whatever else happens: they keep their place and take of a step's budget, but they are not
    looked at. A simulation does that, so that a step costs what changes in it.

    Others leave: their last tokens are chosen and not known yet. They keep their slots and their memory until
    they are removed, and nobody sees them any more.
    """

    def __init__(self) -> None:
        self._running: dict[Request, None] = {}
        self._preempted: dict[Request, None] = {}
        self._arrived: dict[Request, None] = {}
        self._aside: dict[Request, None] = {}
        self._finishing: dict[Request, None] = {}
        self._numbers: dict[Request, int] = {}
        """Of those who run, in order of admission."""
        self._admissions = count()
        self._width = 0
        self._running_views: Views | None = ()
        self._waiting_views: Views | None = ()

    def __bool__(self) -> bool:
        return bool(self._running or self._aside or self._finishing or self._preempted or self._arrived)

    @property
    def running(self) -> tuple[Request, ...]:
        """But for those put aside or finishing, and so in all that follows but the counts and the width."""
        return tuple(self._running)

    @property
    def waiting(self) -> tuple[Request, ...]:
        return (*self._preempted, *self._arrived)

    @property
    def running_count(self) -> int:
        return len(self._running) + len(self._aside) + len(self._finishing)

    @property
    def aside(self) -> int:
        """How many of those who run are put aside."""
        return len(self._aside)

    @property
    def finishing(self) -> int:
        """How many of those who run only wait for tokens that are chosen already."""
        return len(self._finishing)

    @property
    def only_finishing(self) -> bool:
        """There are some, and nobody else."""
        return bool(self._finishing) and not (
            self._running or self._aside or self._preempted or self._arrived
        )

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
        self._numbers[request] = next(self._admissions)
        self._moved(request, "running")

    def preempt(self, request: Request) -> None:
        """Back to the front of those who wait."""
        del self._running[request], self._numbers[request]
        self._preempted = {request: None, **self._preempted}
        self._moved(request, "waiting")

    def finish(self, request: Request) -> None:
        """It runs, and there is nothing left to plan for it."""
        del self._running[request]
        self._finishing[request] = None
        self._moved(request, "finishing")

    def remove(self, request: Request) -> None:
        for queue in (self._running, self._finishing, self._preempted, self._arrived):
            queue.pop(request, None)
        self._numbers.pop(request, None)
        self._moved(request, "gone")

    def admission(self, request: Request) -> int:
        """Numbers those who run in the order in which they were admitted."""
        return self._numbers[request]

    def put_aside(self, requests: Iterable[Request]) -> None:
        """They run, and nobody sees them until they are called back."""
        for request in requests:
            del self._running[request]
            self._aside[request] = None
            self._running_views = None

    def call_back(self, requests: Iterable[Request]) -> None:
        for request in requests:
            del self._aside[request]
            self._running[request] = None
            self._running_views = None
        if self._running_views is None:
            self._running = dict.fromkeys(sorted(self._running, key=self._numbers.__getitem__))

    def _moved(self, request: Request, status: RequestStatus) -> None:
        self._width += request.width * ((status in HOLDING) - (request.status in HOLDING))
        request.status = status
        self._running_views = self._waiting_views = None
