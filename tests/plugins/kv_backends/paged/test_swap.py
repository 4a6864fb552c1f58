"""Swapping to host memory and coming back: what moves, what is shared, what is refused."""

from __future__ import annotations

import pytest
from steps import compute, fork, release, sequence, spans, swap_out
from toy import toy_kv

from turnout.core.interfaces.kv import Span
from turnout.core.types.plan import Move
from turnout.plugins.kv_backends.paged.host.cache import PagedCache

PREFIX = list(range(100, 112))


def flush(kv: PagedCache) -> None:
    """Another request takes the whole pool and ends, so that nothing cached is left of those before it."""
    other = sequence(range(1000, 1000 + kv.capacity))
    compute(kv, other)
    release(kv, other)
    kv.drain()


def moved(moves: list[Move], way: str) -> list[int]:
    """Lengths of the moves of one way."""
    assert all(move.way == way for move in moves), moves
    return [move.length for move in moves]


def test_what_is_computed_is_swapped_out_and_comes_back() -> None:
    kv = toy_kv(8, 4, swap=8, prefix_caching=False)
    one = sequence([*PREFIX, 1, 2, 3])
    compute(kv, one, upto=14)
    assert kv.swappable([one]) == 14
    swap_out(kv, one)
    swapped = kv.drain()
    assert moved(swapped, "swap_out") == [4, 4, 4, 2]
    assert kv.free == kv.capacity and kv.snapshot().swapped == 16
    assert kv.cached(one) == 14
    compute(kv, one)
    restored = kv.drain()
    assert moved(restored, "swap_in") == [4, 4, 4, 2]
    assert [move.source for move in restored] == [move.target for move in swapped]
    assert [move.target for move in restored] == [block * 4 for block in kv.tables[one.id]]
    assert kv.snapshot().swapped == 0


def test_where_nothing_is_computed_nothing_is_swapped_out() -> None:
    kv = toy_kv(8, 4, swap=8)
    one = sequence(PREFIX)
    assert kv.swappable([one]) == 0
    assert kv.reserve([Span(one, 0, 12)])
    assert kv.swappable([one]) == 0
    swap_out(kv, one)
    assert kv.drain() == [] and kv.snapshot().swapped == 0 and kv.cached(one) == 0


def test_without_room_for_all_of_a_request_nothing_is_swapped_out() -> None:
    kv = toy_kv(16, 4, swap=4)
    parent = sequence([*PREFIX, 1, 2], n=2)
    compute(kv, parent)
    child = fork(kv, parent, 9)
    parent.tokens.append(8)
    compute(kv, parent, child)
    kv.drain()
    assert kv.swappable([parent, child]) == 0, "three shared blocks and two tails"
    swap_out(kv, parent, child)
    assert kv.drain() == []
    assert kv.snapshot().swapped == 0 and kv.free == kv.capacity


def test_without_host_memory_nothing_is_swapped_out() -> None:
    kv = toy_kv(8, 4, swap=0, prefix_caching=False)
    one = sequence(PREFIX)
    compute(kv, one)
    assert kv.swappable([one]) == 0
    swap_out(kv, one)
    assert kv.cached(one) == 0


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_what_siblings_share_is_swapped_out_once_and_comes_back_shared(prefix_caching: bool) -> None:
    kv = toy_kv(6, 4, swap=6, prefix_caching=prefix_caching)
    parent = sequence([*PREFIX, 1, 2], n=3)
    compute(kv, parent)
    children = [fork(kv, parent, token) for token in (5, 6)]
    family = [parent, *children]
    parent.tokens.append(7)
    compute(kv, *family)
    kv.drain()
    assert kv.swappable(family) == 3 * 4 + 3 * 3
    swap_out(kv, *family)
    assert moved(kv.drain(), "swap_out") == [4, 4, 4, 3, 3, 3]
    flush(kv)
    for each in family:
        each.tokens.append(1)
    compute(kv, *family)
    assert sorted(moved(kv.drain(), "swap_in")) == [3, 3, 3, 4, 4, 4]
    assert kv.free == 0
    assert len({block for each in family for block in kv.tables[each.id]}) == 6


