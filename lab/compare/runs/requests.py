"""The requests of a workload's jobs: exactly so many tokens, and for every arm the same prompts and seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnout.core.types.param_groups import merge_defaults
from turnout.core.types.pooling import PoolingParams
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.lab.jobs.job import Job, Workload, seed_of
from turnout.lab.jobs.prompts import Prompts

__all__ = ["JobRequests", "warm_up"]


class JobRequests:
    """Implements `Requests` for one run."""

    def __init__(
        self,
        workload: Workload,
        seed: int,
        vocabulary: int,
        defaults: Mapping[str, Any],
        temperature: float | None,
    ) -> None:
        """`defaults`: sampling parameters of the model and of ``--decoding``.

        `temperature`: None leaves it to them.
        """
        self._jobs = workload.jobs
        self._prompts = Prompts(workload.jobs, seed, vocabulary)
        self._seed = seed
        self._defaults = defaults
        self._given = {} if temperature is None else {"temperature": temperature}

    def spec(self, index: int, arrival: float) -> RequestSpec:
        job = self._jobs[index]
        return RequestSpec(
            id=f"{self._seed}-{index}",
            prompt=self._prompts.of(index),
            params=self._params(max(1, job.output)),
            seed=seed_of(self._seed, index),
            arrival=arrival,
            priority=job.priority,
            client=job.client,
            deadline=job.deadline,
            ttft_deadline=job.ttft_deadline,
            pooling=None if job.output else PoolingParams(),
        )

    def answered(self, index: int, tokens: list[int]) -> None:
        self._prompts.answered(index, tokens)

    def _params(self, output: int) -> SamplingParams:
        given = {**self._given, "max_tokens": output, "ignore_eos": True}
        return SamplingParams(**merge_defaults(given, self._defaults)).generating()


def warm_up(workload: Workload, requests: int) -> Workload:
    """Some jobs of `workload`, on their own and all at once, for what an engine loads on its first step."""
    jobs = workload.jobs
    step = max(1, len(jobs) // requests) if requests else 1
    chosen = jobs[::step][:requests]
    return Workload("warm-up", [_alone(job) for job in chosen])


def _alone(job: Job) -> Job:
    return Job(0.0, job.prompt, job.output)
