"""Guards a scheduling policy: checks its answers, and logs and survives its faults."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator
from itertools import repeat
from numbers import Integral

from turnout.core.clock import Clock, monotonic
from turnout.core.errors import PolicyError, RequestError
from turnout.core.fault_table import fault_of
from turnout.core.interfaces.scheduling import Drop, Entry, SchedulingPolicy, Share
from turnout.core.plugin_faults import blame, fault_message, plugin_errors, title_of
from turnout.core.scheduling.order import Order, read_order
from turnout.core.scheduling.queues import Queues
from turnout.core.types.request import Request, RequestView, request_of
from turnout.core.types.views import View

__all__ = ["MAX_ORDER_SECONDS", "Answer", "PolicyGuard", "Turn", "arrival_order"]

logger = logging.getLogger(__name__)

Turn = tuple[Request, int]
"""A request, and how many tokens it may compute in this step."""
Answer = list[Entry] | Order
"""What a policy gave as its order."""
NO_LIMIT = 2**62
"""The limit of a request that the policy did not cap."""
MAX_ORDER_SECONDS = 0.005
"""Seconds that a policy's `order` may take."""
MAX_WHY = 200
"""Characters that a policy may say about a request; the rest is cut."""
MAX_SLOW_ORDERS = 3
"""Slow orders in a row until the policy is named in the log."""


class PolicyGuard:
    """Asks a policy for the scheduler. Raises PolicyError for the policy's faults only if `strict`."""

    def __init__(
        self, policy: SchedulingPolicy, queues: Queues, *, strict: bool, stopwatch: Clock = monotonic
    ) -> None:
        self.policy = policy
        self.faults = 0
        self.slow_orders = 0
        """Orders that took longer than `MAX_ORDER_SECONDS`."""
        self.hear_order: Callable[[Answer, float], None] | None = None
        """Called with each order and the seconds that it took, while somebody watches."""
        self._slow_in_a_row = 0
        self._slowness_logged = False
        self._stopwatch = stopwatch  # for the log alone: plans do not depend on it
        self._queues = queues
        self._strict = strict
        # Saves calls: by default no request is preempted for one that waits, and `observe` does nothing.
        self._default_victim = type(policy).victim is SchedulingPolicy.victim
        self._observes = type(policy).observe is not SchedulingPolicy.observe
        self._explains = type(policy).why is not SchedulingPolicy.why

    def order(self, view: View, closed: Callable[[], bool] = lambda: False) -> Iterator[Turn | Drop]:
        """Yields the policy's order, checked entry by entry; from the first wrong entry on, arrival order.

        The policy's answer is read in full first, since requests change status while the order is served.
        closed: whether no request is admitted any more, so that stretches of an `Order` are passed over.

        A trap: the `try` does not see what the caller raises while it uses an entry. So every value of an
        entry is checked here, before it is yielded.
        """
        served: set[Request] = set()
        try:
            answer = self._timed_order(view)
            if (rest := _after(view.running, answer)) is not None:
                # Nearly always. All of them are in the view, and each once: there is nothing to check.
                runners = self._queues.running
                yield from zip(runners, repeat(NO_LIMIT))
                served.update(runners)
                answer = rest
            for entry in answer.up_to(closed) if isinstance(answer, Order) else answer:
                if type(entry) is RequestView:  # nearly always
                    request = request_of(entry)
                    turn: Turn | Drop = (request, NO_LIMIT)
                else:
                    request, turn = _share_or_drop(entry)
                if request.status not in ("running", "waiting"):
                    raise PolicyError(f"ordered {request!r}, which is neither running nor waiting")
                if request in served:
                    raise PolicyError(f"ordered {request!r} twice")
                served.add(request)
                yield turn
        except plugin_errors() as error:
            self.fault("order", error)
            yield from arrival_order(view, served)

    def _timed_order(self, view: View) -> Answer:
        """Asks the policy for its order, and takes the time: all requests wait for the answer."""
        started = self._stopwatch()
        entries = read_order(self.policy.order(view), view)
        taken = self._stopwatch() - started
        if taken <= MAX_ORDER_SECONDS:
            self._slow_in_a_row = 0
        else:
            self._note_slowness(taken, len(view.running) + len(view.waiting))
        if self.hear_order is not None:
            self.hear_order(entries, taken)
        return entries

    def _note_slowness(self, seconds: float, requests: int) -> None:
        """Logs once that a policy is slow, if it was slow several times in a row: once may be chance."""
        self.slow_orders += 1
        self._slow_in_a_row += 1
        if self._slow_in_a_row == MAX_SLOW_ORDERS and not self._slowness_logged:
            self._slowness_logged = True
            logger.warning(
                "%s took %.1f ms to order %d requests, for which all of them wait; "
                "more than %g ms are too much for a step (said once)",
                self._title,
                seconds * 1000,
                requests,
                MAX_ORDER_SECONDS * 1000,
            )

    def victim(self, request: Request, *, overruled: bool = False) -> Request | None:
        """Returns the request to preempt for `request`; None: none, and `request` waits.

        The default's choice replaces the policy's where that is invalid, or where the policy is `overruled`.
        """
        running = self._queues.running_views
        if not running:
            return None
        if self._default_victim or overruled:
            return self._queues.newest if request.status == "running" else None
        try:
            victim = self.policy.victim(request.view, running)
            return None if victim is None else self._checked_victim(victim)
        except plugin_errors() as error:
            self.fault("victim", error)
            return self._queues.newest if request.status == "running" else None

    def _checked_victim(self, victim: RequestView) -> Request:
        if not isinstance(victim, RequestView) or request_of(victim).status != "running":
            raise PolicyError(f"named {victim!r} as victim, which is not running")
        return request_of(victim)

    def check(self, request: Request) -> None:
        """Asks the policy whether it rejects a request. Raises RequestError if it does."""
        try:
            self.policy.check(request.view)
        except RequestError:
            raise
        except plugin_errors() as error:
            self.fault("check", error)

    def observe(self, request: Request, tokens: int, now: float) -> None:
        """Calls the policy's `observe`, if it has one of its own."""
        if not self._observes:
            return
        try:
            self.policy.observe(request.view, tokens, now)
        except plugin_errors() as error:
            self.fault("observe", error)

    def why(self, request: Request) -> str:
        """What the policy says of a request, on one short line; empty: nothing."""
        if not self._explains:
            return ""
        try:
            text = self.policy.why(request.view)
            if not isinstance(text, str):
                raise PolicyError(f"said {type(text).__name__}, not text, of {request!r}")
            return " ".join(text[: 2 * MAX_WHY].split())[:MAX_WHY].encode("utf-8", "replace").decode()
        except plugin_errors() as error:
            self.fault("why", error)
            return ""

    def fault(self, method: str, error: BaseException) -> None:
        """Counts a fault and logs the first. Raises PolicyError if strict."""
        self.faults += 1
        message = fault_message(*blame(self._title, method, error), error)
        if self._strict:
            raise PolicyError(message) from error
        if self.faults == 1:
            logger.error("%s; %s (said once)", message, fault_of("scheduler", method).instead, exc_info=error)

    @property
    def _title(self) -> str:
        return title_of(self.policy, "scheduler")


