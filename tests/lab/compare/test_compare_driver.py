"""An engine fed on a clock: requests arrive when they are due, in order, and all of them end."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from compare_runs import H100

from turnout.config import EngineConfig
from turnout.core.registry.registry import Registry
from turnout.lab.compare.runs.driver import Driver
from turnout.lab.compare.runs.order import turns
from turnout.lab.compare.runs.requests import JobRequests, warm_up
from turnout.lab.compare.runs.run import EngineSample
from turnout.lab.compare.runs.samples import MAX_SAMPLES, EngineSamples
from turnout.lab.jobs.job import Job, Workload
from turnout.lab.results.record import Record
from turnout.lab.simulation import run_simulated
from turnout.lab.simulation.assembly import build_simulated
from turnout.lab.workloads.source import load_workload


def fed(workload: Workload, **config: object) -> tuple[list[Record], list[EngineSample]]:
    """By an engine on a virtual clock, for which sleeping is turning the clock forward."""
    simulated = build_simulated(EngineConfig(**config), H100, Registry.load())
    clock = simulated.clock

    def sleep(seconds: float) -> None:
        clock.now += seconds

    requests = JobRequests(workload, 0, H100.model.vocab_size, {}, temperature=0.0)
    driver = Driver(simulated.engine, workload, requests, clock=clock, sleep=sleep)
    records = sorted(driver.records(), key=lambda record: record.index)
    return records, driver.samples()


def test_an_engine_that_is_fed_and_one_that_is_simulated_take_the_same_time() -> None:
    workload = load_workload("gamma:rate=20,requests=60,prompt=200,output=30,turns=2,think=1", seed=0)
    records, _ = fed(workload, max_num_seqs=8)
    simulated = run_simulated(EngineConfig(max_num_seqs=8), workload, H100, seed=0)
    assert [(round(r.sent, 6), round(r.finished, 6)) for r in records] == [
        (round(r.sent, 6), round(r.finished, 6)) for r in simulated
    ]


@pytest.mark.parametrize("scheduler", ["sjf:aging=1000", "hrrn", "deadline"])
def test_they_serve_in_the_same_order_where_it_matters_when_requests_came(scheduler: str) -> None:
    rng = random.Random(0)
    jobs = [
        Job(0.004 * index, 50, rng.randint(2, 40), deadline_ms=rng.choice([None, 100.0, 900.0]))
        for index in range(60)
    ]
    records, _ = fed(Workload("w", jobs), max_num_seqs=2, scheduler=scheduler)
    config = EngineConfig(max_num_seqs=2, scheduler=scheduler)
    simulated = run_simulated(config, Workload("w", jobs), H100, seed=0)
    assert [(round(r.finished, 6), r.error) for r in records] == [
        (round(r.finished, 6), r.error) for r in simulated
    ]
    assert any(record.error for record in records) == (scheduler == "deadline")


def test_every_job_has_its_record_with_as_many_tokens_as_it_asked_for() -> None:
    workload = load_workload("poisson:rate=50,requests=20", seed=1)
    records, _ = fed(workload)
    assert [(r.index, r.prompt_tokens, r.output_tokens) for r in records] == [
        (index, job.prompt, job.output) for index, job in enumerate(workload.jobs)
    ]
    assert len({record.digest for record in records}) > 1


def test_waiting_counts_from_when_a_request_was_due() -> None:
    """The second comes in the midst of the first one's steps, and waits for its only slot."""
    workload = Workload("two", [Job(at=0.0, prompt=10, output=50), Job(at=0.001, prompt=10, output=5)])
    (first, second), _ = fed(workload, max_num_seqs=1)
    assert second.sent == 0.001
    assert second.ttft > first.finished - 0.001


def test_a_closed_loop_sends_as_answers_come() -> None:
    workload = load_workload("closed:concurrency=3,requests=12,prompt=20,output=10", seed=0)
    records, samples = fed(workload)
    assert len(records) == 12 and max(sample.running for sample in samples) == 3


def test_a_request_that_is_refused_is_recorded_and_the_others_go_on() -> None:
    workload = Workload(
        "one too long", [Job(at=0.0, prompt=5000, output=5), Job(at=0.1, prompt=10, output=5)]
    )
    (refused, served), _ = fed(workload)
    assert "maximum context length is" in refused.error and not served.error


def test_samples_say_how_the_engine_stood() -> None:
    workload = Workload("burst", [Job(at=0.0, prompt=100, output=20)] * 6)
    _, samples = fed(workload, max_num_seqs=4)
    assert max(sample.running for sample in samples) == 4
    assert max(sample.waiting for sample in samples) == 2
    assert 0 < max(sample.kv_used for sample in samples) < 1


def test_samples_of_a_long_run_are_thinned_evenly() -> None:
    samples = EngineSamples()
    for step in range(100_000):
        samples.add(EngineSample(step / 100, 1, 0, 0.5))
    times = [sample.at for sample in samples.all()]
    assert MAX_SAMPLES / 2 <= len(times) <= MAX_SAMPLES
    gaps = [b - a for a, b in pairwise(times[1:])]
    assert max(gaps) < 2.1 * min(gaps)


def test_warming_up_takes_some_of_the_jobs_on_their_own() -> None:
    workload = load_workload("poisson:rate=1,requests=40,turns=4,prefix=50", seed=0)
    jobs = warm_up(workload, 5).jobs
    assert len(jobs) == 5
    assert all(job.at == 0 and not job.session and not job.blocks for job in jobs)
    assert warm_up(workload, 0).jobs == []


def test_arms_alternate_and_change_who_goes_first() -> None:
    assert "".join(str(turn.arm) for turn in turns(["A", "B", "C"], 3)) == "ABCCBAABC"
