"""What boards made for vLLM ask for is answered: by name, type and labels, and with Turnout's values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from asking import COMPLETIONS
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from running_server import RunningServer, Start, eventually

from turnout.server.metrics.arm_metrics import Labelled, Merged, Together
from turnout.server.metrics.vllm_names import OLDER, SAME, named

LATENCIES = [
    "time_to_first_token_seconds",
    "time_per_output_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_inference_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_max_num_generation_tokens",
    "request_params_n",
    "request_params_max_tokens",
]
PUBLISHED = {
    **dict.fromkeys(LATENCIES, ("histogram", set())),
    "num_requests_running": ("gauge", set()),
    "num_requests_waiting": ("gauge", set()),
    "num_requests_waiting_by_reason": ("gauge", {"reason"}),
    "kv_cache_usage_perc": ("gauge", set()),
    "gpu_cache_usage_perc": ("gauge", set()),
    "prompt_tokens": ("counter", set()),
    "prompt_tokens_cached": ("counter", set()),
    "generation_tokens": ("counter", set()),
    "num_preemptions": ("counter", set()),
    "prefix_cache_queries": ("counter", set()),
    "prefix_cache_hits": ("counter", set()),
    "gpu_prefix_cache_queries": ("counter", set()),
    "gpu_prefix_cache_hits": ("counter", set()),
    "request_success": ("counter", {"finished_reason"}),
    "cache_config_info": ("gauge", {"block_size", "num_gpu_blocks"}),
}
"""The metrics that vLLM's published boards and documents name, their types, and the labels that these ask for
besides `model_name`, `engine` and `le`. Those of speculative decoding are there with it."""


def scraped(server: RunningServer) -> dict[str, Metric]:
    text = server.http.get("/metrics").text
    return {family.name: family for family in text_string_to_metric_families(text)}


def settled(server: RunningServer) -> dict[str, Metric]:
    """A scrape once the engine has told of its last step."""

    def told() -> bool:
        families = scraped(server)
        running = families.get("vllm:num_requests_running")
        steps = families.get("turnout:engine_steps")
        return bool(running and steps and steps.samples[0].value and running.samples[0].value == 0)

    eventually(told)
    return scraped(server)


@pytest.fixture
def both(start: Start) -> RunningServer:
    server = start(metrics_names="both")
    server.post(COMPLETIONS, prompt=list(range(1, 41)), max_tokens=5, user="slow")
    server.post(COMPLETIONS, prompt=list(range(1, 41)), max_tokens=3, n=2)
    server.post(COMPLETIONS, prompt="abc", max_tokens=9, stop=["b"])
    return server


def test_what_vllms_boards_name_is_there_with_type_and_labels(both: RunningServer) -> None:
    families = settled(both)
    for name, (kind, labels) in PUBLISHED.items():
        family = families["vllm:" + name]
        assert family.type == kind, name
        assert family.samples, name
        for sample in family.samples:
            assert {"model_name", "engine"} | labels <= set(sample.labels), name
            assert sample.labels["engine"] == "0" and "replica" not in sample.labels
    assert SAME - {name for name in SAME if name.startswith("spec_")} <= set(PUBLISHED)


def test_values_are_turnouts(both: RunningServer) -> None:
    families = settled(both)
    compared = 0
    for name in SAME & {family.removeprefix("turnout:") for family in families}:
        for theirs in filter(None, (name, OLDER.get(name))):
            ours = sorted(_values(families["turnout:" + name]))
            assert sorted(_values(families["vllm:" + theirs])) == ours, name
            compared += len(ours)
    assert compared > 200


def _values(family: Metric) -> Iterator[tuple[str, tuple[tuple[str, str], ...], float]]:
    for sample in family.samples:
        labels = {name: value for name, value in sample.labels.items() if name != "engine"}
        yield (
            sample.name.partition(":")[2].removeprefix(_base(family)),
            tuple(sorted(labels.items())),
            sample.value,
        )


def _base(family: Metric) -> str:
    return family.name.partition(":")[2]


def test_vllm_alone_leaves_what_vllm_lacks(start: Start) -> None:
    server = start(metrics_names="vllm")
    server.post(COMPLETIONS, prompt=[1, 2, 3], max_tokens=5)
    families = settled(server)
    ours = {name.removeprefix("turnout:") for name in families if name.startswith("turnout:")}
    assert not ours & SAME
    assert {"engine_steps", "kv_cache_capacity_tokens", "policy_faults"} <= ours
    assert families["vllm:generation_tokens"].samples[0].value == 5


def test_without_it_there_is_nothing_of_vllms(start: Start) -> None:
    assert "vllm" not in start().http.get("/metrics").text


def test_times_of_a_request_add_up(both: RunningServer) -> None:
    """The engine says how long a request waited and what its first token took, the server the rest."""
    families = settled(both)

    def total(name: str, what: str = "sum") -> float:
        samples = families["turnout:" + name].samples
        return next(s.value for s in samples if s.name.endswith("_" + what))

    assert total("request_queue_time_seconds", "count") == total("request_prefill_time_seconds", "count") == 3
    assert total("request_decode_time_seconds", "count") == total("e2e_request_latency_seconds", "count") == 4
    first = total("request_queue_time_seconds") + total("request_prefill_time_seconds")
    assert 0 < first <= total("time_to_first_token_seconds") + 0.01, "the server's has the way there and back"
    assert total("request_decode_time_seconds") >= 4 * 0.02, "four tokens of the slow one"
    assert total("request_inference_time_seconds") <= total("e2e_request_latency_seconds") + 0.01
    assert total("request_params_n") == 1 + 2 + 1
    assert total("request_params_max_tokens") == 5 + 3 + 9
    assert total("request_max_num_generation_tokens") == 5 + 3 + 2
    assert total("prompt_tokens_cached", "total") == 32, "two blocks of the prompt that came twice"


def test_what_waits_is_told_by_reason_and_time(start: Start) -> None:
    server = start(metrics_names="vllm", engine={"max_num_seqs": 1})
    with ThreadPoolExecutor(2) as pool:
        asked = [
            pool.submit(server.post, COMPLETIONS, prompt="a", max_tokens=20, user="slow") for _ in range(2)
        ]
        eventually(lambda: _waiting(scraped(server)) == {"capacity": 1.0, "deferred": 0.0})
        assert all(each.result().status_code == 200 for each in asked)
    samples = settled(server)["vllm:request_queue_time_seconds"].samples
    waited = next(sample.value for sample in samples if sample.name.endswith("_sum"))
    assert 19 * 0.02 <= waited < 5, "the second waited while the first was served"


def _waiting(families: dict[str, Metric]) -> dict[str, float]:
    family = families.get("vllm:num_requests_waiting_by_reason")
    return {} if family is None else {each.labels["reason"]: each.value for each in family.samples}


def test_engines_are_the_replicas_of_each_model_and_arm() -> None:
    """Of what the server measures over several, no single engine is named."""
    one = Together([Labelled("replica", {"0": running("m"), "1": running("m")}), tokens("m")])
    trial = Labelled("arm", {"a": Together([running("n"), tokens("n")]), "b": running("n")})
    found = named(Merged([one, trial]), "vllm").collect()
    told = {
        (each.name, each.labels["model_name"], each.labels.get("arm", ""), each.labels["engine"])
        for family in found
        for each in family.samples
        if family.name in ("vllm:num_requests_running", "vllm:generation_tokens")
    }
    assert told == {
        ("vllm:num_requests_running", "m", "", "0"),
        ("vllm:num_requests_running", "m", "", "1"),
        ("vllm:generation_tokens_total", "m", "", "all"),
        ("vllm:num_requests_running", "n", "a", "0"),
        ("vllm:num_requests_running", "n", "b", "0"),
        ("vllm:generation_tokens_total", "n", "a", "0"),
    }


class Given(Collector):
    def __init__(self, make: Callable[[], Metric]) -> None:
        self._make = make

    def collect(self) -> Iterator[Metric]:
        yield self._make()


def running(model: str) -> Collector:
    def make() -> Metric:
        family = GaugeMetricFamily("turnout:num_requests_running", "", labels=["model_name"])
        family.add_metric([model], 1)
        return family

    return Given(make)


def tokens(model: str) -> Collector:
    def make() -> Metric:
        family = CounterMetricFamily("turnout:generation_tokens", "", labels=["model_name"])
        family.add_metric([model], 9)
        return family

    return Given(make)
