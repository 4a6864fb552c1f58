"""The figures of docs/explanation/kv.md, held on a small trace; those there come from a large one."""

from __future__ import annotations

import random

from test_scripted_engine import cache, play

from turnout.core.interfaces.kv import KVCache
from turnout.lab.simulation.scripted.play import Arrival
from turnout.lab.simulation.scripted.script import scripted_request
from turnout.lab.simulation.scripted.workloads import random_tokens, sharegpt

CONTEXT = 1024
POOL = 4096


def under_load(kv: KVCache) -> tuple[float, float]:
    """Waste and requests running, means over the steps with others waiting; lengths are unknown."""
    rng, waste, running = random.Random(0), list[float](), list[int]()
    requests = [
        scripted_request(str(n), random_tokens(rng, prompt), output, seed=n, bound=CONTEXT - prompt)
        for n, (prompt, output) in enumerate(sharegpt(100, longest=CONTEXT, seed=0))
    ]
    for engine in play(kv).steps([Arrival(0.0, spec) for spec in requests]):
        if engine.stats().waiting:
            waste.append(kv.snapshot().waste)
            running.append(engine.stats().running)
    return sum(waste) / len(waste), sum(running) / len(running)


def test_paging_wastes_little_and_serves_twice_as_many() -> None:
    paged_waste, paged_running = under_load(cache(POOL))
    waste, running = under_load(cache(POOL, "contiguous"))
    assert paged_waste <= 0.04
    assert waste >= 0.6
    assert paged_running >= 2 * running


def test_a_common_prefix_is_computed_once() -> None:
    rng = random.Random(1)
    common = random_tokens(rng, 512)
    specs = [scripted_request(str(n), common + random_tokens(rng, 32), 8, seed=n) for n in range(16)]
    (*_, engine) = play(cache(1 << 15)).steps([Arrival(0.0, spec) for spec in specs])
    assert engine.stats().computed_tokens == 512 + 16 * (32 + 7)


def test_choices_share_their_prompt() -> None:
    kv, held, alone = cache(1 << 15), 0, 0
    spec = scripted_request("a", random_tokens(random.Random(2), 512), 128, seed=3, n=8)
    for engine in play(kv).steps([Arrival(0.0, spec)]):
        live = [sequence for request in engine.scheduler.queues.running for sequence in request.live]
        if len(live) == 8:
            held += kv.snapshot().held
            alone += sum(-(-sequence.computed // 16) * 16 for sequence in live)
    assert 0 < held <= 0.45 * alone
