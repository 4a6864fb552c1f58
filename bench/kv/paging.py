"""What paging is for: the rate that a server sustains at equal latency, with KV memory in pages or in slabs.

After Kwon et al. 2023, Figure 12, on an estimate of an H100 with a 7B model. The real scheduler and the
real KV bookkeeping serve requests with the lengths of ShareGPT; steps take what the cost model says.
Slabs are as long as the client allows its answer to get: exactly as long as it will be (the paper's Orca
(Oracle)), rounded up to a power of two (Orca (Pow2)), or whatever fits the context (Orca (Max)). Pages
are with the last kind of client.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import click

from turnout.bench.kv.bookkeeping import CONTEXT, POOL, Bound, exact, power_of_two, whole_context
from turnout.core.interfaces.kv import PoolSize
from turnout.core.registry.registry import Registry
from turnout.core.scheduling.scheduler import Capacity
from turnout.core.types.plan import Plan
from turnout.core.types.request import RequestSpec
from turnout.lab.results.markdown import markdown_table, write_marked
from turnout.lab.simulation import preset
from turnout.lab.simulation.cost import Seconds, work_of
from turnout.lab.simulation.scripted.play import Arrival, Pace, Play
from turnout.lab.simulation.scripted.script import scripted_request
from turnout.lab.simulation.scripted.workloads import random_tokens, sharegpt

REGISTRY = Registry.load()
REQUESTS = 400
SLOTS = 256
STEP = 8192
"""Tokens computed at most."""
LIMIT = 0.05
"""Seconds of latency for each output token: the line at which arms are compared."""


@dataclass(frozen=True)
class CostPace(Pace):
    """Steps as a cost model has them."""

    step: float = 0.0
    seconds: Seconds = preset("h100-7b").seconds

    def computing(self, plan: Plan) -> float:
        return self.seconds.of(work_of(plan))


@dataclass(frozen=True)
class KVArm:
    name: str
    kv: str
    bound: Bound


ARMS = (
    KVArm("`contiguous`, as long as the context", "contiguous", whole_context),
    KVArm("`contiguous`, rounded up to a power of two", "contiguous", power_of_two),
    KVArm("`contiguous`, length known exactly", "contiguous", exact),
    KVArm("`paged`", "paged", whole_context),
)


def arrivals(arm: KVArm, rate: float) -> Iterator[Arrival]:
    rng, at = random.Random(0), 0.0
    for number, (prompt, output) in enumerate(sharegpt(REQUESTS, longest=CONTEXT, seed=0)):
        at += rng.expovariate(rate)
        bound = arm.bound(prompt, output)
        tokens = random_tokens(rng, prompt)
        yield Arrival(at, scripted_request(str(number), tokens, output, seed=number, bound=bound))


def normalized_latency(arm: KVArm, rate: float) -> float:
    """Mean over the requests of their latency by their output tokens, in seconds."""
    kv = REGISTRY.create("kv", arm.kv).cache(PoolSize(POOL), REGISTRY.create("kv_eviction", "lru"))
    play = Play(
        kv,
        REGISTRY.create("scheduler", "fcfs"),
        REGISTRY.create("length_predictor", "max_tokens"),
        Capacity(STEP, SLOTS),
        max_model_len=CONTEXT,
        pace=CostPace(),
    )
    coming = list(arrivals(arm, rate))
    sent = {arrival.spec.id: arrival.at for arrival in coming}
    latencies: list[float] = []

    def ended(spec: RequestSpec, now: float) -> list[Arrival]:
        latencies.append((now - sent[spec.id]) / spec.params.min_tokens)
        return []

    for _ in play.steps(coming, ended):
        pass
    return fmean(latencies)


def sustained(arm: KVArm) -> float:
    """The rate, in requests a second, at which normalized latency reaches the limit."""
    low, high = 1.0, 2.0
    while normalized_latency(arm, high) < LIMIT:
        low, high = high, 2 * high
    while high / low > 1.08:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if normalized_latency(arm, middle) < LIMIT else (low, middle)
    return math.sqrt(low * high)


def table() -> str:
    rates = [sustained(arm) for arm in ARMS]
    rows = [
        (arm.name, f"{rate:.1f} req/s", f"{rate / rates[0]:.1f} ×")
        for arm, rate in zip(ARMS, rates, strict=True)
    ]
    return markdown_table(("KV memory", "sustained", "beside the first"), rows)


@click.command()
@click.option(
    "--doc",
    type=click.Path(path_type=Path),
    default=Path("docs/explanation/statistics.md"),
    show_default=True,
)
def main(doc: Path) -> None:
    write_marked(doc, "paging", table())


if __name__ == "__main__":
    main()
