"""The conformance suite of eviction policies."""

from __future__ import annotations

import random
import time
from typing import ClassVar

from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy
from turnout.core.interfaces.kv import PoolSize
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing.checks.brute_force import assert_expected_tokens
from turnout.testing.checks.memory_leaks import assert_all_memory_is_free
from turnout.testing.suites.embedded import GREEDY
from turnout.testing.suites.suite import Suite, not_for_it, slow
from turnout.testing.toy.engine import drive, toy_engine
from turnout.testing.toy.workloads import needs, random_workload

__all__ = ["EvictionPolicySuite"]


class EvictionPolicySuite(Suite[EvictionPolicy]):
    """The policy gives up each block that it was given once, and no other block."""

    kind = "kv_eviction"
    light = True

    ends_first: ClassVar[bool] = True
    """The policy gives up the end of a prefix before its start, without which the rest is of no use. False
    for a policy that means to differ."""
    microseconds: ClassVar[float] = 40.0
    """Time that a call may take on average, with ten thousand blocks."""

    def test_each_block_is_given_up_once(self) -> None:
        """Random calls, compared with a set: `pop` returns blocks that were added, and not removed since."""
        for seed in range(self.trials):
            rng, policy, present = random.Random(seed), self.make(), set[int]()
            for _ in range(300):
                self._change(policy, present, rng)
            while present:
                self._pop(policy, present)

    def test_the_same_calls_give_up_the_same_blocks(self) -> None:
        for seed in range(min(8, self.trials)):
            assert self._victims(seed) == self._victims(seed), (
                f"the same calls (seed {seed}) gave up other blocks in a second run; `pop` must depend only "
                "on earlier calls"
            )

    def test_a_block_may_come_back(self) -> None:
        policy = self.make()
        for turn in range(20):
            policy.add(CachedBlock(7, turn, 16))
            if turn % 2:
                policy.remove(7)
            else:
                found = policy.pop()
                assert found == 7, f"`pop` returned block {found}; expected 7, the only block that was added"

    def test_the_end_of_a_prefix_goes_before_its_start(self) -> None:
        if not self.ends_first:
            not_for_it("the policy does not claim it (`ends_first`)")
        policy, ends_to_start = self.make(), [9, 4, 6, 2, 8]
        for block in ends_to_start:
            policy.add(CachedBlock(block, 0, 80))
        given_up = [policy.pop() for _ in ends_to_start]
        assert given_up == ends_to_start, (
            f"the blocks of a prefix, added from its end to its start as {ends_to_start}, were given up as "
            f"{given_up}; expected the end first, or `ends_first = False` for a policy that means to differ"
        )

    def test_answers_stay_right_when_memory_is_scarce(self) -> None:
        """In the engine: prefixes are kept, found, given up and computed again."""
        for seed in range(self.trials):
            rng = random.Random(seed)
            arrivals = list(random_workload(rng))
            size = rng.choice([1, 2, 4])
            blocks = max(n * -(-length // size) for n, length in needs(arrivals)) + rng.randrange(0, 3)
            kv = PagedCache(PoolSize(blocks * size, rng.choice([0, 100])), size, self.make())
            outcome = drive(toy_engine(Fcfs(), kv), arrivals)
            for _, spec in arrivals:
                assert_expected_tokens(spec, outcome, case=f"seed {seed}")
            assert_all_memory_is_free(kv)

    def test_a_call_takes_no_longer_than_claimed(self) -> None:
        """A long prompt makes hundreds of calls, and every request waits for them."""
        best = min(self._seconds_a_call() for _ in range(3)) * 1e6
        assert best <= self.microseconds, (
            f"a call of `add`, `remove` or `pop` takes {best:.0f} us on average with 10,000 blocks; "
            f"expected at most {self.microseconds:g} us (`microseconds`)"
        )

    @slow
    def test_a_real_model_finds_no_wrong_prefix(self) -> None:
        embedded = self.embedded()
        found = embedded.unmoved(GREEDY, kv="paged", kv_eviction=self.spec)
        assert found == embedded.tokens(GREEDY), (
            "requests got other tokens than with the default policy; expected the same"
        )

    # -------------------------------------------------------------- details

    def _change(self, policy: EvictionPolicy, present: set[int], rng: random.Random) -> None:
        what = rng.random()
        if what < 0.5 or not present:
            block = rng.choice([number for number in range(400) if number not in present])
            policy.add(CachedBlock(block, rng.randrange(5), rng.randrange(1, 200), rng.randrange(3)))
            present.add(block)
        elif what < 0.75:
            block = rng.choice(sorted(present))
            policy.remove(block)
            present.discard(block)
        else:
            self._pop(policy, present)

    def _pop(self, policy: EvictionPolicy, present: set[int]) -> None:
        block = policy.pop()
        assert block in present, (
            f"`pop` returned block {block}, which was not added, or has been removed or given up since"
        )
        present.discard(block)

    def _victims(self, seed: int) -> list[int]:
        rng, policy = random.Random(seed), self.make()
        for block in range(100):
            policy.add(CachedBlock(block, rng.randrange(5), rng.randrange(1, 200)))
        for block in range(0, 100, 3):
            policy.remove(block)
        return [policy.pop() for _ in range(66)]

    def _seconds_a_call(self) -> float:
        policy, blocks = self.make(), 10_000
        start = time.perf_counter()
        for block in range(blocks):
            policy.add(CachedBlock(block, block % 7, 1 + block % 4000))
        for block in range(0, blocks, 2):
            policy.remove(block)
        for _ in range(blocks // 2):
            policy.pop()
        return (time.perf_counter() - start) / (2 * blocks)
