"""The engine's reports as metrics: its `Stats`, and the snapshot of its KV pool.

A metric is a row of `_stats_gauges`, `_stats_counters`, `_kv_gauges` or `_kv_counters`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from turnout.core.types.messages import KVGroupState, KVSnapshot, PluginFigure, Stats
from turnout.server.metrics.request_metrics import PREFIX

__all__ = ["Scrape"]

Rows = Iterable[tuple[str, str, float]]
"""Name without the prefix, help text, value. Prometheus adds ``_total`` to the names of counters."""


class Scrape(Collector):
    """What an engine reports, at one moment.

    Metrics that the engine does not report at this moment are left out: old values would mislead.
    """

    def __init__(
        self,
        model: str,
        restarts: int,
        stats: Stats | None,
        snapshot: KVSnapshot | None,
        bytes_per_token: int,
        ranks: int = 1,
    ) -> None:
        self._model = model
        self._restarts = restarts
        self._stats = stats
        self._snapshot = snapshot
        self._bytes_per_token, self._ranks = bytes_per_token, ranks

    def collect(self) -> Iterator[Metric]:
        yield from self._counters(
            [("engine_restarts", "Engines that died and were replaced.", self._restarts)]
        )
        if self._stats is not None:
            yield from self._gauges(_stats_gauges(self._stats))
            yield from self._gauges([("engine_ranks", "Processes that compute together.", self._ranks)])
            yield from self._counters(_stats_counters(self._stats))
            yield from self._of_plugins(self._stats.figures)
        if self._snapshot is not None:
            yield from self._gauges(_kv_gauges(self._snapshot, self._bytes_per_token))
            yield from self._counters(_kv_counters(self._snapshot))
            yield from self._of_groups(self._snapshot.groups)

    def _of_groups(self, groups: Sequence[KVGroupState]) -> Iterator[Metric]:
        labels = ("model_name", "group", "window")
        held = GaugeMetricFamily(
            PREFIX + "kv_cache_group_held_tokens", "Positions that a KV group's layers hold.", labels=labels
        )
        cached = GaugeMetricFamily(
            PREFIX + "kv_cache_group_cached_tokens",
            "Free positions of a KV group with prefixes.",
            labels=labels,
        )
        for number, group in enumerate(groups):
            of = (self._model, str(number), str(group.window or "all"))
            held.add_metric(of, group.held)
            cached.add_metric(of, group.cached)
        yield from (family for family in (held, cached) if family.samples)

    def _of_plugins(self, figures: Iterable[PluginFigure]) -> Iterator[Metric]:
        labels = ("model_name", "plugin", "name")
        counters = CounterMetricFamily(PREFIX + "plugin_counter", "Totals that plugins keep.", labels=labels)
        gauges = GaugeMetricFamily(PREFIX + "plugin_gauge", "Values that plugins show.", labels=labels)
        for figure in figures:
            family = counters if figure.counter else gauges
            family.add_metric((self._model, figure.plugin, figure.name), figure.value)
        yield from (family for family in (counters, gauges) if family.samples)

    def _gauges(self, rows: Rows) -> Iterator[Metric]:
        for name, description, value in rows:
            gauge = GaugeMetricFamily(PREFIX + name, description, labels=("model_name",))
            gauge.add_metric((self._model,), value)
            yield gauge

    def _counters(self, rows: Rows) -> Iterator[Metric]:
        for name, description, value in rows:
            counter = CounterMetricFamily(PREFIX + name, description, labels=("model_name",))
            counter.add_metric((self._model,), value)
            yield counter


def _stats_gauges(stats: Stats) -> Rows:
    yield "num_requests_running", "Requests that hold KV memory.", stats.running
    yield "num_requests_waiting", "Requests that wait to run.", stats.waiting
    used = 1 - stats.kv_free / stats.kv_capacity if stats.kv_capacity else 0.0
    yield "kv_cache_usage_perc", "Share of the KV pool that is held, from 0 to 1.", used


def _stats_counters(stats: Stats) -> Rows:
    yield "num_preemptions", "Times that a running request lost its KV memory to others.", stats.preemptions
    yield "num_swap_outs", "Preemptions that swapped KV memory out to host memory.", stats.swap_outs
    yield (
        "policy_faults",
        "Answers of scheduling policies that could not be carried out.",
        stats.policy_faults,
    )
    yield (
        "policy_slow_orders",
        "Orders that took a scheduling policy more than 5 ms, for which all requests waited.",
        stats.slow_orders,
    )
    yield "engine_steps", "Steps that the engine has run.", stats.steps
    yield "computed_tokens", "Tokens run through the model, recomputed ones included.", stats.computed_tokens
    for name, value in stats.counters.items():
        yield re.sub(r"\W", "_", name, flags=re.ASCII), "A counter of a decoding strategy.", value


def _kv_gauges(kv: KVSnapshot, bytes_per_token: int) -> Rows:
    yield "kv_cache_capacity_tokens", "Token positions in the KV pool.", kv.capacity
    yield "kv_cache_free_tokens", "Positions that no sequence holds, cached or not.", kv.free
    yield "kv_cache_held_tokens", "Positions that sequences hold; shared ones count once.", kv.held
    yield "kv_cache_shared_tokens", "Positions that two or more sequences hold.", kv.shared
    yield "kv_cache_computed_tokens", "Held positions with a computed token in them.", kv.computed
    yield "kv_cache_cached_tokens", "Free positions that hold a prefix for requests to reuse.", kv.cached
    yield "kv_cache_passed_tokens", "Cached positions that windows have passed, evicted first.", kv.passed
    yield "kv_cache_pinned_tokens", "Cached or held positions that belong to pinned prefixes.", kv.pinned
    yield "kv_cache_swap_tokens", "Positions in host memory for preempted requests.", kv.swap
    yield "kv_cache_swapped_tokens", "Positions of swapped-out requests in host memory.", kv.swapped
    yield "kv_cache_block_tokens", "Positions in a block.", kv.unit
    yield "kv_cache_bytes_per_token", "Bytes of KV memory that a position takes.", bytes_per_token
    yield "kv_cache_waste_ratio", "Share of the held positions without a computed token.", kv.waste
    yield (
        "prefix_cache_hit_ratio",
        "Share of the prompt tokens looked up that were found, since the start.",
        kv.hit_rate,
    )


def _kv_counters(kv: KVSnapshot) -> Rows:
    yield "prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", kv.lookups
    yield "prefix_cache_hits", "Of the prompt tokens looked up, those found.", kv.hits
    yield "kv_cache_evicted_tokens", "Cached positions evicted to make room.", kv.evictions
