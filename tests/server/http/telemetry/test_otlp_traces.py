"""Traces: the spans of requests, as an OpenTelemetry collector gets them."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from asking import CHAT, COMPLETIONS
from otlp_receiver import Receiver, attributes, receiver
from running_server import RunningServer, Start, eventually

from turnout.config import ServerConfig
from turnout.core.errors import ConfigError
from turnout.server.http.records.record import RequestRecord
from turnout.server.http.telemetry.endpoints import endpoint_of
from turnout.server.http.telemetry.middleware import is_sampled
from turnout.server.http.telemetry.opening import opened_traces

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
LOCAL = "http://127.0.0.1:4318"

Ask = Callable[..., list[Any]]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=secret")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")


@pytest.fixture
def collector() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


def ask(
    server: RunningServer, collector: Receiver, id: str, headers: dict[str, str] | None = None, **body: object
) -> tuple[httpx.Response, list[Any]]:
    """The response, and the spans: the server's and those below."""
    names = {"x-request-id": id, **(headers or {})}
    response = server.http.post(COMPLETIONS, json={"prompt": "hello", "max_tokens": 3, **body}, headers=names)
    eventually(lambda: collector.of_request(id))
    return response, collector.of_request(id)


def test_a_request_is_a_part_of_its_client_s_trace(start: Start, collector: Receiver) -> None:
    server = start(otlp_traces_endpoint=f"{collector.url}/v1/traces")
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
    _, (whole, *phases) = ask(server, collector, "mine", headers, temperature=0.5, seed=7, n=2)
    assert (whole.trace_id.hex(), whole.parent_span_id.hex()) == (TRACE, PARENT)
    assert whole.trace_state == "vendor=1" and whole.name == f"POST {COMPLETIONS}" and whole.kind == 2
    told = attributes(whole)
    assert told["http.request.method"] == "POST" and told["http.response.status_code"] == 200
    assert told["gen_ai.operation.name"] == "text_completion" and told["gen_ai.provider.name"] == "turnout"
    assert told["gen_ai.request.model"] == told["gen_ai.response.model"] == server.fleet.ready.model
    assert (told["gen_ai.request.temperature"], told["gen_ai.request.seed"]) == (0.5, 7)
    assert told["gen_ai.request.choice.count"] == 2 and told["gen_ai.request.max_tokens"] == 3
    assert told["gen_ai.usage.output_tokens"] == 6 and told["gen_ai.usage.input_tokens"] > 0
    assert told["gen_ai.response.finish_reasons"] == ["length", "length"]
    assert told["gen_ai.response.time_to_first_chunk"] > 0
    assert [span.name for span in phases] == ["queue", "prefill", "decode"]
    assert {span.trace_id for span in phases} == {whole.trace_id}
    queue, prefill, decode = phases
    assert whole.start_time_unix_nano <= queue.start_time_unix_nano
    assert queue.end_time_unix_nano == prefill.start_time_unix_nano
    assert prefill.end_time_unix_nano == decode.start_time_unix_nano
    assert decode.end_time_unix_nano <= whole.end_time_unix_nano <= time.time_ns()
    assert collector.resources[0]["service.name"] == "turnout"
    assert collector.resources[0]["deployment.environment.name"] == "test"
    assert collector.headers[0]["x-token"] == "secret"


def test_what_the_client_wants_not_sampled_is_not_sent(start: Start, collector: Receiver) -> None:
    server = start(otlp_traces_endpoint=collector.url)  # the path is added
    not_kept = {"traceparent": f"00-{TRACE}-{PARENT}-00", "x-request-id": "not kept"}
    server.http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 1}, headers=not_kept)
    ask(server, collector, "kept")
    assert not collector.of_request("not kept")


BAD = [
    "nonsense",
    f"00-{'0' * 32}-{PARENT}-01",
    f"ff-{TRACE}-{PARENT}-01",
    f"00-{TRACE}-{PARENT}",
    "0" * 10_000,
]


def test_a_bad_traceparent_begins_a_trace_of_its_own(start: Start, collector: Receiver) -> None:
    server = start(otlp_traces_endpoint=collector.url)
    for number, bad in enumerate(BAD):
        response, (whole, *_) = ask(
            server, collector, str(number), {"traceparent": bad, "tracestate": "=,=;" * 900}
        )
        assert response.status_code == 200
        assert not whole.parent_span_id and whole.trace_id.hex() != TRACE and not whole.trace_state


def test_a_client_that_leaves_and_one_that_is_refused(start: Start, collector: Receiver) -> None:
    server = start(otlp_traces_endpoint=collector.url)
    body = {"prompt": "a", "max_tokens": 400, "stream": True, "user": "slow"}
    with server.http.stream("POST", COMPLETIONS, json=body, headers={"x-request-id": "left"}) as response:
        next(response.iter_lines())
    eventually(lambda: collector.of_request("left"))
    whole, *phases = collector.of_request("left")
    assert attributes(whole)["gen_ai.response.finish_reasons"] == ["abort"]
    assert [span.name for span in phases] == ["queue", "prefill", "decode"]
    assert phases[-1].end_time_unix_nano == whole.end_time_unix_nano
    response, (refused, *none) = ask(server, collector, "refused", prompt={"secret": 1})
    assert response.status_code == 400 and not none and not refused.status.code
    assert "secret" not in str(refused)


