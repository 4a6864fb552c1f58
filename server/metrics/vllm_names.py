"""The metrics under vLLM's names and labels, for boards, alerts and autoscalers that were made for vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from turnout.server.metrics.request_metrics import PREFIX

__all__ = ["OLDER", "SAME", "VLLM", "VllmNames", "named"]

VLLM = "vllm:"

SAME = frozenset(
    {
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "prefix_cache_queries",
        "prefix_cache_hits",
        "num_preemptions",
        "prompt_tokens",
        "prompt_tokens_cached",
        "generation_tokens",
        "request_success",
        "request_prompt_tokens",
        "request_generation_tokens",
        "request_max_num_generation_tokens",
        "request_params_n",
        "request_params_max_tokens",
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "request_time_per_output_token_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "request_inference_time_seconds",
        "spec_decode_num_drafts",
        "spec_decode_num_draft_tokens",
        "spec_decode_num_accepted_tokens",
    }
)
"""What vLLM has under the same name, but for the prefix."""
OLDER = {
    "kv_cache_usage_perc": "gpu_cache_usage_perc",
    "prefix_cache_queries": "gpu_prefix_cache_queries",
    "prefix_cache_hits": "gpu_prefix_cache_hits",
    "inter_token_latency_seconds": "time_per_output_token_seconds",
}
"""Names that earlier versions of vLLM had for some of them: boards made for those work too."""
ONE, ALL = "0", "all"
"""The label ``engine`` of a server's only engine, and of what a server measures over several."""

Labels = Mapping[str, str]


def named(collector: Collector, names: Literal["turnout", "vllm", "both"]) -> Collector:
    """The metrics under the names that the operator wants."""
    return collector if names == "turnout" else VllmNames(collector, also_ours=names == "both")


class VllmNames(Collector):
    """The metrics of a collector under vLLM's names; those that vLLM lacks keep theirs."""

    def __init__(self, collector: Collector, *, also_ours: bool) -> None:
        """also_ours: those that vLLM has are there under Turnout's names too."""
        self._collector = collector
        self._also_ours = also_ours

    def collect(self) -> Iterator[Metric]:
        families = {family.name.removeprefix(PREFIX): family for family in self._collector.collect()}
        several = {_server(labels) for labels in _all_labels(families.values()) if "replica" in labels}
        for name, family in families.items():
            if name not in SAME or self._also_ours:
                yield family
        for name, family in families.items():
            if name in SAME:
                for theirs in filter(None, (name, OLDER.get(name))):
                    yield _renamed(family, theirs, several)
        yield from _by_reason(families, several)
        yield from _cache_config(families, several)


def _all_labels(families: Iterable[Metric]) -> Iterator[Labels]:
    return (sample.labels for family in families for sample in family.samples)


def _server(labels: Labels) -> tuple[str, str]:
    """Tells apart what has engines of its own: models, and the arms of a live test."""
    return labels.get("model_name", ""), labels.get("arm", "")


def _engine(labels: Labels, several: set[tuple[str, str]]) -> dict[str, str]:
    """The labels as vLLM has them: `engine` in the place of `replica`."""
    others = {name: value for name, value in labels.items() if name != "replica"}
    return {**others, "engine": labels.get("replica") or (ALL if _server(labels) in several else ONE)}


def _renamed(family: Metric, name: str, several: set[tuple[str, str]]) -> Metric:
    renamed = Metric(VLLM + name, family.documentation, family.type)
    renamed.samples = [
        sample._replace(
            name=VLLM + name + sample.name.removeprefix(family.name), labels=_engine(sample.labels, several)
        )
        for sample in family.samples
    ]
    return renamed


def _samples(families: Mapping[str, Metric], name: str) -> list[Sample]:
    return list(families[name].samples) if name in families else []


def _by_reason(families: Mapping[str, Metric], several: set[tuple[str, str]]) -> Iterator[Metric]:
    """Requests wait for room, or because the policy prefers others: none waits for LoRA or a transfer."""
    waiting = _samples(families, "num_requests_waiting")
    family = GaugeMetricFamily(
        VLLM + "num_requests_waiting_by_reason",
        "Requests that wait to run, by the reason: capacity or deferred.",
    )
    for sample in waiting:
        labels = _engine(sample.labels, several)
        for reason, value in (("capacity", sample.value), ("deferred", 0.0)):
            family.add_sample(family.name, {**labels, "reason": reason}, value)
    if waiting:
        yield family


def _cache_config(families: Mapping[str, Metric], several: set[tuple[str, str]]) -> Iterator[Metric]:
    """What the pool is made of, as labels of a metric that is always 1."""
    sizes = {tuple(sorted(s.labels.items())): s.value for s in _samples(families, "kv_cache_block_tokens")}
    family = GaugeMetricFamily(VLLM + "cache_config_info", "The blocks of the KV pool, as labels.")
    for sample in _samples(families, "kv_cache_capacity_tokens"):
        size = int(sizes[tuple(sorted(sample.labels.items()))])
        blocks = {"block_size": str(size), "num_gpu_blocks": str(int(sample.value) // max(1, size))}
        family.add_sample(family.name, {**_engine(sample.labels, several), **blocks}, 1.0)
    if family.samples:
        yield family
