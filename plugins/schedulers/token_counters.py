"""How much service every client got: the virtual token counters of the `fair` policy."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping

__all__ = ["TokenCounters"]


class TokenCounters:
    """Tokens of service by client, over its weight; 1 for a client that `weights` does not name."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = dict(weights)
        # Whoever was charged last is at the end.
        self._counters: OrderedDict[str, float] = OrderedDict()
        self._level = 0.0
        """Whoever is not known would be lifted to this at least, so that is where it starts."""

    def __len__(self) -> int:
        return len(self._counters)

    def __getitem__(self, client: str) -> float:
        return self._counters.get(client, self._level)

    def charge(self, client: str, service: float) -> None:
        counters = self._counters
        counters[client] = counters.get(client, self._level) + service / self.weights.get(client, 1.0)
        counters.move_to_end(client)

    def lift(self, clients: Iterable[str], level: float) -> None:
        """Let nobody in `clients` stand below `level`."""
        self._level = max(self._level, level)
        for client in clients:
            self._counters[client] = max(self[client], level)

    def forget(self, keep: Collection[str], limit: int) -> None:
        """Down to `limit` clients, those charged longest ago first, but none in `keep`."""
        for _ in range(len(self._counters)):
            if len(self._counters) <= limit:
                break
            oldest = next(iter(self._counters))
            if oldest in keep:
                self._counters.move_to_end(oldest)
            else:
                del self._counters[oldest]
