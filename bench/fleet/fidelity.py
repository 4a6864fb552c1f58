"""Measures how true a simulated fleet is: the live one beside it, with the same router, requests and engines.

The live fleet is the server's own (`Fleet`), with an engine's process for each replica; the engines take the
time that the cost model says (`engines.simulated`). So what differs is what the simulation leaves out: how
late the router learns what engines have, how long messages take, and the event loop.

A router that compares loads sends a request, and so all that follow, elsewhere when another came a
millisecond later: the p99 of one run may be half as long again as that of the next. So both fleets serve more
than once, and their medians are compared; in the simulation requests are late by as much as live ones are.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click

sys.path.append(str(Path(__file__).parent.parent))

from engines.simulated import COST_MODEL

from turnout.cli.options.cost_model import find_cost_model
from turnout.config import EngineConfig
from turnout.core.clock import monotonic
from turnout.core.logs import LogStyle
from turnout.core.registry.registry import Registry
from turnout.lab.jobs.job import Workload
from turnout.lab.results.record import Record
from turnout.lab.results.summary import summarize
from turnout.lab.simulation.cost import CostModel
from turnout.lab.simulation.fleet import Fleet as SimulatedFleet
from turnout.lab.simulation.fleet import Mix
from turnout.lab.simulation.traffic import Traffic
from turnout.lab.workloads.source import load_workload
from turnout.server.engine.client import ProcessClient
from turnout.server.fleet.fleet import Fleet
from turnout.server.fleet.replica import ReplicaOrder

__all__ = ["Scene", "compare", "serve_live", "serve_simulated"]

FACTORY = "engines.simulated:build"
LATE = 0.002
"""Seconds that a live request is late at most, unless the machine stalls."""
SIMULATIONS = 9
"""Times that a scene is simulated; the first time no request is late."""
ROUTERS = ("round-robin", "least-loaded", "power-of-two", "prefix-affinity", "score")


@dataclass(frozen=True)
class Scene:
    """What both fleets serve, and what they are."""

    config: EngineConfig
    cost: CostModel
    workload: Workload
    replicas: int
    router: str

    @property
    def mix(self) -> Mix:
        return Mix(self.workload, 0, self.cost.model.vocab_size)

    def late(self, seed: int) -> Scene:
        """The scene with every request late by a random part of `LATE`."""
        rng = random.Random(seed)
        jobs = [replace(job, at=job.at + rng.uniform(0.0, LATE)) for job in self.workload.jobs]
        return replace(self, workload=replace(self.workload, jobs=sorted(jobs, key=lambda job: job.at)))


@dataclass(frozen=True)
class Outcome:
    """What is compared."""

    hit_rate: float
    """Of prompt tokens, those that were found in memory."""
    p99_ttft: float
    """Seconds."""
    throughput: float
    """Output tokens a second."""

    @classmethod
    def of(cls, records: list[Record], found: int) -> Outcome:
        summary = summarize(records, max(record.finished for record in records))
        return cls(
            found / summary.total_input_tokens,
            summary.latencies["ttft"].percentiles[99.0] / 1000,
            summary.output_throughput,
        )


def serve_simulated(scene: Scene) -> Outcome:
    registry = Registry.of(scene.config)
    router = registry.create("router", scene.router)
    names = [str(number) for number in range(scene.replicas)]  # as the live fleet calls them
    fleet = SimulatedFleet(scene.config, scene.cost, registry, router, names)
    records = list(fleet.serve(Traffic(scene.workload), scene.mix))
    return Outcome.of(records, fleet.totals().hits)


def serve_live(scene: Scene) -> Outcome:
    """Raises AssertionError for a request that fails."""
    with _environment(scene.cost):
        return asyncio.run(_serve_live(scene))


def compare(scene: Scene, rounds: int = 1) -> dict[str, tuple[float, float, float]]:
    """For each figure: live and simulated, the medians of rounds, and how far simulated ones are off.

    One stall of the machine makes the p99 of a round: it says nothing of the others.
    """
    live = _medians([serve_live(scene) for _ in range(rounds)])
    scenes = [scene, *map(scene.late, range(1, SIMULATIONS))]
    simulated = _medians([serve_simulated(each) for each in scenes])
    return {name: (live[name], simulated[name], simulated[name] / live[name] - 1) for name in live}


def _medians(outcomes: list[Outcome]) -> dict[str, float]:
    return {name: statistics.median(vars(each)[name] for each in outcomes) for name in vars(outcomes[0])}


@contextmanager
def _environment(cost: CostModel) -> Iterator[None]:
    """Engines' processes inherit it: where the factory is, and the cost model."""
    with tempfile.TemporaryDirectory() as folder:
        cost.save(file := Path(folder) / "cost.json")
        before = dict(os.environ)
        paths = [str(Path(__file__).parent.parent), *filter(None, [before.get("PYTHONPATH")])]
        os.environ.update({"PYTHONPATH": os.pathsep.join(paths), COST_MODEL: str(file)})
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


async def _serve_live(scene: Scene) -> Outcome:
    def launch(order: ReplicaOrder) -> ProcessClient:
        return ProcessClient(
            factory=FACTORY, log=LogStyle("warning"), replica=order.name, journal=order.journal
        )

    fleet = Fleet(launch, scene.replicas, Registry.of(scene.config).create("router", scene.router))
    try:
        fleet.configure(scene.config)
        await fleet.start()
        mix, jobs = scene.mix, scene.workload.jobs
        specs = [mix.spec(index) for index in range(len(jobs))]
        found = 0
        began = monotonic() + 0.05

        async def ask(index: int) -> Record:
            nonlocal found
            job = jobs[index]
            await asyncio.sleep(began + job.at - monotonic())
            record = Record(job, index, job.at, monotonic() - began, prompt_tokens=job.prompt)
            async for delta in fleet.submit(specs[index]):
                assert not delta.error, delta.error
                now = monotonic() - began
                record.token_times += [now] * len(delta.tokens)
                found += delta.cached_tokens if delta.finish_reason else 0
            record.finished, record.output_tokens = now, len(record.token_times)
            return record

        records = await asyncio.gather(*map(ask, range(len(jobs))))
    finally:
        await fleet.close()
    return Outcome.of(list(records), found)


@click.command()
@click.option("--cost-model", default="a100-7b", show_default=True)
@click.option("--replicas", default=4, show_default=True)
@click.option("--router", "routers", multiple=True, default=ROUTERS, show_default=True)
@click.option("--rate", default=12.0, show_default=True, help="Requests a second, over all replicas.")
@click.option("--requests", default=600, show_default=True)
@click.option("--rounds", default=1, show_default=True, help="Times to serve live; their medians count.")
def main(
    cost_model: str, replicas: int, routers: tuple[str, ...], rate: float, requests: int, rounds: int
) -> None:
    """Prints what is measured beside what is simulated. Takes requests/rate seconds a round and router."""
    cost = find_cost_model(cost_model)
    config = EngineConfig(kv_memory=8 * 2**30, max_num_seqs=64, max_model_len=4096)
    workload = load_workload(
        f"poisson:rate={rate},requests={requests},prefix=lognormal:1500,prefixes=60,prefix_skew=0.8,"
        "longest=4096,output=lognormal:100",
        0,
    )
    for router in routers:
        scene = Scene(config, cost, workload, replicas, router)
        for figure, (live, simulated, off) in compare(scene, rounds).items():
            click.echo(f"{router:>16} {figure:>10} {live:10.3f} {simulated:10.3f} {off:+7.1%}")


if __name__ == "__main__":
    main()