def test_a_tail_that_siblings_share_comes_back_once_and_is_copied_for_all_but_one() -> None:
    kv = toy_kv(6, 4, swap=6)
    parent = sequence([*PREFIX, 1, 2], n=3)
    compute(kv, parent)
    family = [parent, fork(kv, parent, 5), fork(kv, parent, 6)]
    parent.tokens.append(7)
    swap_out(kv, *family)
    assert moved(kv.drain(), "swap_out") == [4, 4, 4, 2]
    assert kv.fits(spans(kv, *family))
    compute(kv, *family)
    moves = kv.drain()
    assert [(move.way, move.length) for move in moves] == [("swap_in", 2), ("copy", 2), ("copy", 2)]
    assert kv.free == 0


def test_copies_follow_what_they_copy() -> None:
    """Moves are carried out in order: a tail must be back before it is copied."""
    kv = toy_kv(16, 4, swap=6, prefix_caching=False)
    parent = sequence([*PREFIX, 1, 2], n=2)
    compute(kv, parent)
    family = [parent, fork(kv, parent, 5)]
    parent.tokens.append(7)
    swap_out(kv, *family)
    kv.drain()
    compute(kv, *family)
    moves = kv.drain()
    (copy,) = [move for move in moves if move.way == "copy"]
    back = [move.target for move in moves[: moves.index(copy)] if move.way == "swap_in"]
    assert copy.source in back


def test_a_swapped_out_prefix_stays_shareable_in_the_pool() -> None:
    kv = toy_kv(8, 4, swap=8)
    one = sequence([*PREFIX, 1])
    compute(kv, one)
    swap_out(kv, one)
    assert kv.cached(sequence([*PREFIX, 9])) == 12
    assert kv.snapshot().cached == 12


def test_what_is_still_in_the_pool_is_attached_and_not_copied() -> None:
    kv = toy_kv(8, 4, swap=8)
    one = sequence([*PREFIX, 1, 2])
    compute(kv, one)
    blocks = kv.tables[one.id][:3]
    one.tokens.append(3)
    swap_out(kv, one)
    kv.drain()
    compute(kv, one)
    assert moved(kv.drain(), "swap_in") == [2]
    assert kv.tables[one.id][:3] == blocks


def test_a_block_that_was_evicted_in_between_is_restored_alone() -> None:
    kv = toy_kv(4, 4, swap=8)
    one = sequence([*PREFIX, 1, 2])
    compute(kv, one)
    swap_out(kv, one)
    other = sequence([1, 2, 3, 4, 5])
    compute(kv, other)
    release(kv, other)
    kv.drain()
    one.tokens.append(3)
    compute(kv, one)
    assert moved(kv.drain(), "swap_in") == [4, 2], "one block was evicted, the last of the prefix"


def test_a_longer_prefix_in_the_pool_is_preferred_to_what_is_swapped_out() -> None:
    kv = toy_kv(16, 4, swap=8)
    one = sequence([*PREFIX, 1, 2])
    compute(kv, one, upto=6)
    swap_out(kv, one)
    kv.drain()
    compute(kv, sequence([*PREFIX, 5]))
    assert kv.cached(one) == 12
    compute(kv, one)
    assert kv.drain() == []
    assert kv.snapshot().swapped == 0, "its own is not needed any more"


def test_what_is_restored_can_be_found_by_others_at_once() -> None:
    kv = toy_kv(8, 4, swap=8)
    one = sequence([*PREFIX, 1, 2])
    compute(kv, one)
    swap_out(kv, one)
    flush(kv)
    one.tokens.append(3)
    compute(kv, one)
    assert kv.cached(sequence([*PREFIX, 7])) == 12


