"""The scheduling interface: a policy orders requests; it owns no request and allocates nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from turnout.core.interfaces.figures import Figures
from turnout.core.types.request import RequestView
from turnout.core.types.views import View

__all__ = ["Drop", "Entry", "LengthPredictor", "SchedulingPolicy", "Share"]


class Share(NamedTuple):
    """An entry in a policy's order that limits how many tokens the request may compute in this step."""

    request: RequestView
    limit: int


class Drop(NamedTuple):
    """An entry in a policy's order that drops a request: its client gets an error, status 408."""

    request: RequestView
    reason: str


Entry = RequestView | Share | Drop


class SchedulingPolicy(ABC):
    """Decides in which order requests are served.

    The arguments of a policy's constructor are its options: ``--scheduler NAME:option=value``, validated by
    their types. A fault in their values raises `ConfigError`.
    """

    head_of_line: ClassVar[bool] = False
    """True: while a request cannot be admitted, no request after it in the order is, so that none overtakes.
    False: the scheduler tries those after it. Set it where `victim` makes room for newcomers: otherwise
    memory freed for an urgent request that does not fit yet goes to requests after it, and has to be freed
    again in the next step. All built-in policies but `static` set it."""

    runners_first: ClassVar[bool] = False
    """True declares that a running request that needs only its next token comes, without a limit, before all
    that wait and before all that were admitted after it and need more; that the order of the others does not
    depend on it; and that `victim` and `observe` are the defaults. A simulation then skips the steps in which
    nothing else happens to such requests (fast forward). False is always correct. A subclass that overrides
    `order` must declare this again."""

    extra_args: ClassVar[tuple[str, ...]] = ()
    """Names of request arguments that the policy reads in `RequestView.extra_args`, and validates in `check`.
    Arguments that no plugin names are refused."""

    def check(self, request: RequestView) -> None:
        """Raises RequestError to reject a request. Called once, when it arrives and before it is queued."""

    @abstractmethod
    def order(self, view: View) -> Iterable[Entry]:
        """Returns the requests to serve in this step, in order, without those that should not run.

        Called once a step. The scheduler reads the whole order before anything changes, then grants each
        request as much as token budget, sequence slots and KV memory allow. An entry is

        - a request, which gets all it wants,
        - ``Share(request, limit)``: the request gets at most `limit` tokens in this step,
        - ``Drop(request, reason)``: the request is given up, and its client gets an error with this reason.

        A running request that is left out keeps its memory. Where there is work, some entry must be servable.
        Naming a request twice, or one that is not in the view, is a fault: the scheduler logs it and serves
        in arrival order.
        """

    def victim(self, request: RequestView, running: tuple[RequestView, ...]) -> RequestView | None:
        """Returns the request to preempt when `request` does not fit; None: preempt none, `request` waits.

        `request` found no memory or, as a newcomer, no sequence slot. `running` is in order of admission and
        not empty; the victim may be `request` itself. It gives up its memory and is computed again later. By
        default the newest admission is preempted for a running request, so that the oldest always makes
        progress; a waiting request waits.

        Called until the request fits; once it returned None for a waiting request, it is not called for
        waiting requests again in that step. A policy that preempts for waiting requests should be
        `head_of_line`.

        Do not derive the victim from `order`: two requests could then evict each other for ever. A safe
        policy has an order of precedence that does not change while requests run, and evicts only requests
        that come after `request` in it. Evictions without progress are the policy's fault.
        """
        return running[-1] if request in running else None

    def observe(self, request: RequestView, tokens: int, now: float) -> None:
        """Counts service: called after each step in which `request` produced `tokens` new tokens.

        By default it does nothing. No method is called when a request ends: keep notes by `id`, and drop
        notes of requests that are in no view any more.
        """

    def why(self, request: RequestView) -> str:
        """Says in a few words why a request is where it is, such as ``level 2 of 6``; empty: nothing to say.

        Called only while somebody watches the engine (`GET /admin/live`), a few times a second for each of
        the first requests in the order, right after `order`. At most 200 characters are shown. By default it
        says nothing.
        """
        return ""

    def figures(self) -> Figures:
        """Returns counters and gauges for `GET /metrics`, asked for a few times a second. None by default."""
        return Figures()


class LengthPredictor(ABC):
    """Predicts how long outputs will be, for policies that rank by length (`View.predict`)."""

    @abstractmethod
    def predict(self, request: RequestView) -> float:
        """Returns the output tokens that `request` will have when it ends.

        Called often: must be fast and without side effects.
        """

    def observe(self, request: RequestView) -> None:
        """Learns from a request that ended by itself (``stop`` or ``length``), with its final
        `output_tokens`.

        By default it does nothing.
        """

    def figures(self) -> Figures:
        """Returns counters and gauges for `GET /metrics`, asked for a few times a second. None by default."""
        return Figures()
