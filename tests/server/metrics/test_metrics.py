"""What Prometheus is told: of requests as the server saw them, of the engine as it says."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from asking import COMPLETIONS, events
from echo_engine import BYTES_PER_TOKEN, POOL
from prometheus_client.parser import text_string_to_metric_families
from running_server import RunningServer, Start, eventually

from turnout.core.types.messages import KVSnapshot, Stats
from turnout.server.metrics.engine_metrics import Scrape

NAMED_AS_VLLM = {
    "turnout:num_requests_running",
    "turnout:num_requests_waiting",
    "turnout:kv_cache_usage_perc",
    "turnout:prefix_cache_queries_total",
    "turnout:prefix_cache_hits_total",
    "turnout:num_preemptions_total",
    "turnout:prompt_tokens_total",
    "turnout:generation_tokens_total",
    "turnout:request_success_total",
    "turnout:time_to_first_token_seconds_count",
    "turnout:inter_token_latency_seconds_count",
    "turnout:request_time_per_output_token_seconds_count",
    "turnout:e2e_request_latency_seconds_count",
    "turnout:request_prompt_tokens_count",
    "turnout:request_generation_tokens_count",
}


class Metrics:
    """A scrape: the values by name, `finished_reason` and `le`."""

    def __init__(self, server: RunningServer) -> None:
        response = server.http.get("/metrics")
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/plain")
        self.samples = {
            (sample.name, sample.labels.get("finished_reason"), sample.labels.get("le")): sample
            for family in text_string_to_metric_families(response.text)
            for sample in family.samples
        }

    @property
    def names(self) -> set[str]:
        return {name for name, _, _ in self.samples}

    def has(self, name: str, value: float) -> bool:
        """False too before the engine's first report, which a scrape may precede."""
        sample = self.samples.get((f"turnout:{name}", None, None))
        return sample is not None and sample.value == value

    def __call__(self, name: str, reason: str | None = None, le: str | None = None) -> float:
        return self.samples[f"turnout:{name}", reason, le].value


@pytest.fixture
def fresh(start: Start) -> RunningServer:
    """One of its own: what others asked for would be counted."""
    return start(event_interval=0)


def test_names_are_vllms_and_all_say_which_model(server: RunningServer) -> None:
    metrics = Metrics(server)
    assert metrics.names >= NAMED_AS_VLLM
    assert all(sample.labels["model_name"] == "echo" for sample in metrics.samples.values())


def test_requests_are_counted_as_they_end(fresh: RunningServer) -> None:
    fresh.post(COMPLETIONS, prompt=[1, 2, 3], max_tokens=5)
    fresh.post(COMPLETIONS, prompt=[1, 2, 3, 4], max_tokens=3, n=2)
    fresh.post(COMPLETIONS, prompt="abc", max_tokens=9, stop=["b"])
    fresh.post(COMPLETIONS, prompt=[[7], [8]], max_tokens=1)
    metrics = Metrics(fresh)
    assert metrics("prompt_tokens_total") == 3 + 4 + 3 + 2
    assert metrics("generation_tokens_total") == 5 + 6 + 2 + 2
    assert metrics("request_success_total", "length") == 1 + 2 + 2
    assert metrics("request_success_total", "stop") == 1
    assert metrics("request_success_total", "abort") == metrics("request_success_total", "error") == 0
    assert metrics("time_to_first_token_seconds_count") == metrics("request_prompt_tokens_count") == 5
    assert metrics("e2e_request_latency_seconds_count") == metrics("request_generation_tokens_count") == 6
    assert metrics("request_generation_tokens_sum") == 15
    assert metrics("inter_token_latency_seconds_count") == 4 + 2 * 2 + 1
    assert metrics("request_time_per_output_token_seconds_count") == 4, "one token takes no time after itself"


def test_times_are_those_of_the_tokens(fresh: RunningServer) -> None:
    fresh.post(COMPLETIONS, prompt="a", max_tokens=6, user="slow")
    metrics = Metrics(fresh)
    assert 0.02 <= metrics("time_to_first_token_seconds_sum") < 1
    assert 4 * 0.02 <= metrics("inter_token_latency_seconds_sum") < 2
    assert 0.02 <= metrics("request_time_per_output_token_seconds_sum") < 0.4
    assert 5 * 0.02 <= metrics("e2e_request_latency_seconds_sum") < 3


