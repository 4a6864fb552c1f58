"""`queue-time` refuses what would wait too long, as far as it can tell, and nothing else."""

from __future__ import annotations

import msgspec
import pytest
from toy import ToyParallel

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.core.interfaces.admission import Load, Refusal
from turnout.core.registry.registry import Registry
from turnout.core.types.request import Request
from turnout.core.types.views import KVView
from turnout.lab.results.record import Record
from turnout.lab.simulation.presets import preset
from turnout.lab.simulation.simulate import run_simulated
from turnout.lab.workloads.source import load_workload
from turnout.plugins.admissions.queue_time import QueueTime
from turnout.testing.factories import made_request

OVERLOAD = "poisson:rate=12,requests=700,prompt=500,output=120"
"""Some twice what 16 sequences of the machine serve."""


def load(waiting: int, rate: float | None, now: float = 100.0) -> Load:
    return Load(now, 8, waiting, KVView(0, 1000), rate, tuple, lambda request: 16.0)


def refusal(policy: QueueTime, at: Load, **request: float) -> Refusal | None:
    return policy.admit(made_request(arrival=at.now, **request).view, at)  # type: ignore[arg-type]


def test_the_expected_wait_is_bounded() -> None:
    policy = QueueTime(seconds=10)
    assert refusal(policy, load(19, 2.0)) is None
    answer = refusal(policy, load(23, 2.0))
    assert answer is not None and answer.retry_after == 2.0
    assert answer.reason == (
        "23 requests wait, and this one would wait about 12 s (at most 10 s); try again in 2 s"
    )
    assert dict(policy.figures().counters) == {"refused": 1}
    assert dict(policy.figures().gauges) == {"expected_wait_seconds": 12.0}


@pytest.mark.parametrize("at", [load(0, 0.001), load(4000, None)], ids=["no queue", "nothing measured"])
def test_what_is_not_known_refuses_no_request(at: Load) -> None:
    assert refusal(QueueTime(seconds=1), at) is None


def test_a_deadline_that_cannot_be_met_is_told_at_once() -> None:
    policy = QueueTime(seconds=10)
    assert refusal(policy, load(9, 2.0), deadline=6.0) is None
    answer = refusal(policy, load(9, 2.0), deadline=4.0)
    assert answer is not None and "its deadline is sooner" in answer.reason


def test_the_sooner_deadline_counts_and_is_what_the_wait_exceeds() -> None:
    at, spec = load(39, 2.0), made_request(deadline=5.0).spec
    spec = msgspec.structs.replace(spec, ttft_deadline=50.0)
    answer = QueueTime(seconds=60).admit(Request(spec, ToyParallel(), at.now, 16, frozenset()).view, at)
    assert answer is not None and answer.retry_after == 15.0


def test_a_deadline_that_has_passed_refuses_no_request_while_none_waits() -> None:
    """It was told that 0 requests wait, and to try again."""
    assert refusal(QueueTime(), load(0, 2.0), deadline=-1.0) is None


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_seconds_are_checked(seconds: str) -> None:
    with pytest.raises(ConfigError, match="seconds"):
        Registry.load().create("admission", f"queue-time:seconds={seconds}")


# ------------------------------------------------------------------ as it is served, on a virtual clock


def served(admission: str) -> list[Record]:
    config = EngineConfig(admission=admission, max_num_seqs=16, kv_memory="8GiB", max_model_len=2048)
    return run_simulated(config, load_workload(OVERLOAD, 1), preset("a100-7b"), seed=1)


def waits(records: list[Record]) -> list[float]:
    """Until the first token, sorted."""
    return sorted(record.token_times[0] - record.sent for record in records if not record.error)


def test_those_that_are_taken_on_wait_no_longer_than_was_said() -> None:
    """Without it, a queue that grows for as long as the overload lasts makes nearly all of them late."""
    before, after = served("none"), served("queue-time:seconds=5")
    late, kept = waits(before), waits(after)
    assert late[len(late) // 2] > 15, "the machine is not overloaded"
    assert kept[int(0.9 * len(kept))] < 7
    # It refuses no more than it must: the machine is as busy as without it.
    speed = [
        sum(r.output_tokens for r in records) / max(r.finished or 0.0 for r in records)
        for records in (before, after)
    ]
    assert speed[1] > 0.95 * speed[0]
    refused = next(record for record in after if record.error)
    assert "try again in" in refused.error
