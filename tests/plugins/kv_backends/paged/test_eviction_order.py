"""Which cached block goes first: each policy against its definition by brute force, and in a pool."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from steps import compute, release, sequence
from toy import toy_kv

from turnout.core.errors import PolicyError
from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy
from turnout.core.interfaces.kv import PoolSize
from turnout.plugins.evictions.cost import Cost
from turnout.plugins.evictions.lfu import Lfu
from turnout.plugins.evictions.lru import SLACK, Lru
from turnout.plugins.kv_backends.paged.host.cache import PagedCache

# ------------------------------------------------------------------ definitions


@dataclass
class Definition(EvictionPolicy):
    """Says of each block how late it should go; looks at all of them to find the first."""

    keys: dict[int, float] = field(default_factory=dict)
    """In the order in which they came."""
    age: float = 0.0

    def key(self, block: CachedBlock) -> float:
        return 0

    def add(self, block: CachedBlock) -> None:
        self.keys[block.block] = self.key(block)

    def remove(self, block: int) -> None:
        del self.keys[block]

    def pop(self) -> int:
        first = min(self.keys, key=lambda block: self.keys[block])
        self.age = self.keys.pop(first)
        return first


class LeastRecent(Definition):
    pass


class LeastFrequent(Definition):
    def key(self, block):
        return self.age + block.hits


class Cheapest(Definition):
    """With 16 tokens of context worth as much as the rest of a token."""

    def key(self, block):
        return self.age + 1 + block.reach / 32


PAIRS = [(Lru, LeastRecent), (Lfu, LeastFrequent), (lambda: Cost(context=16), Cheapest)]


def random_trace(rng: random.Random, policies: tuple[EvictionPolicy, EvictionPolicy], steps: int) -> int:
    """Feed both the same; returns how often they were asked."""
    here, popped = list[int](), 0
    for _ in range(steps):
        action = rng.random()
        if action < 0.5 or not here:
            block = rng.choice([number for number in range(60) if number not in here] or [0])
            if block in here:
                continue
            here.append(block)
            described = CachedBlock(block, rng.choice([0, 0, 1, 3]), rng.choice([16, 32, 512]))
            for policy in policies:
                policy.add(described)
        elif action < 0.75:
            block = here.pop(rng.randrange(len(here)))
            for policy in policies:
                policy.remove(block)
        else:
            first, second = (policy.pop() for policy in policies)
            assert first == second
            here.remove(first)
            popped += 1
    return popped


@pytest.mark.parametrize(("policy", "definition"), PAIRS, ids=["lru", "lfu", "cost"])
def test_a_policy_gives_up_what_its_definition_says(policy, definition) -> None:
    popped = sum(random_trace(random.Random(seed), (policy(), definition()), 400) for seed in range(30))
    assert popped > 1000


@pytest.mark.parametrize("policy", [Lfu, Cost])
def test_blocks_that_come_and_go_unasked_leave_nothing_behind(policy) -> None:
    """A running server attaches to and releases the same prefix for weeks without ever being short."""
    one = policy()
    for _ in range(10_000):
        one.add(CachedBlock(1, 0, 16))
        one.remove(1)
    assert len(one._heap) < 100


def test_lru_keeps_its_order_when_it_drops_what_is_left_over() -> None:
    one = Lru()
    assert random_trace(random.Random(0), (one, LeastRecent()), 10 * SLACK) > SLACK
    assert len(one._order) <= 2 * SLACK


def test_lfu_forgets_old_fame() -> None:
    one = Lfu()
    one.add(CachedBlock(0, 3, 16))
    for block in range(1, 100):
        one.add(CachedBlock(block, 1, 16))
        if one.pop() == 0:
            break
    assert block < 10, "three more hits than others make it last three rounds longer, not for ever"


def test_cost_is_what_a_token_of_the_prefix_takes_on_average() -> None:
    """Relative to one without context: each token before it adds 1 / `context`, itself included by half."""
    for reach in (16, 160, 1600):
        tokens = [1 + (position + 0.5) / 100 for position in range(reach)]
        worth = Cost(context=100).worth(CachedBlock(0, 0, reach))
        assert worth == pytest.approx(sum(tokens) / reach)


def test_cost_keeps_the_long_prefix_of_two_used_alike() -> None:
    one = Cost(context=64)
    one.add(CachedBlock(0, 0, 4096))
    one.add(CachedBlock(1, 0, 32))
    assert [one.pop(), one.pop()] == [1, 0]


# ------------------------------------------------------------------ in a pool


def pool(policy: EvictionPolicy, blocks: int = 8) -> PagedCache:
    return PagedCache(PoolSize(blocks * 4), 4, policy)


def serve(kv: PagedCache, tokens) -> None:
    one = sequence(tokens)
    compute(kv, one)
    release(kv, one)


def prefix(number: int, blocks: int = 2) -> list[int]:
    return [100 * number + i for i in range(4 * blocks)]


def found(kv: PagedCache, number: int, blocks: int = 2) -> int:
    return kv.cached(sequence([*prefix(number, blocks), 1]))


@pytest.mark.parametrize("policy", [Lru, Lfu, Cost])
def test_a_prefix_loses_its_end_before_its_start(policy) -> None:
    kv = pool(policy())
    serve(kv, prefix(1, blocks=4))
    serve(kv, prefix(2, blocks=4))
    left = [found(kv, 1, blocks=4)]
    for number in range(4):
        compute(kv, sequence([7000 + number]))
        left.append(found(kv, 1, blocks=4))
    assert left == [16, 12, 8, 4, 0]


def test_never_used_memory_is_taken_before_anything_cached() -> None:
    kv = pool(Lru())
    serve(kv, prefix(1))
    serve(kv, [*prefix(2), 1])
    assert kv.snapshot().evictions == 0
    compute(kv, sequence(range(16)))
    assert kv.snapshot().evictions == 0 and found(kv, 1) == 8


def test_lru_gives_up_what_was_released_longest_ago() -> None:
    kv = pool(Lru(), blocks=6)
    for number in (1, 2, 3):
        serve(kv, prefix(number))
    serve(kv, [*prefix(1)])
    serve(kv, prefix(4))
    assert [found(kv, number) for number in (1, 2, 3, 4)] == [8, 0, 8, 8]


def test_lfu_evicts_what_was_never_used_again() -> None:
    kv = pool(Lfu(), blocks=7)
    serve(kv, [*prefix(1), 1])
    serve(kv, [*prefix(1), 2])
    for number in (2, 3, 4, 5):
        serve(kv, prefix(number))
    assert found(kv, 1) == 8


def test_lru_would_have_given_it_up() -> None:
    kv = pool(Lru(), blocks=7)
    serve(kv, [*prefix(1), 1])
    serve(kv, [*prefix(1), 2])
    for number in (2, 3, 4, 5):
        serve(kv, prefix(number))
    assert found(kv, 1) == 0


def test_cost_gives_up_the_short_prefix_though_it_is_more_recent() -> None:
    kv = pool(Cost(context=4), blocks=8)
    serve(kv, prefix(1, blocks=5))
    serve(kv, prefix(2, blocks=2))
    serve(kv, prefix(3, blocks=3))
    assert found(kv, 1, blocks=5) == 20 and found(kv, 2) == 0


class Heard(Lru):
    """Notes what it is told."""

    def __init__(self):
        super().__init__()
        self.told = []

    def add(self, block):
        self.told.append(block)
        super().add(block)


def test_a_policy_is_told_of_hits_and_of_the_longest_prefix() -> None:
    heard = Heard()
    kv = pool(heard)
    serve(kv, prefix(1))
    assert [(block.hits, block.reach) for block in heard.told] == [(0, 8), (0, 8)]
    heard.told.clear()
    serve(kv, [*prefix(1), *prefix(2)])
    end_to_start = [(block.hits, block.reach) for block in heard.told]
    assert end_to_start == [(0, 16), (0, 16), (1, 16), (1, 16)]
    heard.told.clear()
    serve(kv, [*prefix(1), 5])
    assert [(block.hits, block.reach) for block in heard.told] == [(2, 16), (2, 16)]


def test_what_is_told_of_a_block_is_of_its_present_tokens() -> None:
    heard = Heard()
    kv = pool(heard, blocks=2)
    serve(kv, prefix(1))
    serve(kv, [*prefix(1)[:4], 9])
    serve(kv, prefix(2))
    assert [(block.hits, block.reach) for block in heard.told[-2:]] == [(0, 8), (0, 8)]


# ------------------------------------------------------------------ faults


class Stubborn(Lru):
    answer: object = None

    def pop(self):
        return self.answer


@pytest.mark.parametrize("answer", [None, 0, 99, -1, "7", 7.5, [1]])
def test_a_policy_that_gives_up_what_it_was_not_given_is_named(answer) -> None:
    kv = pool(Stubborn(), blocks=3)
    serve(kv, prefix(1))
    running = sequence([*prefix(1)[:4], 1])
    compute(kv, running)
    assert kv.tables[running.id][0] == 0, "held, so not to be given up"
    Stubborn.answer = answer
    with pytest.raises(PolicyError, match=r"Stubborn of .*: pop failed: chose .*; expected one of"):
        compute(kv, sequence([5]))


def test_a_policy_that_breaks_is_named() -> None:
    class Broken(Lru):
        def pop(self):
            raise StopIteration

    kv = pool(Broken(), blocks=1)
    serve(kv, [1, 2, 3, 4])
    with pytest.raises(PolicyError, match=r"eviction policy Broken of .*: pop failed: StopIteration"):
        compute(kv, sequence([5]))


def test_a_policy_that_breaks_on_what_it_is_told_is_named() -> None:
    class Deaf(Lru):
        def add(self, block):
            raise KeyError(block.block)

    class Clinging(Lru):
        def remove(self, block):
            raise RuntimeError

    with pytest.raises(PolicyError, match=r"eviction policy Deaf of .*: add failed: KeyError: 0"):
        serve(pool(Deaf()), [1, 2, 3, 4])
    kv = pool(Clinging())
    serve(kv, [1, 2, 3, 4])
    with pytest.raises(PolicyError, match=r"eviction policy Clinging of .*: remove failed: RuntimeError"):
        serve(kv, [1, 2, 3, 4, 5])


def test_a_pool_without_prefixes_never_asks() -> None:
    class Unasked(EvictionPolicy):
        def add(self, block):
            raise AssertionError

        remove = pop = add

    kv = PagedCache(PoolSize(32), 4, Unasked(), prefix_caching=False)
    for _ in range(5):
        serve(kv, range(20))
    assert kv.snapshot().evictions == 0
    assert toy_kv(8, 4, prefix_caching=False).snapshot().lookups == 0
