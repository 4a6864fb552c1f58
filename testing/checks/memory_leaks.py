"""Checks that all memory is free again once no request is served."""

from __future__ import annotations

from turnout.core.interfaces.kv import KVCache

__all__ = ["assert_all_memory_is_free"]


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
