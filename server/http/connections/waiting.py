"""The connections that wait for their clients: for a request, or for the rest of one."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Protocol

from turnout.core.clock import monotonic

__all__ = ["GRACE_SECONDS", "WaitingConnections"]

GRACE_SECONDS = 1.0
"""Time in which a connection is not closed for others: a client that has connected is about to ask."""


class Waiting(Protocol):
    """A connection."""

    @property
    def address(self) -> str: ...

    def give_up(self) -> None: ...


class WaitingConnections:
    """All that could be closed without taking a response from a client, and how many an address has."""

    def __init__(self, most_per_address: int | None = None) -> None:
        """`most_per_address`: None for any number, since all clients of a proxy have its address."""
        self._most_per_address = most_per_address
        self._oldest_first: OrderedDict[Waiting, float] = OrderedDict()
        """Since when each has waited."""
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._oldest_first)

    def add(self, connection: Waiting) -> bool:
        """Note that a connection waits; returns whether its address may have that many."""
        if connection not in self._oldest_first:
            self._oldest_first[connection] = monotonic()
            self._by_address[connection.address] += 1
        most = self._most_per_address
        return most is None or self._by_address[connection.address] <= most

    def discard(self, connection: Waiting) -> None:
        """Note that a connection has a request in service, or is gone."""
        if connection in self._oldest_first:
            del self._oldest_first[connection]
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def give_up_oldest(self) -> bool:
        """Close the connection that has waited longest, if long enough; returns whether there was one."""
        connection, since = next(iter(self._oldest_first.items()), (None, 0.0))
        if connection is None or monotonic() - since < GRACE_SECONDS:
            return False
        self.discard(connection)
        connection.give_up()
        return True
