"""The toy engine with a follower in the same process: books and logits are compared in each step."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from toy import toy_engine

from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy
from turnout.core.interfaces.kv import KVCache, PoolSize
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.scheduling.guarded_eviction import GuardedEviction
from turnout.core.scheduling.preemption import Preemption
from turnout.core.types.plan import Logits, Plan, Way
from turnout.plugins.kv_backends.contiguous.cache import ContiguousCache
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.runner.ranks.followed_runner import FollowedRunner, FrameWriter
from turnout.runner.ranks.frames import digest_of
from turnout.runner.ranks.recorded_cache import RecordedCache, RecordedEviction, Recording
from turnout.runner.ranks.replay import Follower, followed_eviction
from turnout.testing.toy.decodings import ToyLookup
from turnout.testing.toy.runner import ToyRunner
from turnout.testing.toy.workloads import needs


class ByChance(EvictionPolicy):
    """Evicts what a random number generator of its own says, and at times what the clock says."""

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self.rng = random.Random(time.perf_counter_ns())

    def add(self, block: CachedBlock) -> None:
        self.blocks.append(block.block)

    def remove(self, block: int) -> None:
        self.blocks.remove(block)

    def pop(self) -> int:
        at = self.rng.randrange(len(self.blocks))
        if time.perf_counter_ns() % 2:
            at = max(range(len(self.blocks)), key=lambda index: id(object()) % (index + 7))
        return self.blocks.pop(at)


class SeenRunner(ToyRunner):
    """Keeps the logits of the latest step; reads the first KV group alone, so others' slots are empty."""

    last: Logits | None = None

    def _move(self, source: int, target: int, length: int, way: Way) -> None:
        read = self.host if way == "swap_in" else self.pool
        for offset in range(length):
            read.setdefault(source + offset, -1)
        super()._move(source, target, length, way)

    def run(self, plan: Plan) -> Logits:
        self.last = super().run(plan)
        return self.last


@dataclass
class Machine:
    """How much memory a cache has, and of which kind it is."""

    blocks: int
    block_size: int
    swap: int = 0
    contiguous: bool = False
    options: dict = field(default_factory=dict)

    def cache(self, eviction: EvictionPolicy) -> KVCache:
        size = PoolSize(self.blocks * self.block_size, self.swap * self.block_size)
        if self.contiguous:
            return ContiguousCache(size)
        return PagedCache(size, self.block_size, eviction, **self.options)

    @classmethod
    def draw(cls, rng: random.Random, arrivals) -> Machine:
        """One that barely fits the requests."""
        wanted = needs(arrivals)
        swap = rng.choice([0, rng.randrange(1, 40), 1000, 1000])
        if rng.random() < 0.25:
            most = max(n * length for n, length in wanted)
            return cls(most + rng.randrange(0, 20), 1, swap, contiguous=True)
        size = rng.choice([1, 2, 4, 64])
        blocks = max(n * -(-length // size) for n, length in wanted) + rng.randrange(0, 2)
        windows = rng.choice([(None,), (None,), (None, 4), (None, 3, 9)])
        caching = rng.random() < 0.8
        options = {"prefix_caching": caching, "windows": windows if caching else (None,)}
        return cls(blocks, size, -(-swap // size), options=options)


class Followed:
    """An engine, and its follower, which takes each frame before the engine runs the step."""

    def __init__(self, machine: Machine, policy: SchedulingPolicy, **parts) -> None:
        recording = Recording()
        self.cache = machine.cache(RecordedEviction(GuardedEviction(ByChance(), strict=True), recording))
        self.recorded = RecordedCache(self.cache, recording)
        eviction, victims = followed_eviction()
        self.their_cache = machine.cache(eviction)
        self.runner, self.their_runner = SeenRunner(self.cache), SeenRunner(self.their_cache)
        self.follower = Follower(self.their_cache, victims, self.their_runner)
        self.frames: list[int] = []
        """The size of each frame."""
        self.followed = FollowedRunner(self.runner, FrameWriter(self.cache, recording), self.send)
        self.engine = toy_engine(policy, self.recorded, runner=self, decodings=[ToyLookup()], **parts)
        self.drafted = 0

    def send(self, frame: bytes) -> None:
        self.frames.append(len(frame))
        self.follower.take(frame)

    def run(self, plan: Plan) -> Logits:
        """Runs both, and compares."""
        self.drafted += sum(chunk.rows > 1 for chunk in plan.chunks)
        logits = self.followed.run(plan)
        assert self.their_runner.last.values == logits.values
        assert list(self.their_runner.last.rows.values()) == list(logits.rows.values())
        assert digest_of(self.their_cache) == digest_of(self.cache)
        if isinstance(self.cache, PagedCache):
            assert self.their_cache.group_tables == self.cache.group_tables
        return logits

    def flush(self) -> None:
        """Tells the follower what happened after the last step."""
        self.followed.run(Plan([], []))


def followed(
    seed: int, policy: SchedulingPolicy, arrivals, preemption: Preemption, *, strict: bool = True
) -> Followed:
    """One that barely fits a random workload."""
    rng = random.Random(seed)
    machine = Machine.draw(rng, arrivals)
    budget, slots = rng.randrange(5, 24), rng.randrange(4, 8)
    return Followed(machine, policy, budget=budget, slots=slots, preemption=preemption, strict=strict)
