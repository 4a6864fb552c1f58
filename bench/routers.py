"""Compares routers: what they find cached, how evenly they load replicas, and what a decision takes.

Simulated, by the fleet, scheduler and KV bookkeeping of `turnout simulate`, so that these figures are the
same on every machine: four replicas, beside one that has the memory and slots of all, and finds the most.
Decisions are timed: 64 replicas, prompts of 8,192 tokens.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from turnout.cli.options.cost_model import find_cost_model
from turnout.config import EngineConfig
from turnout.core.engine.packed_prompt import PackedPrompt
from turnout.core.engine.prefix_index import PrefixIndex
from turnout.core.interfaces.router import Replica, Routable, Router
from turnout.core.registry.registry import Registry
from turnout.core.types.block_events import BlockStored, marks
from turnout.lab.results.markdown import markdown_table, write_marked
from turnout.lab.simulation.fleet import Fleet, Mix
from turnout.lab.simulation.traffic import Traffic
from turnout.lab.workloads.source import load_workload

REGISTRY = Registry.load()
ROUTERS = ("round-robin", "least-loaded", "power-of-two", "prefix-affinity", "score")
REPLICAS = 4
WORKLOADS = {
    "system prompts": "poisson:rate={rate},requests={requests},prefix=lognormal:1500,prefixes=200,"
    "prefix_skew=0.8,longest=4096,output=lognormal:100",
    "conversations": "poisson:rate={turns},requests={requests},turns=uniform:2:8,think=20,longest=4096,"
    "output=lognormal:100",
}


class Counting(Router):
    """Asks another router, and counts."""

    def __init__(self, router: Router) -> None:
        self.router, self.watches, self.reads_caches = router, True, router.reads_caches
        self.sent: Counter[str] = Counter()

    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        index = self.router.route(request, replicas)
        self.sent[replicas[index].name] += 1
        return index


def simulate(
    router: str, workload: str, replicas: int, memory: int, slots: int
) -> tuple[float, float, float]:
    """The share of prompt tokens found, the load of the busiest replica by the mean one's, p99 TTFT in s."""
    cost, counting = find_cost_model("a100-7b"), Counting(REGISTRY.create("router", router))
    config = EngineConfig(kv_memory=memory, max_num_seqs=slots, max_model_len=4096)
    names = [f"replica-{number}" for number in range(replicas)]
    jobs = load_workload(workload, 0)
    fleet = Fleet(config, cost, REGISTRY, counting, names)
    records = list(fleet.serve(Traffic(jobs), Mix(jobs, 0, cost.model.vocab_size)))
    totals, sent = fleet.totals(), counting.sent.values()
    waits = sorted(record.ttft for record in records if not record.error)
    return totals.hits / totals.lookups, max(sent) * replicas / sum(sent), waits[int(0.99 * len(waits))]


def decide(router: str, count: int = 64, tokens: int = 8192, decisions: int = 2000) -> float:
    """Median microseconds of a decision between `count` replicas, for prompts of so many tokens."""
    rng, index, block = random.Random(0), PrefixIndex(), 16
    chosen = REGISTRY.create("router", router)
    prompts = [PackedPrompt([rng.randrange(150_000) for _ in range(tokens)]) for _ in range(16)]
    for number in range(count):
        for prompt in rng.sample(prompts, 4):
            begin, parent = 0, None
            for end in marks(block):
                if end > len(prompt):
                    break
                name = f"{number} {prompts.index(prompt)} {end}".encode()
                index.note(str(number), [BlockStored(name, parent, prompt[begin:end], block)])
                begin, parent = end, name
    prompts = [index.packed(prompt) for prompt in prompts]  # as in the thread that tokenizes
    replicas = [
        Replica(str(number), rng.randrange(8), rng.randrange(9999), find=index.find)
        for number in range(count)
    ]
    times = []
    for number in range(decisions):
        request = Routable(str(number), rng.choice(prompts), 100, f"session-{number % 50}")
        began = time.perf_counter_ns()
        chosen.route(request, replicas)
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times) / 1000


@click.command()
@click.option("--requests", default=4000, show_default=True)
@click.option("--rate", default=12.0, show_default=True, help="Requests a second, over all replicas.")
@click.option("--write", type=click.Path(path_type=Path), help="Put the table into this Markdown file.")
def main(requests: int, rate: float, write: Path | None) -> None:
    """Prints a table of routers."""
    memory, slots = 8 * 2**30, 64
    rows = []
    for title, pattern in WORKLOADS.items():
        workload = pattern.format(requests=requests, rate=rate, turns=rate / 5)
        alone, _, wait = simulate("round-robin", workload, 1, REPLICAS * memory, REPLICAS * slots)
        rows.append([title, "one replica with all memory", f"{alone:.1%}", "", "", f"{1000 * wait:,.0f}"])
        for router in ROUTERS:
            hits, imbalance, wait = simulate(router, workload, REPLICAS, memory, slots)
            rows.append(
                [
                    title,
                    router,
                    f"{hits:.1%}",
                    f"{hits / alone:.0%}",
                    f"{imbalance:.2f}",
                    f"{1000 * wait:,.0f}",
                ]
            )
    header = ["workload", "router", "found cached", "of one replica", "busiest by mean", "TTFT p99 (ms)"]
    table = markdown_table(header, rows, "llrrrr")
    print(table)
    for router in (*ROUTERS, "session-affinity"):
        print(f"{router}: {decide(router):.1f} us a decision, 64 replicas, 8,192 tokens")
    if write:
        write_marked(write, "routers", table)


if __name__ == "__main__":
    main()
