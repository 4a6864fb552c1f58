"""A follower repeats what rank 0 did: the same books, the same moves, the same logits, whatever decided."""

from __future__ import annotations

import random
import time
from operator import attrgetter

import msgspec
import pytest
from followed_toy import Followed, Machine, followed
from one_in import one_in
from random_serving import POLICIES
from toy import drive, toy_request

from turnout.core.scheduling.preemption import Recompute, Swap
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.runner.ranks import followed_runner
from turnout.runner.ranks.frames import DIGEST_EVERY, Divergence, Frame
from turnout.testing.toy.workloads import random_preemption, random_workload


@pytest.mark.parametrize("policy", one_in(2, POLICIES, attrgetter("__name__")))
def test_a_follower_keeps_rank_0s_books(policy):
    """Preemption by swap and by computing again, beams, forks, speculation, prefixes, windows; the blocks to
    evict are chosen by chance, so that a follower that chose for itself would choose others."""
    preemptions = swaps = evictions = drafted = 0
    for seed in range(40):
        rng = random.Random(seed)
        arrivals = list(random_workload(rng))
        both = followed(seed, policy(), arrivals, random_preemption(rng))
        drive(both.engine, arrivals)
        stats = both.engine.stats()
        preemptions, swaps = preemptions + stats.preemptions, swaps + stats.swap_outs
        evictions, drafted = evictions + both.cache.snapshot().evictions, drafted + both.drafted
        both.flush()
        assert both.their_cache.free == both.their_cache.capacity
        assert not both.follower._sequences and not both.follower._requests, "what ended is forgotten"
        assert not both.recorded._requests and not both.recorded._numbers and not both.recorded._held
    assert preemptions > 5 and evictions > 5, "the workloads must exercise all of it"
    assert swaps > 0 and drafted > 5


class Hostile(Fcfs):
    """Orders by the clock, by chance and by addresses."""

    def order(self, view):
        requests = [*view.running, *view.waiting]
        if time.perf_counter_ns() % 2:
            return sorted(requests, key=id)
        return random.Random(time.perf_counter_ns()).sample(requests, len(requests))

    def victim(self, request, running):
        return random.Random(time.perf_counter_ns()).choice(running)


def test_a_hostile_policy_cannot_split_ranks():
    for seed in range(25):
        rng = random.Random(seed)
        arrivals = list(random_workload(rng))
        both = followed(seed, Hostile(), arrivals, random_preemption(rng), strict=False)
        drive(both.engine, arrivals)


def test_pins_are_repeated():
    machine = Machine(blocks=8, block_size=2)
    both = Followed(machine, Fcfs(), preemption=Recompute())
    prompt = [1, 2, 3, 4, 5, 6]
    both.recorded.prefixes.pin("system", prompt[:4], "")
    for turn in range(6):
        arrivals = [(0, toy_request(f"a{turn}", [*prompt, turn % 3 + 1], "greedy", 4))]
        drive(both.engine, arrivals)
    assert both.their_cache.prefixes.pinned() == both.cache.prefixes.pinned() != []
    assert both.recorded.prefixes.unpin("system")
    drive(both.engine, [(0, toy_request("last", prompt, "greedy", 2))])
    assert both.their_cache.prefixes.pinned() == []


def test_aborted_requests_are_forgotten_swapped_out_or_not():
    both = Followed(Machine(blocks=6, block_size=2, swap=50), Fcfs(), preemption=Swap(), slots=6, budget=16)
    for name in "abc":
        both.engine.add(toy_request(name, [1, 2, 3, 4], "greedy", 8))
    while not both.engine.stats().swap_outs:
        both.engine.step()
    for name in "abc":
        both.engine.abort(name)
    drive(both.engine, [(0, toy_request("d", [5, 1], "greedy", 2))])
    both.flush()
    assert not both.follower._sequences and not both.follower._requests and not both.recorded._requests
    assert both.their_cache.snapshot().swapped == 0


# ------------------------------------------------------------------ what went wrong is found


def running() -> Followed:
    both = Followed(Machine(blocks=400, block_size=2), Fcfs(), preemption=Recompute())
    both.engine.runner = both.followed  # the follower alone is to find it
    for name in "abc":
        both.engine.add(toy_request(name, [1, 2, 3, 4, 5], "greedy", 200))
    both.engine.step()
    return both


def step_often(both: Followed) -> int:
    """Steps until it raises Divergence; returns how many steps that took."""
    for step in range(2 * DIGEST_EVERY):
        for name in "xyz":
            both.engine.abort(f"{name}{step - 1}")
            both.engine.add(toy_request(f"{name}{step}", [step % 6 + 1, 2, 3], "greedy", 5))
        both.engine.step()
    raise AssertionError("nothing was found")


def test_a_corrupted_table_is_found_by_the_digest(monkeypatch):
    monkeypatch.setattr(followed_runner, "DIGEST_EVERY", 5)
    both = running()
    table = next(iter(both.their_cache.tables.values()))
    table[0], table[1] = table[1], table[0]
    both.their_runner.run = lambda plan: None
    with pytest.raises(Divergence, match=r"frame 5: .*what 1 sequences hold, the first of them sequence"):
        for _ in range(5):
            both.engine.step()
            assert both.engine.stats().running == 3


def test_a_block_that_was_taken_besides_is_found():
    both = running()
    both.their_cache._blocks.take()
    with pytest.raises(Divergence, match=r"no room here for|free positions \(\d+ on rank 0, \d+ here\)"):
        step_often(both)


def test_a_lost_frame_is_found():
    both = running()
    send, both.followed.send = both.followed.send, lambda frame: None
    both.engine.step()
    both.followed.send = send
    with pytest.raises(Divergence, match="frame 3: expected frame 2: frames were lost"):
        both.engine.step()


def test_other_moves_are_found():
    both = running()
    plan, _ = both.engine.scheduler.plan(0.0)
    frame = msgspec.msgpack.decode(both.followed.frames.frame(plan), type=Frame)
    with pytest.raises(Divergence, match="other moves of KV memory"):
        both.follower.take(msgspec.msgpack.encode(msgspec.structs.replace(frame, moves=17)))


def test_a_frame_is_small_at_256_sequences(monkeypatch):
    """With a digest, too, and for a decoding whose requests commit each token."""
    for strategy, bound in (("greedy", 15_000), ("lookup", 20_000)):
        machine = Machine(blocks=256 * 10, block_size=16)
        both = Followed(machine, Fcfs(), preemption=Recompute(), budget=2048, slots=256, grows_at=16)
        both.engine.runner = both.followed
        for number in range(256):
            prompt = [number % 6 + 1, number // 6 % 6 + 1, 3, number // 36 % 6 + 1]
            both.engine.add(toy_request(f"r{number}", prompt, strategy, 60))
        both.engine.step()
        both.frames.clear()
        monkeypatch.setattr(followed_runner, "DIGEST_EVERY", 3)
        for _ in range(7):
            both.engine.step()
        assert max(both.frames) <= bound
        assert both.engine.stats().running > 200
