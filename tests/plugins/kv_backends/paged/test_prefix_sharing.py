"""Who starts with the same tokens attaches to the blocks that hold them."""

from __future__ import annotations

from steps import compute, fork, release, sequence
from toy import toy_kv

from turnout.core.interfaces.kv import Span

PREFIX = list(range(100, 112))
"""Three blocks of four."""


def test_a_prefix_is_found_while_its_first_holder_still_runs() -> None:
    kv = toy_kv(16, 4)
    first, second = sequence([*PREFIX, 1, 2]), sequence([*PREFIX, 7, 8, 9])
    compute(kv, first, upto=8)
    assert kv.cached(second) == 8
    compute(kv, first)
    assert kv.cached(second) == 12
    compute(kv, second)
    assert kv.tables[second.id][:3] == kv.tables[first.id][:3]
    assert kv.tables[second.id][3] != kv.tables[first.id][3]
    assert kv.free == kv.capacity - 5 * 4


def test_a_prefix_is_found_after_its_holder_is_gone() -> None:
    kv = toy_kv(16, 4)
    first, second = sequence([*PREFIX, 1]), sequence([*PREFIX, 7])
    compute(kv, first)
    blocks = kv.tables[first.id][:3]
    release(kv, first)
    assert kv.free == kv.capacity
    compute(kv, second)
    assert kv.tables[second.id][:3] == blocks


def test_what_was_not_committed_is_not_shared() -> None:
    kv = toy_kv(16, 4)
    first = sequence([*PREFIX, 1])
    assert kv.reserve([Span(first, 0, 13)])
    assert kv.cached(sequence([*PREFIX, 1])) == 0


def test_one_token_is_always_left_to_compute() -> None:
    kv = toy_kv(16, 4)
    compute(kv, sequence([*PREFIX, 1]))
    assert kv.cached(sequence(PREFIX)) == 8
    assert kv.cached(sequence([*PREFIX, 5])) == 12


def test_a_prefix_ends_where_the_tokens_differ() -> None:
    kv = toy_kv(16, 4)
    compute(kv, sequence([*PREFIX, 1]))
    assert kv.cached(sequence([*PREFIX[:6], 0, *PREFIX[7:], 1])) == 4
    assert kv.cached(sequence([0, *PREFIX])) == 0


def test_the_same_block_after_other_tokens_is_another() -> None:
    """Its keys and values depend on all tokens before it."""
    kv = toy_kv(16, 4)
    compute(kv, sequence([1, 2, 3, 4, *PREFIX, 1]))
    assert kv.cached(sequence([5, 6, 7, 8, *PREFIX, 1])) == 0


def test_nothing_is_shared_across_salts() -> None:
    kv = toy_kv(16, 4)
    compute(kv, sequence([*PREFIX, 1], salt="tenant a"))
    assert kv.cached(sequence([*PREFIX, 1], salt="tenant b")) == 0
    assert kv.cached(sequence([*PREFIX, 1])) == 0
    assert kv.cached(sequence([*PREFIX, 1], salt="tenant a")) == 12


def test_a_salt_that_spells_a_block_does_not_stand_for_it() -> None:
    """Else its owner could attach to the second block of a request without a salt."""
    kv = toy_kv(16, 4)
    compute(kv, sequence([*PREFIX, 1]))
    spelt = b"".join(token.to_bytes(8, "little") for token in PREFIX[:4]).decode()
    assert kv.cached(sequence([*PREFIX[4:], 1], salt=spelt)) == 0


def test_any_text_is_a_salt() -> None:
    kv = toy_kv(16, 4)
    for salt in ("\udcff", "é", "x" * 10_000):
        compute(kv, sequence([*PREFIX, 1], salt=salt))
        assert kv.cached(sequence([*PREFIX, 1], salt=salt)) == 12


def test_of_twins_the_first_is_shared_and_the_other_forgotten_with_its_holder() -> None:
    kv = toy_kv(16, 4)
    first, twin = sequence([*PREFIX, 1]), sequence([*PREFIX, 1])
    compute(kv, first, twin)
    assert not set(kv.tables[first.id]) & set(kv.tables[twin.id])
    blocks = kv.tables[first.id][:3]
    release(kv, twin)
    assert kv.snapshot().cached == 0
    third = sequence([*PREFIX, 2])
    compute(kv, third)
    assert kv.tables[third.id][:3] == blocks


def test_without_prefix_caching_nothing_is_found() -> None:
    kv = toy_kv(16, 4, prefix_caching=False)
    first = sequence([*PREFIX, 1])
    compute(kv, first)
    release(kv, first)
    assert kv.cached(sequence([*PREFIX, 1])) == 0
    assert kv.prefixes is None


