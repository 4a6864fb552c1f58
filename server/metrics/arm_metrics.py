"""Merges the metrics of several collectors, and of several arms, into those of one server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

__all__ = ["ByArm", "Together"]


class Together(Collector):
    """The metrics of several collectors, each of which has others."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        for collector in self._collectors:
            yield from collector.collect()


class ByArm(Collector):
    """Each metric once, with the samples of all arms, which the label ``arm`` tells apart."""

    def __init__(self, arms: Mapping[str, Collector]) -> None:
        self._arms = arms

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for arm, collector in self._arms.items():
            for family in collector.collect():
                samples = [each._replace(labels={**each.labels, "arm": arm}) for each in family.samples]
                family.samples = families[family.name].samples if family.name in families else []
                family.samples += samples
                families[family.name] = family
        yield from families.values()
