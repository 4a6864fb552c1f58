"""Measures a step's planning on the host: 256 requests running, 1,000 waiting, nothing computed.

The real scheduler, policies and paged bookkeeping; the model is left out. `order` is the policy alone;
the others are all of planning, most of it granting a token to each request that runs, in two states: every
sequence slot taken, and slots to spare but no memory for a newcomer. There, policies that prefer short
requests have more of them `running` where more wait.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterable, Iterator

import click

from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.kv import PoolSize
from turnout.core.interfaces.scheduling import Entry, SchedulingPolicy
from turnout.core.registry.registry import Registry
from turnout.core.scheduling.order import Order
from turnout.core.scheduling.scheduler import Capacity, Scheduler
from turnout.core.types.plan import Plan
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.core.types.views import View
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.plugins.predictors.max_tokens import MaxTokens
from turnout.plugins.schedulers.fcfs import Fcfs

BLOCK = 16
PROMPT = 256
OUTPUT = 4096


class _Undecided(Decoding):
    """Requests need a strategy; nothing is decided here."""

    def accepts(self, params: SamplingParams) -> bool:
        return True

    def decide(self, requests: object, logits: object) -> Iterator[object]:  # type: ignore[override]
        raise NotImplementedError


def make_request(number: int, rng: random.Random) -> Request:
    spec = RequestSpec(
        id=str(number),
        prompt=[rng.randrange(1000) for _ in range(rng.randrange(PROMPT // 2, 3 * PROMPT // 2))],
        params=SamplingParams(max_tokens=rng.randrange(OUTPUT // 2, OUTPUT)),
        seed=0,
        priority=rng.randrange(3),
        client=f"client{rng.randrange(20)}",
        deadline=rng.uniform(1e6, 2e6),
    )
    return Request(spec, _Undecided(), number * 1e-3, len(spec.prompt) + OUTPUT, frozenset())


def apply(scheduler: Scheduler, plan: Plan) -> None:
    """As if the plan had been computed and every sequence with logits had got a token."""
    for chunk in plan.chunks:
        sequence = chunk.sequence
        sequence.computed = chunk.end
        if chunk.rows:
            sequence.tokens.append(7)
            scheduler.observe(sequence.request, 1, 1.0)
        scheduler.kv.commit(sequence, sequence.computed)


def fill(scheduler: Scheduler, running: int, waiting: int) -> None:
    """Planned by fcfs, so that all policies find the same state."""
    policy, scheduler.policy = scheduler.policy, Fcfs()
    rng = random.Random(0)
    for number in range(running):
        scheduler.queues.arrive(make_request(number, rng))
    while scheduler.queues.waiting_count or any(not r.decode_ready for r in scheduler.queues.running):
        apply(scheduler, scheduler.plan(0.5)[0])
    scheduler.policy = policy
    for number in range(running, running + waiting):
        scheduler.queues.arrive(make_request(number, rng))


def measure(
    name: str, *, slots: int, blocks: int, running: int, waiting: int, steps: int
) -> tuple[float, float, float]:
    """Medians: microseconds of CPU time a step, of the policy's order alone and of planning; requests run."""
    policy = Registry.load().create("scheduler", name)
    kv = PagedCache(PoolSize(blocks * BLOCK), BLOCK, Lru())
    scheduler = Scheduler(policy, kv, Capacity(8192, slots), MaxTokens(), strict=True, grows_at=BLOCK)
    fill(scheduler, running, waiting)
    orders, plans, runs = list[float](), list[float](), list[int]()
    _timed(policy, orders)
    for step in range(steps):
        started = time.thread_time()
        plan, _ = scheduler.plan(2.0 + step * 0.02)
        plans.append(time.thread_time() - started)
        runs.append(scheduler.queues.running_count)
        apply(scheduler, plan)
    return 1e6 * statistics.median(orders), 1e6 * statistics.median(plans), statistics.median(runs)


def _timed(policy: SchedulingPolicy, times: list[float]) -> None:
    """Have the policy's order note how long it takes; of an `Order`, until it can be read."""
    order = policy.order

    def timed(view: View) -> Iterable[Entry]:
        started = time.thread_time()
        answer = order(view)
        entries = answer if isinstance(answer, Order) else list(answer)
        times.append(time.thread_time() - started)
        return entries

    policy.order = timed  # type: ignore[method-assign]


@click.command()
@click.option("--running", default=256, show_default=True)
@click.option("--waiting", default=1000, show_default=True)
@click.option("--steps", default=200, show_default=True)
@click.argument("names", nargs=-1)
def main(running: int, waiting: int, steps: int, names: tuple[str, ...]) -> None:
    """Plan with each scheduling policy, or those NAMED."""
    click.echo(f"{running} running, {waiting} waiting; microseconds of CPU time a step, median of {steps}")
    click.echo(f"{'policy':<16}{'order':>10}{'slots full':>14}{'memory full':>14}{'running':>10}")
    for name in names or Registry.load().names("scheduler"):
        room = running * (3 * PROMPT // 2) // BLOCK
        order, full_slots, _ = measure(
            name, slots=running, blocks=8 * room, running=running, waiting=waiting, steps=steps
        )
        _, full_memory, run = measure(
            name,
            slots=4 * running,
            blocks=_tight(running, steps),
            running=running,
            waiting=waiting,
            steps=steps,
        )
        click.echo(f"{name:<16}{order:>10.0f}{full_slots:>14.0f}{full_memory:>14.0f}{run:>10.0f}")


def _tight(running: int, steps: int) -> int:
    """Blocks for what runs, its growth during the measurement, and hardly a newcomer."""
    rng = random.Random(0)
    lengths = [len(make_request(number, rng).prompt) + steps for number in range(running)]
    return sum(-(-length // BLOCK) + 1 for length in lengths) - running


if __name__ == "__main__":
    main()