def test_siblings_share_all_until_they_write() -> None:
    kv = toy_kv(16, 4)
    parent = sequence([*PREFIX, 1, 2], n=3)
    compute(kv, parent)
    before = kv.free
    children = [fork(kv, parent, token) for token in (5, 6)]
    parent.tokens.append(7)
    assert kv.free == before
    compute(kv, parent, *children)
    tables = [kv.tables[each.id] for each in (parent, *children)]
    assert all(table[:3] == tables[0][:3] for table in tables)
    assert len({table[3] for table in tables}) == 3


def test_three_siblings_need_two_copies_of_their_tail() -> None:
    """The last to write is its only holder by then, and writes in place."""
    kv = toy_kv(6, 4)
    parent = sequence([*PREFIX, 1, 2], n=3)
    compute(kv, parent)
    tail = kv.tables[parent.id][3]
    children = [fork(kv, parent, token) for token in (5, 6)]
    parent.tokens.append(7)
    compute(kv, parent, *children)
    assert kv.free == 0
    copies = kv.drain()
    assert [(move.source, move.length, move.way) for move in copies] == [(tail * 4, 2, "copy")] * 2
    assert kv.tables[children[-1].id][3] == tail


def test_the_only_sibling_that_writes_copies_when_others_stay() -> None:
    kv = toy_kv(16, 4)
    parent = sequence([*PREFIX, 1, 2], n=2)
    compute(kv, parent)
    child = fork(kv, parent, 5)
    compute(kv, child)
    (copy,) = kv.drain()
    assert copy.source == kv.tables[parent.id][3] * 4
    assert copy.target == kv.tables[child.id][3] * 4


def test_a_tail_with_nothing_computed_in_it_is_replaced_without_a_copy() -> None:
    kv = toy_kv(16, 4)
    parent = sequence([*PREFIX, 1], n=2)
    assert kv.reserve([Span(parent, 0, 13)])
    parent.held, parent.computed = True, 12
    child = fork(kv, parent)
    assert kv.reserve([Span(child, 12, 13)])
    assert kv.drain() == []
    assert kv.tables[child.id][3] != kv.tables[parent.id][3]


def test_a_reservation_does_not_evict_what_it_attaches_to() -> None:
    """A bug once: the first span's new block was the cached one that the second had counted on."""
    kv = toy_kv(5, 4)
    old = sequence([*PREFIX, 1])
    compute(kv, old)
    release(kv, old)
    fresh, returning = sequence([1, 2, 3], n=2), sequence([*PREFIX, 1])
    assert kv.reserve([Span(fresh, 0, 3), Span(returning, 12, 13)])
    assert len({*kv.tables[fresh.id], *kv.tables[returning.id]}) == 5


def test_who_computes_a_part_of_a_cached_block_again_gets_a_copy_of_the_rest() -> None:
    """As a request that wants its tokens scored: others go on reading the block as it was."""
    kv = toy_kv(16, 4)
    first, again = sequence([*PREFIX, 1]), sequence([*PREFIX, 5])
    compute(kv, first)
    assert kv.reserve([Span(again, 6, 13)])
    (copy,) = kv.drain()
    assert (copy.source, copy.length) == (kv.tables[first.id][1] * 4, 2)
    assert copy.target == kv.tables[again.id][1] * 4
    assert kv.cached(sequence([*PREFIX, 9])) == 12


def test_a_block_with_one_holder_is_written_in_place_and_found_no_more() -> None:
    """No copy, which could need more memory than an empty pool has."""
    kv = toy_kv(4, 4)
    first, again = sequence([*PREFIX, 1]), sequence([*PREFIX, 5])
    compute(kv, first)
    blocks = kv.tables[first.id]
    release(kv, first)
    assert kv.reserve([Span(again, 6, 13)])
    assert kv.drain() == [] and kv.tables[again.id][:2] == blocks[:2]
    assert kv.cached(sequence([*PREFIX, 9])) == 4


def test_a_block_that_a_sibling_has_filled_further_is_found_no_more_once_it_is_written_to() -> None:
    """One more token in a block of its own took a shorter way: the finder of the block read that token."""
    kv = toy_kv(16, 4)
    first = sequence(PREFIX[:6])
    compute(kv, first)
    assert kv.reserve([Span(first, 6, 8)])  # two drafts, which come true for the first, not for its sibling
    sibling = fork(kv, first, 60)
    first.tokens += PREFIX[6:8]
    kv.commit(first, 8)
    release(kv, first)
    assert kv.cached(sequence([*PREFIX[:8], 9])) == 8
    assert kv.reserve([Span(sibling, 6, 7)])
    assert kv.cached(sequence([*PREFIX[:8], 9])) == 4


def test_hits_are_counted_once_for_each_request() -> None:
    kv = toy_kv(16, 4)
    first, second = sequence([*PREFIX, 1]), sequence([*PREFIX, 2, 3])
    compute(kv, first)
    compute(kv, second)
    assert (kv.snapshot().lookups, kv.snapshot().hits) == (13 + 14, 12)
    release(kv, second)
    compute(kv, second)
    assert (kv.snapshot().lookups, kv.snapshot().hits) == (13 + 14, 12), "it was preempted, not admitted anew"