def test_probes_are_traced_only_as_parts_of_their_clients_traces(start: Start, collector: Receiver) -> None:
    """They come every few seconds, from each that watches a server."""
    server = start(otlp_traces_endpoint=f"{collector.url}/v1/traces")
    for number in range(3):
        server.http.get("/health", headers={"x-request-id": f"probe-{number}"})
        server.http.get("/metrics", headers={"x-request-id": f"scrape-{number}"})
    parent = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    server.http.get("/health", headers={"x-request-id": "asked", **parent})
    ask(server, collector, "last")
    eventually(lambda: collector.of_request("asked"))
    names = [f"{kind}-{number}" for number in range(3) for kind in ("probe", "scrape")]
    assert not [name for name in names if collector.of_request(name)]


def test_prompts_are_in_no_span(start: Start, collector: Receiver) -> None:
    server = start(otlp_traces_endpoint=collector.url)
    message = {"role": "user", "content": "very secret"}
    names = {"x-request-id": "secret one"}
    server.http.post(CHAT, json={"messages": [message], "max_tokens": 2, "stream": True}, headers=names)
    eventually(lambda: collector.of_request("secret one"))
    assert "very secret" not in str(collector.spans)
    assert attributes(collector.of_request("secret one")[0])["gen_ai.operation.name"] == "chat"


def test_an_engine_that_dies_and_the_replica_that_goes_on(start: Start, collector: Receiver) -> None:
    server = start(otlp_traces_endpoint=collector.url, replicas=2, engine_restarts=3)
    body = {"prompt": "hello", "max_tokens": 100, "stream": True, "user": "slow"}
    with server.http.stream("POST", COMPLETIONS, json=body, headers={"x-request-id": "moved"}) as response:
        lines = response.iter_lines()
        for _ in range(12):
            next(lines)
        served = next(each for each in server.fleet.replicas if each.requests)
        assert served.client.pid is not None
        os.kill(served.client.pid, signal.SIGKILL)
        for _ in lines:
            pass
    eventually(lambda: collector.of_request("moved"), 20)
    whole, *phases = collector.of_request("moved")
    assert attributes(whole)["gen_ai.usage.output_tokens"] == 100
    assert [span.name for span in phases] == ["queue", "prefill", "decode", "interrupted", "resumed"]
    assert attributes(phases[0])["turnout.replica"] == served.name
    assert attributes(phases[-1])["turnout.replica"] != served.name


def test_a_dead_collector_costs_nothing(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        gone = free.getsockname()[1]
    server = start(otlp_traces_endpoint=f"http://127.0.0.1:{gone}")
    for _ in range(20):
        assert server.http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 1}).status_code == 200


def test_a_collector_that_says_nothing_holds_up_no_end() -> None:
    """It takes the connection, and the exporter would wait for its answer for ten seconds, and try again."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        traces = opened_traces(
            ServerConfig(otlp_traces_endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}")
        )
        assert traces is not None
        traces.write(RequestRecord("GET", "/", 0.0, traced=True))
        began = time.monotonic()
        traces.close()
        assert time.monotonic() - began < 9


def test_where_signals_go() -> None:
    assert endpoint_of("traces", None, {}) is None
    assert endpoint_of("traces", LOCAL, {}) == f"{LOCAL}/v1/traces"
    assert endpoint_of("traces", f"{LOCAL}/own", {}) == f"{LOCAL}/own"
    assert endpoint_of("traces", None, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"{LOCAL}/"}) == f"{LOCAL}/v1/traces"
    own = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{LOCAL}/x", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://other"}
    assert endpoint_of("traces", None, own) == f"{LOCAL}/x"
    assert endpoint_of("traces", LOCAL, {"OTEL_SDK_DISABLED": "true"}) is None
    assert endpoint_of("traces", None, {**own, "OTEL_TRACES_EXPORTER": "none"}) is None


@pytest.mark.parametrize(
    "url", ["grpc://x:4317", "localhost:4317", "http://", "http://x:99999", "http://[", ""]
)
def test_what_is_no_endpoint_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"--otlp-traces-endpoint=.*expected is one such as http://"):
        endpoint_of("traces", url, {})


def test_another_protocol_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"not by grpc; unset OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"):
        endpoint_of("traces", LOCAL, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delitem(sys.modules, "turnout.server.http.telemetry.traces", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"--otlp-traces-endpoint: .*pip install 'turnout\[otel\]'"):
        opened_traces(ServerConfig(otlp_traces_endpoint=LOCAL))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", LOCAL)
    assert opened_traces(ServerConfig()) is None
    assert "the environment asks for traces, which are not sent" in caplog.text


@pytest.mark.parametrize(
    ("header", "sampled"),
    [(None, True), (f"00-{TRACE}-{PARENT}-00", False), (f"00-{TRACE}-{PARENT}-03", True), ("x-00", True)],
)
def test_the_flag_of_the_parent(header: str | None, sampled: bool) -> None:
    assert is_sampled({} if header is None else {"traceparent": header}) == sampled
