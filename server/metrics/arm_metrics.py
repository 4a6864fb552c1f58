"""Merges the metrics of several collectors, of arms or of replicas, into those of one server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

__all__ = ["Labelled", "Together"]


class Together(Collector):
    """The metrics of several collectors, each of which has others."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        for collector in self._collectors:
            yield from collector.collect()


class Labelled(Collector):
    """Each metric once, with the samples of several collectors, which a label tells apart."""

    def __init__(self, label: str, collectors: Mapping[str, Collector]) -> None:
        """`collectors`: by their value of the label."""
        self._label = label
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for value, collector in self._collectors.items():
            for family in collector.collect():
                samples = [
                    each._replace(labels={**each.labels, self._label: value}) for each in family.samples
                ]
                family.samples = families[family.name].samples if family.name in families else []
                family.samples += samples
                families[family.name] = family
        yield from families.values()
