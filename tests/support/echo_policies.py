"""Scheduling policies that exist for the tests of the server alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy
from turnout.core.interfaces.kv import KVCache, PoolSize, Span
from turnout.core.interfaces.scheduling import Drop, Entry, SchedulingPolicy
from turnout.core.registry.hookspecs import Register, hookimpl
from turnout.core.types.request import RequestView
from turnout.core.types.views import View
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.paged.backend import Paged
from turnout.plugins.kv_backends.paged.host.cache import PagedCache


class Shuffling(SchedulingPolicy):
    """Serves by priority, and evicts for it; less urgent ones are often left out."""

    def __init__(self, width: int = 3, reverse: bool = False) -> None:
        if width < 1:
            raise ValueError("width must be at least 1")
        self.width = width
        self.reverse = reverse

    def order(self, view: View) -> Iterable[Entry]:
        return sorted((*view.running, *view.waiting), key=self._rank)[: self.width]

    def victim(self, request: RequestView, running: tuple[RequestView, ...]) -> RequestView | None:
        last = max(running, key=self._rank)
        return last if self._rank(last) >= self._rank(request) else None

    def _rank(self, request: RequestView) -> tuple[int, str]:
        return (-request.priority if self.reverse else request.priority, request.id)


class Deadlines(SchedulingPolicy):
    """In order of arrival, but gives up requests past their deadline."""

    def order(self, view: View) -> Iterable[Entry]:
        for request in (*view.running, *view.waiting):
            late = self._late(request, view.now)
            yield Drop(request, f"too late for {request.client}") if late else request

    def _late(self, request: RequestView, now: float) -> bool:
        due = [request.deadline, None if request.first_token else request.ttft_deadline]
        return any(when is not None and when < now for when in due)


class BrokenCache(PagedCache):
    """Reserves nothing for a request whose ``user`` is ``unreserved``; for none, if it is `always` broken."""

    always = False

    def reserve(self, spans: Sequence[Span]) -> bool:
        if self.always or any(span.sequence.request.spec.client == "unreserved" for span in spans):
            raise RuntimeError("the books are lost")
        return super().reserve(spans)


class BrokenKV(Paged):
    """A KV backend that fails in service."""

    def __init__(self, block_size: int = 16, always: bool = False) -> None:
        super().__init__(block_size=block_size)
        self.always = always

    def cache(self, size: PoolSize, eviction: EvictionPolicy) -> KVCache:
        cache = BrokenCache(size, self.unit, eviction)
        cache.always = self.always
        return cache


class BrokenEviction(Lru):
    """An eviction policy that fails whenever it is called."""

    def add(self, block: CachedBlock) -> None:
        raise RuntimeError("no such block")


class Raising(SchedulingPolicy):
    """A scheduling policy that fails whenever it is called."""

    def order(self, view: View) -> Iterable[Entry]:
        raise RuntimeError("no order")


@hookimpl
def register_kv_backends(register: Register) -> None:
    register("broken", BrokenKV)


@hookimpl
def register_evictions(register: Register) -> None:
    register("broken", BrokenEviction)


@hookimpl
def register_schedulers(register: Register) -> None:
    register("shuffling", Shuffling)
    register("deadlines", Deadlines)
    register("raising", Raising)
