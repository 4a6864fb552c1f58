"""Fleets in several processes, window by window: every record is that of one process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from simulations import conversations, jobs, machine, sharing, simulation_of

from turnout.core.errors import ConfigError
from turnout.core.registry.registry import Registry
from turnout.lab.jobs.job import Job
from turnout.lab.results.goodput import Goodput
from turnout.lab.results.record import Record
from turnout.lab.simulation import Simulation
from turnout.lab.simulation.fleet import Mix
from turnout.lab.simulation.replica import Totals
from turnout.lab.simulation.runs import shares, windows
from turnout.lab.simulation.runs.messages import Answer, Order
from turnout.lab.simulation.runs.result import simulate
from turnout.lab.simulation.runs.share import Share
from turnout.lab.simulation.traffic import Traffic


class Here:
    """Stands for a pool of one process: does the work at once."""

    def __init__(self, workers: int, context: object) -> None:
        assert workers == 1

    def submit(self, work: Callable[..., Any], *arguments: object) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*arguments))
        except ConfigError as error:
            done.set_exception(error)
        return done

    def shutdown(self, **_: object) -> None:
        pass


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process for all: this one."""
    monkeypatch.setattr(shares, "ProcessPoolExecutor", Here)


def served(simulation: Simulation) -> tuple[list[Record], Totals]:
    router = Registry.of(simulation.config).create("router", simulation.router)
    fleet = windows.WindowedFleet(simulation, router, workers=1)
    mix = Mix(simulation.workload, simulation.seed, simulation.cost.model.vocab_size)
    return list(fleet.serve(Traffic(simulation.workload), mix)), fleet.totals()


@pytest.mark.parametrize(
    ("work", "options"),
    [
        pytest.param(sharing(60, 120.0), {"router": "score"}, id="caches"),
        pytest.param(
            sharing(120, 120.0),
            {"router": "score", "pool": 1040},
            id="memory short",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            jobs(120, 120.0),
            {"router": "least-loaded", "scheduler": "sjf"},
            id="every step",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            [*jobs(60, 400.0, deadline_ms=900), *jobs(20, 120.0, seed=1, ttft_deadline_ms=200)],
            {"router": "least-loaded", "scheduler": "deadline", "max_num_seqs": 2},
            id="deadlines",
        ),
        pytest.param(conversations(20, 4), {"router": "score"}, id="sessions"),
        pytest.param(jobs(80, 120.0), {"router": "least-loaded", "concurrency": 12}, id="a closed loop"),
        pytest.param(
            jobs(80, 400.0), {"router": "power-of-two", "max_num_seqs": 2, "max_waiting": 3}, id="full"
        ),
        pytest.param(jobs(40, 400.0, longest=800), {"router": "least-loaded"}, id="too long"),
        pytest.param([Job(0.0, 40, 30)] * 40, {"router": "least-loaded"}, id="at one time"),
        pytest.param(jobs(30, 2.0, longest=20), {"router": "score"}, id="long pauses"),
    ],
)
def test_records_are_those_of_one_process(here: None, work: list[Job], options: dict[str, Any]) -> None:
    simulation = simulation_of(work, replicas=4, **options)
    records = list(simulation.records())
    assert served(simulation) == (records, simulation.totals)
    refuses = "max_waiting" in options or options.get("scheduler") == "deadline"
    if refuses or max(job.prompt for job in work) > 500:
        assert any(record.error for record in records)


def test_a_window_is_routed_while_the_steps_of_the_one_before_are_taken(
    here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, order = list[int](), shares.Shares.order

    def counted(self: shares.Shares, until: float) -> None:
        order(self, until)
        orders.append(self.orders)

    monkeypatch.setattr(shares.Shares, "order", counted)
    served(simulation_of(jobs(80, 400.0), replicas=4, router="least-loaded"))
    assert orders.count(2) > len(orders) / 2


def test_figures_of_several_processes_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "FEWEST", 2)
    simulation, told = simulation_of(sharing(60, 60.0), replicas=3, router="score"), list[int]()
    one = simulate(simulation, goodput=Goodput({"ttft": 50.0}))
    two = simulate(simulation, workers=2, goodput=Goodput({"ttft": 50.0}), progress=told.append)
    assert two.summary == one.summary and two.totals == one.totals and sum(told) == 60


def test_what_cannot_work_is_refused(here: None) -> None:
    with pytest.raises(ConfigError, match="the KV backend does not tell"):
        served(simulation_of(sharing(3, 1.0), replicas=2, router="score", kv="contiguous"))


def test_a_fleet_in_which_an_outsider_decides_or_looks_is_simulated_in_one_process() -> None:
    simulation = simulation_of(jobs(3, 1.0), replicas=windows.FEWEST, router="least-loaded")
    assert windows.windowed(simulation)
    assert not windows.windowed(replace(simulation, replicas=windows.FEWEST - 1))
    assert not windows.windowed(replace(simulation, watch=lambda step: None))
    assert not windows.windowed(replace(simulation, cost=machine(tokens=((0, 1e-4),))))
    sheds = simulation.config.model_copy(update={"admission": "queue-time:seconds=1"})
    assert not windows.windowed(replace(simulation, config=sheds))


def test_nothing_is_told_once_no_request_is_to_come(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand replicas it would be a gigabyte, since the last window has no end."""
    told: dict[bool, int] = {False: 0, True: 0}
    answer = Share.answer

    def counted(share: Share, order: Order) -> Answer:
        said = answer(share, order)
        told[order.until == inf] += len(said.news)
        return said

    monkeypatch.setattr(Share, "answer", counted)
    records, _ = served(simulation_of(sharing(60, 120.0), replicas=32, router="score"))
    assert len(records) == 60
    assert told[False] > 0 == told[True]
