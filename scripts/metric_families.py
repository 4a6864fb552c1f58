"""Every metric of `/metrics` that is known without a server, from the families that a scrape collects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace

import msgspec
from prometheus_client.core import Metric

from turnout.core.types.messages import KVGroupState, KVSnapshot, Stats
from turnout.plugins.decoding.speculation.strategy import COUNTERS
from turnout.server.metrics.engine_metrics import Scrape
from turnout.server.metrics.key_metrics import KeyMetrics
from turnout.server.metrics.model_metrics import ModelScrape
from turnout.server.metrics.request_metrics import RequestMetrics

__all__ = ["EVERYWHERE", "Family", "engine_families", "families", "server_families"]

MODEL = "model"
EVERYWHERE = frozenset({"arm", "replica", "job", "instance"})
"""Labels that any metric may have: of a live test, of several engines, and those that Prometheus adds."""


@dataclass(frozen=True)
class Family:
    """A metric: its name as queries write it (of a histogram, without ``_bucket``), and what it is."""

    name: str
    type: str
    help: str
    labels: frozenset[str]

    @property
    def series(self) -> Iterator[tuple[str, frozenset[str]]]:
        """The names of its samples, and the labels that those have."""
        if self.type != "histogram":
            yield self.name, self.labels
            return
        yield self.name + "_bucket", self.labels | {"le"}
        yield self.name + "_sum", self.labels
        yield self.name + "_count", self.labels


def families() -> dict[str, Family]:
    """All of them, by name."""
    keys = KeyMetrics([SimpleNamespace(name="key", named=True, usage=_Usage)])  # type: ignore[arg-type]
    collected = [*server_families(), *engine_families(drafts=True), *keys.collect()]
    return {family.name: family for family in _read(collected)}


def server_families() -> list[Metric]:
    """What the server measures."""
    loaded = ModelScrape(MODEL, loaded=True, waiting=0, loads=0)
    requests = RequestMetrics(MODEL, max_model_len=1)
    requests.pooled_request("/v1/embeddings")
    requests.pooled("/v1/embeddings", 0, 0)
    return [*requests.registry.collect(), *loaded.collect()]


def engine_families(*, drafts: bool = False) -> list[Metric]:
    """What an engine reports; with `drafts`, one that drafts tokens."""
    stats = msgspec.convert(
        {
            **dict.fromkeys(Stats.__struct_fields__, 1),
            "counters": dict.fromkeys(COUNTERS, 1) if drafts else {},
            "figures": [["", "", 1, True], ["", "", 1, False]],
        },
        Stats,
    )
    group = dict.fromkeys(KVGroupState.__struct_fields__, 1)
    kv = msgspec.convert(
        {**dict.fromkeys(KVSnapshot.__struct_fields__, 1), "states": [], "groups": [group]}, KVSnapshot
    )
    return list(Scrape(MODEL, 0, stats, kv, bytes_per_token=1).collect())


class _Usage:
    admitted = refused = spent = 0


def _read(collected: Iterable[Metric]) -> Iterator[Family]:
    for family in collected:
        labels = {label for sample in family.samples for label in _labels(sample.labels)}
        name = family.name + ("_total" if family.type == "counter" else "")
        yield Family(name, family.type, family.documentation, frozenset(labels))


def _labels(labels: Mapping[str, str]) -> Iterator[str]:
    return (label for label in labels if label != "le")
