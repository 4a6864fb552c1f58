"""What a pool tells of the prefixes that it keeps, for routers."""

from __future__ import annotations

import random
from itertools import islice

from steps import compute, release, sequence, swap_out
from toy import toy_kv

from turnout.core.engine.prefix_index import PrefixIndex
from turnout.core.interfaces.kv import PoolSize, Span
from turnout.core.interfaces.router import Routable
from turnout.core.types.block_events import AllBlocksCleared, BlockRemoved, BlockStored, marks
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.paged.host.cache import PagedCache

BLOCK = 4


def test_a_pool_tells_what_it_keeps_however_it_is_used() -> None:
    """The index equals what a sequence would find, rounded down to marks, after every step."""
    rng, kv, index = random.Random(0), toy_kv(12, BLOCK), PrefixIndex()
    kv.announce()
    prompts = [[first, *range(rng.randrange(8, 30))] for first in range(4)]
    for _ in range(200):
        prompt = rng.choice(prompts)
        one = sequence([*prompt, rng.randrange(100, 200)])
        compute(kv, one)
        release(kv, one)
        index.note("a", kv.announced())
        for each in prompts:
            assert index.find(Routable("r", each, 1)).get("a", 0) == _kept(kv, each)


def test_another_listener_is_told_all_that_is_kept() -> None:
    """The second server of a worker never learnt what was cached when it came."""
    rng, kv, first = random.Random(1), toy_kv(12, BLOCK), PrefixIndex()
    kv.announce()
    prompts = [[begin, *range(rng.randrange(8, 30))] for begin in range(4)]
    for _ in range(100):
        one = sequence([*rng.choice(prompts), rng.randrange(100, 200)])
        compute(kv, one)
        release(kv, one)
        first.note("a", kv.announced())
        kv.announce()
        events = kv.announced()
        assert isinstance(events[0], AllBlocksCleared)
        second = PrefixIndex()
        for index in (first, second):
            index.note("a", events)
        for each in prompts:
            asked = Routable("r", each, 1)
            assert second.find(asked) == first.find(asked)
            assert second.find(asked).get("a", 0) == _kept(kv, each)


def test_what_was_cached_before_the_first_listener_came_is_told_once_it_is_attached() -> None:
    """Its tokens are known then. Later marks of the same prompt were told, and no router could use them."""
    kv, index = toy_kv(40, BLOCK), PrefixIndex()
    prompt = list(range(30))
    one = sequence([*prompt, 100])
    compute(kv, one)
    release(kv, one)
    kv.announce()
    index.note("a", kv.announced())
    asked = Routable("r", prompt, 1)
    assert index.find(asked) == {}
    compute(kv, sequence([*prompt, 200]))
    index.note("a", kv.announced())
    assert index.find(asked) == {"a": _kept(kv, prompt)}


def test_what_a_sequence_holds_when_a_listener_comes_is_told() -> None:
    kv, index = toy_kv(40, BLOCK), PrefixIndex()
    prompt = list(range(30))
    compute(kv, sequence([*prompt, 100]))
    kv.announce()
    index.note("a", kv.announced())
    assert index.find(Routable("r", prompt, 1)) == {"a": _kept(kv, prompt)}


def test_blocks_that_windows_let_go_are_not_told_when_a_sequence_is_swapped_in() -> None:
    """They were told then for good: nothing is forgotten of a block that is not there."""
    kv = PagedCache(PoolSize(400, 1000), BLOCK, Lru(), windows=(8,))
    kv.announce()
    one, other = sequence(range(300)), sequence(range(1000, 1400))
    for upto in range(50, 301, 50):
        compute(kv, one, upto=upto)
    swap_out(kv, one)
    assert kv.reserve([Span(other, 0, 400)])  # nothing is cached any more
    release(kv, other)
    one.tokens.append(300)
    compute(kv, one)
    release(kv, one)
    assert kv.reserve([Span(other, 0, 400)])
    told = set[bytes]()
    for event in kv.announced():
        if isinstance(event, BlockStored):
            told.add(event.block_hash)
        elif isinstance(event, BlockRemoved):
            told.difference_update(event.block_hashes)
    assert not told


def _kept(kv: PagedCache, prompt: list[int]) -> int:
    """The last mark up to which a prompt is found."""
    length = kv.cached(sequence([*prompt, 999]))
    return max([0, *(mark for mark in islice(marks(BLOCK), 9) if mark <= length)])