def test_tokens_that_come_together_share_the_time_since_those_before(start: Start) -> None:
    """A model with a token each millisecond seemed to take ten for each, as its events come."""
    server = start(event_interval=0.05)
    server.post(COMPLETIONS, prompt="a", max_tokens=400)
    metrics = Metrics(server)
    assert metrics("inter_token_latency_seconds_count") == 399
    mean = metrics("inter_token_latency_seconds_sum") / 399
    assert mean == pytest.approx(metrics("request_time_per_output_token_seconds_sum"))


def test_a_request_for_its_prompt_alone_generates_nothing(fresh: RunningServer) -> None:
    fresh.post(COMPLETIONS, prompt="abc", max_tokens=0, echo=True, logprobs=1)
    metrics = Metrics(fresh)
    assert metrics("generation_tokens_total") == metrics("request_generation_tokens_sum") == 0
    assert metrics("request_params_max_tokens_sum") == metrics("request_max_num_generation_tokens_sum") == 0
    assert metrics("request_generation_tokens_count") == metrics("request_success_total", "length") == 1
    assert metrics("prompt_tokens_total") == 3


def test_buckets_are_vllms(fresh: RunningServer) -> None:
    fresh.post(COMPLETIONS, prompt=[1, 2, 3], max_tokens=5)
    bounds = [le for name, _, le in Metrics(fresh).samples if name == "turnout:request_prompt_tokens_bucket"]
    assert bounds == ["1.0", "2.0", "5.0", "10.0", "20.0", "50.0", "100.0", "200.0", "500.0", "+Inf"]
    metrics = Metrics(fresh)
    assert metrics("request_prompt_tokens_bucket", le="2.0") == 0
    assert metrics("request_prompt_tokens_bucket", le="5.0") == 1


def test_who_leaves_aborted_it_and_what_fails_is_an_error(fresh: RunningServer) -> None:
    body = {"prompt": "a", "max_tokens": 400, "n": 2, "stream": True, "user": "slow"}
    with fresh.http.stream("POST", COMPLETIONS, json=body) as stream:
        next(stream.iter_bytes())
    eventually(lambda: Metrics(fresh)("request_success_total", "abort") == 2)
    assert fresh.post(COMPLETIONS, prompt="a", user="confused").status_code == 500
    metrics = Metrics(fresh)
    assert metrics("request_success_total", "error") == 1
    assert metrics("e2e_request_latency_seconds_count") == 0


def test_what_is_refused_was_no_request(fresh: RunningServer) -> None:
    assert fresh.post(COMPLETIONS, prompt="a", max_tokens=100_000).status_code == 400
    metrics = Metrics(fresh)
    reasons = [reason for name, reason, _ in metrics.samples if name == "turnout:request_success_total"]
    assert sorted(reasons) == ["abort", "error", "length", "stop"]
    assert sum(metrics("request_success_total", reason) for reason in reasons) == 0


def test_the_engine_says_how_it_stands(fresh: RunningServer) -> None:
    prompt = list(range(1, 41))
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(events, fresh, COMPLETIONS, prompt=prompt, max_tokens=100, user="slow")
        eventually(lambda: Metrics(fresh).has("num_requests_running", 1))
        eventually(lambda: Metrics(fresh)("kv_cache_held_tokens") >= 48)
        running = Metrics(fresh)
        assert not stream.done()
    assert 0 < running("kv_cache_usage_perc") < 0.01
    assert running("kv_cache_capacity_tokens") == POOL
    assert running("kv_cache_held_tokens") + running("kv_cache_free_tokens") == POOL
    assert 0 <= running("kv_cache_waste_ratio") < 1  # 0 at the end of a block
    assert running("kv_cache_bytes_per_token") == BYTES_PER_TOKEN
    assert running("prefix_cache_queries_total") == 40
    assert running("computed_tokens_total") >= 40
    fresh.post(COMPLETIONS, prompt=prompt, max_tokens=1)
    eventually(lambda: Metrics(fresh)("prefix_cache_hits_total") == 32)
    assert Metrics(fresh)("prefix_cache_hit_ratio") == pytest.approx(0.4)
    eventually(lambda: Metrics(fresh)("num_requests_running") == 0)


