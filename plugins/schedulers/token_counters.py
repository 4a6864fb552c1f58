"""How much service each client got: the virtual token counters of the `fair` policy."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping

__all__ = ["TokenCounters"]


class TokenCounters:
    """Counts tokens of service by client, divided by the client's weight: that in `weights`, else 1."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = dict(weights)
        # In order of the last charge.
        self._counters: OrderedDict[str, float] = OrderedDict()
        self._level = 0.0
        """Where the counters of unknown clients start: they would be raised to this at least."""

    def __len__(self) -> int:
        return len(self._counters)

    def __getitem__(self, client: str) -> float:
        return self._counters.get(client, self._level)

    def charge(self, client: str, service: float) -> None:
        counters = self._counters
        counters[client] = counters.get(client, self._level) + service / self.weights.get(client, 1.0)
        counters.move_to_end(client)

    def lift(self, clients: Iterable[str], level: float) -> None:
        """Raises the counters of `clients` to `level`, if they are below it."""
        self._level = max(self._level, level)
        for client in clients:
            self._counters[client] = max(self[client], level)

    def forget(self, keep: Collection[str], limit: int) -> None:
        """Forgets clients down to `limit`, those charged longest ago first, except those in `keep`."""
        for _ in range(len(self._counters)):
            if len(self._counters) <= limit:
                break
            oldest = next(iter(self._counters))
            if oldest in keep:
                self._counters.move_to_end(oldest)
            else:
                del self._counters[oldest]
