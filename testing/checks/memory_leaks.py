"""Checks that all memory is free again once no request is served."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import msgspec

from turnout.core.engine.engine import Engine
from turnout.core.interfaces.kv import KVCache
from turnout.core.types.request import Request
from turnout.testing.toy.engine import drive, toy_request

__all__ = ["assert_all_memory_is_free", "assert_requests_are_forgotten", "requests_served"]

MOST_KEPT = 8
"""Requests that have ended of which a plugin may still hold views: those of its latest step, say."""


def assert_all_memory_is_free(kv: KVCache) -> None:
    """Fails unless nothing is held, in the pool or in host memory, after all requests have ended."""
    assert kv.free == kv.capacity, (
        f"all requests have ended, but `free` is {kv.free} of {kv.capacity} positions: "
        f"{kv.capacity - kv.free} leaked; `release` must give back all that `reserve` and `fork` took"
    )
    snapshot = kv.snapshot()
    assert snapshot.held == snapshot.shared == 0, (
        f"all requests have ended, but `snapshot` reports {snapshot.held} held and {snapshot.shared} shared "
        "positions; expected 0"
    )
    assert snapshot.swapped == 0, (
        f"all requests have ended, but {snapshot.swapped} positions of host memory are still taken; "
        "`release` must free them, too"
    )
    for name in ("tables", "slabs"):  # of the built-in backends
        assert not getattr(kv, name, None), f"all requests have ended, but `{name}` still has some: {kv}"


def requests_served(make: Callable[[], Engine]) -> weakref.WeakSet[Request]:
    """Serves 60 requests, each of another client, by an engine that is gone then; returns what is left."""
    engine, alive = make(), weakref.WeakSet[Request]()
    arrive = engine.scheduler.queues.arrive

    def noting(request: Request) -> None:
        alive.add(request)
        arrive(request)

    engine.scheduler.queues.arrive = noting  # type: ignore[method-assign]
    specs = (toy_request(str(number), [1 + i % 6 for i in range(3)], "greedy", 4) for number in range(60))
    arrivals = [(at, msgspec.structs.replace(spec, client=spec.id)) for at, spec in enumerate(specs)]
    drive(engine, arrivals, errors=True)
    return alive


def assert_requests_are_forgotten(alive: weakref.WeakSet[Request]) -> None:
    """Fails if more than a few requests are left: a view keeps all that its request had."""
    gc.collect()
    assert len(alive) <= MOST_KEPT, (
        f"the plugin still holds {len(alive)} of 60 requests that have ended, as it would for as long as a "
        "server runs; keep notes by `id` and drop them, or views in a `weakref.WeakKeyDictionary`"
    )
