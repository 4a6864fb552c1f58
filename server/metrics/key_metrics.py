"""What the keys with a name have used, for ``GET /metrics``."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from turnout.core import limits
from turnout.server.http.access.keys import Keys
from turnout.server.metrics.request_metrics import PREFIX

__all__ = ["KeyMetrics"]


class KeyMetrics(Collector):
    """Counters of each key that the operator has named. Unnamed keys are left out: a hash tells nothing."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def collect(self) -> Iterator[Metric]:
        named = [key for key in self._keys if key.named][: limits.KEY_NAMES.whole]
        if not named:
            return
        requests = CounterMetricFamily(
            PREFIX + "key_requests", "Requests taken on for a key.", labels=["key"]
        )
        refused = CounterMetricFamily(
            PREFIX + "key_refusals", "Requests beyond a key's own limits.", labels=["key"]
        )
        tokens = CounterMetricFamily(
            PREFIX + "key_tokens", "Tokens of a key's prompts and outputs, once they ended.", labels=["key"]
        )
        for key in named:
            requests.add_metric([key.name], key.usage.admitted)
            refused.add_metric([key.name], key.usage.refused)
            tokens.add_metric([key.name], key.usage.spent)
        yield from (requests, refused, tokens)
