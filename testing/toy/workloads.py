"""Random workloads for the toy model, and machines that they barely fit."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from turnout.core.engine.engine import Engine
from turnout.core.interfaces.admission import AdmissionPolicy
from turnout.core.interfaces.kv import KVCache, PoolSize
from turnout.core.interfaces.scheduling import LengthPredictor, SchedulingPolicy
from turnout.core.scheduling.preemption import Preemption, Recompute, Swap
from turnout.core.types.request import RequestSpec
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.kv_backends.contiguous.cache import ContiguousCache
from turnout.testing.toy.engine import toy_engine, toy_request
from turnout.testing.toy.runner import toy_kv

__all__ = [
    "Arrivals",
    "CoinFlip",
    "RandomCase",
    "needs",
    "random_cache",
    "random_preemption",
    "random_workload",
]

Arrivals = Sequence[tuple[int, RequestSpec]]
"""The step in which each request arrives, and the request."""


def random_workload(rng: random.Random) -> Iterator[tuple[int, RequestSpec]]:
    """Up to eight requests to the toy's strategies, some with a common prefix."""
    shared = [rng.randrange(1, 7) for _ in range(rng.randrange(0, 12))]
    for i in range(rng.randrange(1, 9)):
        prompt = shared + [rng.randrange(1, 7) for _ in range(rng.randrange(1, 14))]
        strategy = rng.choice(["greedy", "lookup", "parallel", "beam"])
        n = rng.randrange(2, 5) if strategy in ("parallel", "beam") else 1
        spec = toy_request(f"r{i}", prompt, strategy, rng.randrange(1, 12), n, priority=rng.randrange(3))
        yield rng.randrange(0, 10), spec


def needs(arrivals: Arrivals) -> list[tuple[int, int]]:
    """The number of sequences, and the length, of each request at its largest."""
    return [(spec.params.n, len(spec.prompt) + (spec.params.max_tokens or 0)) for _, spec in arrivals]


def random_cache(rng: random.Random, arrivals: Arrivals) -> KVCache:
    """A cache that holds the most demanding request and hardly more, so that requests compete for memory.

    It has host memory for nothing, for a part or for all.
    """
    wanted = needs(arrivals)
    swap = rng.choice([0, rng.randrange(1, 40), 1000, 1000])
    if rng.random() < 0.3:
        most = max(n * length for n, length in wanted)
        return ContiguousCache(PoolSize(most + rng.randrange(0, 20), swap))
    size = rng.choice([1, 2, 4, 64])
    blocks = max(n * -(-length // size) for n, length in wanted) + rng.randrange(0, 2)
    return toy_kv(blocks, size, swap=-(-swap // size), prefix_caching=rng.random() < 0.7)


class CoinFlip:
    """Swaps sequences out at random."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def swaps_out(self, sequences: Sequence[TokenSequence], kv: KVCache) -> bool:
        return self.rng.random() < 0.5


def random_preemption(rng: random.Random) -> Preemption:
    kinds: list[Preemption] = [Recompute(), Swap(), Swap(), CoinFlip(random.Random(rng.random()))]
    return rng.choice(kinds)


@dataclass
class RandomCase:
    """A workload and a machine that it barely fits."""

    arrivals: list[tuple[int, RequestSpec]]
    kv: KVCache
    budget: int
    slots: int
    preemption: Preemption

    @classmethod
    def draw(cls, seed: int, *, deadlines: float = 1e6) -> RandomCase:
        """Draw a case. deadlines: seconds that some requests get, at most."""
        rng = random.Random(seed)
        arrivals = [
            (step, _with_client_and_deadlines(spec, rng, deadlines)) for step, spec in random_workload(rng)
        ]
        kv, budget, slots = random_cache(rng, arrivals), rng.randrange(5, 24), rng.randrange(4, 8)
        return cls(arrivals, kv, budget, slots, random_preemption(rng))

    def engine(
        self,
        policy: SchedulingPolicy,
        predictor: LengthPredictor | None = None,
        admission: AdmissionPolicy | None = None,
    ) -> Engine:
        return toy_engine(
            policy,
            self.kv,
            budget=self.budget,
            slots=self.slots,
            preemption=self.preemption,
            predictor=predictor,
            admission=admission,
            strict=True,
        )


def _with_client_and_deadlines(spec: RequestSpec, rng: random.Random, deadlines: float) -> RequestSpec:
    """The request with a random client and random deadlines."""
    return msgspec.structs.replace(
        spec,
        client=rng.choice(["", "a", "b"]),
        deadline=rng.choice([None, deadlines * rng.uniform(0.1, 1)]),
        ttft_deadline=rng.choice([None, deadlines * rng.uniform(0.1, 1)]),
    )
