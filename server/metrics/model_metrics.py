"""Whether a model is loaded, as metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from turnout.server.metrics.request_metrics import PREFIX

__all__ = ["ModelScrape"]


class ModelScrape(Collector):
    """A model's state, at one moment."""

    def __init__(self, model: str, *, loaded: bool, waiting: int, loads: int) -> None:
        """waiting: requests that wait for it. loads: those on demand."""
        self._model = model
        self._gauges = (
            ("model_loaded", "1 while the model is loaded, else 0.", float(loaded)),
            ("model_requests_waiting", "Requests that wait until the model is loaded.", float(waiting)),
        )
        self._loads = loads

    def collect(self) -> Iterator[Metric]:
        for name, description, value in self._gauges:
            gauge = GaugeMetricFamily(PREFIX + name, description, labels=("model_name",))
            gauge.add_metric((self._model,), value)
            yield gauge
        loads = CounterMetricFamily(
            PREFIX + "model_loads", "Loads of the model on demand.", labels=("model_name",)
        )
        loads.add_metric((self._model,), self._loads)
        yield loads
