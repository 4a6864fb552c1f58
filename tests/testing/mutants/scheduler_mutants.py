"""Our scheduling policies, each with one mistake."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from typing import ClassVar

from turnout.core.interfaces.scheduling import Drop, Entry, SchedulingPolicy, Share
from turnout.core.types.request import RequestView, request_of
from turnout.core.types.views import View
from turnout.plugins.schedulers.fair import Fair
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.plugins.schedulers.mlfq import Mlfq
from turnout.plugins.schedulers.prefill_first import PrefillFirst
from turnout.plugins.schedulers.priority import Priority

__all__ = [
    "ChangesTheRequest",
    "DropsTheSlow",
    "EndsTheProcess",
    "FalseRunnersFirst",
    "ForgetsAClient",
    "ImpatientVictim",
    "LeavesTheLastOut",
    "LimitsRunners",
    "LooksAtRunners",
    "OrdersByChance",
    "OrdersByHash",
    "OrdersBySet",
    "PromptsWithoutAsking",
    "RemembersTheDead",
    "ServesTwice",
    "SquanderedSlots",
    "StarvesTheLong",
    "UnfairCounter",
    "WaitsForTheHead",
]


class LeavesTheLastOut(Fcfs):
    """A lost request: who came last is never served while others wait, and not when alone either."""

    def order(self, view: View) -> Iterable[RequestView]:
        return view.running + view.waiting[: len(view.waiting) - 1]


class ServesTwice(Fcfs):
    """Names the first running request once more."""

    def order(self, view: View) -> Iterable[RequestView]:
        return view.running + view.waiting + view.running[:1]


class ForgetsAClient(Fcfs):
    """Clients without a name are not thought of."""

    def order(self, view: View) -> Iterable[RequestView]:
        return [request for request in view.running + view.waiting if request.client]


class StarvesTheLong(Fcfs):
    """Long prompts wait while short ones do."""

    def order(self, view: View) -> Iterable[RequestView]:
        return [*view.running, *sorted(view.waiting, key=lambda request: request.prompt_tokens)]


class WaitsForTheHead(Fcfs):
    """Serves no request until the head of the queue fits, not even running ones."""

    def order(self, view: View) -> Iterable[RequestView]:
        if view.waiting and not view.fits(view.waiting[0]):
            return ()
        return view.running + view.waiting


class PromptsWithoutAsking(PrefillFirst):
    """Prompts before all else, whether there is memory for them or not: running requests wait for ever."""

    def order(self, view: View) -> Iterable[Entry]:
        return view.waiting or view.running


class DropsTheSlow(Fcfs):
    """Gives up requests that waited long, deadline or not."""

    def order(self, view: View) -> Iterable[Entry]:
        yield from view.running
        for request in view.waiting:
            yield Drop(request, "too slow") if view.now - request.arrival > 8 else request


class EndsTheProcess(Fcfs):
    """Takes itself for a command."""

    def order(self, view: View) -> Iterable[RequestView]:
        sys.exit(0)


class ChangesTheRequest(Fcfs):
    """Reaches behind the view."""

    def observe(self, request: RequestView, tokens: int, now: float) -> None:
        request_of(request).timing.arrival += 1e-9


class OrdersByChance(Fcfs):
    """Takes its randomness from nowhere."""

    head_of_line: ClassVar[bool] = False

    def order(self, view: View) -> Iterable[RequestView]:
        return [*view.running, *random.sample(view.waiting, len(view.waiting))]


class OrdersByHash(Fcfs):
    """Breaks ties by a number that each process draws anew."""

    def order(self, view: View) -> Iterable[RequestView]:
        return [*view.running, *sorted(view.waiting, key=lambda request: hash(request.id))]


class OrdersBySet(Fcfs):
    """Serves client by client, in the order of a set."""

    def order(self, view: View) -> Iterable[RequestView]:
        clients = {request.client for request in view.waiting}
        turns = [request for client in clients for request in view.waiting if request.client == client]
        return [*view.running, *turns]


class RemembersTheDead(Fcfs):
    """Notes what it has seen, for ever."""

    def __init__(self) -> None:
        self.seen: set[RequestView] = set()

    def order(self, view: View) -> Iterable[RequestView]:
        self.seen.update(view.running)
        return view.running + view.waiting


class FalseRunnersFirst(Fcfs):
    """Serves prompts first, and declares the opposite."""

    runners_first: ClassVar[bool] = True

    def order(self, view: View) -> Iterable[Entry]:
        return [request for request in view.waiting if view.fits(request)] + [*view.running]


class LimitsRunners(Fcfs):
    """Declares runners without a limit, and limits them."""

    runners_first: ClassVar[bool] = True

    def order(self, view: View) -> Iterable[Entry]:
        return [*(Share(request, 1 << 20) for request in view.running), *view.waiting]


class LooksAtRunners(Fcfs):
    """Orders prompts otherwise while others decode."""

    runners_first: ClassVar[bool] = True

    def order(self, view: View) -> Iterable[Entry]:
        return [*view.running, *(reversed(view.waiting) if view.running else view.waiting)]


class SquanderedSlots(Mlfq):
    """Remembers requests by a number that two of them may share."""

    def order(self, view: View) -> Iterable[RequestView]:
        return {request.prompt_tokens: request for request in super().order(view)}.values()


class ImpatientVictim(Priority):
    """Evicts any running request, whatever its priority: two of a kind evict each other for ever."""

    def victim(self, request: RequestView, running: tuple[RequestView, ...]) -> RequestView | None:
        return running[0]


class UnfairCounter(Fair):
    """Charges a client for its prompts, not for what it was given."""

    def observe(self, request: RequestView, tokens: int, now: float) -> None:
        super().observe(request, 0 if request.client == "flood" else tokens, now)


MUTANTS: list[type[SchedulingPolicy]] = [globals()[name] for name in __all__]