def _after(first: tuple[RequestView, ...], answer: Answer) -> Answer | None:
    """Returns what follows in an order that begins with these requests; None: it does not."""
    count = len(first)
    if type(answer) is list:
        return answer[count:] if tuple(answer[:count]) == first else None
    if type(answer) is Order:
        return Order(answer.parts[count:]) if tuple(answer.parts[:count]) == first else None
    return None


def _share_or_drop(entry: Entry) -> tuple[Request, Turn | Drop]:
    """Returns the request of an entry, and its turn or drop. Raises PolicyError for anything else."""
    if not isinstance(entry, Share | Drop) or type(entry.request) is not RequestView:
        raise PolicyError(f"ordered {entry!r}; expected requests of the view, or Shares or Drops of them")
    if isinstance(entry, Drop) and not isinstance(entry.reason, str):
        raise PolicyError(f"dropped {entry.request!r} without saying why: {entry.reason!r}")
    request = request_of(entry.request)
    return request, entry if isinstance(entry, Drop) else (request, _limit_of(entry))


def _limit_of(share: Share) -> int:
    """Returns the limit as an `int`, also of a numpy integer. Raises PolicyError for anything else."""
    limit = share.limit
    if type(limit) is int:  # nearly always, for each request in each step
        return limit
    if not isinstance(limit, Integral) or isinstance(limit, bool):
        raise PolicyError(f"limited {share.request!r} to {limit!r} tokens; expected an integer")
    return int(limit)


def arrival_order(view: View, served: Container[Request] = ()) -> Iterator[Turn]:
    """Yields the running requests, then the waiting ones, without limits: an order that always works."""
    # Only once each: a request that the step has preempted may be among both.
    for request in map(request_of, dict.fromkeys((*view.running, *view.waiting))):
        if request not in served:
            yield request, NO_LIMIT