def test_many_scrapes_ask_the_engine_once(fresh: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    # However long the scrapes take on a loaded machine, they are within one interval.
    monkeypatch.setattr("turnout.server.metrics.kv_stats.MIN_INTERVAL_SECONDS", 3600.0)
    asked = []
    admin = fresh.client.admin
    fresh.client.admin = lambda command: (asked.append(command), admin(command))[1]  # type: ignore[method-assign]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: Metrics(fresh), range(16)))
    assert len(asked) == 1


def test_a_busy_engine_is_not_waited_for(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.server.metrics.kv_stats.MAX_WAIT_SECONDS", 0.1)
    server = start()
    assert server.post(COMPLETIONS, prompt="a", max_tokens=1).status_code == 200
    os.kill(server.client.pid, signal.SIGSTOP)  # as in a step that does not end
    try:
        metrics = Metrics(server)
    finally:
        os.kill(server.client.pid, signal.SIGCONT)
    assert "turnout:kv_cache_held_tokens" not in metrics.names
    assert "turnout:num_requests_running" in metrics.names


def test_requests_that_an_engine_hangs_at_wait(start: Start) -> None:
    """An engine that hung from its first step told of no request, and no alert knew of those that came."""
    server = start()
    server.post(COMPLETIONS, prompt="a", max_tokens=2)
    eventually(lambda: (told := Metrics(server))("engine_steps_total") > 0 == told("num_requests_running"))
    os.kill(server.client.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(server.post, COMPLETIONS, prompt="a", max_tokens=2) for _ in range(3)]
        try:
            eventually(lambda: Metrics(server)("num_requests_waiting") == 3, 15)
        finally:
            os.kill(server.client.pid, signal.SIGCONT)
        assert [each.result().status_code for each in asked] == [200] * 3
    eventually(lambda: Metrics(server)("num_requests_waiting") == 0)


def test_an_engine_that_is_gone_says_nothing_and_the_next_one_begins_anew(start: Start) -> None:
    server = start()
    server.post(COMPLETIONS, prompt="a", max_tokens=2)
    eventually(lambda: Metrics(server)("engine_steps_total") > 0)
    os.kill(server.client.pid, signal.SIGKILL)
    eventually(lambda: server.client.restarting)
    metrics = Metrics(server)
    assert metrics("generation_tokens_total") == 2
    assert metrics("engine_restarts_total") == 1
    assert not metrics.names & {"turnout:num_requests_running", "turnout:kv_cache_held_tokens"}
    eventually(lambda: "turnout:kv_cache_held_tokens" in Metrics(server).names, 15)
    eventually(lambda: Metrics(server)("engine_steps_total") == 0)


def test_what_decoding_strategies_count_is_told_by_their_names() -> None:
    numbers = dict.fromkeys(Stats.__struct_fields__, 0)
    stats = msgspec.convert({**numbers, "counters": {"drafts accepted": 3.0}, "figures": []}, Stats)
    families = list(Scrape("echo", 0, stats, None, 1).collect())
    (counter,) = (family for family in families if family.name == "turnout:drafts_accepted")
    assert [(sample.name, sample.value) for sample in counter.samples] == [
        ("turnout:drafts_accepted_total", 3)
    ]


def test_kv_groups_have_gauges_of_their_own() -> None:
    groups = [{"window": None, "held": 64, "cached": 32}, {"window": 1024, "held": 16, "cached": 0}]
    kv = {**dict.fromkeys(KVSnapshot.__struct_fields__, 0), "states": [], "groups": groups}
    scrape = Scrape("m", 0, None, msgspec.convert(kv, KVSnapshot), 1)
    found = {
        (sample.name.removeprefix("turnout:"), sample.labels["window"]): sample.value
        for family in scrape.collect()
        for sample in family.samples
        if "group" in sample.labels
    }
    assert found == {
        ("kv_cache_group_held_tokens", "all"): 64,
        ("kv_cache_group_cached_tokens", "all"): 32,
        ("kv_cache_group_held_tokens", "1024"): 16,
        ("kv_cache_group_cached_tokens", "1024"): 0,
    }


def test_monitors_need_no_key(start: Start) -> None:
    assert start(api_key="secret", admin_key="more").http.get("/metrics").status_code == 200


def test_openmetrics_is_spoken_to_who_asks(server: RunningServer) -> None:
    response = server.http.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,*/*;q=0.2",
        "text/plain;version=0.0.4",
        "",
    ],
    ids=["prometheus 2", "prometheus 3", "text", "nothing"],
)
def test_names_are_the_same_in_every_format(server: RunningServer, accept: str) -> None:
    """The client library wrote `turnout_` in OpenMetrics, so Prometheus 2 found no metric of the docs."""
    text = server.http.get("/metrics", headers={"Accept": accept}).text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) > 50 and all(line.startswith("turnout:") for line in lines)
