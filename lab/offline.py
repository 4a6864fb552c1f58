"""Serves a workload's requests by an engine in this process, all at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count

from turnout.core.engine.engine import Engine
from turnout.core.errors import EngineError
from turnout.core.types.messages import Delta
from turnout.core.types.pooling import PoolingParams
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.lab.jobs.job import Job
from turnout.lab.jobs.prompts import Prompts
from turnout.lab.results.record import Record

__all__ = ["run_offline"]

_numbers = count()


def run_offline(
    engine: Engine,
    jobs: Sequence[Job],
    prompts: Prompts,
    *,
    clock: Callable[[], float] = time.perf_counter,
    progress: Callable[[Record], None] = lambda record: None,
) -> list[Record]:
    """Serves the jobs greedily to their full length, whenever they are due; times count from the first step.

    Raises EngineError when one cannot be served.
    """
    # Ids are new in every run: an engine may still remember those of the one before.
    records = {f"bench-{next(_numbers)}": Record(job, index, 0.0, 0.0) for index, job in enumerate(jobs)}
    for id, record in records.items():
        engine.add(_spec(id, record, prompts))
    begin = clock()
    while engine.busy:
        deltas, now = engine.step(), clock() - begin
        for delta in deltas:
            if _take(records[delta.request_id], delta, now):
                progress(records[delta.request_id])
    return list(records.values())


def _spec(id: str, record: Record, prompts: Prompts) -> RequestSpec:
    job = record.job
    params = SamplingParams(temperature=0, max_tokens=max(1, job.output), ignore_eos=True)
    return RequestSpec(
        id=id,
        prompt=prompts.of(record.index),
        params=params,
        seed=0,
        priority=job.priority,
        client=job.client,
        pooling=None if job.output else PoolingParams(),
    )


def _take(record: Record, delta: Delta, now: float) -> bool:
    """True when the request has ended."""
    if delta.error:
        raise EngineError(f"request {record.index} failed: {delta.error}")
    record.token_times += [now] * len(delta.tokens)
    if delta.finish_reason is None:
        return False
    record.finished = now
    record.prompt_tokens, record.output_tokens = record.job.prompt, len(record.token_times)
    return True
