"""Small simulations: a machine whose steps take milliseconds, and workloads that make it sweat."""

from __future__ import annotations

import random
from typing import Any

from turnout.config import EngineConfig
from turnout.core.types.model_spec import ModelSpec, RopeSpec
from turnout.lab.jobs.job import Job, Workload
from turnout.lab.results.record import Record
from turnout.lab.simulation import CostModel, Simulation
from turnout.lab.simulation.cost import Seconds

SPEC = ModelSpec(
    architecture="Toy",
    vocab_size=1000,
    hidden_size=64,
    intermediate_size=128,
    layers=2,
    heads=2,
    kv_heads=2,
    head_dim=32,
    max_positions=1024,
    norm_eps=1e-6,
    rope=RopeSpec(),
    qkv_bias=False,
    output_bias=False,
    mlp_bias=False,
    tied_embeddings=True,
    dtype="float32",
)
POSITION = 2 * 2 * 2 * 32 * 4
"""Bytes of KV memory that one takes."""
SECONDS = Seconds(
    fixed=2e-3,
    tokens=((0, 1e-4), (16, 5e-5)),
    sequence=1e-5,
    group=3e-4,
    read=1e-6,
    pair=1e-8,
    move=1e-6,
    host=5e-4,
    runner=1e-5,
)


def machine(pool: int = 4096, **seconds: float) -> CostModel:
    """`pool`: KV positions."""
    return CostModel(
        name="toy",
        device="cpu",
        kv_memory=pool * POSITION,
        itemsize=4,
        model=SPEC,
        seconds=Seconds(**seconds) if seconds else SECONDS,
    )


def jobs(count: int, rate: float, *, seed: int = 0, longest: int = 200, **fields: Any) -> list[Job]:
    rng, at, made = random.Random(seed), 0.0, []
    for _ in range(count):
        at += rng.expovariate(rate)
        made.append(Job(at, rng.randint(1, longest), rng.randint(1, longest), **fields))
    return made


def sharing(count: int, rate: float, *, seed: int = 0) -> list[Job]:
    """Prompts that begin with one of three prefixes."""
    rng = random.Random(seed)
    return [
        Job(job.at, 96 + job.prompt, job.output, blocks=(rng.randrange(3),), block_size=96)
        for job in jobs(count, rate, seed=seed)
    ]


def conversations(sessions: int, turns: int, *, think: float | None = 0.5) -> list[Job]:
    made = []
    for session in range(sessions):
        length = 20
        for turn in range(turns):
            later = think if turn else None
            made.append(Job(0.1 * session, length, 15, session=f"s{session}", think=later))
            length += 15 + 10
    return made


def simulated(work: list[Job], pool: int = 4096, **options: Any) -> list[Record]:
    """Records by index. `options`: of `EngineConfig`, and `replicas`, `router`, `fast_forward`, `seed`,
    `concurrency`."""
    simulation = simulation_of(work, pool, **options)
    return sorted(simulation.records(), key=lambda record: record.index)


def simulation_of(work: list[Job], pool: int = 4096, **options: Any) -> Simulation:
    concurrency = options.pop("concurrency", None)
    mine = {
        name: options.pop(name) for name in ("replicas", "router", "fast_forward", "seed") if name in options
    }
    config = EngineConfig(strict_plugins=True, **options)
    return Simulation(config, Workload("test", work, concurrency), machine(pool), **mine)
