"""Merges the metrics of several collectors, of models, arms or replicas, into those of one server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

__all__ = ["Labelled", "Merged", "Together"]


class Together(Collector):
    """The metrics of several collectors, each of which has others."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        for collector in self._collectors:
            yield from collector.collect()


class Merged(Collector):
    """Each metric once, with the samples of several collectors, whose labels differ."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for collector in self._collectors:
            for family in collector.collect():
                samples = list(family.samples)
                family.samples = families[family.name].samples if family.name in families else []
                family.samples += samples
                families[family.name] = family
        yield from families.values()


class Labelled(Collector):
    """Each metric once, with the samples of several collectors, which a label tells apart."""

    def __init__(self, label: str, collectors: Mapping[str, Collector]) -> None:
        """`collectors`: by their value of the label."""
        self._merged = Merged([_WithLabel(label, value, each) for value, each in collectors.items()])

    def collect(self) -> Iterator[Metric]:
        yield from self._merged.collect()


class _WithLabel(Collector):
    """The metrics of a collector, with another label."""

    def __init__(self, label: str, value: str, collector: Collector) -> None:
        self._label, self._value, self._collector = label, value, collector

    def collect(self) -> Iterator[Metric]:
        for family in self._collector.collect():
            family.samples = [
                each._replace(labels={**each.labels, self._label: self._value}) for each in family.samples
            ]
            yield family
