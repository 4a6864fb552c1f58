"""Siblings that are not equally far in the memory they share, and what of it comes back from host memory."""

from __future__ import annotations

import pytest

from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy
from turnout.core.interfaces.kv import KVCache, PoolSize, Span
from turnout.core.types.plan import Move
from turnout.core.types.request import Request, RequestSpec, Sequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.contiguous.cache import ContiguousCache
from turnout.plugins.kv_backends.paged.host.cache import PagedCache

MAKES = {
    "paged": lambda: PagedCache(PoolSize(64, 64), 4, Lru(), prefix_caching=False),
    "contiguous": lambda: ContiguousCache(PoolSize(64, 64)),
}


class AsTheyAre(Decoding):
    """Decides nothing: these tests say how far sequences are."""

    def accepts(self, params: SamplingParams) -> bool:
        return True

    def decide(self, requests: object, logits: object) -> tuple[()]:
        return ()


def start(kv: KVCache, prompt: list[int], computed: int, *, n: int = 1) -> Sequence:
    """A sequence that holds memory for its prompt and a bit more."""
    spec = RequestSpec(id="r", prompt=prompt, params=SamplingParams(n=n, max_tokens=10), seed=0)
    (sequence,) = Request(spec, AsTheyAre(), 0.0, len(prompt) + 10, frozenset()).live
    assert kv.reserve([Span(sequence, 0, computed)])
    kv.commit(sequence, computed)
    sequence.computed, sequence.held = computed, True
    return sequence


def fork(kv: KVCache, parent: Sequence, computed: int, tokens: list[int]) -> Sequence:
    child = parent.fork()
    kv.fork(parent, child)
    child.tokens, child.computed = tokens, computed
    return child


def carry_out(moves: list[Move], pool: dict[int, int], host: dict[int, int]) -> None:
    for source, target, length, way in moves:
        read, written = host if way == "swap_in" else pool, host if way == "swap_out" else pool
        written.update({target + i: read[source + i] for i in range(length)})


def place_of(kv: PagedCache | ContiguousCache, sequence: Sequence, position: int) -> int:
    if isinstance(kv, ContiguousCache):
        return kv.slabs[sequence.id].start + position
    return kv.tables[sequence.id][position // 4] * 4 + position % 4


@pytest.mark.parametrize("further_first", [True, False], ids=["further-first", "further-last"])
@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_each_sibling_gets_back_what_is_computed_of_it(make, further_first):
    """As much was swapped out, or brought back, as one of them had, and the other took that for its own."""
    kv = make()
    further = start(kv, [1, 2, 3, 4, 5, 6], 7, n=2)
    behind = fork(kv, further, 6, [1, 2, 3, 4, 5, 6, 9])
    further.tokens = [1, 2, 3, 4, 5, 6, 7, 8]
    siblings = [further, behind] if further_first else [behind, further]
    pool = {place_of(kv, further, position): further.tokens[position] for position in range(7)}
    host: dict[int, int] = {}

    kv.release(siblings, swap_out=True)
    carry_out(kv.drain(), pool, host)
    pool.clear()  # others write there meanwhile
    assert [kv.cached(further), kv.cached(behind)] == [7, 6]
    assert kv.reserve([Span(s, kv.cached(s), len(s.tokens)) for s in siblings])
    carry_out(kv.drain(), pool, host)
    for sequence, computed in ((further, 7), (behind, 6)):
        found = [pool[place_of(kv, sequence, position)] for position in range(computed)]
        assert found == sequence.tokens[:computed]
    assert place_of(kv, further, 7) != place_of(kv, behind, 7)


def test_memory_for_a_copy_is_counted_when_one_sibling_goes_on_in_a_block_that_another_has_filled():
    """The block was counted once, and taking the second one failed half way."""
    kv = PagedCache(PoolSize(12, 64), 4, Lru(), prefix_caching=False)
    filled = start(kv, [1, 2, 3, 4, 5], 4, n=2)
    behind = fork(kv, filled, 2, [1, 2, 9])
    kv.release([filled, behind], swap_out=True)
    spans = [Span(filled, 4, 5), Span(behind, 2, 3)]
    assert kv.reserve(spans)  # the shared block, a copy of it, and one to go on in
    assert kv.free == 0

    kv.release([filled, behind])
    small = PagedCache(PoolSize(8, 64), 4, Lru(), prefix_caching=False)
    filled = start(small, [1, 2, 3, 4, 5], 4, n=2)
    behind = fork(small, filled, 2, [1, 2, 9])
    small.release([filled, behind], swap_out=True)
    spans = [Span(filled, 4, 5), Span(behind, 2, 3)]
    assert not small.fits(spans) and not small.reserve(spans)


class LastInFirstOut(EvictionPolicy):
    def __init__(self) -> None:
        self.blocks: list[int] = []

    def add(self, block: CachedBlock) -> None:
        self.blocks.append(block.block)

    def remove(self, block: int) -> None:
        self.blocks.remove(block)

    def pop(self) -> int:
        return self.blocks.pop()


def test_blocks_known_beyond_one_that_is_swapped_out_half_full_are_of_no_use():
    """They were attached to, and the missing half passed for computed."""
    kv = PagedCache(PoolSize(24, 24), 4, LastInFirstOut())
    prompt = list(range(1, 14))
    kv.release([start(kv, prompt, 12)])  # known now: 0..4, 4..8 and 8..12
    other = start(kv, [20] * 20, 20)  # evicts the first two, not the last
    kv.release([other])
    sequence = start(kv, prompt, 6)
    kv.release([sequence], swap_out=True)
    assert kv.cached(sequence) == 6
