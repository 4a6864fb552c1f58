"""What a snapshot says of a pool, in token positions. Random traffic is recounted in test_random_traffic."""

from __future__ import annotations

from steps import compute, fork, release, sequence, swap_out
from toy import toy_kv

from turnout.core.interfaces.kv import Span


def test_an_empty_pool() -> None:
    snapshot = toy_kv(8, 4, swap=2).snapshot()
    assert (snapshot.capacity, snapshot.free, snapshot.held, snapshot.swap) == (32, 32, 0, 8)
    assert snapshot.states == [("free", 8)] and snapshot.unit == 4


def test_waste_is_what_is_held_and_not_computed() -> None:
    kv = toy_kv(8, 4)
    compute(kv, sequence(range(9)))
    assert kv.reserve([Span(sequence(range(50, 56)), 0, 6)])
    snapshot = kv.snapshot()
    assert (snapshot.held, snapshot.computed) == (5 * 4, 9)
    assert snapshot.waste == 11 / 20
    assert toy_kv(8, 4).snapshot().waste == 0


def test_what_is_shared_counts_once() -> None:
    kv = toy_kv(8, 4)
    compute(kv, sequence([1, 2, 3, 4, 5]))
    compute(kv, parent := sequence([1, 2, 3, 4, 6], n=2))
    fork(kv, parent)
    snapshot = kv.snapshot()
    assert (snapshot.held, snapshot.shared, snapshot.computed) == (12, 8, 4 + 1 + 1)
    assert snapshot.states == [("shared", 1), ("held", 1), ("shared", 1), ("free", 5)]


def test_what_an_ended_request_leaves_is_cached_and_free() -> None:
    kv = toy_kv(8, 4)
    compute(kv, one := sequence(range(9)))
    release(kv, one)
    snapshot = kv.snapshot()
    assert (snapshot.free, snapshot.cached, snapshot.held) == (32, 8, 0)
    assert snapshot.states == [("cached", 2), ("free", 6)]


def test_evictions_and_swapping_are_counted_in_positions() -> None:
    kv = toy_kv(4, 4, swap=8)
    compute(kv, one := sequence(range(14)))
    swap_out(kv, one)
    compute(kv, sequence(range(100, 108)))
    snapshot = kv.snapshot()
    assert (snapshot.swapped, snapshot.evictions, snapshot.cached) == (16, 4, 8)
