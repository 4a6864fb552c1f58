"""The contiguous backend: first fit, slabs for all choices at once, swapped out at their computed length."""

from __future__ import annotations

from steps import compute, fork, release, sequence, spans, swap_out

from turnout.core.interfaces.kv import PoolSize
from turnout.plugins.kv_backends.contiguous.cache import ContiguousCache
from turnout.plugins.kv_backends.contiguous.first_fit import FirstFit


def test_a_request_holds_all_it_may_ever_need_from_its_first_token_on() -> None:
    kv = ContiguousCache(PoolSize(100))
    one = sequence(range(10), n=2, room=20)
    compute(kv, one)
    assert kv.free == 40
    snapshot = kv.snapshot()
    assert (snapshot.held, snapshot.computed, snapshot.cached) == (60, 10, 0)
    assert snapshot.states == [("held", 60), ("free", 40)]
    assert snapshot.lookups == snapshot.hits == snapshot.evictions == 0


def test_free_memory_in_pieces_too_small_is_no_use() -> None:
    kv = ContiguousCache(PoolSize(100))
    requests = [sequence(range(10), room=15) for _ in range(4)]
    for each in requests:
        compute(kv, each)
    release(kv, requests[0])
    release(kv, requests[2])
    large = sequence(range(10), room=20)
    assert kv.free == 50 and not kv.fits(spans(kv, large)) and not kv.reserve(spans(kv, large))
    assert kv.snapshot().states == [("free", 25), ("held", 25), ("free", 25), ("held", 25)]
    release(kv, requests[1])
    compute(kv, large)
    assert kv.slabs[large.id].start == 0


def test_forks_share_a_slab_until_they_write() -> None:
    kv = ContiguousCache(PoolSize(100))
    parent = sequence(range(10), n=2, room=10)
    compute(kv, parent)
    child = fork(kv, parent, 5)
    assert kv.snapshot().shared == 20 and kv.snapshot().computed == 10
    parent.tokens.append(4)
    compute(kv, parent, child)
    (copy,) = kv.drain()
    assert (copy.source, copy.target, copy.length, copy.way) == (0, 20, 10, "copy")
    assert kv.snapshot().shared == 0 and kv.snapshot().computed == 22


def test_a_slab_is_swapped_out_at_its_computed_length_and_restored_into_a_new_one() -> None:
    kv = ContiguousCache(PoolSize(100, swap=12))
    one, two = sequence(range(10), room=20), sequence(range(5), room=20)
    compute(kv, one)
    compute(kv, two)
    one.tokens.append(1)
    assert kv.swappable([one]) == 10
    swap_out(kv, one)
    (swapped,) = kv.drain()
    assert (swapped.source, swapped.target, swapped.length, swapped.way) == (0, 0, 10, "swap_out")
    assert kv.snapshot().swapped == 10 and kv.cached(one) == 10
    compute(kv, sequence(range(3), room=20))
    compute(kv, one)
    (restored,) = kv.drain()
    assert (restored.source, restored.length, restored.way) == (0, 10, "swap_in")
    assert restored.target == kv.slabs[one.id].start
    assert kv.snapshot().swapped == 0 and kv.cached(one) == 0


def test_a_request_is_swapped_out_as_a_whole_or_not_at_all() -> None:
    kv = ContiguousCache(PoolSize(100, swap=21))
    parent = sequence(range(10), n=2, room=10)
    compute(kv, parent)
    family = [parent, fork(kv, parent, 5)]
    parent.tokens.append(4)
    assert kv.swappable(family) == 10, "one slab, which they share"
    compute(kv, *family)
    kv.drain()
    assert kv.swappable(family) == 0, "11 positions each"
    swap_out(kv, *family)
    assert kv.drain() == [] and kv.snapshot().swapped == 0 and kv.free == 100


def test_siblings_that_shared_a_slab_get_one_each() -> None:
    kv = ContiguousCache(PoolSize(100, swap=30))
    parent = sequence(range(10), n=2, room=10)
    compute(kv, parent)
    family = [parent, fork(kv, parent, 5)]
    parent.tokens.append(4)
    swap_out(kv, *family)
    assert [move.length for move in kv.drain()] == [10]
    compute(kv, *family)
    moves = kv.drain()
    assert [(move.source, move.length, move.way) for move in moves] == [(0, 10, "swap_in")] * 2
    assert {move.target for move in moves} == {kv.slabs[each.id].start for each in family}
    assert kv.snapshot().swapped == 0


def test_siblings_may_come_back_one_at_a_time() -> None:
    kv = ContiguousCache(PoolSize(40, swap=30))
    parent = sequence(range(10), n=2, room=10)
    compute(kv, parent)
    family = [parent, fork(kv, parent, 5)]
    parent.tokens.append(4)
    swap_out(kv, *family)
    compute(kv, family[1])
    assert (kv.cached(parent), kv.snapshot().swapped) == (10, 10)
    compute(kv, parent)
    assert kv.snapshot().swapped == 0
    release(kv, *family)
    assert kv.free == 40


def test_what_is_given_up_while_swapped_out_frees_host_memory() -> None:
    kv = ContiguousCache(PoolSize(40, swap=30))
    one = sequence(range(10), room=10)
    compute(kv, one)
    swap_out(kv, one)
    release(kv, one)
    assert kv.snapshot().swapped == 0 and kv.free == 40


def test_it_keeps_no_prefixes() -> None:
    assert ContiguousCache(PoolSize(40)).prefixes is None


def test_gaps_are_found_first_fit_and_joined_again() -> None:
    ranges = FirstFit(100)
    assert ranges.take([30, 20, 10]) == [0, 30, 50]
    ranges.give_back([(30, 20)])
    assert ranges.take([15]) == [30]
    assert ranges.take([5, 41]) is None
    assert ranges.ranges == [(45, 5), (60, 40)]
    ranges.give_back([(50, 10), (0, 30)])
    assert ranges.ranges == [(0, 30), (45, 55)]
    assert ranges.free == 85 and ranges.fits([55, 30]) and not ranges.fits([56])
