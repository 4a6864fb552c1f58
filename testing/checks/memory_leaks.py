"""Whether memory has come back."""

from __future__ import annotations

from turnout.core.interfaces.kv import KVCache

__all__ = ["assert_all_memory_is_free"]


def assert_all_memory_is_free(kv: KVCache) -> None:
    """Once nobody is served: nothing is held, in the pool or in host memory."""
    assert kv.free == kv.capacity, f"leaked {kv.capacity - kv.free} of {kv.capacity} positions"
    snapshot = kv.snapshot()
    assert snapshot.held == snapshot.shared == 0, f"the snapshot says {snapshot.held} positions are held"
    assert snapshot.swapped == 0, f"leaked {snapshot.swapped} positions of host memory"
    for name in ("tables", "slabs"):  # our own backends'
        assert not getattr(kv, name, None), f"{name} of sequences that are gone"
