"""Workloads and options by chance, of all that a simulation can be told."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from simulations import conversations, jobs, sharing

from turnout.lab.jobs.job import Job

__all__ = ["random_options", "random_work"]

SCHEDULERS = [
    *("fcfs", "hrrn", "ljf", "lpm", "sarathi", "sjf", "hrrn:prompt_cost=0", "sjf:by=prompt"),
    *("sjf:by=max_tokens,aging=0", "ljf:by=predicted,aging=100", "lpm:max_wait=0.05", "lpm:max_queue=2"),
    *("sarathi:chunk=7", "sarathi:chunk=64"),
]
"""Those that let steps be skipped."""
PREDICTORS = ["max_tokens", "history", "history:quantile=0.9,min_samples=1,samples=4"]
ROUTERS = ["least-loaded", "power-of-two", "prefix-affinity", "round-robin", "score", "session-affinity"]
RARE: list[tuple[float, str, list[Any]]] = [
    (0.6, "max_num_seqs", [1, 2, 3, 8, 40]),
    (0.6, "max_num_batched_tokens", [1, 2, 3, 8, 24, 100]),
    (0.3, "max_waiting", [1, 2, 5]),
    (0.2, "max_model_len", [64, 200, 400]),
    (0.3, "concurrency", [1, 3, 10]),
]


def random_work(drawn: random.Random) -> list[Job]:
    count, rate = drawn.randint(1, 60), drawn.choice([2, 10, 60, 300])
    kind = drawn.choice(["plain", "sharing", "sessions", "at once", "blocks"])
    if kind == "sessions":
        return conversations(
            drawn.randint(1, 30), drawn.randint(1, 6), think=drawn.choice([None, 0, 0.01, 0.5])
        )
    if kind == "plain":
        work = jobs(count, rate, seed=drawn.getrandbits(32), longest=drawn.choice([5, 60, 200, 700]))
    elif kind == "sharing":
        work = sharing(count, rate, seed=drawn.getrandbits(32))
    elif kind == "at once":
        lengths = [(drawn.choice([60, 61]), drawn.choice([1, 2, 40])) for _ in range(count)]
        work = [Job(0.05 * (number // 8), *length) for number, length in enumerate(lengths)]
    else:
        work = _of_blocks(drawn, count, rate)
    return [_with_wishes(drawn, job) for job in work] if drawn.random() < 0.5 else work


def _of_blocks(drawn: random.Random, count: int, rate: float) -> list[Job]:
    size, at, work = drawn.choice([8, 16, 24, 96]), 0.0, []
    for _ in range(count):
        at += drawn.choice([0, 0, drawn.expovariate(rate)])
        prompt = drawn.randint(1, 300)
        blocks = tuple(drawn.randrange(3) for _ in range(min(prompt // size, drawn.randint(0, 4))))
        work.append(Job(at, prompt, drawn.randint(1, 120), blocks=blocks, block_size=size if blocks else 0))
    return work


def _with_wishes(drawn: random.Random, job: Job) -> Job:
    return replace(
        job,
        client=drawn.choice(["", "a", "b"]),
        priority=drawn.randint(-2, 2),
        deadline_ms=drawn.choice([*[None] * 9, 1, 50, 500]),
        ttft_deadline_ms=drawn.choice([*[None] * 9, 1, 50, 500]),
    )


def random_options(drawn: random.Random) -> dict[str, Any]:
    """As `simulation_of` takes them; some cannot work."""
    options: dict[str, Any] = {
        "scheduler": drawn.choice(SCHEDULERS),
        "length_predictor": drawn.choice(PREDICTORS),
        "pool": drawn.choice([512, 1040, 1040, 1500, 4096]),
        "router": drawn.choice(ROUTERS),
        "replicas": drawn.choice([1, 1, 2, 3, 5]),
        "seed": drawn.choice([0, 1, -5, 2**62]),
        **_memory(drawn),
    }
    for share, name, values in RARE:
        if drawn.random() < share:
            options[name] = drawn.choice(values)
    return options


def _memory(drawn: random.Random) -> dict[str, Any]:
    if drawn.random() < 0.25:
        options: dict[str, Any] = {"kv": "contiguous"}
    else:
        caches = drawn.random() < 0.7
        dtype, size = drawn.choice(["auto", "int8"]), drawn.choice([1, 2, 4, 8, 16, 16, 32, 64])
        options = {"kv": f"paged:prefix_caching={caches},dtype={dtype},block_size={size}"}
        if caches:
            options["kv_eviction"] = drawn.choice(["lru", "lfu", "cost", "cost:context=64"])
    if drawn.random() < 0.5:
        options |= {
            "preemption": drawn.choice(["auto", "swap"]),
            "swap_memory": drawn.choice([2**16, 2**20, 2**23]),
        }
    return options
