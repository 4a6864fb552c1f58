"""Metrics that several processes measure, summed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

__all__ = ["Summed", "figures_of"]

Labels = tuple[tuple[str, str], ...]


class _Figure(msgspec.Struct, array_like=True):
    """A sample."""

    name: str
    labels: dict[str, str]
    value: float


class _Family(msgspec.Struct, array_like=True):
    """A metric."""

    name: str
    description: str
    kind: str
    figures: list[_Figure]


def figures_of(collector: Collector) -> bytes:
    """All metrics of a collector, for `Summed` in another process."""
    return msgspec.msgpack.encode(
        [
            _Family(
                family.name,
                family.documentation,
                family.type,
                [_Figure(sample.name, sample.labels, sample.value) for sample in family.samples],
            )
            for family in collector.collect()
        ]
    )


class Summed(Collector):
    """Counters and histograms of a collector, with what other processes have measured added."""

    def __init__(self, own: Collector, others: Sequence[bytes]) -> None:
        """`others`: as `figures_of` wrote them."""
        self._own, self._others = own, others

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        samples: dict[str, dict[tuple[str, Labels], float]] = {}
        for family in self._own.collect():
            families[family.name] = family
            _add(samples.setdefault(family.name, {}), family.samples)
        for figures in self._others:
            for other in msgspec.msgpack.decode(figures, type=list[_Family]):
                if other.name not in families:
                    families[other.name] = Metric(other.name, other.description, other.kind)
                _add(samples.setdefault(other.name, {}), other.figures)
        for name, family in families.items():
            family.samples = [
                Sample(sample, dict(labels), value) for (sample, labels), value in samples[name].items()
            ]
            yield family


def _add(sums: dict[tuple[str, Labels], float], samples: Sequence[_Figure | Sample]) -> None:
    for sample in samples:
        key = sample.name, tuple(sample.labels.items())
        if sample.name.endswith("_created"):  # when it began to count
            sums[key] = min(sums.get(key, sample.value), sample.value)
        else:
            sums[key] = sums.get(key, 0.0) + sample.value
