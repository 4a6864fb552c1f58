"""What every eviction policy must keep to."""

from __future__ import annotations

import random
import time
from typing import ClassVar

from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy
from turnout.core.interfaces.kv import PoolSize
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing.checks.brute_force import expected
from turnout.testing.checks.memory_leaks import assert_all_memory_is_free
from turnout.testing.suites.embedded import GREEDY
from turnout.testing.suites.suite import Suite, shown, skip, slow
from turnout.testing.toy.engine import drive, toy_engine
from turnout.testing.toy.workloads import needs, random_workload

__all__ = ["EvictionPolicySuite"]


class EvictionPolicySuite(Suite[EvictionPolicy]):
    """Gives up what it was given, each once, and nothing else."""

    kind = "kv_eviction"
    light = True

    ends_first: ClassVar[bool] = True
    """Of a prefix released from its end to its start, gives up the end first: a prefix without its start is
    of no use. False for a policy that means it otherwise."""
    microseconds: ClassVar[float] = 40.0
    """That a call may take on average, with ten thousand blocks."""

    def test_each_block_is_given_up_once(self) -> None:
        """At random, against a set: what was added and not removed, and never a block that was not added."""
        for seed in range(self.trials):
            rng, policy, present = random.Random(seed), self.make(), set[int]()
            for _ in range(300):
                self._change(policy, present, rng)
            while present:
                self._pop(policy, present)

    def test_the_same_calls_give_up_the_same(self) -> None:
        for seed in range(min(8, self.trials)):
            assert self._victims(seed) == self._victims(seed), "two runs of the same calls differ"

    def test_a_block_may_come_back(self) -> None:
        policy = self.make()
        for turn in range(20):
            policy.add(CachedBlock(7, turn, 16))
            if turn % 2:
                policy.remove(7)
            else:
                assert policy.pop() == 7, "gave up what was not there"

    def test_the_end_of_a_prefix_goes_before_its_start(self) -> None:
        if not self.ends_first:
            skip("not claimed (`ends_first`)")
        policy, ends_to_start = self.make(), [9, 4, 6, 2, 8]
        for block in ends_to_start:
            policy.add(CachedBlock(block, 0, 80))
        given_up = [policy.pop() for _ in ends_to_start]
        assert given_up == ends_to_start, f"released in the order {ends_to_start}, given up as {given_up}"

    def test_answers_stay_right_when_memory_is_short(self) -> None:
        """As the mechanism uses it: prefixes are kept, found, given up and computed again."""
        for seed in range(self.trials):
            rng = random.Random(seed)
            arrivals = list(random_workload(rng))
            size = rng.choice([1, 2, 4])
            blocks = max(n * -(-length // size) for n, length in needs(arrivals)) + rng.randrange(0, 3)
            kv = PagedCache(PoolSize(blocks * size, rng.choice([0, 100])), size, self.make())
            outcome = drive(toy_engine(Fcfs(), kv), arrivals)
            for _, spec in arrivals:
                assert outcome.outputs(spec.id) == expected(spec), (
                    f"wrong tokens for {shown(spec)} (seed {seed})"
                )
            assert_all_memory_is_free(kv)

    def test_a_call_takes_microseconds(self) -> None:
        """A long prompt makes hundreds of calls, and all requests wait for them: no search."""
        best = min(self._seconds_a_call() for _ in range(3)) * 1e6
        assert best <= self.microseconds, f"a call takes {best:.0f} us on average with 10,000 blocks"

    @slow
    def test_a_real_model_finds_no_wrong_prefix(self) -> None:
        embedded = self.embedded()
        found = embedded.unmoved(GREEDY, kv="paged", kv_eviction=self.spec)
        assert found == embedded.tokens(GREEDY), "other tokens than by the policy that is the default"

    # -------------------------------------------------------------- details

    def _change(self, policy: EvictionPolicy, present: set[int], rng: random.Random) -> None:
        what = rng.random()
        if what < 0.5 or not present:
            block = rng.choice([number for number in range(400) if number not in present])
            policy.add(CachedBlock(block, rng.randrange(5), rng.randrange(1, 200)))
            present.add(block)
        elif what < 0.75:
            block = rng.choice(sorted(present))
            policy.remove(block)
            present.discard(block)
        else:
            self._pop(policy, present)

    def _pop(self, policy: EvictionPolicy, present: set[int]) -> None:
        block = policy.pop()
        assert block in present, f"gave up block {block}, which is not there to be given up"
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
