"""A simulation is the engine that serves, on a clock that the cost model moves."""

from __future__ import annotations

from itertools import pairwise

import pytest
from simulations import SECONDS, conversations, jobs, machine, sharing, simulated, simulation_of

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.lab.jobs.job import Job, Workload
from turnout.lab.simulation import run_simulated
from turnout.lab.simulation.cost import Work
from turnout.lab.simulation.runs.arms import NOT_SIMULATED


def test_a_request_alone_takes_what_the_cost_model_says() -> None:
    (record,) = simulated([Job(3.0, 40, 3)])
    prompt = SECONDS.of(
        Work(tokens=40, sequences=1, rows=1, groups=1, context=40, pairs=40 * 41 / 2, running=1)
    )
    first = SECONDS.of(Work(tokens=1, sequences=1, rows=1, groups=1, context=41, pairs=41, running=1))
    second = SECONDS.of(Work(tokens=1, sequences=1, rows=1, groups=1, context=42, pairs=42, running=1))
    assert record.sent == record.due == 3.0
    assert record.ttft == pytest.approx(prompt)
    assert record.itl == pytest.approx([first, second])
    assert record.finished == record.token_times[-1]


def test_every_request_gets_as_many_tokens_as_its_job_says() -> None:
    work = jobs(60, 40.0)
    records = simulated(work)
    assert [record.index for record in records] == list(range(60))
    for job, record in zip(work, records, strict=True):
        assert record.job is job and not record.error
        assert (record.prompt_tokens, record.output_tokens) == (job.prompt, job.output)
        assert len(record.token_times) == job.output
        assert record.token_times == sorted(record.token_times)


def test_equal_arguments_give_equal_records() -> None:
    assert simulated(sharing(50, 30.0)) == simulated(sharing(50, 30.0))
    config, workload = EngineConfig(), Workload("w", jobs(20, 30.0))
    assert run_simulated(config, workload, machine(), seed=1) == run_simulated(
        config, workload, machine(), seed=1
    )


def test_policies_agree_on_what_is_said_and_not_on_when() -> None:
    work = jobs(60, 200.0)
    fcfs, ljf = simulated(work, max_num_seqs=4), simulated(work, max_num_seqs=4, scheduler="ljf")
    assert [record.digest for record in fcfs] == [record.digest for record in ljf]
    assert [record.ttft for record in fcfs] != [record.ttft for record in ljf]


def test_what_was_said_before_is_found_in_the_cache() -> None:
    simulation = simulation_of(conversations(3, 4))
    records = sorted(simulation.records(), key=lambda record: record.index)
    assert simulation.totals.hits >= 3 * (16 + 32 + 64), "three later turns, in whole blocks"
    for before, after in pairwise(records):
        if before.job.session == after.job.session:
            assert after.sent == pytest.approx(before.finished + 0.5)


@pytest.mark.parametrize(("scheduler", "order"), [("sjf:aging=10000", [0, 1, 2]), ("hrrn", [0, 2, 1])])
@pytest.mark.parametrize("fast_forward", [True, False])
def test_requests_wait_from_when_they_are_sent(scheduler: str, order: list[int], fast_forward: bool) -> None:
    """They waited from the end of the step in which they were sent, and came at once. Jobs 1 and 2, 4 ms
    apart, are sent in the first step. With aging, the first of them has 40 tokens' start; by response ratio,
    the shorter one wins if its wait counts."""
    work = [Job(0.0, 500, 1), Job(0.001, 20, 20), Job(0.005, 20, 12)]
    options = {"max_num_seqs": 1, "max_num_batched_tokens": 512, "fast_forward": fast_forward}
    records = simulated(work, scheduler=scheduler, **options)
    assert sorted(range(3), key=lambda index: records[index].finished) == order


@pytest.mark.parametrize("replicas", [1, 2])
def test_requests_have_the_deadlines_of_their_jobs(replicas: int) -> None:
    """No job had any: `deadline` was `fcfs`. Job 2 is due before job 1, and job 3 cannot be in time."""
    work = [
        Job(0.0, 100, 50),
        Job(0.001, 50, 20, deadline_ms=5000),
        Job(0.002, 50, 20, deadline_ms=1000),
        Job(0.003, 50, 20, ttft_deadline_ms=1),
    ]
    work = [job for job in work for _ in range(replicas)]
    records = simulated(work, scheduler="deadline", max_num_seqs=1, replicas=replicas)[::replicas]
    assert records[2].finished < records[1].finished and not records[1].error
    assert "deadline" in records[3].error


def test_a_closed_loop_keeps_so_many_going_and_no_more() -> None:
    records = simulated(jobs(40, 1.0), concurrency=5)
    ends = sorted(record.finished for record in records)
    assert [record.sent for record in records[:5]] == [0.0] * 5
    assert sorted(record.sent for record in records)[5:] == ends[: len(records) - 5]


def test_what_the_engine_refuses_is_a_record_with_the_reason() -> None:
    long, fine = simulated([Job(0.0, 1000, 100), Job(0.0, 10, 10)])
    assert "context length is 1024" in long.error and not long.token_times
    assert not fine.error
    records = simulated(jobs(50, 1e6), max_waiting=4, max_num_seqs=1)
    assert any("are waiting already" in record.error for record in records)


def test_memory_is_the_configurations_or_the_machines() -> None:
    def preemptions(**options: object) -> int:
        simulation = simulation_of(jobs(10, 200.0), **options)
        list(simulation.records())
        return simulation.totals.preemptions

    assert preemptions() == 0
    assert preemptions(max_model_len=512, kv_memory=1024 * 1024) > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"spec_ngram": True}, "speculative decoding is not simulated"),
        ({"decoding": "speculative:proposer=ngram"}, "speculative decoding is not simulated"),
        ({"max_model_len": 5000}, "exceeds the model's 1,024 positions"),
        ({"kv_memory": 1024}, "raise --kv-memory or lower --max-model-len"),
        ({"scheduler": "fcsf"}, "fcfs"),
        ({"preemption": "swap", "kv": "paged"}, "swaps nothing out"),
        ({"router": "round"}, "round-robin"),
        ({"replicas": 0}, "replicas must be at least 1"),
    ],
)
def test_what_cannot_be_simulated_is_said(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        simulated([Job(0.0, 1, 1)], **options)


def test_options_that_arms_may_change_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An arm that changes another would be said to make no difference."""
    read: set[str] = set()

    def attribute(self: EngineConfig, name: str) -> object:
        read.add(name)
        return object.__getattribute__(self, name)

    monkeypatch.setattr(EngineConfig, "__getattribute__", attribute)
    simulated(jobs(5, 10.0), preemption="swap", swap_memory=2**20)
    unread = EngineConfig.model_fields.keys() - read
    assert unread == NOT_SIMULATED - {"decoding"}  # which is read for speculation alone
