"""The lab's load generator against our own server: what each counts, the other counts too."""

from __future__ import annotations

from typing import Any

import pytest
from echo_engine import VOCABULARY
from running_server import RunningServer

from turnout.lab.jobs.prompts import Prompts
from turnout.lab.load.generator import LoadRun, run_load
from turnout.lab.load.target import Target
from turnout.lab.workloads.source import load_workload


def load(server: RunningServer, spec: str, seed: int = 0, **how: Any) -> LoadRun:
    workload = load_workload(spec, seed)
    target = Target.at(server.url, model="echo", **how)
    return run_load(workload, target, Prompts(workload.jobs, seed, VOCABULARY), timeout=30)


def without_lag(load: LoadRun) -> list[str]:
    """The test's machine may be a busy one."""
    return [warning for warning in load.warnings if "lags" not in warning]


@pytest.mark.parametrize("output", [pytest.param(1, marks=pytest.mark.slow), 2, 24])
def test_every_token_is_counted_though_some_have_no_text_yet(server: RunningServer, output: int) -> None:
    """Random token ids are halves of characters more often than not."""
    done = load(server, f"poisson:rate=100,requests=20,prompt=uniform:5:60,output={output}")
    assert not without_lag(done)
    for record in done.records:
        assert (record.prompt_tokens, record.output_tokens) == (record.job.prompt, output)
        assert len(record.token_times) == output
        assert record.sent <= record.token_times[0] <= record.token_times[-1] <= record.finished


@pytest.mark.slow
def test_the_same_seed_gets_the_same_answers(server: RunningServer) -> None:
    spec = "closed:concurrency=4,requests=12,prompt=uniform:5:60,output=20"
    digests = [[record.digest for record in load(server, spec, seed).records] for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("how", [{"prompts": "text"}, {"prompts": "text", "endpoint": "chat"}])
def test_sessions_go_on_in_text(server: RunningServer, how: dict[str, Any]) -> None:
    spec = "closed:concurrency=3,requests=9,turns=3,think=0.01,prompt=4,output=6"
    done = load(server, spec, **how)
    assert not without_lag(done)
    turns = [record.prompt_tokens for record in done.records if record.job.session == "0-0"]
    assert turns == sorted(turns) and len(set(turns)) == 3


def test_what_the_server_refuses_is_told(server: RunningServer) -> None:
    done = load(server, "burst:requests=2,prompt=400,output=400")
    assert all(
        record.error.startswith("400: this model's maximum context length is 512") for record in done.records
    )
