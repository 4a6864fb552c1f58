"""Many engines behind a router: who gets what, and the same figures from several processes."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

import pytest
from simulations import conversations, jobs, machine, sharing, simulated, simulation_of

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError, PluginError
from turnout.core.interfaces.router import Replica, Routable, Router
from turnout.core.registry.registry import Registry
from turnout.lab.jobs.job import Job, Workload
from turnout.lab.results.goodput import Goodput
from turnout.lab.simulation.fleet import Fleet, Mix
from turnout.lab.simulation.runs.result import simulate
from turnout.lab.simulation.traffic import Traffic
from turnout.plugins.routers.score import Score


def test_more_replicas_serve_sooner() -> None:
    def mean_wait(replicas: int) -> float:
        records = simulated(jobs(80, 200.0), replicas=replicas)
        return sum(record.ttft for record in records) / len(records)

    assert mean_wait(4) < mean_wait(1) / 3


def test_a_prefix_is_computed_where_it_was_before() -> None:
    def hits(router: str) -> int:
        simulation = simulation_of(sharing(60, 20.0), replicas=3, router=router)
        list(simulation.records())
        return simulation.totals.hits

    assert hits("prefix-affinity:tokens=64,slack=0") > hits("round-robin") + 5 * 80


def test_a_session_stays_where_its_cache_is() -> None:
    def hits(router: str) -> int:
        simulation = simulation_of(conversations(12, 5), replicas=4, router=router)
        list(simulation.records())
        return simulation.totals.hits

    assert hits("session-affinity") > 1.2 * hits("round-robin")


def test_least_loaded_keeps_clear_of_who_is_busy() -> None:
    work = [Job(0.01 * i, 10, 200 if i % 2 else 1) for i in range(60)]

    def mean_wait(router: str) -> float:
        records = simulated(work, replicas=2, router=router, max_num_seqs=4)
        return sum(record.ttft for record in records) / len(records)

    assert mean_wait("least-loaded") < 0.9 * mean_wait("round-robin")


@pytest.mark.parametrize("router", ["prefix-affinity:tokens=64", "score"])
def test_prefixes_are_found_nearly_as_often_as_by_one_replica_with_all_memory(router: str) -> None:
    work = sharing(300, 40.0)

    def hits(pool: int, **options: Any) -> int:
        simulation = simulation_of(work, pool, **options)
        list(simulation.records())
        return simulation.totals.hits

    assert hits(4096, replicas=4, router=router) >= 0.9 * hits(4 * 4096)


class Growing(Router):
    """`score`, to which a replica without a cache is added after half of the requests; counts."""

    reads_caches = True

    def __init__(self, half: int) -> None:
        self.half, self.score = half, Score()
        self.sent: list[int] = []

    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        up = replicas if len(self.sent) >= self.half else replicas[:-1]
        index = self.score.route(request, up)
        self.sent.append(index)
        return index


def test_a_replica_that_joins_without_a_cache_gets_its_part_and_no_flood() -> None:
    """Others send it nothing, because it has nothing cached, or everything, because it has nothing to do, so
    that it is slow, keeps its requests, and has nothing cached when the next ones come."""
    count = 400
    router, work = Growing(count // 2), Workload("w", sharing(count, 60.0))
    fleet = Fleet(EngineConfig(), machine(), Registry.load(), router, ["a", "b", "c", "new"])
    records = sorted(fleet.serve(Traffic(work), Mix(work, 0, 1000)), key=lambda record: record.index)
    later = Counter(router.sent[count // 2 :])
    assert 0.6 < later[3] / (count / 2 / 4) < 1.5
    of_new = [record.ttft for record, index in zip(records, router.sent, strict=True) if index == 3]
    rest = [record.ttft for record in records[count // 2 :]]
    assert sum(of_new) / len(of_new) < 1.5 * sum(rest) / len(rest)


@pytest.mark.parametrize("kv", ["contiguous", "paged:prefix_caching=false"])
def test_a_router_that_reads_caches_needs_a_backend_that_tells(kv: str) -> None:
    with pytest.raises(ConfigError, match="the KV backend does not tell"):
        simulated(sharing(3, 1.0), replicas=2, router="score", kv=kv)


class Lost(Router):
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def route(self, request: object, replicas: object) -> int:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (7, "answered 7; expected the index of one of 2 replicas"),
        ("zz", "answered 'zz'; expected"),
        (0.5, "answered 0.5; expected"),
        (ValueError("no idea"), "ValueError: no idea"),
        (SystemExit(3), "SystemExit: 3"),
    ],
    ids=["beyond", "text", "fraction", "raises", "exits"],
)
def test_a_router_that_fails_is_named(answer: Any, why: str) -> None:
    fleet = Fleet(EngineConfig(), machine(), Registry.load(), Lost(answer), ["a", "b"])
    workload = Workload("w", [Job(0.0, 1, 1)])
    with pytest.raises(PluginError, match=rf"router Lost of test_simulated_fleets: route failed: .*{why}"):
        list(fleet.serve(Traffic(workload), Mix(workload, 0, 1000)))


@pytest.mark.parametrize(
    "router", [pytest.param("round-robin", marks=pytest.mark.slow), "prefix-affinity:slack=0"]
)
def test_several_processes_find_the_same(router: str) -> None:
    simulation = simulation_of(sharing(60, 60.0), replicas=4, router=router, pool=1040)
    told: list[int] = []
    one = simulate(simulation, goodput=Goodput({"ttft": 50.0}))
    two = simulate(simulation, workers=2, goodput=Goodput({"ttft": 50.0}), progress=told.append)
    assert two.summary == one.summary
    assert two.totals == one.totals and sum(told) == 60


def test_one_process_simulates_where_several_cannot_share_their_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where /dev/shm cannot be written, `turnout simulate` ended with multiprocessing's traceback."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("multiprocessing.synchronize.SemLock.__init__", refuse)
    simulation = simulation_of(jobs(8, 9.0), replicas=2, router="round-robin")
    assert simulate(simulation, workers=2).summary == simulate(simulation).summary
    assert "one process simulates, as several cannot share their work: [Errno 30]" in caplog.text


def test_what_hangs_together_is_not_divided() -> None:
    """Where it goes depends on how loaded they are, or on when something ends."""
    simulate(simulation_of(conversations(3, 2), replicas=2), workers=2)
    simulate(simulation_of(jobs(5, 9.0), replicas=2, router="least-loaded"), workers=2)
    simulate(simulation_of(jobs(5, 9.0), replicas=2, concurrency=2), workers=2)


# ------------------------------------------------------------------ when jobs are sent


def sent(workload: Workload, lasting: float = 1.0) -> list[tuple[float, int]]:
    """When each job is, if it takes so many seconds."""
    traffic = Traffic(workload)
    log, todo = [], list(traffic.first())
    while todo:
        at, index = todo.pop(0)
        log.append((at, index))
        todo = sorted([*todo, *traffic.after(index, at + lasting)])
    return log


def test_an_open_loop_does_not_wait() -> None:
    assert sent(Workload("w", [Job(0.1 * i, 1, 1) for i in range(4)])) == [
        (pytest.approx(0.1 * i), i) for i in range(4)
    ]


def test_a_turn_waits_for_the_one_before_and_thinks() -> None:
    work = [Job(0.0, 1, 1, session="a"), Job(0.5, 1, 1, session="b"), Job(0.0, 9, 1, session="a", think=2.0)]
    assert sent(Workload("w", work)) == [(0.0, 0), (0.5, 1), (3.0, 2)]


def test_turns_behind_one_that_waits_wait_too() -> None:
    """One without a time to think was sent at its own time, before the turn that it goes on from."""
    work = [
        Job(0.0, 1, 1, session="a"),
        Job(0.0, 5, 1, session="a", think=2.0),
        Job(0.5, 9, 1, session="a"),
    ]
    assert sent(Workload("w", work)) == [(0.0, 0), (3.0, 1), (4.0, 2)]


def test_a_closed_loop_is_of_sessions() -> None:
    work = [
        Job(0.0, 1, 1, session="a"),
        Job(0.0, 2, 1, session="a", think=5.0),
        Job(0.0, 1, 1, session="b"),
        Job(0.0, 2, 1, session="b"),
    ]
    assert sent(Workload("w", work, concurrency=1)) == [(0.0, 0), (6.0, 1), (7.0, 2), (8.0, 3)]


def test_a_part_of_the_jobs_is_sent_by_itself() -> None:
    mine = {index: Job(float(index), 1, 1) for index in (4, 1)}
    assert list(Traffic(Workload("w", []), mine).first()) == [(1.0, 1), (4.0, 4)]


def test_records_come_as_requests_end_and_nothing_is_kept() -> None:
    simulation = simulation_of(jobs(500, 50.0))
    assert len(list(islice(simulation.records(), 3))) == 3
    assert Counter(type(v) for v in vars(simulation).values())[list] == 0


def test_steps_taken_ahead_are_taken_back_for_a_request_that_comes_before() -> None:
    """Long answers, whose steps go ahead by blocks, and requests that come in the middle of them."""
    work = [Job(0.0, 40, 300), *(Job(0.003 * number, 7, 20) for number in range(1, 60))]

    def times(fast_forward: bool) -> list[list[float]]:
        records = simulated(work, replicas=2, router="score", fast_forward=fast_forward)
        return [record.token_times for record in records]

    assert times(True) == times(False)
