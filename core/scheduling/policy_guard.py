"""Between the mechanism and a policy: every answer is checked, every fault is named and survived."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator

from turnout.core.clock import Clock, monotonic
from turnout.core.errors import PolicyError, described
from turnout.core.interfaces.scheduling import Drop, Entry, SchedulingPolicy, Share
from turnout.core.scheduling.queues import Queues
from turnout.core.types.request import Request
from turnout.core.types.views import RequestView, View, request_of

__all__ = ["MAX_ORDER_SECONDS", "PolicyGuard", "Turn", "arrival_order"]

logger = logging.getLogger(__name__)

Turn = tuple[Request, int]
"""Whose turn it is, and how many tokens it may compute this step."""
NO_LIMIT = 2**62
"""No cap on them."""
MAX_ORDER_SECONDS = 0.005
"""Seconds that an order may take."""
MAX_SLOW_ORDERS = 3
"""Orders in a row that took longer, until the policy is named."""


class PolicyGuard:
    """Asks a policy on the mechanism's behalf. Raises PolicyError for its faults only when `strict`."""

    def __init__(
        self, policy: SchedulingPolicy, queues: Queues, *, strict: bool, stopwatch: Clock = monotonic
    ) -> None:
        self.policy = policy
        self.faults = 0
        self.slow_orders = 0
        """Orders that took longer than `MAX_ORDER_SECONDS`."""
        self._slow_in_a_row = 0
        self._slowness_logged = False
        self._stopwatch = stopwatch  # measures, and decides nothing: plans are the same without it
        self._queues = queues
        self._strict = strict
        # Known without asking, and asked for often: by default a newcomer is never made room for.
        self._default_victim = type(policy).victim is SchedulingPolicy.victim
        self._observes = type(policy).observe is not SchedulingPolicy.observe

    def order(self, view: View) -> Iterator[Turn | Drop]:
        """The policy's order, checked as it is served; in arrival order from where it goes wrong.

        The policy answers in full before anything changes: while it is served, requests change state.
        """
        served: set[Request] = set()
        try:
            for entry in self._timed_order(view):
                request, turn = _turn(entry)
                if request.status not in ("running", "waiting"):
                    raise PolicyError(f"ordered {request!r}, which is neither running nor waiting")
                if request in served:
                    raise PolicyError(f"ordered {request!r} twice")
                served.add(request)
                yield turn
        except Exception as error:
            self.fault(error)
            yield from arrival_order(view, served)

    def _timed_order(self, view: View) -> list[Entry]:
        """All requests wait while a policy thinks, so it is named where that takes long."""
        started = self._stopwatch()
        entries = list(self.policy.order(view))
        taken = self._stopwatch() - started
        if taken <= MAX_ORDER_SECONDS:
            self._slow_in_a_row = 0
        else:
            self._note_slowness(taken, len(view.running) + len(view.waiting))
        return entries

    def _note_slowness(self, seconds: float, requests: int) -> None:
        """Say it once, when it is a habit: a busy machine makes anybody slow now and then."""
        self.slow_orders += 1
        self._slow_in_a_row += 1
        if self._slow_in_a_row == MAX_SLOW_ORDERS and not self._slowness_logged:
            self._slowness_logged = True
            logger.warning(
                "scheduling policy %s took %.1f ms to order %d requests, for which all of them wait; "
                "more than %g ms are too much for a step (said once)",
                type(self.policy).__name__,
                seconds * 1000,
                requests,
                MAX_ORDER_SECONDS * 1000,
            )

    def victim(self, request: Request, *, overruled: bool = False) -> Request | None:
        """Who gives way to `request`: the default's choice where the policy's cannot be carried out, or is
        `overruled`.
        """
        running = self._queues.running_views
        if not running:
            return None
        if self._default_victim or overruled:
            return self._queues.newest if request.status == "running" else None
        try:
            victim = self.policy.victim(request.view, running)
            return None if victim is None else self._checked_victim(victim)
        except Exception as error:
            self.fault(error, "the newest admission gives way instead")
            return self._queues.newest if request.status == "running" else None

    def _checked_victim(self, victim: RequestView) -> Request:
        if not isinstance(victim, RequestView) or request_of(victim).status != "running":
            raise PolicyError(f"named {victim!r} as victim, which is not running")
        return request_of(victim)

    def observe(self, request: Request, tokens: int, now: float) -> None:
        """Tell the policy what a request produced, if it wants to know."""
        if not self._observes:
            return
        try:
            self.policy.observe(request.view, tokens, now)
        except Exception as error:
            self.fault(error, "requests go on all the same")

    def fault(self, error: Exception, instead: str = "served in arrival order instead") -> None:
        """Count it, say it and what happens `instead` once, or make it fatal."""
        self.faults += 1
        message = f"scheduling policy {type(self.policy).__name__} failed: {described(error)}"
        if self._strict:
            raise PolicyError(message) from error
        if self.faults == 1:
            logger.error("%s; %s (said once)", message, instead, exc_info=error)


def _turn(entry: Entry) -> tuple[Request, Turn | Drop]:
    """What an entry means, and for whom. Raises PolicyError, as a policy may answer anything."""
    if type(entry) is RequestView:
        request = request_of(entry)
        return request, (request, NO_LIMIT)
    if not isinstance(entry, Share | Drop) or type(entry.request) is not RequestView:
        raise PolicyError(f"ordered {entry!r}; expected requests of the view, or Shares or Drops of them")
    if isinstance(entry, Drop) and not isinstance(entry.reason, str):
        raise PolicyError(f"dropped {entry.request!r} without saying why: {entry.reason!r}")
    request = request_of(entry.request)
    return request, entry if isinstance(entry, Drop) else (request, entry.limit)


def arrival_order(view: View, served: Container[Request] = ()) -> Iterator[Turn]:
    """What is always right: those who run, then those who wait, as they came."""
    for request in map(request_of, (*view.running, *view.waiting)):
        if request not in served:
            yield request, NO_LIMIT