def test_a_prefix_that_is_swapped_out_already_is_not_swapped_out_again() -> None:
    kv = toy_kv(16, 4, swap=16)
    one, two = sequence([*PREFIX, 1]), sequence([*PREFIX, 7, 8])
    compute(kv, one)
    compute(kv, two)
    swap_out(kv, one)
    assert moved(kv.drain(), "swap_out") == [4, 4, 4, 1]
    assert kv.swappable([two]) == 2
    swap_out(kv, two)
    assert moved(kv.drain(), "swap_out") == [2]
    assert kv.snapshot().swapped == 5 * 4
    release(kv, one)
    assert kv.snapshot().swapped == 4 * 4, "three of them are still the other's"
    release(kv, two)
    assert kv.snapshot().swapped == 0


def test_salts_keep_swapped_out_prefixes_apart() -> None:
    kv = toy_kv(16, 4, swap=16)
    one, two = sequence([*PREFIX, 1], salt="a"), sequence([*PREFIX, 1], salt="b")
    compute(kv, one)
    compute(kv, two)
    swap_out(kv, one)
    assert kv.swappable([two]) == 13


def test_a_swapped_out_sequence_that_is_given_up_frees_its_host_memory() -> None:
    kv = toy_kv(8, 4, swap=4)
    one = sequence([*PREFIX, 1, 2])
    compute(kv, one)
    swap_out(kv, one)
    release(kv, one)
    assert kv.snapshot().swapped == 0 and kv.cached(one) == 12
    two = sequence(range(1, 15))
    compute(kv, two)
    assert kv.swappable([two]) == 14


def test_siblings_at_different_progress_come_back_one_at_a_time() -> None:
    kv = toy_kv(8, 4, swap=12)
    ahead = sequence([*PREFIX, 1, 2], n=2)
    compute(kv, ahead)
    behind = fork(kv, ahead, 5, 5, 5, 5)
    ahead.tokens += [7, 7, 7]
    compute(kv, ahead)
    ahead.tokens.append(7)
    kv.drain()
    swap_out(kv, ahead, behind)
    assert moved(kv.drain(), "swap_out") == [4, 4, 4, 4, 1, 2]
    flush(kv)
    assert (kv.cached(ahead), kv.cached(behind)) == (17, 14)
    compute(kv, behind, upto=17)
    assert moved(kv.drain(), "swap_in") == [4, 4, 4, 2]
    compute(kv, ahead, behind)
    assert moved(kv.drain(), "swap_in") == [4, 1], "its sibling had brought the prefix"


def test_a_request_half_of_which_is_back_is_swapped_out_again_as_a_whole() -> None:
    kv = toy_kv(8, 4, swap=12)
    ahead = sequence([*PREFIX, 1, 2], n=2)
    compute(kv, ahead)
    behind = fork(kv, ahead, 5, 5, 5, 5)
    ahead.tokens.append(7)
    swap_out(kv, ahead, behind)
    compute(kv, behind, upto=16)
    swap_out(kv, ahead, behind)
    assert (kv.cached(ahead), kv.cached(behind)) == (14, 16)
    release(kv, ahead, behind)
    assert kv.snapshot().swapped == 0 and kv.free == kv.capacity


def test_a_refused_return_changes_nothing() -> None:
    kv = toy_kv(8, 4, swap=8, prefix_caching=False)
    one = sequence([*PREFIX, 1, 2])
    compute(kv, one)
    swap_out(kv, one)
    kv.drain()
    compute(kv, sequence(range(32)))
    one.tokens.append(3)
    wanted = spans(kv, one)
    assert not kv.fits(wanted) and not kv.reserve(wanted)
    assert kv.cached(one) == 14 and kv.snapshot().swapped == 16
    assert kv.drain() == [] and one.id not in kv.tables


def test_host_memory_is_counted_in_whole_blocks() -> None:
    assert toy_kv(8, 4, swap=3).swap == 12
