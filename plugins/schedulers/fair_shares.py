"""The shares of those who are served in turn: of clients, or of the users of one client."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from turnout.plugins.schedulers.token_counters import TokenCounters

__all__ = ["FairShares"]


class FairShares:
    """Counts the service of each name, and has no name gain by being idle."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.counters = TokenCounters(weights)
        self.last = ""
        """The name whose request is last in the queue."""

    def lift_returning(self, fresh: Iterable[str], stayed: Collection[str]) -> None:
        """Raises the counters of names that have a request waiting now and had none before.

        fresh: the names of requests that were not waiting before. stayed: those of requests that were.
        """
        counters = self.counters
        back = [name for name in dict.fromkeys(fresh) if name not in stayed]
        if back:
            # If none stayed, the first name starts from the one that left last, the others from the first.
            first = max(counters[back[0]], counters[self.last])
            counters.lift(back, min((counters[name] for name in stayed), default=first))
